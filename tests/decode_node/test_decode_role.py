"""The decode role by itself: what it says to whom, and what becomes of the blocks."""

from typing import Any

from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId
from core.request import SampledToken
from decode_node.decode_role import DecodeRole
from engine import actions as engine_actions, events as engine_events
from kv_transfer.node_actions import (
    AddressGone,
    BlocksVerified,
    FromEngine,
    FromPeer,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    VerifyBlocks,
)
from tests.decode_node.two_workers import GATEWAY, LAYOUT, D, P, request
from wire.messages import (
    AttemptFailed,
    Cancel,
    Fault,
    HandoffReport,
    KvAbort,
    KvAccept,
    KvAck,
    KvDone,
    KvRefuse,
    KvReleased,
    Peer,
    Prefill,
    PrefillReport,
    Progress,
    Stage,
    Submit,
    Tokens,
    WorkerLost,
)

ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))
FIRST = (SampledToken(0, 0, 9),)


def role() -> DecodeRole:
    return DecodeRole(
        me=D,
        layout=LAYOUT,
        transport="memory",
        transport_address=b"d",
        algorithm="sum",
        lease_ms=4_000.0,
    )


def hear(role: DecodeRole, message: Any, now_s: float = 0.0) -> list[Any]:
    return list(role.handle(FromPeer(P.process, message), now_s))


def told(role: DecodeRole, *actions: engine_actions.Action, now_s: float = 0.0) -> list[Any]:
    return list(role.handle(FromEngine(actions), now_s))


def messages(actions: list[Any], address: str) -> list[Any]:
    return [a.message for a in actions if isinstance(a, SendTo) and a.address == address]


def submit(prefill: Peer | None = P) -> Submit:
    return Submit(request=request(1, 20), gateway=GATEWAY, prefill=prefill)


def done(checksums: tuple[int, ...] = (1, 2)) -> KvDone:
    return KvDone(
        attempt=ATTEMPT, blocks=2, algorithm="sum", checksums=checksums, first=FIRST, elapsed_ms=3.0
    )


def receiving() -> DecodeRole:
    d = role()
    hear(d, submit())
    told(d, engine_actions.Reserved(ATTEMPT, (4, 5)))
    hear(d, KvAccept(ATTEMPT))
    return d


def test_a_handover_goes_its_way() -> None:
    d = role()
    assert hear(d, submit(), 1.0) == [ToEngine(engine_events.Reserve(request(1, 20)))]
    out = told(d, engine_actions.Reserved(ATTEMPT, (4, 5)), now_s=2.0)
    (order,) = messages(out, P.address)
    assert isinstance(order, Prefill)
    assert order.target.blocks == (4, 5)
    assert order.request.deadline_left_ms == 599_000.0
    assert messages(out, GATEWAY.address) == [Progress(ATTEMPT, Stage.RESERVED)]
    accepted = hear(d, KvAccept(ATTEMPT))
    assert messages(accepted, GATEWAY.address) == [Progress(ATTEMPT, Stage.PREFILLING)]
    assert hear(d, done(), 3.0) == [VerifyBlocks(ATTEMPT, (4, 5), (1, 2))]
    out = list(d.handle(BlocksVerified(ATTEMPT, True), 3.0))
    assert messages(out, P.address) == [KvAck(ATTEMPT)]
    assert ToEngine(engine_events.Delivered(ATTEMPT, FIRST)) in out
    assert TransferEnded(2 * LAYOUT.block_bytes, failed=False) in out
    (report, progress) = messages(
        told(d, engine_actions.DecodeStarted(ATTEMPT), now_s=3.004), GATEWAY.address
    )
    assert isinstance(report, HandoffReport)
    assert round(report.handoff_ms, 6) == 7.0
    assert progress == Progress(ATTEMPT, Stage.DECODING)
    out = told(
        d,
        engine_actions.Emit(ATTEMPT, SampledToken(0, 1, 8)),
        engine_actions.Emit(ATTEMPT, SampledToken(0, 2, 7)),
        engine_actions.Ended(ATTEMPT),
    )
    (tokens,) = messages(out, GATEWAY.address)
    assert isinstance(tokens, Tokens)
    assert [item.sampled.token for item in tokens.items] == [8, 7]
    assert not d.owns(ATTEMPT)


def test_a_local_prefill_reports_before_its_first_token() -> None:
    d = role()
    hear(d, submit(prefill=None), 1.0)
    told(d, engine_actions.Started(ATTEMPT), now_s=1.5)
    out = told(d, engine_actions.Emit(ATTEMPT, SampledToken(0, 0, 8)), now_s=2.5)
    report, progress, tokens = messages(out, GATEWAY.address)
    assert isinstance(report, PrefillReport)
    assert (report.queue_ms, report.prefill_ms) == (500.0, 1000.0)
    assert progress == Progress(ATTEMPT, Stage.DECODING)
    assert isinstance(tokens, Tokens)


def test_a_mismatch_is_recomputed_here() -> None:
    d = receiving()
    hear(d, done())
    out = list(d.handle(BlocksVerified(ATTEMPT, False), 0.0))
    assert ToEngine(engine_events.Recompute(ATTEMPT)) in out
    assert isinstance(messages(out, P.address)[0], KvAbort)
    emitted = told(d, engine_actions.Emit(ATTEMPT, SampledToken(0, 0, 8)))
    assert isinstance(messages(emitted, GATEWAY.address)[0], PrefillReport)


def test_a_cancel_quarantines_until_the_prefill_workers_word() -> None:
    d = receiving()
    out = hear(d, Cancel(ATTEMPT, "gone"))
    assert ToEngine(engine_events.Quarantine(ATTEMPT)) in out
    assert isinstance(messages(out, P.address)[0], KvAbort)
    assert messages(out, GATEWAY.address) == []
    assert d.open_transfers == 1
    assert hear(d, KvReleased(ATTEMPT)) == [ToEngine(engine_events.EndQuarantine(ATTEMPT))]
    assert d.open_transfers == 0


def test_a_refusal_is_passed_on_with_its_fault() -> None:
    d = receiving()
    out = hear(d, KvRefuse(ATTEMPT, Fault.CAPACITY, "full"))
    assert messages(out, GATEWAY.address) == [
        AttemptFailed(ATTEMPT, Fault.CAPACITY, "refused: full")
    ]
    assert ToEngine(engine_events.Abort(ATTEMPT)) in out
    assert not d.owns(ATTEMPT)


def test_a_silent_prefill_worker_is_waited_for_in_quarantine() -> None:
    d = receiving()
    out = list(d.handle(AddressGone(P.address), 1.0))
    assert isinstance(messages(out, GATEWAY.address)[0], AttemptFailed)
    assert ToEngine(engine_events.Quarantine(ATTEMPT)) in out
    lost = FromPeer(GATEWAY.process, WorkerLost(P.process, True))
    assert ToEngine(engine_events.EndQuarantine(ATTEMPT)) in d.handle(lost, 2.0)


def test_a_prefill_worker_known_to_be_dead_is_not_asked() -> None:
    d = role()
    hear(d, WorkerLost(P.process, True))
    hear(d, submit())
    out = told(d, engine_actions.Reserved(ATTEMPT, (4, 5)))
    assert messages(out, P.address) == []
    (failed,) = messages(out, GATEWAY.address)
    assert isinstance(failed, AttemptFailed)
    assert failed.fault is Fault.PEER


def test_the_deadline_drops_without_a_word() -> None:
    d = role()
    hear(d, submit(prefill=None))
    out = list(d.handle(RoleTick(), 601.0))
    assert out == [ToEngine(engine_events.Abort(ATTEMPT))]


def test_a_broken_connection_to_the_gateway_ends_the_attempt_and_says_so() -> None:
    d = role()
    hear(d, submit(prefill=None))
    out = list(d.handle(AddressGone(GATEWAY.address), 1.0))
    assert ToEngine(engine_events.Abort(ATTEMPT)) in out
    (failed,) = messages(out, GATEWAY.address)  # it may be alive, and waiting
    assert isinstance(failed, AttemptFailed)
    assert failed.fault is Fault.PEER
    # That word may be lost with the next connection, so it is said again.
    again = list(d.handle(AddressGone(GATEWAY.address), 2.0))
    assert messages(again, GATEWAY.address) == [failed]


def test_token_0_is_said_again_after_the_hand_over() -> None:
    d = receiving()
    hear(d, done())
    out = list(d.handle(BlocksVerified(ATTEMPT, True), 0.0))
    (tokens,) = messages(out, GATEWAY.address)
    assert isinstance(tokens, Tokens)
    assert [item.sampled for item in tokens.items] == list(FIRST)


def test_only_the_prefill_workers_own_word_ends_a_quarantine() -> None:
    d = receiving()
    hear(d, Cancel(ATTEMPT, "gone"))
    stranger = FromPeer(GATEWAY.process, KvReleased(ATTEMPT))
    assert isinstance(next(iter(d.handle(stranger, 0.0))), Stale)
    assert d.open_transfers == 1
    reborn = ProcessId(P.process.name, Incarnation(99))
    out = list(d.handle(FromPeer(reborn, KvReleased(ATTEMPT)), 0.0))
    assert out == [ToEngine(engine_events.EndQuarantine(ATTEMPT))]


def test_a_resumed_request_with_nothing_left_just_ends() -> None:
    d = role()
    hear(d, submit(prefill=None))
    assert told(d, engine_actions.Ended(ATTEMPT)) == []
    assert not d.owns(ATTEMPT)


def test_preemption_is_part_of_life() -> None:
    d = receiving()
    hear(d, done())
    d.handle(BlocksVerified(ATTEMPT, True), 0.0)
    told(d, engine_actions.Preempted(ATTEMPT), engine_actions.Resumed(ATTEMPT))
    told(d, engine_actions.Ended(ATTEMPT))
    assert not d.owns(ATTEMPT)


def test_shutting_down_sends_requests_elsewhere() -> None:
    d = receiving()
    (failed,) = messages(list(d.stop("shutting down", 1.0)), GATEWAY.address)
    assert isinstance(failed, AttemptFailed)
    assert failed.fault is Fault.PEER


def test_repeats_and_strangers_are_counted() -> None:
    d = receiving()
    assert isinstance(hear(d, submit())[0], Stale)
    stranger = Attempt(RequestId("other"), Epoch(1))
    assert isinstance(hear(d, KvReleased(stranger))[0], Stale)
    assert isinstance(told(d, engine_actions.Started(stranger))[0], Stale)
