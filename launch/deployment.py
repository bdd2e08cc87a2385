"""Runs a planned deployment on this host: spawns, listens, reaps, restarts, ends. Edge."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from core.clock import Clock, MonotonicClock
from core.environment import child_environment
from core.errors import BugError
from core.ids import ProcessId, WorkerName, new_incarnation
from kv_transfer.transports.nixl_environment import LOOPBACK_ENVIRONMENT, QUIET_ENVIRONMENT
from launch.child_process import ChildProcess
from launch.display import Display
from launch.hang_watch import HangWatch
from launch.lookout import Lookout
from launch.plan import ChildPlan, DeploymentPlan, thread_environment
from launch.report import NoticeLine, StateLine
from launch.role_spec import RoleSpec
from launch.run_slot import DeploymentFile, ProcessRow, RunSlot
from launch.supervision import (
    Action,
    AllEnded,
    AllReady,
    Event,
    Exited,
    Kill,
    KillRequested,
    Missing,
    Recovered,
    Reported,
    Restarting,
    Spawn,
    StopRequested,
    TellRouter,
    Terminate,
    Tick,
)
from launch.supervisor import Supervisor
from wire.channel import Channel
from wire.keys import DeploymentKeys
from wire.messages import ProcessExited

REAP_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)


class Deployment:
    """The launcher's side of a deployment. `run()` once; `stop()` any number of times.

    Owns every child process: when `run` returns or raises, none is left.
    """

    def __init__(
        self,
        plan: DeploymentPlan,
        slot: RunSlot,
        display: Display,
        on_ready: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._slot = slot
        self._display = display
        self._on_ready = on_ready
        self._clock = clock or MonotonicClock()
        self._plans = {child.name: child for child in plan.children}
        self._supervisor = Supervisor(
            [child.spec for child in plan.children], plan.config.launch, new_incarnation
        )
        self._children: dict[ProcessId, ChildProcess] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._key_file = slot.private_dir / "channel.key"
        self._identity = ProcessId(WorkerName("launcher"), new_incarnation())
        self._channel: Channel | None = None
        self._lookout: Lookout | None = None
        self._stops = 0
        self._ready = False
        self._file = DeploymentFile(
            run_id=f"{self._identity.incarnation:012x}",
            url=plan.url,
            model=plan.model_name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            processes=(),
        )

    def stop(self) -> None:
        """End everything in order; called again, at once."""
        self._stops += 1
        self._events.put_nowait(StopRequested() if self._stops == 1 else KillRequested())

    async def run(self) -> AllEnded:
        """Start all and keep them alive until `stop`, or until the start has failed.

        Raises:
            SetupError: the key file can't be written, or no port be had.
        """
        keys = DeploymentKeys.create()
        keys.save(self._key_file)
        self._channel = Channel(self._identity, keys, self._clock)
        try:
            await self._channel.bind(self._plan.bind_host)
            self._lookout = Lookout(
                self._channel,
                self._plan.router_address,
                HangWatch(self._plan.config),
                self._clock,
                self._events.put_nowait,
            )
            async with asyncio.TaskGroup() as tasks:
                lookout = tasks.create_task(self._lookout.run(), name="launcher-lookout")
                ended = await self._supervise()
                lookout.cancel()
            return ended
        finally:
            await self._kill_the_rest()
            await self._channel.close()

    async def _supervise(self) -> AllEnded:
        ended = self._perform_all(self._supervisor.start(self._clock.now_s()))
        while ended is None:
            event = await self._next_event()
            ended = self._perform_all(self._supervisor.handle(event, self._clock.now_s()))
        return ended

    # ---- what children say; called on the event loop -------------------------------------------

    def on_state(self, process: ProcessId, line: StateLine) -> None:
        _log.info("%s: %s %s", process, line.state, line.detail)
        self._events.put_nowait(
            Reported(process, line.state, line.detail, self._address(process, line), line.setup)
        )

    def on_notice(self, process: ProcessId, line: NoticeLine) -> None:
        self._display.notice(line.level, f"{process.name}: {line.text}")

    def on_output(self, process: ProcessId, line: str) -> None:
        _log.info("%s printed: %s", process.name, line, extra={"child": process.name})

    def on_exit(self, process: ProcessId, reason: str) -> None:
        _log.info("%s is reaped: %s", process, reason)
        self._children.pop(process, None)
        self._events.put_nowait(Exited(process, reason))

    # ---- what the supervisor wants -------------------------------------------------------------

    async def _next_event(self) -> Event:
        due_s = self._supervisor.next_deadline_s
        wait_s = None if due_s is None else max(0.0, due_s - self._clock.now_s())
        try:
            async with asyncio.timeout(wait_s):
                return await self._events.get()
        except TimeoutError:
            return Tick()

    def _perform_all(self, actions: list[Action]) -> AllEnded | None:
        views = self._supervisor.views
        self._display.update(views)
        if self._lookout is not None:
            self._lookout.update(views)
        ended = None
        for action in actions:
            if isinstance(action, AllEnded):
                ended = action
            else:
                self._perform(action)
        self._publish()
        return ended

    def _perform(self, action: Action) -> None:
        match action:
            case Spawn(process):
                self._spawn(process)
            case Terminate(process):
                if child := self._children.get(process):
                    child.terminate()
            case Kill(process, reason):
                if child := self._children.get(process):
                    _log.warning("killing %s: %s", process, reason)
                    child.kill()
            case TellRouter(process):
                self._tell_router(process)
            case Missing(name, reason, patience_s):
                text = f"{name} is silent: {reason}"
                if patience_s is not None:
                    text += f"; it is killed in {patience_s:g} s unless it comes back"
                _log.info("%s", text)
                self._display.notice("warning", text)
            case Restarting(name, reason, delay_s):
                text = f"{name} died: {reason}; it is started again in {delay_s:g} s"
                _log.info("%s", text)
                self._display.notice("warning", text)
            case Recovered(name):
                _log.info("%s is back", name)
                self._display.notice("info", f"{name} is back")
            case AllReady():
                self._ready = True
                self._on_ready()

    def _tell_router(self, process: ProcessId) -> None:
        """A router that isn't there is told when it comes back; at the end it concerns nobody."""
        router = any(living.name == "router" for living in self._children)
        if self._channel is not None and router and not self._stops:
            self._channel.send(self._plan.router_address, ProcessExited(process))

    def _spawn(self, process: ProcessId) -> None:
        child = self._plans[process.name]
        cores = child.cores if self._plan.config.launch.pin_cores else ()
        try:
            self._children[process] = ChildProcess.spawn(
                process,
                self._plan.command,
                lambda report_fd: self._write_spec(process, child, cores, report_fd),
                child_environment(
                    thread_environment(len(child.cores)),
                    unless_set={**QUIET_ENVIRONMENT, **LOOPBACK_ENVIRONMENT},
                ),
                self,
            )
        except OSError as error:
            self._events.put_nowait(Exited(process, f"it can't be started: {error}"))

    def _write_spec(
        self, process: ProcessId, child: ChildPlan, cores: tuple[int, ...], report_fd: int
    ) -> Path:
        plan = self._plan
        is_router = child.name == "router"
        path = self._slot.private_dir / f"{child.name}.json"
        RoleSpec(
            role=child.role,
            name=child.name,
            incarnation=process.incarnation,
            config=plan.config_for(child.role),
            pool=child.pool,
            prepared_model=None if is_router else plan.prepared_model,
            key_file=self._key_file,
            router_address=plan.router_address,
            bind_host=plan.bind_host,
            bind_port=plan.router_port if is_router else 0,
            cores=cores,
            report_fd=report_fd,
            launcher_pid=os.getpid(),
            log_file=self._slot.log_dir / f"{child.name}.jsonl",
            log_level=plan.log_level,
        ).save(path)
        return path

    def _address(self, process: ProcessId, line: StateLine) -> str:
        """A gateway's address is where clients reach it, not its mailbox."""
        return self._plan.url if process.name == "gateway" and line.address else line.address

    def _publish(self) -> None:
        """Write the present state for `baton status` where it has changed."""
        launcher = "stopping" if self._stops else "ready" if self._ready else "starting"
        rows = [ProcessRow("launcher", "launcher", os.getpid(), self._plan.url, launcher)]
        for view in self._supervisor.views:
            child = self._children.get(view.process) if view.process else None
            role = self._plans[view.name].shown_role
            pid = child.pid if child else None
            rows.append(ProcessRow(role, view.name, pid, view.address, view.state))
        if tuple(rows) != self._file.processes:
            self._file = replace(self._file, processes=tuple(rows))
            try:
                self._slot.write(self._file)
            except OSError as error:  # a full disk doesn't end a running deployment
                _log.warning("can't write %s: %s", self._slot.run_file, error)

    async def _kill_the_rest(self) -> None:
        """After an orderly end there are none; after an error in here there may be all."""
        deadline_s = self._clock.now_s() + REAP_TIMEOUT_S
        for child in self._children.values():
            child.kill()
        while self._children and self._clock.now_s() < deadline_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_TIMEOUT_S):
                    await self._events.get()
        if self._children:
            raise BugError(f"not reaped: {', '.join(map(str, self._children))}")
