"""Random interleavings of both ends under drops, reorder, duplicates, aborts, deaths and sleeps."""

from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.lifecycle import Table
from core.transfer_lifecycle import (
    RECEIVE_TABLE,
    SEND_TABLE,
    ReceiveAction,
    ReceiveEvent,
    ReceiveState,
    SendAction,
    SendEvent,
    SendState,
)
from kv_transfer import events
from kv_transfer.actions import Verify
from tests.kv_transfer.two_ends import LEASE_S, TwoEnds
from wire.messages import Fault

ANY = st.integers(0, 1000)


class Interleavings(RuleBasedStateMachine):
    world: TwoEnds

    @initialize(blocks=st.integers(0, 6))
    def start(self, blocks: int) -> None:
        self.world = TwoEnds(blocks)

    @precondition(lambda self: self.world.to_p)
    @rule(index=ANY, fate=st.sampled_from(["first", "first", "any", "drop", "duplicate"]))
    def network_to_p(self, index: int, fate: str) -> None:
        at = 0 if fate == "first" else index % len(self.world.to_p)
        if fate == "drop":
            self.world.to_p.pop(at)
        else:
            self.world.deliver_to_p(at, keep=fate == "duplicate")

    @precondition(lambda self: self.world.to_d)
    @rule(index=ANY, fate=st.sampled_from(["first", "first", "any", "drop", "duplicate"]))
    def network_to_d(self, index: int, fate: str) -> None:
        at = 0 if fate == "first" else index % len(self.world.to_d)
        if fate == "drop":
            self.world.to_d.pop(at)
        else:
            self.world.deliver_to_d(at, keep=fate == "duplicate")

    @precondition(lambda self: self.world.p and self.world.p.state is SendState.OFFERED)
    @rule(refuse=st.sampled_from([False, False, False, True]))
    def answer_the_offer(self, refuse: bool) -> None:
        self.world.tell_p(events.Refuse(Fault.CAPACITY, "full") if refuse else events.Accept())

    @rule(count=st.integers(1, 3))
    def compute(self, count: int) -> None:
        self.world.compute(count)

    @rule(last=st.sampled_from([False, False, True]))
    def first_tokens(self, last: bool) -> None:
        self.world.first_tokens(last)

    @precondition(lambda self: self.world.writes)
    @rule(index=ANY, ok=st.sampled_from([True, True, True, False]), noted=st.booleans())
    def a_write_ends(self, index: int, ok: bool, noted: bool) -> None:
        numbers = sorted(self.world.writes)
        self.world.finish_write(numbers[index % len(numbers)], ok, noted)

    @rule()
    def verified(self) -> None:
        self.world.answer_verify()

    @precondition(lambda self: self.world.memory and self.world.verify)
    @rule()
    def a_bit_flips(self) -> None:
        self.world.memory[next(iter(self.world.memory))] += 1

    @rule(seconds=st.sampled_from([0.1, LEASE_S / 3, LEASE_S / 2, 2 * LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(seconds=st.sampled_from([LEASE_S / 2, 2 * LEASE_S]), who=st.sampled_from("pd"))
    def one_clock_is_late(self, seconds: float, who: str) -> None:
        """The other process sleeps: only one of them sees the time that has passed."""
        self.world.now_s += seconds
        if who == "p":
            self.world.tell_p(events.Tick())
        else:
            self.world.tell_d(events.Tick())

    @rule()
    def p_aborts(self) -> None:
        self.world.tell_p(events.Abort("cancelled"))

    @rule()
    def d_aborts(self) -> None:
        self.world.tell_d(events.Abort("cancelled"))

    @rule(who=st.sampled_from("pd"))
    def a_false_alarm(self, who: str) -> None:
        """Heartbeats cease although the other side lives."""
        if who == "p":
            self.world.tell_p(events.PeerLost(False))
        else:
            self.world.tell_d(events.PeerLost(False))

    @precondition(lambda self: self.world.p_alive and self.world.d_alive)
    @rule(who=st.sampled_from("pd"))
    def death(self, who: str) -> None:
        if who == "p":
            self.world.kill_p()
        else:
            self.world.kill_d()

    @precondition(lambda self: not self.world.p_alive and not self.world.p_proven_dead)
    @rule()
    def death_is_proven(self) -> None:
        self.world.prove_p_dead()

    @invariant()
    def safe(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


def streaming(blocks: int = 4) -> TwoEnds:
    world = TwoEnds(blocks)
    world.deliver_to_p(0)
    world.tell_p(events.Accept())
    world.compute(blocks)
    return world


def test_an_undisturbed_transfer_delivers() -> None:
    world = streaming()
    world.settle()
    assert world.fates == ["Deliver"]
    assert world.p is not None
    assert world.p.state is SendState.ACKED
    assert world.failed == 0


def test_a_flipped_bit_is_recomputed() -> None:
    world = streaming(2)
    world.first_tokens(last=False)
    world.finish_write(0, ok=True)
    world.memory[world.blocks[0]] += 1
    world.settle()
    assert world.fates == ["Recompute"]


def test_both_sides_aborting_at_once_leaks_nothing() -> None:
    world = streaming()
    world.tell_d(events.Abort("cancelled"))
    world.tell_p(events.Abort("cancelled"))
    world.settle()
    assert world.fates == ["EndQuarantine"]


def test_a_sleeping_sender_that_wakes_writes_into_nobodys_blocks() -> None:
    world = streaming()
    world.now_s += 30.0
    world.tell_d(events.Tick())
    assert world.d.quarantined
    for number in list(world.writes):  # they land now, 30 s late
        world.finish_write(number, ok=True)
        world.check()
    assert not world.fates
    world.settle()
    assert world.fates == ["EndQuarantine"]


def break_send(event: SendEvent) -> Table[SendState, SendEvent, SendAction]:
    """P frees and speaks before its writes have drained."""
    rows = dict(SEND_TABLE.rows)
    rows[SendState.STREAMING, event] = (
        SendState.ABORTED,
        (SendAction.SEND_RELEASED, SendAction.RELEASE_BLOCKS),
    )
    return Table(
        name="broken",
        initial=SEND_TABLE.initial,
        finals=SEND_TABLE.finals,
        everywhere=SEND_TABLE.everywhere,
        rows=rows,
    )


def break_receive(event: ReceiveEvent) -> Table[ReceiveState, ReceiveEvent, ReceiveAction]:
    """D frees without proof."""
    rows = dict(RECEIVE_TABLE.rows)
    rows[ReceiveState.RECEIVING, event] = (ReceiveState.RELEASED, (ReceiveAction.FREE_BLOCKS,))
    return Table(
        name="broken",
        initial=RECEIVE_TABLE.initial,
        finals=RECEIVE_TABLE.finals,
        everywhere=RECEIVE_TABLE.everywhere,
        rows=rows,
    )


def test_this_world_catches_a_sender_that_speaks_too_early() -> None:
    with patch("kv_transfer.send_session.SEND_TABLE", break_send(SendEvent.ABORT)):
        world = streaming()
        world.tell_p(events.Abort("cancelled"))
        with pytest.raises(AssertionError, match="a write still reads"):
            world.check()


@pytest.mark.parametrize("event", [ReceiveEvent.PEER_LOST, ReceiveEvent.TIMEOUT])
def test_this_world_catches_a_receiver_that_frees_without_proof(event: ReceiveEvent) -> None:
    with patch("kv_transfer.receive_session.RECEIVE_TABLE", break_receive(event)):
        world = streaming()
        world.deliver_to_d(0)
        world.tell_d(
            events.PeerLost(False) if event is ReceiveEvent.PEER_LOST else events.ChunkArrived(1)
        )
        world.now_s += 2 * LEASE_S
        world.tell_d(events.Tick())
        with pytest.raises(AssertionError, match="may still land"):
            world.check()


def test_this_world_catches_delivery_of_bytes_that_are_not_there() -> None:
    world = streaming()
    world.first_tokens(last=False)
    for number in list(world.writes):
        world.finish_write(number, ok=True)
    while world.to_d:
        world.deliver_to_d(0)
    assert isinstance(world.verify, Verify)
    world.memory.clear()
    with pytest.raises(AssertionError, match="a wrong byte"):
        world.tell_d(events.Verified(True))
