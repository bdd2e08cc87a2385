"""Step plans on a real (random) model: batching, forks, recompute and reading the pool's bytes."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from core.clock import MonotonicClock
from core.config import EngineConfig
from core.cost_model import CostModel
from core.errors import BugError, ConfigError
from core.ids import Attempt
from core.request import Request, SampledToken
from engine import actions as act, events as ev
from engine.engine_loop import EngineLoop
from engine.load_runner import load_runner
from engine.model_runner import ModelRunner
from engine.prepared_model import PreparedModel, prepare_model
from engine.profiler import measure_cost
from engine.scheduler import Scheduler
from engine.step_plan import Chunk, StepPlan
from tests.engine.engine_cases import Harness, attempt_of, make_request

SOURCE = "random:llama?layers=2,hidden=64,heads=4,kv_heads=2,vocab=300,seed=3"
BLOCKS = 48
Answers = list[list[SampledToken]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    cache: Path = tmp_path_factory.mktemp("models")
    return prepare_model(SOURCE, "float32", cache, lambda *_: None)


@pytest.fixture
def runner(prepared: PreparedModel) -> ModelRunner:
    return make_runner(prepared)


def make_config(prepared: PreparedModel, blocks: int = BLOCKS) -> EngineConfig:
    block_bytes = prepared.spec.kv_layout(16, "float32").block_bytes
    config = EngineConfig(step_tokens=64, max_batch=16, watermark=0.0)
    return config.model_copy(update={"kv_bytes": blocks * block_bytes})


def make_runner(prepared: PreparedModel, blocks: int = BLOCKS) -> ModelRunner:
    return load_runner(prepared, make_config(prepared, blocks), MonotonicClock())


def harness_of(prepared: PreparedModel, blocks: int = BLOCKS) -> Harness[ModelRunner]:
    scheduler = Scheduler(
        make_config(prepared, blocks),
        cost=CostModel(),
        blocks=blocks,
        max_context=prepared.spec.max_context,
        eos_token_ids=prepared.spec.eos_token_ids,
        vocab=prepared.spec.vocab,
    )
    return Harness(scheduler, make_runner(prepared, blocks))


def mixed_requests() -> list[Request]:
    requests = []
    for index, length in enumerate((1, 15, 16, 17, 40, 70)):
        prompt = [(7 * index + 3 * i) % 290 for i in range(length)]
        requests.append(make_request(index, prompt, max_tokens=8, choices=2 if index == 4 else 1))
    return requests


def answers_of(harness: Harness[ModelRunner], requests: Sequence[Request]) -> Answers:
    return [
        harness.tokens(request, choice)
        for request in requests
        for choice in range(request.sampling.choices)
    ]


def alone(prepared: PreparedModel, requests: Sequence[Request]) -> Answers:
    answers = []
    for request in requests:
        harness = harness_of(prepared)
        harness.post(ev.AddLocal(request))
        harness.run_until_idle()
        answers += answers_of(harness, [request])
    return answers


@pytest.fixture(scope="module")
def mixed_answers(prepared: PreparedModel) -> Answers:
    """Of each of the mixed requests by itself."""
    return alone(prepared, mixed_requests())


def test_a_mixed_batch_answers_like_each_request_alone(
    prepared: PreparedModel, mixed_answers: Answers
) -> None:
    requests = mixed_requests()
    harness = harness_of(prepared)
    for request in requests:
        harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    assert answers_of(harness, requests) == mixed_answers
    assert all(len(answer) == 8 for answer in mixed_answers)


async def test_the_loop_drives_a_model(prepared: PreparedModel, mixed_answers: Answers) -> None:
    requests = mixed_requests()
    harness = harness_of(prepared)
    over = asyncio.Event()

    def on_actions(actions: list[act.Action]) -> None:
        harness.note(actions)
        if harness.ends.total() == len(requests):
            over.set()

    loop = EngineLoop(harness.scheduler, harness.runner, MonotonicClock(), on_actions)
    task = asyncio.create_task(loop.run())
    for request in requests:
        loop.post(ev.AddLocal(request))
        await asyncio.sleep(0)  # so that they join a batch that is already running
    await asyncio.wait_for(over.wait(), 60)
    await loop.stop()
    await task
    assert answers_of(harness, requests) == mixed_answers
    assert loop.load().blocks_free == BLOCKS


def test_preempted_requests_answer_the_same(prepared: PreparedModel) -> None:
    prompts = [[(11 * index + 5 * i) % 290 for i in range(30)] for index in range(3)]
    requests = [make_request(index, prompt, max_tokens=20) for index, prompt in enumerate(prompts)]
    harness = harness_of(prepared, blocks=7)
    for request in requests:
        harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    assert harness.scheduler.load().preemptions_total > 0
    assert answers_of(harness, requests) == alone(prepared, requests)


def test_blocks_carried_over_as_bytes_answer_the_same(
    prepared: PreparedModel, mixed_answers: Answers
) -> None:
    """Prefill on one engine, its blocks' bytes copied into another's, decoded there."""
    requests = mixed_requests()
    prefill, decode = harness_of(prepared), harness_of(prepared)
    source, target = prefill.runner, decode.runner
    reserved: dict[Attempt, tuple[int, ...]] = {}
    first: dict[Attempt, tuple[SampledToken, ...]] = {}
    for request in requests:
        for action in decode.post(ev.Reserve(request)):
            assert isinstance(action, act.Reserved)
            reserved[action.attempt] = action.blocks
        prefill.post(ev.AddPrefill(request))
    for action in prefill.run_until_idle():
        if isinstance(action, act.PrefillDone):
            first[action.attempt] = action.first
    for attempt, blocks in reserved.items():
        for here, there in zip(prefill.scheduler.blocks_of(attempt), blocks, strict=True):
            target.block_view(there)[:] = source.block_view(here)
        prefill.post(ev.Release(attempt))
        decode.post(ev.Delivered(attempt, first[attempt]))
    decode.run_until_idle()
    heads = [[sampled] for request in requests for sampled in first[request.attempt]]
    tails = answers_of(decode, requests)
    assert [a + b for a, b in zip(heads, tails, strict=True)] == mixed_answers


def test_pool_is_what_the_transport_is_told(runner: ModelRunner) -> None:
    assert runner.kv_pool.shape == (BLOCKS, 2, 2, 16, 2, 16)
    assert runner.block_bytes == 2 * 2 * 16 * 2 * 16 * 4
    assert runner.pool_bytes == BLOCKS * runner.block_bytes
    runner.kv_pool[5].fill_(1.5)
    view = runner.block_view(5)
    assert bytes(view) == runner.kv_pool[5].numpy().tobytes()
    view[:] = bytes(len(view))
    assert torch.count_nonzero(runner.kv_pool) == 0
    assert runner.pool_address == runner.kv_pool.data_ptr()
    for wrong in (-1, BLOCKS):
        with pytest.raises(BugError):
            runner.block_view(wrong)


def test_copies_alone_make_a_step(runner: ModelRunner) -> None:
    runner.kv_pool[3].fill_(2.0)
    output = runner.run(StepPlan(chunks=(), copies=((3, 4),)))
    assert output.drawn == ()
    assert torch.equal(runner.kv_pool[4], runner.kv_pool[3])


def test_chunk_without_draws_writes_its_tokens(runner: ModelRunner) -> None:
    chunk = Chunk(attempt=attempt_of(0), choice=0, tokens=(1, 2, 3), start=0, block_table=(7,))
    output = runner.run(StepPlan(chunks=(chunk,)))
    assert output.drawn == ()
    assert output.seconds > 0.0
    assert all(torch.count_nonzero(runner.kv_pool[7, :, :, slot]) for slot in range(3))
    assert not torch.count_nonzero(runner.kv_pool[7, :, :, 3:])


def test_pool_without_a_block_is_refused(prepared: PreparedModel) -> None:
    with pytest.raises(ConfigError, match="kv_bytes"):
        make_runner(prepared, blocks=0)


def test_cost_of_a_real_runner_is_measured(runner: ModelRunner) -> None:
    cost = measure_cost(
        runner, MonotonicClock(), step_tokens=64, max_batch=8, max_context=256, budget_s=0.2
    )
    assert 0.0 < cost.prefill.seconds(64) < 5.0
    assert 0.0 < cost.decode.seconds(4, 200) < 5.0
