"""One worker's engine from a prepared model: weights mapped, pool allocated, cost measured."""

from dataclasses import dataclass
from pathlib import Path

import torch

from core.clock import Clock
from core.config import Config, PoolConfig
from core.cost_model import CostModel
from core.kv_layout import KvLayout
from engine.load_runner import load_runner
from engine.model_runner import ModelRunner
from engine.model_spec import ModelSpec
from engine.prepared_model import open_prepared
from engine.profiler import measure_cost
from engine.scheduler import Scheduler
from kernels.select import select
from launch.pool_size import check_pool

DEVICE = "cpu"


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """What a worker's roles and loop are put around."""

    spec: ModelSpec
    fingerprint: str
    """Of weights, dtype and kernel set: what decides whether two workers answer alike."""
    max_context: int
    runner: ModelRunner
    scheduler: Scheduler
    cost: CostModel

    @property
    def layout(self) -> KvLayout:
        return self.runner.layout


def build_engine(
    config: Config, pool: PoolConfig, prepared: Path, threads: int | None, clock: Clock
) -> WorkerEngine:
    """Load, allocate and measure; takes seconds, so it belongs into a thread.

    Args:
        threads: of the forward pass: the cores this worker is pinned to; None leaves torch's own
            choice, which follows the environment the launcher made.

    Raises:
        ConfigError: the pool is too small for one request of maximal length.
        ModelError: the prepared model is damaged.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    model = open_prepared(prepared)
    spec, engine = model.spec, config.engine_of(pool)
    max_context = min(config.model.max_context or spec.max_context, spec.max_context)
    check_pool(engine, spec.kv_layout(engine.block_tokens, model.dtype), max_context)
    runner = load_runner(model, engine, clock, DEVICE)
    cost = measure_cost(
        runner,
        clock,
        step_tokens=engine.step_tokens,
        max_batch=engine.max_batch,
        max_context=max_context,
    )
    scheduler = Scheduler(
        engine,
        cost=cost,
        blocks=runner.blocks,
        max_context=max_context,
        eos_token_ids=spec.eos_token_ids,
        vocab=spec.vocab,
    )
    fingerprint = f"{spec.fingerprint}-{select(DEVICE).name}"
    return WorkerEngine(spec, fingerprint, max_context, runner, scheduler, cost)
