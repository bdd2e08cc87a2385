from collections.abc import Iterable
from dataclasses import replace

import pytest

from core.config import Config
from core.errors import IndexCorrupt
from router.events import FromPeer, PeerGone, Tick
from router.membership import (
    FORGET_GONE_S,
    REPEATED_PROOFS,
    AskReregister,
    Changed,
    Joined,
    Lost,
    MemberChange,
    Membership,
    Refused,
    Returned,
)
from router.pools import Pools
from tests.router.world import LAUNCHER, LAYOUT, beat, card, config, process, register
from wire.messages import (
    Leaving,
    MemberState,
    ProcessExited,
    Register,
    Role,
    Tokens,
    WorkerCard,
    WorkerLoad,
)

TREE = config(suspect_after_ms=1_500, dead_after_ms=5_000)
D0 = card("decode-0")
D0_AGAIN = card("decode-0", 2)
TICK_S = 0.25


class Watched:
    """A membership that is checked after each event, and hears a tick every TICK_S."""

    def __init__(self, tree: Config = TREE) -> None:
        self.inner = Membership(tree.router, Pools(tree).by_name)
        self.now_s = 0.0

    def feed(self, event: FromPeer | PeerGone | Tick) -> list[MemberChange]:
        changes = self.inner.handle(event, self.now_s)
        self.inner.check_integrity()
        return changes

    def pass_time(self, seconds: float) -> list[MemberChange]:
        changes: list[MemberChange] = []
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + TICK_S)
            changes += self.feed(Tick())
        return changes

    def state(self, name: str = "decode-0") -> MemberState | None:
        return next((m.state for m in self.inner.members() if m.process.name == name), None)


@pytest.fixture
def members() -> Watched:
    watched = Watched()
    watched.feed(Tick())
    return watched


def only(changes: Iterable[MemberChange]) -> list[MemberChange]:
    """Without the mere notices that something changed."""
    return [change for change in changes if not isinstance(change, Changed)]


def exited(name: str, incarnation: int = 1) -> FromPeer:
    return FromPeer(LAUNCHER, ProcessExited(process(name, incarnation)))


def test_registration_is_answered_and_announced(members: Watched) -> None:
    assert members.feed(register(D0)) == [Changed(), Joined(D0)]
    assert members.state() is MemberState.ALIVE


def test_registering_again_changes_nothing_but_is_answered(members: Watched) -> None:
    members.feed(register(D0))
    assert members.feed(register(D0)) == [Joined(D0)]
    assert members.feed(register(replace(D0, blocks_total=7))) == [
        Changed(),
        Joined(replace(D0, blocks_total=7)),
    ]


def test_heartbeats_keep_a_member_alive_and_bring_its_load(members: Watched) -> None:
    members.feed(register(D0))
    for _ in range(8):
        assert members.pass_time(1.0) == []
        assert members.feed(beat(D0, WorkerLoad(running=3))) == []
    (member,) = members.inner.members()
    assert member.view().load.running == 3


def test_silence_makes_suspect_then_lost(members: Watched) -> None:
    members.feed(register(D0))
    assert members.pass_time(1.25) == []
    assert members.pass_time(0.25) == [Changed()]
    assert members.state() is MemberState.SUSPECT
    assert members.pass_time(3.25) == []
    assert members.pass_time(0.25) == [Lost(D0.peer.process, False, D0.peer.address), Changed()]
    assert members.state() is MemberState.DEAD
    assert members.pass_time(200.0) == []  # once


def test_a_suspect_that_beats_is_alive_again(members: Watched) -> None:
    members.feed(register(D0))
    members.pass_time(2.0)
    assert members.feed(beat(D0)) == [Returned(D0.peer.address), Changed()]
    assert members.state() is MemberState.ALIVE
    assert members.feed(beat(D0)) == []


def test_a_broken_connection_makes_suspect_at_once(members: Watched) -> None:
    members.feed(register(D0))
    assert members.feed(PeerGone(D0.peer.address)) == [Changed()]
    assert members.state() is MemberState.SUSPECT
    assert members.feed(PeerGone("tcp://nobody")) == []
    assert members.feed(beat(D0)) == [Returned(D0.peer.address), Changed()]


def test_a_lost_worker_must_register_before_it_counts(members: Watched) -> None:
    members.feed(register(D0))
    members.pass_time(6.0)
    assert members.feed(beat(D0)) == [AskReregister(D0.peer.address)]
    assert members.state() is MemberState.DEAD
    assert members.feed(register(D0)) == [Joined(D0), Changed()]
    # Its next loss is another one.
    assert Lost(D0.peer.process, False, D0.peer.address) in members.pass_time(6.0)


def test_an_unknown_heartbeat_is_asked_to_register(members: Watched) -> None:
    assert members.feed(beat(D0)) == [AskReregister(D0.peer.address)]
    assert members.state() is None


def test_a_reaped_process_is_proven_gone_once(members: Watched) -> None:
    members.feed(register(D0))
    proof = Lost(D0.peer.process, True, D0.peer.address)
    assert members.feed(exited("decode-0")) == [proof, Changed()]
    assert members.feed(exited("decode-0")) == []
    assert members.pass_time(10.0) == []


def test_proof_follows_an_unproven_loss(members: Watched) -> None:
    members.feed(register(D0))
    members.pass_time(6.0)
    assert only(members.feed(exited("decode-0"))) == [Lost(D0.peer.process, True, D0.peer.address)]


def test_a_newer_incarnation_proves_the_older_one_gone(members: Watched) -> None:
    members.feed(register(D0))
    assert only(members.feed(register(D0_AGAIN))) == [
        Lost(D0.peer.process, True, D0.peer.address),
        Joined(D0_AGAIN),
    ]
    assert members.feed(exited("decode-0", 1)) == []
    assert members.state() is MemberState.ALIVE


def test_a_stale_incarnation_is_counted_and_ignored(members: Watched) -> None:
    members.feed(register(D0))
    members.feed(register(D0_AGAIN))
    assert members.feed(beat(D0, WorkerLoad(running=9))) == []
    assert members.feed(FromPeer(D0.peer.process, Leaving())) == []
    assert isinstance(members.feed(register(D0))[0], Refused)
    assert members.inner.stale_total == 3
    (member,) = members.inner.members()
    assert member.process == D0_AGAIN.peer.process
    assert member.load.running == 0


def test_the_end_of_a_process_never_met_is_passed_on_once(members: Watched) -> None:
    """A restarted router: others may keep blocks in quarantine for it."""
    assert members.feed(exited("prefill-7")) == [Lost(process("prefill-7"), True)]
    assert members.feed(exited("prefill-7")) == []
    late = card("prefill-7")
    assert isinstance(members.feed(register(late))[0], Refused)


def test_the_latest_proofs_are_kept_for_who_comes_later(members: Watched) -> None:
    for incarnation in range(REPEATED_PROOFS + 2):
        members.feed(exited("prefill-7", incarnation))
    members.feed(register(D0))
    members.feed(register(D0_AGAIN))
    repeated = members.inner.proven()
    assert len(repeated) == REPEATED_PROOFS
    assert repeated[0] == process("prefill-7", 3)
    assert repeated[-1] == D0.peer.process


def test_draining_lasts_until_the_end(members: Watched) -> None:
    members.feed(register(D0))
    assert members.feed(FromPeer(D0.peer.process, Leaving())) == [Changed()]
    members.feed(beat(D0))
    members.feed(register(D0))
    members.pass_time(2.0)
    assert members.state() is MemberState.DRAINING
    assert only(members.pass_time(4.0)) == [Lost(D0.peer.process, False, D0.peer.address)]
    members.feed(beat(D0))
    members.feed(register(D0))
    assert members.state() is MemberState.DRAINING
    assert only(members.feed(exited("decode-0"))) == [Lost(D0.peer.process, True, D0.peer.address)]


def test_the_gone_leave_the_list_after_a_while_and_the_lost_do_not(members: Watched) -> None:
    members.feed(register(D0))
    members.feed(register(card("decode-1")))
    members.feed(exited("decode-0"))
    members.pass_time(FORGET_GONE_S + 1.0)
    assert members.state("decode-0") is None
    # Without proof somebody may still wait for one.
    assert members.state("decode-1") is MemberState.DEAD
    assert members.feed(beat(D0)) == []  # still known as gone


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (card("prefill-0", fingerprint="f2"), ["fingerprint: f2 here, f1 in the deployment"]),
        (card("prefill-0", model="n"), ["model: n here, m in the deployment"]),
        (
            card("prefill-0", layout=replace(LAYOUT, block_tokens=32, kv_heads=4)),
            ["layout.block_tokens: 32 here, 16", "layout.kv_heads: 4 here, 2"],
        ),
        (card("prefill-0", max_context=9), ["max_context: 9 here, 4096 in the deployment"]),
        (card("gpu-0", roles=(Role.DECODE,)), ["pool: gpu here, one of prefill, decode"]),
        (
            card("prefill-0", roles=(Role.PREFILL, Role.DECODE)),
            ["roles of pool 'prefill': decode+prefill here, prefill in the deployment"],
        ),
    ],
)
def test_a_foreign_worker_is_refused_with_both_sides(
    members: Watched, other: WorkerCard, told: list[str]
) -> None:
    members.feed(register(D0))
    (refusal,) = members.feed(register(other))
    assert isinstance(refusal, Refused)
    for part in told:
        assert part in refusal.reason
    assert members.state("prefill-0") is None
    # The identity stays the first one's.
    assert only(members.feed(register(card("prefill-0")))) == [Joined(card("prefill-0"))]


def test_a_card_of_somebody_else_is_unexpected(members: Watched) -> None:
    assert members.feed(FromPeer(process("decode-1"), Register(D0))) == []
    assert members.feed(FromPeer(process("decode-1"), Tokens(()))) == []
    assert members.inner.unexpected_total == 2


def test_a_stopped_router_doesnt_take_its_own_silence_for_others(members: Watched) -> None:
    members.feed(register(D0))
    members.pass_time(1.0)
    members.now_s += 60.0
    assert members.feed(Tick()) == []
    assert members.state() is MemberState.ALIVE
    # What was silent before is still counted.
    assert members.pass_time(0.5) == [Changed()]


def test_integrity_check_finds_a_false_entry(members: Watched) -> None:
    members.feed(register(D0))
    members.inner._by_address["tcp://else"] = D0.peer.process.name
    with pytest.raises(IndexCorrupt, match="tcp://else"):
        members.inner.check_integrity()
