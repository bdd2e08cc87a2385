import itertools

import pytest
from hypothesis import given, settings, strategies as st

from core.config import LaunchConfig
from core.ids import Incarnation, ProcessId, WorkerName
from launch.child_lifecycle import ChildState
from launch.supervision import (
    Action,
    AllEnded,
    AllReady,
    ChildSpec,
    Event,
    Exited,
    Found,
    Hung,
    Kill,
    KillRequested,
    Lost,
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
from launch.supervisor import START_TRIES, Supervisor

CHILDREN = (
    ChildSpec("router", StopGroup.ROUTER),
    ChildSpec("prefill-0", StopGroup.WORKER),
    ChildSpec("decode-0", StopGroup.WORKER),
    ChildSpec("gateway", StopGroup.GATEWAY),
)
CONFIG = LaunchConfig(
    ready_timeout_s=60, restart_backoff_s=0.5, restart_backoff_max_s=8, stop_grace_s=4
)


class Deployment:
    """A supervisor and the processes it believes in; checks its guarantees after each event."""

    def __init__(self, children: tuple[ChildSpec, ...] = CHILDREN) -> None:
        numbers = itertools.count(1)
        self.supervisor = Supervisor(children, CONFIG, lambda: Incarnation(next(numbers)))
        self.now_s = 0.0
        self.living: dict[str, ProcessId] = {}
        self.stopping = False
        self.log: list[Action] = []
        self._take(self.supervisor.start(self.now_s))

    def tell(self, event: Event) -> list[Action]:
        if isinstance(event, StopRequested | KillRequested):
            self.stopping = True
        return self._take(self.supervisor.handle(event, self.now_s))

    def _take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, Spawn):
                assert action.process.name not in self.living, "two lives at once"
                assert not self.stopping, "spawned after the stop"
                self.living[action.process.name] = action.process
            elif isinstance(action, Terminate | Kill):
                assert self.living.get(action.process.name) == action.process
            elif isinstance(action, AllEnded):
                assert not self.living
        self.supervisor.check_integrity()
        self.log += actions
        return actions

    def advance(self, seconds: float) -> list[Action]:
        self.now_s += seconds
        return self.tell(Tick())

    def report(
        self, name: str, state: ReportedState, detail: str = "", setup: bool = False
    ) -> list[Action]:
        return self.tell(Reported(self.living[name], state, detail, setup=setup))

    def exit(self, name: str, reason: str = "exit code 1") -> list[Action]:
        return self.tell(Exited(self.living.pop(name), reason))

    def all_ready(self) -> list[Action]:
        return [a for name in list(self.living) for a in self.report(name, ReportedState.READY)]

    def state(self, name: str) -> ChildState:
        return next(view.state for view in self.supervisor.views if view.name == name)


def of(actions: list[Action], kind: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_starts_all_at_once_and_says_ready_once() -> None:
    deployment = Deployment()
    assert [a.process.name for a in deployment.log if isinstance(a, Spawn)] == [
        child.name for child in CHILDREN
    ]
    assert deployment.all_ready() == [AllReady()]
    assert deployment.all_ready() == []


def test_a_dead_worker_is_told_and_restarted_with_a_new_incarnation() -> None:
    deployment = Deployment()
    deployment.all_ready()
    old = deployment.living["decode-0"]
    assert deployment.exit("decode-0", "killed by SIGKILL") == [
        TellRouter(old),
        Restarting("decode-0", "killed by SIGKILL", 0.5),
    ]
    assert deployment.state("decode-0") is ChildState.BACKING_OFF
    assert deployment.advance(0.4) == []
    (spawned,) = deployment.advance(0.1)
    assert isinstance(spawned, Spawn)
    assert spawned.process.name == "decode-0"
    assert spawned.process != old
    assert deployment.report("decode-0", ReportedState.READY) == [Recovered("decode-0")]


def test_the_router_hears_of_every_exit_again_when_it_comes_back() -> None:
    deployment = Deployment()
    deployment.all_ready()
    dead = deployment.living["prefill-0"]
    deployment.exit("prefill-0")
    assert of(deployment.exit("router"), TellRouter) == []
    deployment.advance(1)
    assert deployment.report("router", ReportedState.READY) == [
        Recovered("router"),
        TellRouter(dead),
    ]


def test_back_off_doubles_to_its_limit_and_is_forgiven_after_staying_up() -> None:
    deployment = Deployment()
    deployment.all_ready()

    def fail_once() -> float:
        (restart,) = of(deployment.exit("decode-0"), Restarting)
        assert isinstance(restart, Restarting)
        deployment.advance(restart.delay_s)
        deployment.report("decode-0", ReportedState.READY)
        return restart.delay_s

    assert [fail_once() for _ in range(6)] == [0.5, 1, 2, 4, 8, 8]
    deployment.advance(7.9)
    assert fail_once() == 8
    deployment.advance(8)
    assert fail_once() == 0.5


def test_a_setup_problem_at_the_first_start_ends_it_with_its_reason() -> None:
    deployment = Deployment()
    deployment.report("decode-0", ReportedState.FAILED, "no UCX transport", setup=True)
    deployment.stopping = True
    actions = deployment.exit("decode-0", "exit code 2")
    assert not of(actions, Restarting)
    assert [a.process.name for a in of(actions, Terminate) if isinstance(a, Terminate)] == [
        "gateway"
    ]
    deployment.exit("gateway")
    deployment.exit("prefill-0")
    assert deployment.exit("router") == [AllEnded("decode-0 failed: no UCX transport", True)]


def test_a_setup_problem_of_a_running_deployment_is_only_one_more_restart() -> None:
    deployment = Deployment()
    deployment.all_ready()
    for _ in range(2 * START_TRIES):
        deployment.exit("decode-0")
        deployment.advance(CONFIG.restart_backoff_max_s)
        deployment.report("decode-0", ReportedState.FAILED, "model file is gone", setup=True)
    assert deployment.exit("decode-0")[-1] == Restarting("decode-0", "model file is gone", 8)


def test_crashes_at_the_first_start_are_tried_again_but_not_for_ever() -> None:
    deployment = Deployment()
    for _ in range(START_TRIES - 1):
        assert of(deployment.exit("decode-0", "exit code 139"), Restarting)
        deployment.advance(CONFIG.restart_backoff_max_s)
    deployment.stopping = True
    deployment.exit("decode-0", "exit code 139")
    for name in ("gateway", "prefill-0"):
        deployment.exit(name)
    assert deployment.exit("router") == [AllEnded("decode-0 failed 3 times: exit code 139", False)]


def test_a_start_that_takes_too_long_is_killed_and_ends_the_start() -> None:
    deployment = Deployment()
    deployment.report("decode-0", ReportedState.LOADING, "weights 40 %")
    for name in ("router", "prefill-0", "gateway"):
        deployment.report(name, ReportedState.READY)
    deployment.stopping = True
    killed = of(deployment.advance(CONFIG.ready_timeout_s), Kill)
    assert killed == [Kill(deployment.living["decode-0"])]
    for name in list(deployment.living):
        last = deployment.exit(name)
    assert last == [AllEnded("decode-0 was not ready within 60 s (last: weights 40 %)", False)]


def test_a_restart_that_takes_too_long_is_killed_and_tried_again() -> None:
    deployment = Deployment()
    deployment.all_ready()
    deployment.exit("decode-0")
    deployment.advance(1)
    assert deployment.advance(CONFIG.ready_timeout_s) == [Kill(deployment.living["decode-0"])]
    (_, restart) = deployment.exit("decode-0")
    assert restart == Restarting("decode-0", "not ready within 60 s", 1)


def test_stop_goes_gateway_workers_router() -> None:
    deployment = Deployment()
    deployment.all_ready()
    living = dict(deployment.living)
    assert deployment.tell(StopRequested()) == [Terminate(living["gateway"])]
    assert deployment.exit("gateway") == [
        Terminate(living["prefill-0"]),
        Terminate(living["decode-0"]),
    ]
    assert deployment.exit("prefill-0") == [TellRouter(living["prefill-0"])]
    assert deployment.exit("decode-0") == [
        TellRouter(living["decode-0"]),
        Terminate(living["router"]),
    ]
    assert deployment.exit("router") == [AllEnded(None, False)]
    assert deployment.supervisor.next_deadline_s is None


def test_who_does_not_end_is_killed_at_the_grace_limit() -> None:
    deployment = Deployment()
    deployment.all_ready()
    deployment.tell(StopRequested())
    seen = []
    while (due_s := deployment.supervisor.next_deadline_s) is not None:
        seen.append((due_s, deployment.advance(due_s - deployment.now_s)))
    living = deployment.living
    assert seen == [
        (1.6, [Terminate(living["prefill-0"]), Terminate(living["decode-0"])]),
        (3.2, [Terminate(living["router"])]),
        (4.0, [Kill(living[child.name]) for child in CHILDREN]),
    ]


def test_a_second_stop_kills_at_once() -> None:
    deployment = Deployment()
    deployment.tell(StopRequested())
    assert deployment.tell(KillRequested()) == [
        Kill(process) for process in deployment.living.values()
    ]


def test_a_child_in_back_off_stops_at_once() -> None:
    deployment = Deployment((CHILDREN[0],))
    deployment.all_ready()
    deployment.exit("router")
    assert deployment.tell(StopRequested()) == [AllEnded(None, False)]


def test_words_of_an_older_incarnation_are_counted_and_ignored() -> None:
    deployment = Deployment()
    deployment.all_ready()
    old = deployment.living["router"]
    deployment.exit("router")
    deployment.advance(1)
    assert deployment.tell(Reported(old, ReportedState.READY)) == []
    assert deployment.tell(Exited(old, "again")) == []
    assert deployment.tell(Exited(ProcessId(WorkerName("nobody"), Incarnation(1)), "")) == []
    assert deployment.state("router") is ChildState.STARTING
    assert deployment.supervisor.stale_events_total == 3


def test_views_tell_the_last_word_and_the_address() -> None:
    deployment = Deployment()
    deployment.tell(
        Reported(deployment.living["router"], ReportedState.READY, "listening", "tcp://x:1")
    )
    view = deployment.supervisor.views[0]
    assert (view.detail, view.address, view.state) == ("listening", "tcp://x:1", ChildState.READY)
    deployment.exit("router", "killed by SIGSEGV")
    view = deployment.supervisor.views[0]
    assert (view.detail, view.address, view.process) == ("killed by SIGSEGV", "", None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.floats(0, 20)),
        st.tuples(st.just("exit"), st.integers(0, 3)),
        st.tuples(
            st.sampled_from(
                ["loading", "ready", "failed", "setup", "stale", "lost", "found", "hung"]
            ),
            st.integers(0, 3),
        ),
        st.tuples(st.sampled_from(["stop", "kill"]), st.just(0)),
    ),
    max_size=60,
)


def _play(deployment: Deployment, what: str, which: float) -> None:
    name = CHILDREN[int(which) % 4].name
    match what:
        case "advance":
            deployment.advance(which)
        case "stop":
            deployment.tell(StopRequested())
        case "kill":
            deployment.tell(KillRequested())
        case "stale":
            deployment.tell(Exited(ProcessId(WorkerName(name), Incarnation(0)), "late"))
        case _ if name not in deployment.living:
            pass
        case "exit":
            deployment.exit(name)
        case "lost":
            deployment.tell(Lost(deployment.living[name], "silent"))
        case "found":
            deployment.tell(Found(deployment.living[name]))
        case "hung":
            deployment.tell(Hung(deployment.living[name], "silent"))
        case "setup":
            deployment.report(name, ReportedState.FAILED, "no GPU", setup=True)
        case _:
            deployment.report(name, ReportedState(what))


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_any_history_ends_in_order(steps: list[tuple[str, float]]) -> None:
    deployment = Deployment()
    for what, which in steps:
        _play(deployment, what, which)
        if any(isinstance(action, AllEnded) for action in deployment.log):
            break
    deployment.tell(StopRequested())
    deployment.advance(CONFIG.stop_grace_s)
    deployment.advance(0)
    for name, process in list(deployment.living.items()):
        assert Kill(process) in deployment.log, f"{name} outlives the grace time"
        deployment.exit(name)
    assert len(of(deployment.log, AllEnded)) == 1
    assert len(of(deployment.log, AllReady)) <= 1
    spawned = [a.process for a in deployment.log if isinstance(a, Spawn)]
    assert len(set(spawned)) == len(spawned)
    told = [a.process for a in deployment.log if isinstance(a, TellRouter)]
    workers = {p for p in spawned if p.name in ("prefill-0", "decode-0")}
    assert workers == set(told), "every worker's end is told"


@given(st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_back_off_is_bounded_however_often_it_fails(failures: int) -> None:
    deployment = Deployment()
    deployment.all_ready()
    for _ in range(failures):
        (restart,) = of(deployment.exit("gateway"), Restarting)
        assert isinstance(restart, Restarting)
        assert CONFIG.restart_backoff_s <= restart.delay_s <= CONFIG.restart_backoff_max_s
        deployment.advance(restart.delay_s)


def test_a_failure_detail_never_hides_the_exit_when_empty() -> None:
    deployment = Deployment()
    deployment.all_ready()
    deployment.report("gateway", ReportedState.FAILED, "")
    assert deployment.exit("gateway", "exit code 1")[-1] == Restarting(
        "gateway", "exit code 1", 0.5
    )


@pytest.mark.parametrize("name", ["router", "gateway"])
def test_only_workers_exits_concern_the_router(name: str) -> None:
    deployment = Deployment()
    deployment.all_ready()
    assert not of(deployment.exit(name), TellRouter)
