from collections import Counter
from dataclasses import replace

import pytest

from core.errors import ConfigError
from router.events import Forget, FromPeer, PeerGone, Send, Tick
from router.router import MEMBERS_EVERY_S, Outcome, Router
from router.subscribers import EXPIRES_AFTER_S
from tests.router.world import (
    GATEWAY,
    LAUNCHER,
    ROUTER,
    ask,
    beat,
    card,
    config,
    pool,
    process,
    register,
    route,
    router_with,
    sent,
)
from wire.messages import (
    Assignment,
    Leaving,
    Members,
    MemberState,
    Peer,
    ProcessExited,
    Refusal,
    RefusalKind,
    Registered,
    RegisterRefused,
    Reregister,
    Route,
    Settled,
    Subscribe,
    WorkerLoad,
    WorkerLost,
)

P0, P1, D0, D1 = card("prefill-0"), card("prefill-1"), card("decode-0"), card("decode-1")
ALL = (P0, P1, D0, D1)
SUBSCRIBE = FromPeer(GATEWAY.process, Subscribe(GATEWAY))


def answer(router: Router, wanted: Route, now_s: float = 0.1) -> Assignment | Refusal:
    (action,) = router.handle(ask(wanted), now_s)
    router.check_integrity()
    assert isinstance(action, Send)
    assert action.address == wanted.gateway.address
    assert isinstance(action.message, Assignment | Refusal)
    assert action.message.attempt == wanted.attempt
    return action.message


def assigned(router: Router, wanted: Route, now_s: float = 0.1) -> Assignment:
    made = answer(router, wanted, now_s)
    assert isinstance(made, Assignment)
    return made


def test_a_hole_in_the_pools_ends_the_start() -> None:
    with pytest.raises(ConfigError, match="1 to 9 tokens"):
        Router(process=ROUTER, config=config(pool("decode", low=10)))


def test_registration_is_answered() -> None:
    router = Router(process=ROUTER, config=config())
    assert router.handle(register(P0), 0.0) == [Send(P0.peer.address, Registered(ROUTER))]
    (refused,) = router.handle(register(card("decode-0", fingerprint="f2")), 0.0)
    assert isinstance(refused, Send)
    assert isinstance(refused.message, RegisterRefused)
    assert "f2 here, f1 in the deployment" in refused.message.reason


def test_an_unknown_worker_is_asked_for_its_card() -> None:
    router = Router(process=ROUTER, config=config())
    assert router.handle(beat(D0), 0.0) == [Send(D0.peer.address, Reregister())]


def test_an_assignment_names_peers_and_predictions() -> None:
    made = assigned(router_with(ALL), route(prompt=200))
    assert (made.prefill, made.decode) == (P0.peer, D0.peer)
    assert made.predicted_ttft_ms == pytest.approx(10 + 200 + 1, abs=1)
    assert made.predicted_tpot_ms == pytest.approx(20 + 1 + 0.2)


def test_a_burst_is_spread_before_any_heartbeat() -> None:
    router = router_with(ALL)
    made = [assigned(router, route(f"r{i}")) for i in range(40)]
    prefills = Counter(a.prefill.process.name for a in made if a.prefill)
    decodes = Counter(a.decode.process.name for a in made)
    assert prefills == {"prefill-0": 20, "prefill-1": 20}
    assert decodes == {"decode-0": 20, "decode-1": 20}


def test_settled_frees_the_place() -> None:
    router = router_with(ALL)
    first = assigned(router, route("a"))
    router.handle(FromPeer(GATEWAY.process, Settled(route("a").attempt)), 0.2)
    assert assigned(router, route("b"), 0.3) == Assignment(
        attempt=route("b").attempt,
        decode=first.decode,
        prefill=first.prefill,
        predicted_ttft_ms=first.predicted_ttft_ms,
        predicted_tpot_ms=first.predicted_tpot_ms,
    )
    router.handle(FromPeer(GATEWAY.process, Settled(route("a").attempt)), 0.4)
    assert router.totals()["stale"] == 1


def test_the_next_attempt_replaces_the_older_one() -> None:
    router = router_with(ALL)
    assigned(router, route("a", epoch=1))
    again = assigned(router, route("a", epoch=2, avoid=(D0.peer.process,)))
    assert again.decode == D1.peer
    assert len(router.loads) == 1
    # The first one's settlement comes late and is none of the second's business.
    router.handle(FromPeer(GATEWAY.process, Settled(route("a", epoch=1).attempt)), 0.3)
    assert len(router.loads) == 1


def test_an_overtaken_attempt_is_not_answered() -> None:
    router = router_with(ALL)
    assigned(router, route("a", epoch=2))
    assert router.handle(ask(route("a", epoch=1)), 0.2) == []
    assert router.outcomes[Outcome.STALE] == 1
    assert len(router.loads) == 1


def test_refusals_are_counted_by_kind() -> None:
    router = router_with([P0, D0])
    long = answer(router, route("long", prompt=4_000))
    assert isinstance(long, Refusal)
    assert long.kind is RefusalKind.TOO_LONG
    router.handle(beat(P0, WorkerLoad(prefill_tokens_queued=10**6, blocks_free=100)), 0.2)
    late = answer(router, route("late"))
    assert isinstance(late, Refusal)
    assert late.kind is RefusalKind.OVERLOADED
    assert late.retry_after_s > 900.0
    router.handle(FromPeer(LAUNCHER, ProcessExited(D0.peer.process)), 0.3)
    nobody = answer(router, route("nobody"))
    assert isinstance(nobody, Refusal)
    assert nobody.kind is RefusalKind.NO_WORKER
    assert len(router.loads) == 0
    assert router.outcomes == {
        Outcome.TOO_LONG: 1,
        Outcome.OVERLOADED: 1,
        Outcome.NO_WORKER: 1,
    }


def test_pools_are_chosen_by_prompt_length() -> None:
    tree = config(pool("prefill"), pool("decode-short", high=99), pool("decode-long", low=100))
    router = router_with([P0, card("decode-short-0"), card("decode-long-0")], tree)
    assert assigned(router, route("a", prompt=99)).decode.process.name == "decode-short-0"
    assert assigned(router, route("b", prompt=100)).decode.process.name == "decode-long-0"
    assert assigned(router, route("c", prompt=1)).decode.process.name == "decode-short-0"


def test_a_loss_is_told_to_all_others() -> None:
    router = router_with(ALL)
    router.handle(SUBSCRIBE, 0.0)
    actions = router.handle(FromPeer(LAUNCHER, ProcessExited(P0.peer.process)), 1.0)
    told = {address for address, _ in sent(actions, WorkerLost)}
    assert told == {GATEWAY.address, P1.peer.address, D0.peer.address, D1.peer.address}
    assert all(m == WorkerLost(P0.peer.process, True) for _, m in sent(actions, WorkerLost))
    assert Forget(P0.peer.address) in actions
    ((address, members),) = sent(actions, Members)
    assert address == GATEWAY.address
    assert [view.state for view in members.members].count(MemberState.DEAD) == 1


def test_a_replacement_at_the_old_address_keeps_its_connection() -> None:
    router = router_with([D0])
    again = replace(D0, peer=Peer(process("decode-0", 2), D0.peer.address))
    actions = router.handle(register(again), 1.0)
    assert Forget(D0.peer.address) not in actions
    assert Send(D0.peer.address, Registered(ROUTER)) in actions


def test_a_restarted_router_passes_on_what_the_launcher_told_it_before_anybody_joined() -> None:
    """A decode worker keeps blocks in quarantine until it hears that their writer is dead."""
    router = Router(process=ROUTER, config=config())
    proof = WorkerLost(P0.peer.process, True)
    assert router.handle(FromPeer(LAUNCHER, ProcessExited(P0.peer.process)), 0.0) == []
    assert router.handle(register(D0), 0.5) == [
        Send(D0.peer.address, Registered(ROUTER)),
        Send(D0.peer.address, proof),
    ]
    told = sent(router.handle(SUBSCRIBE, 0.6), WorkerLost)
    assert told == [(GATEWAY.address, proof)]
    assert router.handle(SUBSCRIBE, 1.6) == []


def test_a_worker_that_was_out_of_reach_hears_again_who_is_proven_gone() -> None:
    router = router_with([P0, D0])
    router.handle(PeerGone(D0.peer.address), 0.1)
    router.handle(FromPeer(LAUNCHER, ProcessExited(P0.peer.process)), 0.2)
    proof = (D0.peer.address, WorkerLost(P0.peer.process, True))
    assert sent(router.handle(beat(D0), 0.3), WorkerLost) == [proof]
    assert sent(router.handle(beat(D0), 0.4), WorkerLost) == []


def test_what_a_quarantine_keeps_is_refused_until_it_ends() -> None:
    router = router_with([P0, D0])
    router.handle(beat(D0, WorkerLoad(blocks_free=10, blocks_quarantined=90)), 0.1)
    refused = answer(router, route("a", prompt=200))
    assert isinstance(refused, Refusal)
    assert refused.kind is RefusalKind.OVERLOADED
    assert refused.retry_after_s == 5.0
    assert len(router.loads) == 0
    router.handle(beat(D0), 0.3)
    assert assigned(router, route("b", prompt=200)).decode == D0.peer


def test_the_leaving_get_nothing_new() -> None:
    router = router_with([P0, D0, D1])
    router.handle(FromPeer(D0.peer.process, Leaving()), 0.1)
    assert {assigned(router, route(f"r{i}")).decode for i in range(5)} == {D1.peer}


def test_a_suspected_prefill_worker_gets_nothing_until_it_beats() -> None:
    router = router_with([P0, D0])
    router.handle(PeerGone(P0.peer.address), 0.1)
    assert assigned(router, route("a")).prefill is None
    router.handle(beat(P0), 0.2)
    assert assigned(router, route("b"), 0.3).prefill == P0.peer


def test_gateways_get_members_at_first_on_change_and_twice_a_second() -> None:
    router = router_with([P0, D0])
    router.handle(Tick(), 0.0)
    ((address, first),) = sent(router.handle(SUBSCRIBE, 0.0), Members)
    assert address == GATEWAY.address
    assert [view.card for view in first.members] == [P0, D0]
    assert router.handle(SUBSCRIBE, 0.1) == []
    assert sent(router.handle(register(D1), 0.2), Members)
    assert router.handle(beat(D1, WorkerLoad(running=2, blocks_free=9)), 0.3) == []
    assert sent(router.handle(Tick(), 0.2 + MEMBERS_EVERY_S - 0.01), Members) == []
    ((_, later),) = sent(router.handle(Tick(), 0.2 + MEMBERS_EVERY_S + 0.01), Members)
    assert [view.load.running for view in later.members] == [0, 0, 2]


def test_a_silent_gateway_is_forgotten_with_its_requests() -> None:
    router = router_with([P0, D0])
    router.handle(SUBSCRIBE, 0.0)
    assigned(router, route("a"))
    now_s = 0.0
    while now_s < EXPIRES_AFTER_S + 0.2:
        now_s += 0.1
        router.handle(Tick(), now_s)
        router.handle(beat(P0), now_s)
        router.handle(beat(D0), now_s)
    assert len(router.loads) == 0
    assert sent(router.handle(Tick(), now_s + 1.0), Members) == []


def test_a_restarted_gateway_leaves_no_load_behind() -> None:
    router = router_with([P0, D0])
    router.handle(SUBSCRIBE, 0.0)
    assigned(router, route("a"))
    reborn = Peer(process("gateway", 2), "tcp://gateway:2")
    router.handle(FromPeer(reborn.process, Subscribe(reborn)), 0.2)
    assert len(router.loads) == 0


def test_a_reaped_gateway_leaves_no_load_behind_and_the_workers_hear_of_it() -> None:
    router = router_with([P0, D0])
    router.handle(SUBSCRIBE, 0.0)
    assigned(router, route("a"))
    actions = router.handle(FromPeer(LAUNCHER, ProcessExited(GATEWAY.process)), 0.3)
    assert len(router.loads) == 0
    assert [address for address, _ in sent(actions, WorkerLost)] == [
        P0.peer.address,
        D0.peer.address,
    ]


def test_what_is_never_settled_ends_with_its_deadline() -> None:
    router = router_with([P0, D0])
    assigned(router, route("a", deadline_ms=2_000))
    for tick in range(1, 31):
        router.handle(beat(D0), tick / 10)
        router.handle(Tick(), tick / 10)
    assert len(router.loads) == 0
    assert router.totals()["expired"] == 1


def test_unexpected_messages_are_counted() -> None:
    router = router_with([P0, D0])
    assert router.handle(FromPeer(D0.peer.process, Registered(ROUTER)), 0.1) == []
    assert router.totals()["unexpected"] == 1
