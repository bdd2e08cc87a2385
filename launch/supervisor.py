"""Keeps the deployment's children alive, and ends them in order. Pure: events in, actions out."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.config import LaunchConfig
from core.errors import BugError
from core.ids import Incarnation, ProcessId, WorkerName
from core.lifecycle import Lifecycle
from launch.child_lifecycle import CHILD_TABLE, ChildAction, ChildEvent, ChildState
from launch.supervision import (
    Action,
    AllEnded,
    AllReady,
    ChildSpec,
    ChildView,
    Event,
    Exited,
    Found,
    Hung,
    Kill,
    KillRequested,
    Lost,
    Missing,
    Recovered,
    Reported,
    ReportedState,
    Restarting,
    Spawn,
    StopGroup,
    StopRequested,
    TellRouter,
    Terminate,
    Tick,
)

START_TRIES = 3
"""Crashes in a row before its first `ready` with which a child ends the deployment's start."""
STOP_SHARE = {StopGroup.GATEWAY: 0.0, StopGroup.WORKER: 0.4, StopGroup.ROUTER: 0.8}
"""When a group is asked to end, though the ones before it haven't; as a share of the grace time."""
EXITS_REMEMBERED = 256


@dataclass(slots=True)
class _Child:
    """`process` is set from Spawn to Exited; `deadline_s` is the present state's."""

    spec: ChildSpec
    life: Lifecycle[ChildState, ChildEvent, ChildAction]
    process: ProcessId | None = None
    deadline_s: float | None = None
    failures: int = 0
    """In a row; forgiven once an incarnation has stayed up."""
    ever_ready: bool = False
    terminated: bool = False
    detail: str = ""
    address: str = ""
    failed_with: Reported | None = None


class Supervisor:
    """Restarts with exponential back-off; a start that can't succeed ends the deployment.

    Guarantees: at most one living incarnation per name; none is spawned after a stop was asked
    for; every child has been killed at `stop_grace_s` after it.
    """

    def __init__(
        self,
        children: Sequence[ChildSpec],
        config: LaunchConfig,
        new_incarnation: Callable[[], Incarnation],
    ) -> None:
        self._config = config
        self._new_incarnation = new_incarnation
        self._children = {
            spec.name: _Child(spec, Lifecycle(CHILD_TABLE, spec.name)) for spec in children
        }
        self._exits: deque[ProcessId] = deque(maxlen=EXITS_REMEMBERED)
        self._stop_from_s: float | None = None
        self._failure: str | None = None
        self._failure_is_setup = False
        self._all_ready = False
        self._all_ended = False
        self.stale_events_total = 0

    def start(self, now_s: float) -> list[Action]:
        """Spawn all; called once."""
        return [self._spawn(child, now_s) for child in self._children.values()]

    @property
    def views(self) -> tuple[ChildView, ...]:
        return tuple(
            ChildView(
                child.spec.name,
                child.spec.group,
                child.life.state,
                child.process,
                child.detail,
                child.address,
            )
            for child in self._children.values()
        )

    @property
    def next_deadline_s(self) -> float | None:
        """When a Tick is due at the latest, unless something else happens before."""
        times = [child.deadline_s for child in self._children.values()]
        if self._stop_from_s is not None:
            times += [self._stop_from_s + share for share in self._unreached_shares_s()]
        return min((time for time in times if time is not None), default=None)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Reported():
                actions += self._reported(event, now_s)
            case Exited():
                actions += self._exited(event, now_s)
            case Lost():
                actions += self._lost(event, now_s)
            case Found():
                actions += self._found(event, now_s)
            case Hung():
                actions += self._hung(event, now_s)
            case StopRequested():
                self._begin_stop(now_s)
            case KillRequested():
                self._begin_stop(now_s)
                actions += self._kill_all()
            case Tick():
                pass
        for child in self._children.values():
            if child.deadline_s is not None and now_s >= child.deadline_s:
                child.deadline_s = None
                actions += self._fire(child, ChildEvent.TIMEOUT, now_s)
        actions += self._stop_in_order(now_s)
        return actions + self._milestones()

    # ---- one child -----------------------------------------------------------------------------

    def _spawn(self, child: _Child, now_s: float) -> Action:
        child.process = ProcessId(WorkerName(child.spec.name), self._new_incarnation())
        child.deadline_s = now_s + self._config.ready_timeout_s
        child.detail, child.address, child.failed_with = "", "", None
        return Spawn(child.process)

    def _reported(self, event: Reported, now_s: float) -> list[Action]:
        child = self._current(event.process)
        if child is None:
            return []
        child.detail = event.detail
        child.address = event.address or child.address
        match event.state:
            case ReportedState.FAILED:
                child.failed_with = event
            case ReportedState.LOADING:
                return self._fire(child, ChildEvent.LOADING, now_s)
            case ReportedState.READY:
                return self._became_ready(child, now_s)
        return []

    def _became_ready(
        self, child: _Child, now_s: float, by: ChildEvent = ChildEvent.READY
    ) -> list[Action]:
        was = child.life.state
        actions = self._fire(child, by, now_s)
        if child.life.state is ChildState.READY and was is not ChildState.READY:
            child.ever_ready = True
            child.deadline_s = now_s + self._config.restart_backoff_max_s
            if self._all_ready:
                actions.append(Recovered(child.spec.name))
            if child.spec.group is StopGroup.ROUTER:
                # A restarted router has forgotten whose writes are over.
                actions += [TellRouter(process) for process in self._exits]
        return actions

    def _lost(self, event: Lost, now_s: float) -> list[Action]:
        child = self._current(event.process)
        if child is None:
            return []
        was = child.life.state
        self._fire(child, ChildEvent.LOST, now_s, event.reason)
        if was is not ChildState.READY:
            return []
        child.deadline_s = None  # it doesn't stay up, and Hung comes from outside
        child.detail = event.reason
        return [Missing(child.spec.name, event.reason, self._config.hung_grace_s or None)]

    def _found(self, event: Found, now_s: float) -> list[Action]:
        child = self._current(event.process)
        if child is None:
            return []
        if child.life.state is ChildState.LOST:
            child.detail = ""
        return self._became_ready(child, now_s, ChildEvent.FOUND)

    def _hung(self, event: Hung, now_s: float) -> list[Action]:
        child = self._current(event.process)
        if child is None or child.life.state is not ChildState.LOST:
            return []
        child.detail = event.reason
        return self._fire(child, ChildEvent.TIMEOUT, now_s, event.reason)

    def _exited(self, event: Exited, now_s: float) -> list[Action]:
        child = self._current(event.process)
        if child is None:
            return []
        failed = child.failed_with
        reason = failed.detail if failed and failed.detail else event.reason
        child.process, child.deadline_s, child.address = None, None, ""
        child.detail = reason
        actions: list[Action] = []
        if child.spec.group is StopGroup.WORKER:
            self._exits.append(event.process)
            actions.append(TellRouter(event.process))
        actions += self._fire(child, ChildEvent.EXITED, now_s, reason)
        if self._stop_from_s is None and not self._all_ready and not child.ever_ready:
            setup = failed is not None and failed.setup
            if setup or child.failures >= START_TRIES:
                times = "" if setup else f" {child.failures} times"
                self._fail_start(f"{child.spec.name} failed{times}: {reason}", setup, now_s)
                return [action for action in actions if not isinstance(action, Restarting)]
        return actions

    def _fire(self, child: _Child, event: ChildEvent, now_s: float, why: str = "") -> list[Action]:
        actions: list[Action] = []
        for action in child.life.fire(event, now_s, why):
            match action:
                case ChildAction.SPAWN:
                    actions.append(self._spawn(child, now_s))
                case ChildAction.KILL:
                    actions += self._out_of_time(child, now_s)
                case ChildAction.FORGIVE:
                    child.failures = 0
                case ChildAction.BACK_OFF:
                    actions.append(self._back_off(child, now_s))
        return actions

    def _back_off(self, child: _Child, now_s: float) -> Action:
        # 2.0 ** 60 × any positive back-off is beyond every limit, and no overflow.
        factor = 2.0 ** min(child.failures, 60)
        child.failures += 1
        delay_s = min(self._config.restart_backoff_s * factor, self._config.restart_backoff_max_s)
        child.deadline_s = now_s + delay_s
        return Restarting(child.spec.name, child.detail, delay_s)

    def _out_of_time(self, child: _Child, now_s: float) -> list[Action]:
        if child.life.state is ChildState.LOST and child.process is not None:
            hung = f"it hung ({child.detail}) and was killed"
            child.failed_with = Reported(child.process, ReportedState.FAILED, hung)
            return [Kill(child.process, f"it hangs: {child.detail}")]
        if self._stop_from_s is None:
            said = f" (last: {child.detail})" if child.detail else ""
            late = f"not ready within {self._config.ready_timeout_s:g} s{said}"
            if child.process is not None:
                child.failed_with = Reported(child.process, ReportedState.FAILED, late)
            if not self._all_ready and not child.ever_ready:
                self._fail_start(f"{child.spec.name} was {late}", False, now_s)
        return [Kill(child.process)] if child.process else []

    def _current(self, process: ProcessId) -> _Child | None:
        """The child whose present incarnation this is; older ones' words are late and count."""
        child = self._children.get(process.name)
        if child is None or child.process != process:
            self.stale_events_total += 1
            return None
        return child

    def _living(self) -> list[_Child]:
        return [child for child in self._children.values() if child.process is not None]

    # ---- all of them ---------------------------------------------------------------------------

    def _fail_start(self, reason: str, setup: bool, now_s: float) -> None:
        self._failure, self._failure_is_setup = reason, setup
        self._begin_stop(now_s)

    def _begin_stop(self, now_s: float) -> None:
        if self._stop_from_s is not None:
            return
        self._stop_from_s = now_s
        for child in self._children.values():
            child.life.fire(ChildEvent.STOP, now_s)
            running = child.process is not None
            child.deadline_s = now_s + self._config.stop_grace_s if running else None

    def _kill_all(self) -> list[Action]:
        actions: list[Action] = []
        for child in self._living():
            child.terminated = True
            if child.process is not None:
                actions.append(Kill(child.process))
        return actions

    def _unreached_shares_s(self) -> list[float]:
        waiting = {c.spec.group for c in self._living() if not c.terminated}
        return [STOP_SHARE[group] * self._config.stop_grace_s for group in waiting]

    def _stop_in_order(self, now_s: float) -> list[Action]:
        """SIGTERM to the groups whose turn it is: the earlier ones are gone, or took too long."""
        if self._stop_from_s is None:
            return []
        actions: list[Action] = []
        earlier_gone = True
        for group in StopGroup:
            due_s = self._stop_from_s + STOP_SHARE[group] * self._config.stop_grace_s
            members = [child for child in self._living() if child.spec.group is group]
            for child in members:
                if not child.terminated and (earlier_gone or now_s >= due_s) and child.process:
                    child.terminated = True
                    actions.append(Terminate(child.process))
            earlier_gone = earlier_gone and not members
        return actions

    def _milestones(self) -> list[Action]:
        children = self._children.values()
        if self._stop_from_s is not None:
            if self._all_ended or not all(child.life.ended for child in children):
                return []
            self._all_ended = True
            return [AllEnded(self._failure, self._failure_is_setup)]
        if not self._all_ready and all(c.life.state is ChildState.READY for c in children):
            self._all_ready = True
            return [AllReady()]
        return []

    def check_integrity(self) -> None:
        """Raises BugError where a child's state and its process contradict each other."""
        for name, child in self._children.items():
            state, runs = child.life.state, child.process is not None
            idle = state in (ChildState.BACKING_OFF, ChildState.ENDED)
            if runs is idle:
                raise BugError(f"{name} is {state} and its process is {child.process}")
            if state is ChildState.BACKING_OFF and child.deadline_s is None:
                raise BugError(f"{name} backs off without an end")
            if self._stop_from_s is not None and state not in (
                ChildState.STOPPING,
                ChildState.ENDED,
            ):
                raise BugError(f"{name} is {state} while everything stops")
