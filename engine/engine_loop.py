"""The loop around a scheduler and a runner: events in, forwards in a thread, actions out."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from core.clock import Clock
from core.errors import IndexCorrupt, PoolCorrupt
from engine.actions import Action
from engine.engine_load import EngineLoad
from engine.events import Event, StepDone
from engine.scheduler import Scheduler
from engine.step_plan import StepOutput, StepPlan

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs one step, in the calling thread; one at a time."""

    def run(self, plan: StepPlan) -> StepOutput: ...


class EngineLoop:
    """Drives one engine on one event loop.

    The scheduler is touched on the event loop's thread only; the forward runs in a thread of its
    own, so that events are handled, heartbeats sent and sockets served meanwhile. Nothing polls:
    the loop sleeps until an event is posted or a forward ends.

    Args:
        on_actions: told, on the event loop's thread, what follows from each round, in order; the
            next forward is under way by then. It may `post`. What it raises ends `run`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Clock,
        on_actions: Callable[[list[Action]], None],
    ) -> None:
        self.integrity_error = ""
        """What the last idle check found; empty is clean."""
        self.idle_checks_total = 0
        self._scheduler = scheduler
        self._runner = runner
        self._clock = clock
        self._on_actions = on_actions
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._started = False
        self._stopping = False
        self._checked = False
        self._plan: StepPlan | None = None
        self._forward: asyncio.Future[StepOutput] | None = None

    def post(self, event: Event) -> None:
        """Hand an event to the scheduler, in order of posting; never blocks. On the event loop's
        thread only."""
        self._events.append(event)
        self._wake.set()

    def load(self) -> EngineLoad:
        """The engine's figures, the idle checks' included."""
        return replace(
            self._scheduler.load(),
            integrity_error=self.integrity_error,
            idle_checks_total=self.idle_checks_total,
        )

    async def run(self) -> None:
        """Serve until `stop`, or for ever. When it is over, however that came, no forward runs any
        more (cancelled in the middle of one, it waits for its end: ≤ `max_step_ms`).

        Raises:
            Whatever the forward, the scheduler or `on_actions` raises: an engine that failed in
            the middle of a step has KV nobody can vouch for, so its process has to end.
        """
        self._started = True
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forward")
        try:
            while not (self._stopping and self._forward is None):
                self._wake.clear()
                self._round(executor)
                await self._wake.wait()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            self._ended.set()

    async def stop(self) -> None:
        """Plan no further step and return when the running one is done and reported."""
        self._stopping = True
        self._wake.set()
        if self._started:
            await self._ended.wait()

    def _round(self, executor: ThreadPoolExecutor) -> None:
        """Take in what happened, start the next forward, then tell what follows."""
        actions = self._take_in()
        if self._forward is None and not self._stopping:
            plan, planned = self._scheduler.plan(self._clock.now_s())
            actions += planned
            if plan is not None:
                self._start(plan, executor)
            elif self._scheduler.holds_nothing:
                self._check_integrity()
        if actions:
            self._on_actions(actions)
        if self._stopping and self._forward is None:
            self._wake.set()

    def _take_in(self) -> list[Action]:
        actions: list[Action] = []
        now_s = self._clock.now_s()
        if self._forward is not None and self._plan is not None and self._forward.done():
            done = StepDone(self._plan, self._forward.result())
            self._forward = self._plan = None
            actions += self._scheduler.handle(done, now_s)
        while self._events:
            self._checked = False
            actions += self._scheduler.handle(self._events.popleft(), now_s)
        return actions

    def _start(self, plan: StepPlan, executor: ThreadPoolExecutor) -> None:
        self._plan = plan
        self._forward = asyncio.get_running_loop().run_in_executor(executor, self._runner.run, plan)
        self._forward.add_done_callback(lambda _: self._wake.set())

    def _check_integrity(self) -> None:
        """Once whenever the engine becomes idle with nothing held."""
        if self._checked:
            return
        self._checked = True
        self.idle_checks_total += 1
        try:
            self._scheduler.check_integrity()
            self.integrity_error = ""
        except (PoolCorrupt, IndexCorrupt) as error:
            self.integrity_error = error.message
            _log.error("integrity check of the idle engine: %s", error.message)
