"""The loop: forwards in their thread, events meanwhile, errors out, an orderly stop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from core.clock import VirtualClock
from core.errors import PoolCorrupt
from engine import actions as act, events as ev
from engine.engine_loop import EngineLoop, Runner
from engine.scheduler import Scheduler
from engine.step_plan import StepOutput, StepPlan
from tests.engine.engine_cases import (
    TokenRunner,
    expected_answer,
    make_request,
    make_scheduler,
)


@dataclass
class GatedRunner(TokenRunner):
    """Each step waits for the test to let it through."""

    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    threads: set[str] = field(default_factory=set)

    def run(self, plan: StepPlan) -> StepOutput:
        self.threads.add(threading.current_thread().name)
        self.entered.release()
        assert self.gate.acquire(timeout=30)
        return super().run(plan)

    async def reached(self) -> None:
        """Until a step is in the runner."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=30)


def ended(count: int, actions: list[act.Action]) -> bool:
    return sum(type(action) is act.Ended for action in actions) == count


class BrokenRunner:
    def run(self, plan: StepPlan) -> StepOutput:
        raise RuntimeError("the forward failed")


class Watched:
    """Collects actions and lets a test wait for one."""

    def __init__(self) -> None:
        self.actions: list[act.Action] = []
        self._news = asyncio.Event()

    def __call__(self, actions: list[act.Action]) -> None:
        self.actions += actions
        self._news.set()

    async def until(self, seen: Callable[[list[act.Action]], bool]) -> None:
        async with asyncio.timeout(30):
            while not seen(self.actions):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def running(
    runner: Runner, scheduler: Scheduler | None = None
) -> AsyncIterator[tuple[EngineLoop, Watched]]:
    watched = Watched()
    loop = EngineLoop(scheduler or make_scheduler(), runner, VirtualClock(), watched)
    task = asyncio.create_task(loop.run())
    yield loop, watched
    await loop.stop()
    await task


async def test_requests_are_answered_together() -> None:
    requests = [make_request(i, 5 + 9 * i, max_tokens=6) for i in range(5)]
    async with running(TokenRunner(64)) as (loop, watched):
        for request in requests:
            loop.post(ev.AddLocal(request))
        await watched.until(partial(ended, 5))
    for request in requests:
        emitted = [
            action.sampled
            for action in watched.actions
            if isinstance(action, act.Emit) and action.attempt == request.attempt
        ]
        assert emitted == expected_answer(request, 0)


async def test_events_are_handled_while_a_forward_runs() -> None:
    runner = GatedRunner(64)
    first, second = make_request(0, max_tokens=1), make_request(1)
    async with running(runner) as (loop, watched):
        loop.post(ev.AddLocal(first))
        await runner.reached()
        loop.post(ev.Reserve(second))
        await watched.until(lambda actions: any(type(a) is act.Reserved for a in actions))
        assert not any(type(action) is act.Ended for action in watched.actions)
        runner.gate.release()
        await watched.until(partial(ended, 1))
        loop.post(ev.Abort(second.attempt))
    (name,) = runner.threads
    assert name.startswith("forward")


async def test_next_forward_is_under_way_when_actions_are_told() -> None:
    runner = GatedRunner(64)
    under_way: list[bool] = []
    ended = asyncio.Event()

    def on_actions(actions: list[act.Action]) -> None:
        if any(type(action) is act.Ended for action in actions):
            ended.set()
        else:
            under_way.append(runner.entered.acquire(timeout=30))
            runner.gate.release()

    loop = EngineLoop(make_scheduler(), runner, VirtualClock(), on_actions)
    task = asyncio.create_task(loop.run())
    loop.post(ev.AddLocal(make_request(0, max_tokens=3)))
    await asyncio.wait_for(ended.wait(), 30)
    await loop.stop()
    await task
    assert under_way == [True, True, True]


async def test_idle_check_runs_once_whenever_it_becomes_idle() -> None:
    async with running(TokenRunner(64)) as (loop, watched):
        for count in (1, 2):
            loop.post(ev.AddLocal(make_request(count, max_tokens=2)))
            await watched.until(partial(ended, count))
        for _ in range(20):
            await asyncio.sleep(0)
        load = loop.load()
    assert load.integrity_error == ""
    assert load.idle_checks_total in (2, 3)  # one may have come before the first event
    assert (load.blocks_free, load.steps_total) == (64, 4)


async def test_idle_check_reports_what_it_finds(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = make_scheduler()
    scheduler._tables.pool._free.append(0)
    async with running(TokenRunner(64), scheduler) as (loop, _):
        await asyncio.sleep(0)  # the first round
    assert "twice" in loop.load().integrity_error
    assert "twice" in caplog.text


async def test_failing_forward_ends_the_run_with_its_error() -> None:
    loop = EngineLoop(make_scheduler(), BrokenRunner(), VirtualClock(), lambda actions: None)
    loop.post(ev.AddLocal(make_request(0)))
    with pytest.raises(RuntimeError, match="the forward failed"):
        await loop.run()
    await loop.stop()


async def test_failing_receiver_of_actions_ends_the_run() -> None:
    def fail(actions: list[act.Action]) -> None:
        raise PoolCorrupt("as a test")

    loop = EngineLoop(make_scheduler(), TokenRunner(64), VirtualClock(), fail)
    loop.post(ev.Reserve(make_request(0)))
    with pytest.raises(PoolCorrupt):
        await loop.run()


async def test_stop_waits_for_the_running_step_and_tells_its_tokens() -> None:
    runner = GatedRunner(64)
    watched = Watched()
    loop = EngineLoop(make_scheduler(), runner, VirtualClock(), watched)
    task = asyncio.create_task(loop.run())
    loop.post(ev.AddLocal(make_request(0)))
    await runner.reached()
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    runner.gate.release()
    await stopping
    await task
    assert len(runner.plans) == 1
    assert [type(action) for action in watched.actions] == [act.Started, act.Emit]


async def test_stop_before_and_after_run() -> None:
    loop = EngineLoop(make_scheduler(), TokenRunner(64), VirtualClock(), lambda actions: None)
    await loop.stop()
    await loop.run()
    await loop.stop()


async def test_no_forward_runs_after_a_cancelled_run() -> None:
    runner = GatedRunner(64)
    loop = EngineLoop(make_scheduler(), runner, VirtualClock(), lambda actions: None)
    task = asyncio.create_task(loop.run())
    loop.post(ev.AddLocal(make_request(0)))
    await runner.reached()
    runner.gate.release()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [t for t in threading.enumerate() if t.name in runner.threads]


async def test_idle_loop_does_not_spin() -> None:
    async with running(TokenRunner(64)) as (loop, _):
        rounds = 0
        plan = loop._scheduler.plan

        def counted(now_s: float) -> tuple[StepPlan | None, list[act.Action]]:
            nonlocal rounds
            rounds += 1
            return plan(now_s)

        loop._scheduler.plan = counted  # type: ignore[method-assign]
        for _ in range(50):
            await asyncio.sleep(0)
        assert rounds <= 1
