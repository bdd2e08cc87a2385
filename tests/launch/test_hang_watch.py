import pytest

from core.config import Config
from core.ids import Incarnation, ProcessId, WorkerName
from launch.child_lifecycle import ChildState
from launch.hang_watch import MIN_SILENCE_S, STALL_S, TICK_S, HangWatch, Verdict
from launch.supervision import ChildView, Found, Hung, Lost, StopGroup
from tests.router.world import card
from wire.messages import Members, MemberState, MemberView, WorkerLoad, WorkerLost

DEAD_AFTER_S, GRACE_S = 4.0, 5.0
GROUPS = {"router": StopGroup.ROUTER, "gateway": StopGroup.GATEWAY}


def life(name: str, incarnation: int = 1) -> ProcessId:
    return ProcessId(WorkerName(name), Incarnation(incarnation))


ROUTER, P, D, GATEWAY = (life(name) for name in ("router", "prefill-0", "decode-0", "gateway"))


class World:
    """A watch, its clock, and a router that says twice a second what it was told to say."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        config = Config.model_validate(
            {
                "router": {"dead_after_ms": DEAD_AFTER_S * 1e3},
                "launch": {"hung_grace_s": grace_s},
            }
        )
        self.hangs = HangWatch(config)
        self.now_s = 100.0
        self.router: ProcessId | None = ROUTER
        self.says: dict[ProcessId, MemberState] = dict.fromkeys((P, D), MemberState.ALIVE)
        self.watch(ROUTER, P, D, GATEWAY)

    def watch(self, *up: ProcessId, state: ChildState = ChildState.READY) -> None:
        views = [
            ChildView(who.name, GROUPS.get(who.name, StopGroup.WORKER), state, who, "", "")
            for who in up
        ]
        self.hangs.watch(views, self.now_s)

    def members(self, sender: ProcessId = ROUTER) -> list[Verdict]:
        views = [
            MemberView(card(who.name, who.incarnation), WorkerLoad(), state)
            for who, state in self.says.items()
        ]
        return self.hangs.members(sender, Members(tuple(views)), self.now_s)

    def run(self, seconds: float) -> list[tuple[float, Verdict]]:
        """What is told in that time, with the seconds it was told after."""
        told: list[tuple[float, Verdict]] = []
        for step in range(1, round(seconds / TICK_S) + 1):
            self.now_s += TICK_S
            verdicts = self.hangs.tick(self.now_s)
            if self.router is not None and step % 2 == 0:
                verdicts += self.members(self.router)
            told += [(step * TICK_S, verdict) for verdict in verdicts]
        return told


def test_nobody_is_missed_while_all_is_well() -> None:
    assert World().run(600) == []


def test_a_lost_worker_hangs_after_its_grace_and_is_told_once() -> None:
    world = World()
    world.says[P] = MemberState.DEAD
    assert world.run(60) == [
        (0.5, Lost(P, "no heartbeat for 4 s")),
        (5.5, Hung(P, "no heartbeat for 9 s")),
    ]


def test_the_routers_word_of_one_worker_counts_at_once() -> None:
    world = World()
    told = world.hangs.worker_lost(ROUTER, WorkerLost(P, False), world.now_s)
    assert told == [Lost(P, "no heartbeat for 4 s")]
    for sender, lost in (
        (ROUTER, WorkerLost(D, True)),
        (ROUTER, WorkerLost(life("decode-0", 7), False)),
        (life("router", 7), WorkerLost(D, False)),
    ):
        assert world.hangs.worker_lost(sender, lost, world.now_s) == []


@pytest.mark.parametrize("back", [MemberState.ALIVE, MemberState.SUSPECT, MemberState.DRAINING])
def test_who_comes_back_within_the_grace_does_not_hang(back: MemberState) -> None:
    world = World()
    world.says[P] = MemberState.DEAD
    assert len(world.run(GRACE_S)) == 1
    world.says[P] = back
    assert world.run(60) == [(0.5, Found(P))]
    world.says[P] = MemberState.DEAD
    assert [verdict for _, verdict in world.run(60)] == [
        Lost(P, "no heartbeat for 4 s"),
        Hung(P, "no heartbeat for 9 s"),
    ]


def test_without_grace_it_is_missed_and_nothing_more() -> None:
    world = World(grace_s=0.0)
    world.says[P] = MemberState.DEAD
    world.router = None
    world.members()
    assert [type(verdict) for _, verdict in world.run(600)] == [Lost]
    world.router = ROUTER
    assert world.run(600) == [(0.5, Found(ROUTER))]


def test_a_silent_router_hangs_and_nobody_else_is_judged() -> None:
    world = World()
    world.says[P] = MemberState.DEAD
    world.members()
    world.router = None
    assert world.run(60) == [
        (4.0, Lost(ROUTER, "no word from it for 4 s")),
        (9.0, Hung(ROUTER, "no word from it for 9 s")),
    ]


def test_a_router_that_speaks_again_is_found() -> None:
    world = World()
    world.router = None
    assert len(world.run(8)) == 1
    world.router = ROUTER
    assert world.run(60) == [(0.5, Found(ROUTER))]


def test_a_worker_that_a_new_router_never_hears_of_hangs_too() -> None:
    world = World()
    world.router = life("router", 2)
    world.watch(world.router, P, D)
    del world.says[P]
    assert world.run(60) == [
        (4.0, Lost(P, "the router hears nothing from it")),
        (9.0, Hung(P, "the router hears nothing from it")),
    ]


def test_while_the_router_is_replaced_workers_are_given_time() -> None:
    world = World()
    world.router = None
    world.watch(P, D)
    assert world.run(600) == []
    world.router = life("router", 2)
    world.watch(world.router, P, D)
    alive = dict(world.says)
    world.says.clear()
    assert world.run(MIN_SILENCE_S) == []
    world.says.update(alive)
    assert world.run(60) == []


def test_only_the_present_lives_are_judged() -> None:
    world = World()
    world.says = dict.fromkeys((P, D), MemberState.DEAD)
    assert world.members(life("router", 7)) == []
    world.watch(ROUTER, life("prefill-0", 2))
    world.says[life("prefill-0", 2)] = MemberState.ALIVE
    assert world.run(60) == []


@pytest.mark.parametrize("state", set(ChildState) - {ChildState.READY, ChildState.LOST})
def test_only_who_was_ready_is_watched(state: ChildState) -> None:
    world = World()
    world.says = dict.fromkeys((P, D), MemberState.DEAD)
    world.watch(P, D, state=state)
    assert world.run(60) == []


def test_time_in_which_the_launcher_stood_still_does_not_count() -> None:
    world = World()
    world.says[P] = MemberState.DEAD
    assert len(world.run(GRACE_S)) == 1
    world.now_s += 3_600  # stopped; what the router said meanwhile is still on its way
    assert world.run(GRACE_S - TICK_S) == []
    world.says[P] = MemberState.ALIVE
    world.router = None
    world.now_s += 3_600
    assert world.run(DEAD_AFTER_S) == []


def test_a_short_gap_counts() -> None:
    world = World()
    world.says[P] = MemberState.DEAD
    assert len(world.run(GRACE_S)) == 1
    world.now_s += STALL_S - TICK_S
    assert [type(verdict) for _, verdict in world.run(0.5)] == [Hung]
