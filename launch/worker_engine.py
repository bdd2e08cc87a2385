"""One worker's engine from a prepared model: weights mapped, pool allocated, cost measured."""

from dataclasses import dataclass
from pathlib import Path

import torch
from engine.profiler import profile

from core.clock import Clock
from core.config import Config, EngineConfig, PoolConfig
from core.cost_model import CostModel
from core.errors import SetupError
from core.kv_layout import KvLayout
from engine.model_runner import ModelRunner
from engine.model_spec import ModelSpec
from engine.models.llama import LlamaModel
from engine.prepared_model import open_prepared
from engine.sampler import Sampler
from engine.scheduler import Scheduler
from engine.weights.store import map_weights
from kernels.select import select


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """What a worker's roles and loop are put around."""

    spec: ModelSpec
    fingerprint: str
    """Of weights, dtype and kernel set: what decides whether two workers answer alike."""
    max_context: int
    layout: KvLayout
    runner: ModelRunner
    scheduler: Scheduler
    cost: CostModel


def build_engine(
    config: Config, pool: PoolConfig, prepared: Path, threads: int, clock: Clock
) -> WorkerEngine:
    """Load, allocate and measure; takes seconds, so it belongs into a thread.

    Args:
        threads: of the forward pass: the cores this worker may run on.

    Raises:
        SetupError: the pool is too small for one request of maximal length.
        ModelError: the prepared model is damaged.
    """
    torch.set_num_threads(max(1, threads))
    device = torch.device("cpu")
    model_files = open_prepared(prepared)
    spec = model_files.spec
    engine = config.engine_of(pool)
    max_context = min(config.model.max_context or spec.max_context, spec.max_context)
    layout = spec.kv_layout(engine.block_tokens, model_files.dtype)
    blocks = pool_blocks(engine, layout, max_context)
    kernels = select(device)
    dtype = getattr(torch, model_files.dtype)
    runner = ModelRunner(
        LlamaModel(spec, map_weights(model_files), kernels, device, dtype),
        Sampler(spec.vocab),
        kernels.copy_blocks,
        layout=layout,
        blocks=blocks,
        clock=clock,
        device=device,
    )
    cost = profile(runner, engine, max_context)
    scheduler = Scheduler(
        engine,
        cost=cost,
        blocks=blocks,
        max_context=max_context,
        eos_token_ids=spec.eos_token_ids,
    )
    fingerprint = f"{spec.fingerprint}-{kernels.name}"
    return WorkerEngine(spec, fingerprint, max_context, layout, runner, scheduler, cost)


def pool_blocks(engine: EngineConfig, layout: KvLayout, max_context: int) -> int:
    """How many KV blocks `engine.kv_bytes` hold.

    Raises:
        SetupError: fewer than a request of maximal length needs; says what would fit.
    """
    blocks = engine.kv_bytes // layout.block_bytes
    needed = layout.blocks_for(max_context) + 1
    if blocks < needed:
        fits = max(0, (blocks - 1) * layout.block_tokens)
        raise SetupError(
            f"engine.kv_bytes: {engine.kv_bytes} bytes hold {blocks} KV blocks of "
            f"{layout.block_bytes} bytes; a request of {max_context} tokens needs {needed}: give "
            f"at least {needed * layout.block_bytes} bytes, or model.max_context of at most {fits}"
        )
    return blocks
