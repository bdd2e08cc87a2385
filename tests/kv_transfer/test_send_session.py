"""P's end, event by event."""

from collections.abc import Sequence

import pytest

from core.errors import BugError, IllegalTransition
from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, SampledToken
from core.transfer_lifecycle import SendState
from kv_transfer.actions import (
    DropLink,
    Ignored,
    ReleaseBlocks,
    Send,
    SendAction,
    StopComputing,
    Write,
)
from kv_transfer.events import (
    Abort,
    Accept,
    BlocksComputed,
    FirstTokens,
    PeerLost,
    Refuse,
    Tick,
    WriteDone,
    WriteFailed,
)
from kv_transfer.note import ChunkNote, decode_note
from kv_transfer.send_session import SendLimits, SendSession
from wire.messages import (
    Fault,
    KvAbort,
    KvAccept,
    KvAck,
    KvDone,
    KvRefuse,
    KvReleased,
    KvRenew,
    PrefillEnded,
)

A = Attempt(RequestId("req-1"), Epoch(1))
STALE = Attempt(RequestId("req-1"), Epoch(2))
LEASE_S = 3.0
FIRST = (SampledToken(0, 0, 17),)
LAST = (SampledToken(0, 0, 2, FinishReason.STOP),)
ACCEPTED = [Send(KvAccept(A))]
RELEASED: list[SendAction] = [Send(KvReleased(A)), ReleaseBlocks()]


def offered(blocks: int = 3, limits: SendLimits | None = None) -> SendSession:
    return SendSession(
        attempt=A,
        remote_blocks=tuple(range(100, 100 + blocks)),
        algorithm="xxh3_64",
        lease_s=LEASE_S,
        now_s=0.0,
        limits=limits,
    )


def streaming(blocks: int = 3, limits: SendLimits | None = None) -> SendSession:
    session = offered(blocks, limits)
    assert session.handle(Accept(), 0.0) == ACCEPTED
    return session


def awaiting_ack() -> SendSession:
    session = streaming(1)
    session.handle(BlocksComputed((5,), (55,)), 1.0)
    session.handle(FirstTokens(FIRST), 1.0)
    session.handle(WriteDone(0), 1.5)
    assert session.state is SendState.AWAITING_ACK
    return session


def pairs(actions: Sequence[SendAction]) -> list[tuple[tuple[int, int], ...]]:
    return [action.pairs for action in actions if isinstance(action, Write)]


def test_blocks_go_out_while_later_ones_are_computed() -> None:
    session = streaming(3)
    (write,) = session.handle(BlocksComputed((7, 9), (70, 90)), 1.0)
    assert isinstance(write, Write)
    assert write.pairs == ((7, 100), (9, 101))
    assert decode_note(write.note) == ChunkNote(A, 2)
    assert session.handle(WriteDone(write.number), 1.1) == []
    assert session.blocks_written == 2
    (last,) = session.handle(BlocksComputed((4,), (40,)), 2.0)
    assert session.handle(FirstTokens(FIRST), 2.0) == []
    assert isinstance(last, Write)
    assert session.handle(WriteDone(last.number), 2.25) == [
        Send(
            KvDone(
                attempt=A,
                blocks=3,
                algorithm="xxh3_64",
                checksums=(70, 90, 40),
                first=FIRST,
                elapsed_ms=250.0,
            )
        )
    ]
    assert session.handle(KvAck(A), 2.5) == [ReleaseBlocks()]
    assert session.state is SendState.ACKED


def test_writes_in_flight_and_their_size_are_bounded() -> None:
    session = streaming(5, SendLimits(writes_in_flight=2, blocks_per_write=2))
    actions = session.handle(BlocksComputed((0, 1, 2, 3, 4), (0,) * 5), 1.0)
    assert pairs(actions) == [((0, 100), (1, 101)), ((2, 102), (3, 103))]
    assert session.writes_in_flight == 2
    assert pairs(session.handle(WriteDone(1), 1.1)) == [((4, 104),)]
    assert session.handle(FirstTokens(FIRST), 1.2) == []
    assert session.handle(WriteDone(0), 1.3) == []
    assert isinstance(session.handle(WriteDone(2), 1.4)[0], Send)


@pytest.mark.parametrize(("block_bytes", "blocks"), [(368_640, 11), (4096, 1024), (64 << 20, 1)])
def test_writes_have_about_one_size(block_bytes: int, blocks: int) -> None:
    assert SendLimits.for_blocks_of(block_bytes).blocks_per_write == blocks


def test_nothing_to_write_is_done_at_the_first_token() -> None:
    session = streaming(0)
    (done,) = session.handle(FirstTokens(FIRST), 1.0)
    assert isinstance(done, Send)
    assert isinstance(done.message, KvDone)
    assert done.message.blocks == 0


def test_a_last_token_0_ends_it_after_the_writes_in_flight() -> None:
    session = streaming(3, SendLimits(writes_in_flight=1, blocks_per_write=1))
    session.handle(BlocksComputed((1, 2), (0, 0)), 1.0)
    assert session.handle(FirstTokens(LAST), 1.1) == []
    assert isinstance(session.handle(BlocksComputed((3,), (0,)), 1.1)[0], Ignored)
    assert session.handle(WriteDone(0), 1.2) == [Send(PrefillEnded(A)), ReleaseBlocks()]
    assert session.state is SendState.ENDED


def test_a_failed_write_does_not_matter_once_token_0_was_the_last() -> None:
    session = streaming(1)
    session.handle(BlocksComputed((1,), (0,)), 1.0)
    session.handle(FirstTokens(LAST), 1.1)
    assert session.handle(WriteFailed(0, "x"), 1.2) == [Send(PrefillEnded(A)), ReleaseBlocks()]
    assert session.reason == ""


def test_one_choice_going_on_is_enough_to_hand_over() -> None:
    session = streaming(0)
    (done,) = session.handle(FirstTokens((*LAST, SampledToken(1, 0, 9))), 1.0)
    assert isinstance(done, Send)
    assert isinstance(done.message, KvDone)


def test_refusal_before_anything() -> None:
    session = offered()
    assert session.handle(Refuse(Fault.CAPACITY, "full"), 0.1) == [
        Send(KvRefuse(A, Fault.CAPACITY, "full")),
        ReleaseBlocks(),
    ]
    assert session.state is SendState.REFUSED


@pytest.mark.parametrize("event", [KvAbort(A, "why"), Abort("why"), PeerLost(True)])
def test_giving_up_before_acceptance_needs_no_wait(event: KvAbort | Abort | PeerLost) -> None:
    session = offered()
    assert session.handle(event, 0.1) == RELEASED
    assert isinstance(session.handle(Accept(), 0.2)[0], Ignored)


def test_an_abort_by_d_waits_for_writes_in_flight_and_posts_no_more() -> None:
    session = streaming(4, SendLimits(writes_in_flight=2, blocks_per_write=1))
    session.handle(BlocksComputed((1, 2, 3), (0, 0, 0)), 1.0)
    (stop,) = session.handle(KvAbort(A, "cancelled"), 1.1)
    assert isinstance(stop, StopComputing)
    assert isinstance(session.handle(BlocksComputed((4,), (0,)), 1.2)[0], Ignored)
    assert isinstance(session.handle(FirstTokens(FIRST), 1.2)[0], Ignored)
    assert session.handle(WriteDone(0), 1.3) == []
    assert session.handle(WriteFailed(1, "x"), 1.4) == RELEASED
    assert session.state is SendState.ABORTED


def test_an_abort_of_our_own_tells_d_at_once_and_released_later() -> None:
    session = streaming()
    session.handle(BlocksComputed((1,), (0,)), 1.0)
    assert session.handle(Abort("cancelled"), 1.1) == [
        StopComputing("cancelled"),
        Send(KvAbort(A, "cancelled")),
    ]
    assert session.handle(Abort("again"), 1.1) == []
    assert session.handle(WriteDone(0), 1.2) == RELEASED
    assert session.reason == "cancelled"


def test_an_abort_without_writes_in_flight_is_over_at_once() -> None:
    session = streaming()
    actions = session.handle(KvAbort(A, "cancelled"), 1.1)
    assert actions[1:] == RELEASED


def test_a_failed_write_gives_up() -> None:
    session = streaming(4, SendLimits(writes_in_flight=2, blocks_per_write=1))
    session.handle(BlocksComputed((1, 2, 3), (0, 0, 0)), 1.0)
    stop, abort = session.handle(WriteFailed(0, "link down"), 1.1)
    assert isinstance(stop, StopComputing)
    assert abort == Send(KvAbort(A, "a write failed: link down"))
    assert session.handle(WriteFailed(1, "link down"), 1.1) == RELEASED


def test_d_asking_again_after_the_end_is_answered_again() -> None:
    session = awaiting_ack()
    assert session.handle(KvAbort(A, "mismatch"), 2.0) == RELEASED
    assert session.handle(KvAbort(A, "mismatch"), 9.0) == [Send(KvReleased(A))]


def test_renewals_while_queued_and_computing() -> None:
    session = streaming()
    assert session.handle(Tick(), 0.9) == []
    assert session.handle(Tick(), 1.0) == [Send(KvRenew(A))]
    assert session.handle(Tick(), 1.9) == []
    assert session.handle(Tick(), 2.0) == [Send(KvRenew(A))]
    for tenths in range(22, 400, 2):  # a long queue is no timeout
        assert session.state is SendState.STREAMING
        session.handle(Tick(), tenths / 10)


def test_a_write_that_does_not_end_is_given_up_and_then_its_link_is_cut() -> None:
    session = streaming(2)
    session.handle(BlocksComputed((1,), (0,)), 1.0)
    assert session.handle(Tick(), 3.9) == [Send(KvRenew(A))]
    actions = session.handle(Tick(), 4.0)
    assert [type(action) for action in actions] == [StopComputing, Send]
    assert session.handle(Tick(), 6.9) == []
    assert isinstance(session.handle(Tick(), 7.0)[0], DropLink)
    assert session.handle(WriteFailed(0, "cut"), 7.1) == RELEASED


def test_after_a_long_sleep_nothing_is_posted() -> None:
    """SIGSTOP and SIGCONT: D's lease is long over, its blocks may soon be somebody else's."""
    session = streaming(3, SendLimits(writes_in_flight=1, blocks_per_write=1))
    session.handle(BlocksComputed((1, 2), (0, 0)), 1.0)
    actions = session.handle(WriteDone(0), 31.0)
    assert pairs(actions) == []
    assert actions[-2:] == RELEASED

    session = streaming(3)
    actions = session.handle(BlocksComputed((1, 2), (0, 0)), 31.0)
    assert pairs(actions) == []
    assert actions[-2:] == RELEASED


def test_an_ack_that_does_not_come_ends_with_p_freeing_its_own() -> None:
    session = awaiting_ack()  # at 1.5
    assert session.handle(KvRenew(A), 3.0) == []
    assert session.handle(Tick(), 5.9) == []
    assert session.handle(Tick(), 6.0) == RELEASED
    assert isinstance(session.handle(KvAck(A), 6.1)[0], Ignored)


@pytest.mark.parametrize("message", [KvAck(A), KvRenew(A), KvAck(STALE), KvAbort(STALE, "")])
def test_early_late_and_stale_messages_are_ignored(message: KvAck | KvRenew | KvAbort) -> None:
    session = streaming()
    assert isinstance(session.handle(message, 0.5)[0], Ignored)
    assert session.state is SendState.STREAMING


def test_illegal_moves_of_our_own_raise() -> None:
    with pytest.raises(BugError, match="in state offered"):
        offered().handle(BlocksComputed((1,), (0,)), 0.1)
    with pytest.raises(BugError, match="in state offered"):
        offered().handle(FirstTokens(FIRST), 0.1)
    with pytest.raises(IllegalTransition):
        streaming().handle(Accept(), 0.1)
    with pytest.raises(BugError, match="refused in state streaming"):
        streaming().handle(Refuse(Fault.US, "x"), 0.1)
    with pytest.raises(BugError, match="4 blocks with 4 checksums after 0 of 3"):
        streaming().handle(BlocksComputed((1, 2, 3, 4), (0,) * 4), 0.1)
    with pytest.raises(BugError, match="2 blocks with 1 checksums"):
        streaming().handle(BlocksComputed((1, 2), (0,)), 0.1)
    with pytest.raises(BugError, match="write 0 isn't in flight"):
        streaming().handle(WriteDone(0), 0.1)
    with pytest.raises(BugError, match="0 first tokens"):
        streaming().handle(FirstTokens(()), 0.1)
    session = streaming()
    session.handle(FirstTokens(FIRST), 0.1)
    with pytest.raises(BugError, match="second time"):
        session.handle(FirstTokens(FIRST), 0.2)
