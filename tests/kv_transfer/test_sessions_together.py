"""Random interleavings of both ends under drops, reorder, duplicates, aborts, deaths and sleeps."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

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
from tests.kv_transfer.two_ends import LEASE_S, ToD, ToP, TwoEnds
from wire.messages import Fault

Choice: TypeAlias = tuple[int, int, int]
"""What kind of step, which of them, which detail; taken modulo what is possible."""


class Walk:
    """One interleaving: mostly things go on, in any order; at times something is disturbed.

    Without that proportion hardly a walk would get as far as a write in flight.
    """

    def __init__(self, blocks: int, disturbances: int) -> None:
        self.world = TwoEnds(blocks)
        self.disturbances_left = disturbances

    def step(self, choice: Choice) -> None:
        kind, which, detail = choice
        if kind % 8 == 0 and self.disturbances_left:
            self.disturbances_left -= 1
            steps = self._disturbances()
        else:
            steps = self._ordinary()
        steps[which % len(steps)](detail)
        self.world.check()

    def _ordinary(self) -> list[Callable[[int], None]]:
        world, p = self.world, self.world.p
        steps: list[Callable[[int], None]] = [
            lambda detail: world.pass_time((0.1, LEASE_S / 4)[detail % 2])
        ]
        if world.to_p:
            steps.append(lambda detail: world.deliver_to_p(detail % len(world.to_p)))
        if world.to_d:
            steps.append(lambda detail: world.deliver_to_d(detail % len(world.to_d)))
        if p is not None and p.state is SendState.OFFERED:
            steps.append(lambda _: world.tell_p(events.Accept()))
        if p is not None and p.state is SendState.STREAMING:
            steps.append(lambda detail: world.compute(1 + detail % 3))
            steps.append(lambda _: world.first_tokens(last=False))
        if world.writes:
            steps.append(lambda detail: self._end_a_write(detail, ok=True))
        if world.verify is not None:
            steps.append(lambda _: world.answer_verify())
        if not world.p_alive and not world.p_proven_dead:
            steps.append(lambda _: world.prove_p_dead())
        return steps

    def _disturbances(self) -> list[Callable[[int], None]]:
        world, p = self.world, self.world.p
        steps: list[Callable[[int], None]] = [
            self._a_lease_ends,
            lambda _: world.tell_p(events.Abort("cancelled")),
            lambda _: world.tell_d(events.Abort("cancelled")),
            lambda _: world.tell_p(events.PeerLost(False)),  # heartbeats ceased, but it lives
            lambda _: world.tell_d(events.PeerLost(False)),
        ]
        if world.p_alive and world.d_alive:
            steps += [lambda _: world.kill_p(), lambda _: world.kill_d()]
        if world.to_p:
            steps.append(lambda detail: self._drop(world.to_p, detail))
            steps.append(lambda detail: world.deliver_to_p(detail % len(world.to_p), keep=True))
        if world.to_d:
            steps.append(lambda detail: self._drop(world.to_d, detail))
            steps.append(lambda detail: world.deliver_to_d(detail % len(world.to_d), keep=True))
        if world.writes:
            steps.append(lambda detail: self._end_a_write(detail, ok=False))
        if world.memory and world.verify:
            steps.append(self._flip_a_bit)
        if p is not None and p.state is SendState.STREAMING:
            steps.append(lambda _: world.first_tokens(last=True))
        if p is not None and p.state is SendState.OFFERED:
            steps.append(lambda _: world.tell_p(events.Refuse(Fault.CAPACITY, "full")))
        return steps

    def _end_a_write(self, detail: int, ok: bool) -> None:
        numbers = sorted(self.world.writes)
        self.world.finish_write(numbers[detail % len(numbers)], ok, noted=detail % 2 == 0)

    def _drop(self, queue: list[ToP] | list[ToD], detail: int) -> None:
        queue.pop(detail % len(queue))

    def _flip_a_bit(self, detail: int) -> None:
        block = sorted(self.world.memory)[detail % len(self.world.memory)]
        self.world.memory[block] += 1

    def _a_lease_ends(self, detail: int) -> None:
        """For both, or for one while the other sleeps and sees neither time nor messages."""
        self.world.now_s += 2 * LEASE_S
        if detail % 3 != 0:
            self.world.tell_p(events.Tick())
        if detail % 3 != 1:
            self.world.tell_d(events.Tick())


def walk(blocks: int, disturbances: int, choices: Sequence[Choice]) -> TwoEnds:
    walking = Walk(blocks, disturbances)
    for choice in choices:
        walking.step(choice)
    walking.world.settle()
    return walking.world


def random_walks(seed: int, count: int) -> Counter[str]:
    """Walk uniformly; returns how often the transfers ended how."""
    draw = random.Random(seed)
    ends: Counter[str] = Counter()
    for _ in range(count):
        choices = [
            (draw.randrange(8), draw.randrange(2520), draw.randrange(2520))
            for _ in range(draw.randrange(10, 60))
        ]
        world = walk(draw.randrange(7), draw.randrange(5), choices)
        ends[f"{world.p.state if world.p else 'never'} / {world.d.state}"] += 1
    return ends


@given(
    st.integers(0, 6),
    st.integers(0, 4),
    st.lists(st.tuples(*[st.integers(0, 2519)] * 3), max_size=40),
)
@settings(max_examples=100)
def test_any_interleaving_ends_well(blocks: int, disturbances: int, choices: list[Choice]) -> None:
    walk(blocks, disturbances, choices)


def test_thousands_of_interleavings_end_well() -> None:
    ends = random_walks(seed=1, count=4000)
    for end in ("acked / delivered", "aborted / released", "ended / ended", "refused / released"):
        assert ends[end] > 20, f"the walks don't reach '{end}': {ends}"
    assert any(end.endswith("recomputed") for end in ends)


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


@pytest.mark.parametrize(
    "event",
    [
        SendEvent.ABORT,
        SendEvent.PEER_ABORT,
        SendEvent.PEER_LOST,
        SendEvent.TIMEOUT,
        SendEvent.WRITE_FAILED,
    ],
)
def test_the_walks_catch_a_sender_that_speaks_too_early(event: SendEvent) -> None:
    with (
        patch("kv_transfer.send_session.SEND_TABLE", break_send(event)),
        pytest.raises(AssertionError, match=r"a write still reads|may still land"),
    ):
        random_walks(seed=2, count=4000)


@pytest.mark.parametrize(
    "event",
    [
        ReceiveEvent.ABORT,
        ReceiveEvent.PEER_ABORT,
        ReceiveEvent.PEER_LOST,
        ReceiveEvent.TIMEOUT,
    ],
)
def test_the_walks_catch_a_receiver_that_frees_without_proof(event: ReceiveEvent) -> None:
    with (
        patch("kv_transfer.receive_session.RECEIVE_TABLE", break_receive(event)),
        pytest.raises(AssertionError, match="may still land"),
    ):
        random_walks(seed=2, count=4000)


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
