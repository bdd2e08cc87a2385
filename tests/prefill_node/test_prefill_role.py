"""The prefill role by itself: what it refuses, what it says to whom, and when it lets go."""

from dataclasses import replace
from typing import Any

import pytest

from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, SampledToken
from engine import actions as engine_actions, events as engine_events
from kv_transfer.node_actions import (
    AddressGone,
    Checksummed,
    ComputeChecksums,
    FromEngine,
    FromPeer,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    WriteBlocks,
    WriteEnded,
)
from prefill_node.prefill_role import PrefillRole
from tests.decode_node.two_workers import GATEWAY, LAYOUT, D, request
from wire.messages import (
    Cancel,
    KvAbort,
    KvAccept,
    KvAck,
    KvDone,
    KvRefuse,
    KvReleased,
    KvTarget,
    Prefill,
    PrefillEnded,
    PrefillReport,
    Tokens,
    WorkerLost,
)

ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))


def order(tokens: int = 40, **changes: Any) -> Prefill:
    target = KvTarget(
        transport="memory",
        address=b"d",
        layout=LAYOUT,
        held_blocks=0,
        blocks=tuple(range(100, 100 + LAYOUT.blocks_for(tokens))),
    )
    return Prefill(
        request=request(1, tokens),
        gateway=GATEWAY,
        decode=D,
        target=replace(target, **changes),
        lease_ms=4_000.0,
    )


def role() -> PrefillRole:
    return PrefillRole(
        layout=LAYOUT, transport="memory", algorithm="sum", blocks_of=lambda _: (5, 6, 7)
    )


def messages(actions: list[Any], address: str) -> list[Any]:
    return [a.message for a in actions if isinstance(a, SendTo) and a.address == address]


def hear(role: PrefillRole, message: Any, now_s: float = 0.0) -> list[Any]:
    return list(role.handle(FromPeer(D.process, message), now_s))


def told(role: PrefillRole, *actions: engine_actions.Action, now_s: float = 0.0) -> list[Any]:
    return list(role.handle(FromEngine(actions), now_s))


def test_a_prefill_goes_its_way() -> None:
    p = role()
    started = hear(p, order(), 1.0)
    assert messages(started, D.address) == [KvAccept(ATTEMPT)]
    assert ToEngine(engine_events.AddPrefill(request(1, 40))) in started
    told(p, engine_actions.Started(ATTEMPT), now_s=1.5)
    # 20 tokens fill one block for good; the second will still be written to.
    assert told(p, engine_actions.Computed(ATTEMPT, 20)) == [ComputeChecksums(ATTEMPT, (5,))]
    (write,) = p.handle(Checksummed(ATTEMPT, (5,), (1,)), 1.6)
    assert isinstance(write, WriteBlocks)
    assert write.pairs == ((5, 100),)
    assert write.peer == b"d"
    first = (SampledToken(0, 0, 9),)
    done = told(
        p,
        engine_actions.Computed(ATTEMPT, 40),
        engine_actions.PrefillDone(ATTEMPT, first),
        now_s=2.0,
    )
    report, tokens = messages(done, GATEWAY.address)
    assert isinstance(report, PrefillReport)
    assert (report.queue_ms, report.prefill_ms) == (500.0, 500.0)
    assert isinstance(tokens, Tokens)
    assert tokens.items[0].sampled == first[0]
    (second,) = p.handle(Checksummed(ATTEMPT, (6, 7), (2, 3)), 2.0)
    assert isinstance(second, WriteBlocks)
    assert p.handle(WriteEnded(ATTEMPT, write.number), 2.1) == []
    (said,) = messages(list(p.handle(WriteEnded(ATTEMPT, second.number), 2.2)), D.address)
    assert isinstance(said, KvDone)
    assert (said.checksums, said.first, said.blocks) == ((1, 2, 3), first, 3)
    end = hear(p, KvAck(ATTEMPT), 2.3)
    assert ToEngine(engine_events.Abort(ATTEMPT)) in end
    assert TransferEnded(3 * LAYOUT.block_bytes, failed=False) in end
    assert p.open_transfers == 0


def test_token_0_that_ends_the_request_moves_nothing_more() -> None:
    p = role()
    hear(p, order())
    told(p, engine_actions.Started(ATTEMPT))
    last = (SampledToken(0, 0, 9, FinishReason.LENGTH),)
    out = told(p, engine_actions.Computed(ATTEMPT, 40), engine_actions.PrefillDone(ATTEMPT, last))
    assert messages(out, D.address) == [PrefillEnded(ATTEMPT)]
    assert not [a for a in out if isinstance(a, WriteBlocks)]
    assert ToEngine(engine_events.Abort(ATTEMPT)) in out
    assert isinstance(p.handle(Checksummed(ATTEMPT, (5,), (1,)), 0.0)[0], Stale)


@pytest.mark.parametrize(
    "changes",
    [
        {"transport": "tcp"},
        {"layout": replace(LAYOUT, kv_heads=2)},
        {"layout": replace(LAYOUT, dtype="bfloat16")},
        {"blocks": (1, 2)},
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(changes: dict[str, Any]) -> None:
    p = role()
    out = hear(p, order(**changes))
    (refusal,) = messages(out, D.address)
    assert isinstance(refusal, KvRefuse)
    assert refusal.reason
    assert p.open_transfers == 0
    assert len(out) == 1


def test_cancel_before_prefill_wins() -> None:
    p = role()
    hear(p, Cancel(ATTEMPT, "gone"))
    assert isinstance(messages(hear(p, order()), D.address)[0], KvRefuse)


def test_an_abort_of_a_stranger_is_answered_and_its_prefill_never_written() -> None:
    p = role()
    out = hear(p, KvAbort(ATTEMPT, "timeout", D.address))
    assert out == [SendTo(D.address, KvReleased(ATTEMPT))]
    (refusal,) = messages(hear(p, order()), D.address)
    assert isinstance(refusal, KvRefuse)


def test_an_attempt_that_ended_is_not_taken_twice_and_its_abort_answered_again() -> None:
    p = role()
    hear(p, order())
    hear(p, KvAbort(ATTEMPT, "gone", D.address))
    assert p.open_transfers == 0
    assert isinstance(messages(hear(p, order()), D.address)[0], KvRefuse)
    again = hear(p, KvAbort(ATTEMPT, "still gone", D.address))
    assert again == [SendTo(D.address, KvReleased(ATTEMPT))]


def test_an_abort_waits_for_the_write_in_flight() -> None:
    p = role()
    hear(p, order())
    told(p, engine_actions.Started(ATTEMPT), engine_actions.Computed(ATTEMPT, 16))
    (write,) = p.handle(Checksummed(ATTEMPT, (5,), (1,)), 0.0)
    assert isinstance(write, WriteBlocks)
    assert messages(hear(p, KvAbort(ATTEMPT, "cancelled")), D.address) == []
    out = list(p.handle(WriteEnded(ATTEMPT, write.number, "broken"), 0.1))
    assert messages(out, D.address) == [KvReleased(ATTEMPT)]
    assert ToEngine(engine_events.Abort(ATTEMPT)) in out


def test_the_death_of_decode_worker_or_gateway_and_the_deadline_let_go() -> None:
    for event in (
        FromPeer(GATEWAY.process, WorkerLost(D.process, True)),
        AddressGone(D.address),
        AddressGone(GATEWAY.address),
    ):
        p = role()
        hear(p, order())
        assert ToEngine(engine_events.Abort(ATTEMPT)) in p.handle(event, 0.1)
        assert p.open_transfers == 0
    p = role()
    hear(p, order())
    assert ToEngine(engine_events.Abort(ATTEMPT)) in p.handle(RoleTick(), 601.0)


def test_strangers_are_counted() -> None:
    p = role()
    for message in (KvAck(ATTEMPT), KvAbort(ATTEMPT, "?"), KvAccept(ATTEMPT)):
        assert isinstance(hear(p, message)[0], Stale)


def test_shutting_down_tells_the_decode_worker() -> None:
    p = role()
    hear(p, order())
    told(p, engine_actions.Started(ATTEMPT))
    said = messages(list(p.stop("shutting down", 1.0)), D.address)
    assert KvReleased(ATTEMPT) in said
