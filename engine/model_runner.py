"""Runs step plans on a model: block copies, forward, draws. Owns the KV pool's memory."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from core.clock import Clock
from core.errors import BugError
from core.kv_layout import KvLayout
from engine.models.forward_batch import ForwardBatch, make_forward_batch
from engine.step_plan import Drawn, SampleSpec, StepOutput, StepPlan
from engine.torch_dtypes import TORCH_DTYPES


class Model(Protocol):
    """What a runner needs of a model: logits [R, vocab] float32 of `batch.logit_rows`."""

    def forward(self, batch: ForwardBatch, kv_pool: Tensor) -> Tensor: ...


class TokenSampler(Protocol):
    """Draws one token per row of logits [R, vocab] float32."""

    def sample(self, logits: Tensor, specs: Sequence[SampleSpec]) -> list[Drawn]: ...


CopyBlocks = Callable[[Tensor, Tensor, Tensor], None]


class ModelRunner:
    """One model, one KV pool, one step at a time, in the calling thread.

    The pool, `[block, layer, 2, token, kv_head, head_dim]`, is allocated and touched here, once:
    too little memory shows at start, not under load.

    Args:
        layout: the shape of a block; `order` must be the kernel set's own.
        blocks: how many there are.
        copy_blocks: the kernel set's operator (pool, sources, targets).
    """

    def __init__(
        self,
        model: Model,
        sampler: TokenSampler,
        copy_blocks: CopyBlocks,
        *,
        layout: KvLayout,
        blocks: int,
        clock: Clock,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layout = layout
        self.blocks = blocks
        self._model = model
        self._sampler = sampler
        self._copy_blocks = copy_blocks
        self._clock = clock
        self._device = torch.device(device)
        shape = (
            blocks,
            layout.layers,
            2,
            layout.block_tokens,
            layout.kv_heads,
            layout.head_dim,
        )
        # Filled, not just zero-mapped: every page is committed before the first request.
        self.kv_pool = torch.empty(
            shape, dtype=TORCH_DTYPES[layout.dtype], device=self._device
        ).zero_()
        self._bytes = (
            self.kv_pool.view(blocks, -1).view(torch.uint8).numpy()
            if self._device.type == "cpu"
            else None
        )

    @property
    def block_bytes(self) -> int:
        return self.layout.block_bytes

    @property
    def pool_bytes(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def pool_address(self) -> int:
        """Address of block 0, of the host or the device; block b lies `b * block_bytes` further.
        Valid as long as this runner lives."""
        return self.kv_pool.data_ptr()

    def block_view(self, block: int) -> memoryview:
        """The bytes of one block, writable, without a copy. Host memory only.

        Raises:
            BugError: no such block, or the pool lies in a device's memory.
        """
        if self._bytes is None or not 0 <= block < self.blocks:
            raise BugError(f"no view of block {block} of {self.blocks} on {self._device}")
        return memoryview(self._bytes[block])

    def run(self, plan: StepPlan) -> StepOutput:
        """Run one step and wait for its end."""
        start_s = self._clock.now_s()
        with torch.inference_mode():
            if plan.copies:
                sources, targets = zip(*plan.copies, strict=True)
                self._copy_blocks(self.kv_pool, self._indices(sources), self._indices(targets))
            drawn = self._forward(plan) if plan.chunks else []
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # a chunk without draws would be still running
        return StepOutput(drawn=tuple(drawn), seconds=self._clock.now_s() - start_s)

    def _forward(self, plan: StepPlan) -> list[Drawn]:
        """One row of logits per chunk that draws; a chunk with several draws (the choices of one
        prompt) has its row repeated for the sampler."""
        rows: list[int] = []
        repeats: list[int] = []
        end = 0
        for chunk in plan.chunks:
            end += len(chunk.tokens)
            if chunk.samples:
                rows.append(end - 1)
                repeats.append(len(chunk.samples))
        batch = make_forward_batch(
            tokens=[chunk.tokens for chunk in plan.chunks],
            starts=[chunk.start for chunk in plan.chunks],
            block_tables=[chunk.block_table for chunk in plan.chunks],
            logit_rows=rows,
            device=self._device,
        )
        logits = self._model.forward(batch, self.kv_pool)
        if not rows:
            return []
        if len(rows) != sum(repeats):
            logits = logits.repeat_interleave(self._indices(repeats), dim=0)
        return self._sampler.sample(logits, list(plan.samples()))

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)
