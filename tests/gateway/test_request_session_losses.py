"""What a session does about losses: pauses, limits, poison, tokens that never come."""

from collections.abc import Callable

import pytest

from core.errors import PeerLost
from core.request import FinishReason
from core.request_lifecycle import RequestState
from gateway.lost_attempts import PAUSES_S
from gateway.session_actions import Failed, Finished, Usage
from gateway.session_events import PeerUnreachable, RouterUnreachable, Tick, WorkerGone
from gateway.token_gap import GAP_PATIENCE_S, SILENCE_PATIENCE_S
from tests.gateway.session_world import D, P, World, peer
from wire.messages import AttemptFailed, Fault, Peer, Stage

LENGTH = FinishReason.LENGTH


def decoder(number: int) -> Peer:
    return peer(f"decode-{number}")


def failure(world: World) -> Exception:
    end = world.end()
    assert isinstance(end, Failed)
    return end.error


def long_world(max_attempts: int = 4) -> World:
    return World(deadline_ms=600_000.0, max_attempts=max_attempts)


def test_a_request_outlives_a_flapping_link_of_seconds() -> None:
    """Four attempts that are lost at once must not be used up at once."""
    world = long_world().begin()
    begun_s = world.now_s
    while True:
        world.do(PeerUnreachable(D.address))
        if world.session.ended:
            break
        asked = len(world.routes())
        world.do(Tick())
        world.do(RouterUnreachable())
        assert len(world.routes()) == asked, "it isn't time yet"
        world.wait()
        assert len(world.routes()) == asked + 1
        world.assign()
    assert type(failure(world)) is PeerLost
    assert len(world.routes()) == 4
    assert world.now_s - begun_s >= sum(PAUSES_S)


def test_attempts_that_deliver_do_not_use_up_the_limit() -> None:
    world = long_world(max_attempts=2).begin(prefill=None)
    for position in range(20):
        world.token(D, position, "x")
        world.do(PeerUnreachable(D.address))
        if len(world.routes()) < position + 2:
            world.wait()
        world.assign(D, None)
    world.token(D, 20, "x", LENGTH)
    assert isinstance(world.end(), Finished)
    assert world.text() == "x" * 21


def test_a_request_that_kills_its_workers_gets_no_third() -> None:
    world = long_world().begin(decoder(0), None)
    world.do(WorkerGone(decoder(0).process, proven=True))
    world.wait()
    world.assign(decoder(1), None)
    world.do(WorkerGone(decoder(1).process, proven=True))
    error = failure(world)
    assert type(error) is PeerLost
    assert "decode-0, decode-1" in str(error)
    assert len(world.submits()) == 2


def test_the_proof_of_the_deaths_may_come_after_the_broken_connections() -> None:
    world = long_world().begin(decoder(0), None)
    world.do(PeerUnreachable(decoder(0).address))
    world.wait()
    world.assign(decoder(1), None)
    world.do(WorkerGone(decoder(0).process, proven=True))
    world.do(PeerUnreachable(decoder(1).address))
    assert not world.session.ended
    world.now_s += 0.3
    world.do(Tick())
    assert len(world.routes()) == 2, "the launcher's word is waited for"
    world.do(WorkerGone(decoder(1).process, proven=True))
    assert type(failure(world)) is PeerLost
    assert len(world.submits()) == 2


def test_a_late_proof_does_not_end_what_goes_on_well() -> None:
    world = long_world().begin(decoder(0), None)
    for number in range(2):
        world.do(PeerUnreachable(decoder(number).address))
        world.wait()
        world.assign(decoder(number + 1), None)
    world.token(decoder(2), 0, "a")
    for number in range(2):
        world.do(WorkerGone(decoder(number).process, proven=True))
    assert not world.session.ended
    world.do(PeerUnreachable(decoder(2).address))
    assert type(failure(world)) is PeerLost


def test_one_death_is_not_held_against_a_request() -> None:
    world = long_world().begin()
    world.token(P, 0, "a")
    world.do(WorkerGone(D.process, proven=True))
    assert len(world.routes()) == 2, "at once: its client is reading"
    world.do(WorkerGone(P.process, proven=True))
    world.assign(decoder(1), None)
    world.token(decoder(1), 1, "b", LENGTH)
    assert world.end() == Finished(Usage(3, 2, 0))


def test_tokens_of_d_tell_that_it_needs_p_no_more() -> None:
    """Its Progress may have been lost."""
    world = long_world().begin()
    world.token(P, 0, "a")
    world.token(D, 1, "b")
    assert world.state() is RequestState.DECODING
    world.do(PeerUnreachable(P.address))
    assert world.session.attempt.epoch == 1


@pytest.mark.parametrize("d_first", [True, False])
def test_d_repeats_the_first_token_of_p(d_first: bool) -> None:
    world = long_world().begin()
    for sender in (D, P) if d_first else (P, D):
        world.token(sender, 0, "a")
    world.token(D, 1, "b", LENGTH)
    assert world.text() == "ab"
    assert world.end() == Finished(Usage(3, 2, 0))


def test_a_lost_first_token_is_generated_again() -> None:
    """It was lost with P's connection; D has generated all the others."""
    world = long_world().begin()
    world.stage(Stage.DECODING)
    begun_s = world.now_s
    for position in (1, 2):
        world.token(D, position, "bc"[position - 1], LENGTH if position == 2 else None)
    world.wait()
    assert world.now_s == begun_s + GAP_PATIENCE_S
    assert world.session.attempt.epoch == 2
    assert {p for p, _ in world.cancels()} == {D, P}
    assert "token 0 of choice 0 never came" in world.session.story
    world.wait()
    assert world.routes()[-1].avoid == (P.process,)
    world.assign(decoder(1), None)
    for position in range(3):
        world.token(decoder(1), position, "abc"[position], LENGTH if position == 2 else None)
    assert world.text() == "abc"


def test_a_gap_after_delivered_tokens_passes_them_on() -> None:
    world = long_world().begin()
    world.token(P, 0, "a")
    world.token(D, 2, "c")
    world.wait()
    assert world.routes()[-1].avoid == (D.process,)
    world.assign(decoder(1), None)
    assert world.submits()[-1][1].request.generated == ((ord("a"),),)


def test_a_decode_worker_that_falls_silent_is_not_waited_for_until_the_deadline() -> None:
    """It gave the attempt up and its word was lost."""
    world = long_world().begin()
    world.token(P, 0, "a")
    world.stage(Stage.DECODING)
    world.token(D, 1, "b")
    begun_s = world.now_s
    world.wait()
    assert world.now_s == begun_s + SILENCE_PATIENCE_S
    assert world.session.attempt.epoch == 2
    world.hear(D, AttemptFailed(world.session.attempt, Fault.PEER, "not assigned yet"))
    assert world.session.attempt.epoch == 2


@pytest.mark.parametrize("lost", [D, P])
@pytest.mark.parametrize("reached", range(5))
def test_an_unreachable_worker_is_replaced_while_it_is_needed(lost: Peer, reached: int) -> None:
    world = long_world().begin()
    steps: list[Callable[[], object]] = [
        lambda: world.stage(Stage.RESERVED),
        lambda: world.stage(Stage.PREFILLING),
        lambda: world.token(P, 0, "a"),
        lambda: world.stage(Stage.DECODING),
    ]
    for step in steps[:reached]:
        step()
    world.do(PeerUnreachable(lost.address))
    needed = lost is D or reached < 4
    assert world.session.attempt.epoch == (2 if needed else 1)
    assert world.state() is (RequestState.ROUTED if needed else RequestState.DECODING)
