"""Drives a model step by step over a paged pool, without a scheduler."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.model_spec import ModelSpec
from engine.models.forward_batch import make_forward_batch
from engine.models.llama import LlamaModel
from engine.prepared_model import RECORD_FILE, SPEC_FILE, WEIGHTS_FILE, PreparedModel
from engine.torch_dtypes import TORCH_DTYPES
from engine.weights.prepared_file import write_prepared_file
from engine.weights.store import map_weights
from engine.weights.weight_source import WeightSource
from kernels.select import select


def prepared_without_tokenizer(source: WeightSource, dtype: str, directory: Path) -> PreparedModel:
    """A prepared model of weights alone: what the forward pass needs."""
    directory.mkdir(parents=True, exist_ok=True)
    write_prepared_file(source, dtype, directory / WEIGHTS_FILE, lambda done, total: None)
    (directory / SPEC_FILE).write_text(source.spec.to_json())
    assert not (directory / RECORD_FILE).exists()
    return PreparedModel(directory, source.spec, dtype)


def load_model(prepared: PreparedModel) -> LlamaModel:
    return LlamaModel(
        prepared.spec,
        map_weights(prepared),
        select("cpu"),
        "cpu",
        TORCH_DTYPES[prepared.dtype],
    )


def garbage_pool(spec: ModelSpec, blocks: int, block_tokens: int, dtype: torch.dtype) -> Tensor:
    """A pool as a worst former owner leaves it: not a number anywhere."""
    shape = (blocks, spec.layers, 2, block_tokens, spec.kv_heads, spec.head_dim)
    return torch.full(shape, float("nan"), dtype=dtype)


class PagedDriver:
    """Sequences in blocks dealt out in random order; each step's logits kept as they come."""

    def __init__(self, model: LlamaModel, *, blocks: int, block_tokens: int, seed: int = 0) -> None:
        self.model = model
        self.block_tokens = block_tokens
        self.pool = garbage_pool(model.spec, blocks, block_tokens, model.dtype)
        self._free = list(range(blocks))
        random.Random(seed).shuffle(self._free)
        self.tables: list[list[int]] = []
        self.lengths: list[int] = []

    def add(self) -> int:
        """A new, empty sequence; returns its number."""
        self.tables.append([])
        self.lengths.append(0)
        return len(self.tables) - 1

    def step(self, work: Sequence[tuple[int, Sequence[int]]]) -> Tensor:
        """Run (sequence, new tokens) pairs as one step: [len(work), vocab] logits of their ends."""
        tokens = [list(new) for _, new in work]
        starts = [self.lengths[sequence] for sequence, _ in work]
        ends, row = [], -1
        for (sequence, _), new in zip(work, tokens, strict=True):
            self.lengths[sequence] += len(new)
            while len(self.tables[sequence]) * self.block_tokens < self.lengths[sequence]:
                self.tables[sequence].append(self._free.pop())
            row += len(new)
            ends.append(row)
        tables = [self.tables[sequence] for sequence, _ in work]
        return self.model.forward(make_forward_batch(tokens, starts, tables, ends), self.pool)

    def prefill(self, prompt: Sequence[int], chunk: int) -> tuple[int, Tensor]:
        """A new sequence with the prompt's KV, and the logits after it."""
        sequence = self.add()
        logits = torch.empty(0)
        for begin in range(0, len(prompt), chunk):
            logits = self.step([(sequence, prompt[begin : begin + chunk])])[0]
        return sequence, logits

    def greedy(
        self, prompts: Sequence[Sequence[int]], tokens: int, chunk: int
    ) -> tuple[list[list[int]], list[list[Tensor]]]:
        """Prefill each prompt in chunks, then decode all together.

        Returns:
            Drawn tokens and the logits they were drawn from, per prompt.
        """
        started = [self.prefill(prompt, chunk) for prompt in prompts]
        logits = [[first] for _, first in started]
        drawn = [[int(first.argmax())] for _, first in started]
        for _ in range(tokens - 1):
            work = [(seq, drawn[i][-1:]) for i, (seq, _) in enumerate(started)]
            for i, row in enumerate(self.step(work)):
                logits[i].append(row)
                drawn[i].append(int(row.argmax()))
        return drawn, logits
