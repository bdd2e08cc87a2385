"""The supervisor and children that run, yet hang."""

from launch.child_lifecycle import ChildState
from launch.supervision import (
    Found,
    Hung,
    Kill,
    Lost,
    Missing,
    Recovered,
    ReportedState,
    Restarting,
    StopRequested,
    TellRouter,
)
from tests.launch.test_supervisor import CONFIG, Deployment

REASON = "no heartbeat for 5 s"


def running(name: str = "prefill-0") -> Deployment:
    """All are ready, and `name` is lost."""
    deployment = Deployment()
    deployment.all_ready()
    assert deployment.tell(Lost(deployment.living[name], REASON)) == [Missing(name, REASON, 5.0)]
    assert deployment.state(name) is ChildState.LOST
    return deployment


def test_a_hung_worker_is_killed_and_its_death_proven_and_its_place_filled() -> None:
    deployment = running()
    hung = deployment.living["prefill-0"]
    longer = "no heartbeat for 10 s"
    assert deployment.tell(Hung(hung, longer)) == [Kill(hung, f"it hangs: {longer}")]
    assert deployment.exit("prefill-0", "killed by SIGKILL") == [
        TellRouter(hung),
        Restarting("prefill-0", f"it hung ({longer}) and was killed", 0.5),
    ]
    deployment.advance(0.5)
    assert deployment.report("prefill-0", ReportedState.READY) == [Recovered("prefill-0")]


def test_being_lost_has_no_deadline_here() -> None:
    deployment = running()
    assert deployment.advance(10 * CONFIG.restart_backoff_max_s) == []


def test_a_found_child_is_not_killed_any_more() -> None:
    deployment = running()
    process = deployment.living["prefill-0"]
    assert deployment.tell(Found(process)) == [Recovered("prefill-0")]
    assert deployment.tell(Found(process)) == []
    assert deployment.state("prefill-0") is ChildState.READY
    assert deployment.tell(Hung(process, REASON)) == []
    view = next(view for view in deployment.supervisor.views if view.name == "prefill-0")
    assert view.detail == ""


def test_ready_said_again_is_a_return_too() -> None:
    deployment = running()
    assert deployment.report("prefill-0", ReportedState.READY) == [Recovered("prefill-0")]


def test_only_the_present_life_hangs() -> None:
    deployment = running()
    old = deployment.living["prefill-0"]
    deployment.exit("prefill-0")
    deployment.advance(1)
    for event in (Lost(old, REASON), Hung(old, REASON), Found(old)):
        assert deployment.tell(event) == []
    assert deployment.state("prefill-0") is ChildState.STARTING


def test_a_hung_router_dies_alone() -> None:
    deployment = running("router")
    hung = deployment.living["router"]
    (kill,) = deployment.tell(Hung(hung, "no word"))
    assert kill == Kill(hung, "it hangs: no word")
    (restart,) = deployment.exit("router", "killed by SIGKILL")
    assert restart == Restarting("router", "it hung (no word) and was killed", 0.5)


def test_a_stop_goes_on_with_the_lost_as_with_all() -> None:
    deployment = running()
    process = deployment.living["prefill-0"]
    deployment.tell(StopRequested())
    for event in (Lost(process, REASON), Hung(process, REASON), Found(process)):
        assert deployment.tell(event) == []
    assert deployment.state("prefill-0") is ChildState.STOPPING
    assert Kill(process) in deployment.advance(CONFIG.stop_grace_s)
