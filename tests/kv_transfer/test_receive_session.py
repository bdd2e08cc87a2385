"""D's end, event by event."""

import pytest

from core.errors import IllegalTransition
from core.ids import Attempt, Epoch, RequestId
from core.request import SampledToken
from core.transfer_lifecycle import ReceiveState
from kv_transfer.actions import (
    Deliver,
    EndQuarantine,
    FailAttempt,
    FinishAttempt,
    FreeBlocks,
    Ignored,
    Quarantine,
    Recompute,
    Send,
    Verify,
)
from kv_transfer.events import Abort, ChunkArrived, PeerLost, Revoked, Tick, Verified
from kv_transfer.receive_session import Heard, ReceiveSession, ReceiveSessionEvent
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


def done(attempt: Attempt = A, blocks: int = 2, algorithm: str = "xxh3_64") -> KvDone:
    return KvDone(
        attempt=attempt,
        blocks=blocks,
        algorithm=algorithm,
        checksums=(5, 6),
        first=FIRST,
        elapsed_ms=1.5,
    )


def offered() -> ReceiveSession:
    return ReceiveSession(attempt=A, blocks=(7, 8), algorithm="xxh3_64", lease_s=LEASE_S, now_s=0.0)


def receiving() -> ReceiveSession:
    session = offered()
    assert session.handle(KvAccept(A), 0.1) == []
    return session


def verifying() -> ReceiveSession:
    session = receiving()
    assert session.handle(done(), 1.0) == [Verify((7, 8), "xxh3_64", (5, 6))]
    return session


def quarantined() -> ReceiveSession:
    session = receiving()
    assert session.handle(Abort("cancelled"), 1.0) == [
        Send(KvAbort(A, "cancelled")),
        Quarantine("cancelled"),
    ]
    return session


def test_delivered_after_verification() -> None:
    session = receiving()
    assert session.handle(ChunkArrived(1), 0.5) == []
    assert session.blocks_arrived == 1
    session.handle(done(), 1.0)
    assert session.elapsed_ms == 1.5
    assert session.handle(Verified(True), 1.1) == [Send(KvAck(A)), Deliver(FIRST)]
    assert session.state is ReceiveState.DELIVERED
    assert session.reason == ""
    # A note that is polled after the control channel's message is nothing odd.
    assert session.handle(ChunkArrived(1), 1.2) == []


def test_a_mismatch_is_recomputed_here() -> None:
    abort, recompute = verifying().handle(Verified(False), 1.1)
    assert abort == Send(KvAbort(A, "checksums differ"))
    assert recompute == Recompute("checksums differ")


@pytest.mark.parametrize(
    "wrong",
    [
        done(blocks=1),
        done(algorithm="crc32"),
        KvDone(
            attempt=A, blocks=2, algorithm="xxh3_64", checksums=(5,), first=FIRST, elapsed_ms=0.0
        ),
        KvDone(
            attempt=A, blocks=2, algorithm="xxh3_64", checksums=(5, 6), first=(), elapsed_ms=0.0
        ),
    ],
)
def test_a_commit_that_is_not_exact_is_a_mismatch(wrong: KvDone) -> None:
    actions = receiving().handle(wrong, 1.0)
    assert [type(action) for action in actions] == [Send, Recompute]


def test_a_last_token_0_frees_and_finishes() -> None:
    session = receiving()
    assert session.handle(PrefillEnded(A), 1.0) == [FreeBlocks(), FinishAttempt()]
    assert session.state is ReceiveState.ENDED


def test_refused_needs_no_quarantine() -> None:
    assert offered().handle(KvRefuse(A, Fault.CAPACITY, "full"), 0.2) == [
        FailAttempt(Fault.CAPACITY, "refused: full"),
        FreeBlocks(),
    ]


def test_our_abort_quarantines_until_p_has_released() -> None:
    session = quarantined()
    assert session.handle(KvReleased(A), 1.5) == [EndQuarantine()]
    assert session.state is ReceiveState.RELEASED


@pytest.mark.parametrize(
    "proof",
    [
        KvReleased(A),
        KvRefuse(A, Fault.US, ""),
        done(),
        done(blocks=1),
        PrefillEnded(A),
        PeerLost(True),
        Revoked(),
    ],
)
def test_what_ends_a_quarantine(proof: ReceiveSessionEvent) -> None:
    assert quarantined().handle(proof, 2.0) == [EndQuarantine()]


@pytest.mark.parametrize(
    "event",
    [
        PeerLost(False),
        KvAbort(A, "me too"),
        Abort("again"),
        KvAccept(A),
        KvRenew(A),
        Verified(True),
        ChunkArrived(1),
        KvReleased(STALE),
        done(STALE),
    ],
)
def test_what_does_not(event: ReceiveSessionEvent) -> None:
    session = quarantined()
    actions = session.handle(event, 2.0)
    assert EndQuarantine() not in actions
    assert session.quarantined


def test_time_never_ends_a_quarantine_but_asks_again() -> None:
    session = quarantined()
    asked = 0
    for seconds in range(2, 100):
        actions = session.handle(Tick(), float(seconds))
        asked += actions == [Send(KvAbort(A, "cancelled"))]
    assert asked == 32
    assert session.quarantined


def test_the_lease_fails_the_attempt_and_quarantines() -> None:
    session = offered()
    assert session.handle(Tick(), 2.9) == []
    abort, fail, quarantine = session.handle(Tick(), 3.0)
    assert abort == Send(KvAbort(A, "no progress for 3 s in offered"))
    assert fail == FailAttempt(Fault.PEER, "no progress for 3 s in offered")
    assert isinstance(quarantine, Quarantine)


@pytest.mark.parametrize("sign", [KvAccept(A), KvRenew(A), ChunkArrived(1)])
def test_progress_renews_the_lease(sign: ReceiveSessionEvent) -> None:
    session = offered()
    session.handle(sign, 2.0)
    assert session.handle(Tick(), 4.9) == []
    assert session.handle(Tick(), 5.0) != []


def test_p_giving_up_is_quarantine_until_its_released() -> None:
    session = receiving()
    fail, quarantine = session.handle(KvAbort(A, "engine fault"), 1.0)
    assert fail == FailAttempt(Fault.PEER, "the prefill worker gave up: engine fault")
    assert isinstance(quarantine, Quarantine)
    assert session.handle(KvReleased(A), 1.1) == [EndQuarantine()]


def test_released_alone_fails_and_frees() -> None:
    fail, free = receiving().handle(KvReleased(A), 1.0)
    assert isinstance(fail, FailAttempt)
    assert free == FreeBlocks()


def test_death_proven_and_unproven() -> None:
    fail, free = receiving().handle(PeerLost(True), 1.0)
    assert fail == FailAttempt(Fault.PEER, "the prefill worker died")
    assert free == FreeBlocks()
    session = receiving()
    actions = session.handle(PeerLost(False), 1.0)
    assert [type(action) for action in actions] == [Send, FailAttempt, Quarantine]
    assert session.handle(PeerLost(True), 9.0) == [EndQuarantine()]


def test_a_cut_link_frees_at_once() -> None:
    actions = receiving().handle(Revoked(), 1.0)
    assert [type(action) for action in actions] == [Send, FailAttempt, FreeBlocks]


@pytest.mark.parametrize(
    "event",
    [PeerLost(True), PeerLost(False), KvAbort(A, ""), KvReleased(A), done(), Revoked(), KvRenew(A)],
)
def test_once_done_nothing_of_p_matters(event: ReceiveSessionEvent) -> None:
    session = verifying()
    session.handle(event, 1.05)
    assert session.handle(Verified(True), 1.1) == [Send(KvAck(A)), Deliver(FIRST)]
    assert session.reason == ""


def test_verification_renews_p_and_has_its_own_limit() -> None:
    session = verifying()  # at 1.0
    assert session.handle(Tick(), 2.0) == [Send(KvRenew(A))]
    assert session.handle(Tick(), 2.5) == []
    assert session.handle(Tick(), 3.0) == [Send(KvRenew(A))]
    actions = session.handle(Tick(), 4.0)
    assert [type(action) for action in actions] == [Send, Recompute]
    assert isinstance(session.handle(Verified(True), 4.1)[0], Ignored)


def test_abort_while_verifying_frees_at_once() -> None:
    session = verifying()
    assert session.handle(Abort("cancelled"), 1.1) == [
        Send(KvAbort(A, "cancelled")),
        FreeBlocks(),
    ]
    assert isinstance(session.handle(Verified(True), 1.2)[0], Ignored)


@pytest.mark.parametrize(
    "message",
    [
        KvAccept(A),
        KvRefuse(A, Fault.US, ""),
        KvRenew(A),
        done(),
        PrefillEnded(A),
        KvAbort(A, ""),
        KvReleased(A),
    ],
)
def test_late_messages_are_ignored_after_the_end(message: Heard) -> None:
    session = verifying()
    session.handle(Verified(True), 1.1)
    assert isinstance(session.handle(message, 1.2)[0], Ignored)
    assert session.handle(Tick(), 99.0) == []


def test_stale_messages_are_ignored() -> None:
    session = receiving()
    assert isinstance(session.handle(KvReleased(STALE), 1.0)[0], Ignored)
    assert session.state is ReceiveState.RECEIVING


def test_verified_without_verify_raises() -> None:
    with pytest.raises(IllegalTransition):
        receiving().handle(Verified(True), 1.0)
