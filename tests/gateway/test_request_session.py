"""A request's life, event by event."""

from collections.abc import Callable

import pytest

from core.errors import (
    BugError,
    CapacityError,
    ClientError,
    DeadlineExceeded,
    NoWorker,
    Overloaded,
    PeerLost,
    PromptTooLong,
)
from core.request import FinishReason, SampledToken
from core.request_lifecycle import RequestState
from gateway.router_question import RESTART_PATIENCE_S, RESUME_PATIENCE_S, ROUTER_SILENCE_S
from gateway.session_actions import Cancelled, Failed, Finished, Ignored, Usage
from gateway.session_events import (
    Begin,
    Broken,
    ClientGone,
    PeerUnreachable,
    RouterUnreachable,
    Tick,
    WorkerGone,
)
from tests.gateway.session_world import ROUTER, D, P, World, assignment, peer
from wire.messages import (
    AttemptFailed,
    Fault,
    Peer,
    PrefillReport,
    Progress,
    Refusal,
    RefusalKind,
    RoutePath,
    Stage,
    TokenItem,
    Tokens,
)

D2, P2 = peer("decode-1"), peer("prefill-1")
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def refuse(world: World, kind: RefusalKind, retry_after_s: float = 3.0) -> None:
    attempt = world.session.attempt
    world.hear(
        ROUTER,
        Refusal(attempt=attempt, kind=kind, reason="because", retry_after_s=retry_after_s),
    )


def fail(world: World, sender: Peer, fault: Fault) -> None:
    world.hear(sender, AttemptFailed(world.session.attempt, fault, "broke"))


def failure(world: World) -> Exception:
    end = world.end()
    assert isinstance(end, Failed)
    return end.error


def test_a_request_through_p_and_d() -> None:
    world = World().begin()
    route = world.routes()[0]
    assert (route.prompt_tokens, route.max_tokens, route.path) == (3, 64, RoutePath.ANY)
    submitted_to, submit = world.submits()[0]
    assert submitted_to == D
    assert submit.prefill == P
    assert submit.request.prompt == (1, 2, 3)
    assert not submit.request.resumed
    world.stage(Stage.RESERVED)
    assert world.state() is RequestState.RESERVED
    world.stage(Stage.PREFILLING)
    report = PrefillReport(
        attempt=world.session.attempt, queue_ms=1.0, prefill_ms=2.0, cached_tokens=2
    )
    world.hear(P, report)
    world.token(P, 0, "a")
    assert world.state() is RequestState.TRANSFERRING
    world.stage(Stage.DECODING)
    assert world.state() is RequestState.DECODING
    world.token(D, 1, "b")
    world.token(D, 2, "$", STOP)
    assert world.text() == "ab"
    assert world.finish() is STOP
    assert world.end() == Finished(Usage(3, 3, 2))
    assert world.started() == 1
    assert world.cancels() == [], "the workers know of an end of their own"
    assert world.settled() == [world.session.attempt]
    record = world.session.record
    assert (record.prefill, record.decode) == ("prefill-0", "decode-0")


def test_a_local_request() -> None:
    world = World().begin(prefill=None)
    assert world.submits()[0][1].prefill is None
    world.token(D, 0, "a", LENGTH)
    assert world.session.record.prefill == "local"
    assert isinstance(world.end(), Finished)


def test_d_may_be_ahead_of_p() -> None:
    world = World().begin()
    world.stage(Stage.DECODING)
    world.token(D, 1, "b")
    assert world.text() == ""
    assert world.state() is RequestState.ROUTED
    world.token(P, 0, "a")
    assert world.text() == "ab"
    assert world.state() is RequestState.DECODING


def test_repeated_stale_and_foreign_messages_are_counted_and_change_nothing() -> None:
    world = World().begin()
    old = world.session.attempt
    world.token(P, 0, "a")
    world.token(D, 1, "b")
    before = world.ignored()
    world.token(D, 0, "a")  # said twice by design: once by each worker
    world.token(D, 1, "b")
    world.token(D, 64, "z")  # beyond max_tokens
    world.token(D, 1, "z", choice=1)
    world.token(D2, 1, "z")
    world.assign(D2, P2)
    world.hear(D2, Progress(old, Stage.DECODING))
    world.stage(Stage.RESERVED)
    assert world.ignored() == before + 7
    fail(world, D, Fault.PEER)
    world.assign(D2)
    before = world.ignored()
    world.hear(D2, Tokens((TokenItem(old, SampledToken(0, 1, ord("z"))),)))
    world.hear(D2, AttemptFailed(old, Fault.US, "late"))
    assert world.ignored() == before + 2
    assert world.text() == "ab"
    assert not world.session.ended


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (RefusalKind.OVERLOADED, Overloaded),
        (RefusalKind.TOO_LONG, PromptTooLong),
    ],
)
def test_a_refused_first_attempt_is_answered_at_once(
    kind: RefusalKind, error: type[Exception]
) -> None:
    world = World()
    world.do(Begin())
    refuse(world, kind)
    refused = failure(world)
    assert type(refused) is error
    assert world.state() is RequestState.REJECTED
    if isinstance(refused, CapacityError):
        assert refused.retry_after_s == 3.0


def test_a_request_waits_for_a_worker_that_is_being_restarted_but_not_for_ever() -> None:
    world = World()
    world.do(Begin())
    refuse(world, RefusalKind.NO_WORKER)
    assert world.state() is RequestState.ROUTED
    asked = len(world.routes())
    world.now_s += 1.5
    world.do(Tick())
    assert len(world.routes()) == asked + 1
    world.now_s += RESTART_PATIENCE_S
    refuse(world, RefusalKind.NO_WORKER)
    assert type(failure(world)) is NoWorker


def test_a_lost_decode_worker_is_replaced_and_the_answer_goes_on() -> None:
    world = World().begin()
    world.token(P, 0, "a")
    world.stage(Stage.DECODING)
    world.token(D, 1, "b")
    world.token(D, 3, "d")  # never delivered: 2 is missing
    world.do(WorkerGone(D.process, proven=True))
    assert world.session.attempt.epoch == 2
    assert [p for p, _ in world.cancels()] == [P], "nothing of a dead process is left to cancel"
    route = world.routes()[-1]
    assert route.avoid == (D.process,)
    assert (route.prompt_tokens, route.max_tokens) == (5, 62)
    world.assign(D2, None)
    request = world.submits()[-1][1].request
    assert request.prompt == (1, 2, 3)
    assert request.generated == ((ord("a"), ord("b")),)
    world.token(D2, 2, "c")
    world.token(D2, 3, "d", LENGTH)
    assert world.text() == "abcd"
    assert world.end() == Finished(Usage(3, 4, 0))
    assert world.started() == 1
    assert [attempt.epoch for attempt in world.settled()] == [1, 2]


def test_a_suspected_worker_gets_a_cancel() -> None:
    world = World().begin()
    old = world.session.attempt
    world.do(WorkerGone(D.process, proven=False))
    assert [(p, c.attempt) for p, c in world.cancels()] == [(D, old), (P, old)]


def test_the_prefill_worker_matters_until_token_0_is_here_and_d_decodes() -> None:
    def lose_p(*, token: bool, decoding: bool) -> int:
        world = World().begin()
        if decoding:
            world.stage(Stage.DECODING)
        if token:
            world.token(P, 0, "a")
        world.do(WorkerGone(P.process, proven=False))
        fail(world, P, Fault.PEER)
        return world.session.attempt.epoch

    assert lose_p(token=False, decoding=False) == 2
    assert lose_p(token=True, decoding=False) == 2
    assert lose_p(token=False, decoding=True) == 2
    assert lose_p(token=True, decoding=True) == 1


def test_an_unreachable_address_is_a_lost_worker() -> None:
    world = World().begin()
    world.do(PeerUnreachable("tcp://elsewhere"))
    assert world.session.attempt.epoch == 1
    world.do(PeerUnreachable(D.address))
    assert world.session.attempt.epoch == 2


@pytest.mark.parametrize(
    ("sender", "fault", "avoided"),
    [(D, Fault.PEER, P), (P, Fault.PEER, D), (D, Fault.CAPACITY, D), (P, Fault.CAPACITY, P)],
)
def test_a_failed_attempt_is_tried_again_elsewhere(
    sender: Peer, fault: Fault, avoided: Peer
) -> None:
    world = World().begin()
    fail(world, sender, fault)
    world.wait()
    assert world.state() is RequestState.ROUTED
    assert world.routes()[-1].avoid == (avoided.process,)


@pytest.mark.parametrize(("fault", "error"), [(Fault.CALLER, ClientError), (Fault.US, BugError)])
def test_some_faults_are_not_worth_another_attempt(fault: Fault, error: type[Exception]) -> None:
    world = World().begin()
    fail(world, D, fault)
    assert type(failure(world)) is error
    assert {p for p, _ in world.cancels()} == {D, P}


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.PEER, PeerLost), (Fault.CAPACITY, CapacityError)]
)
def test_attempts_are_limited(fault: Fault, error: type[Exception]) -> None:
    world = World(max_attempts=3)
    world.do(Begin())
    for _ in range(3):
        assert not world.session.ended
        world.assign()
        fail(world, D, fault)
        if not world.session.ended:
            world.wait()
    assert type(failure(world)) is error
    assert len(world.routes()) == 3


def test_a_request_that_lost_its_worker_waits_for_another() -> None:
    world = World(deadline_ms=120_000.0).begin()
    world.token(P, 0, "a")
    fail(world, D, Fault.PEER)
    refuse(world, RefusalKind.NO_WORKER)
    asked = len(world.routes())
    world.do(Tick())
    assert len(world.routes()) == asked, "not yet"
    world.now_s = world.session.wake_s
    world.do(Tick())
    assert len(world.routes()) == asked + 1
    world.now_s += RESUME_PATIENCE_S
    refuse(world, RefusalKind.NO_WORKER)
    assert type(failure(world)) is NoWorker


def test_an_unreachable_router_is_asked_again_only_about_what_it_owes() -> None:
    world = World()
    world.do(Begin())
    world.do(RouterUnreachable())
    assert len(world.routes()) == 2
    refuse(world, RefusalKind.NO_WORKER)
    assert not world.session.ended, "it may not know its workers yet"
    world.now_s = world.session.wake_s
    world.do(Tick())
    world.assign()
    world.do(RouterUnreachable())
    assert len(world.routes()) == 3


def test_a_silent_router_is_not_waited_for_until_the_deadline() -> None:
    world = World(deadline_ms=600_000.0)
    world.do(Begin())
    world.now_s += 10.0
    world.do(RouterUnreachable())
    assert world.session.wake_s == pytest.approx(100.0 + ROUTER_SILENCE_S)
    world.now_s = world.session.wake_s
    world.do(Tick())
    assert type(failure(world)) is NoWorker


def test_resumed_choices_are_prefilled_locally_and_ended_ones_stay_ended() -> None:
    world = World(choices=2).begin()
    world.token(P, 0, "a", choice=0)
    world.token(P, 0, "x", LENGTH, choice=1)
    world.do(WorkerGone(D.process, proven=True))
    assert world.routes()[-1].path is RoutePath.LOCAL
    world.assign(D2, None)
    assert world.submits()[-1][1].request.generated == ((ord("a"),), None)
    world.token(D2, 1, "b", LENGTH, choice=0)
    assert (world.text(0), world.text(1)) == ("ab", "x")
    assert world.end() == Finished(Usage(3, 3, 0))


def test_a_stop_string_across_tokens_cancels_the_workers() -> None:
    world = World(stop=("END",)).begin()
    for position, letter in enumerate("okENDmore"):
        world.token(P if position == 0 else D, position, letter)
    assert world.text() == "ok"
    assert world.finish() is STOP
    assert world.end() == Finished(Usage(3, 5, 0))
    assert [(p, c.reason) for p, c in world.cancels()] == [(D, "stop"), (P, "stop")]
    assert world.ignored() == 4


def test_the_deadline_ends_it() -> None:
    world = World(deadline_ms=1_000.0).begin()
    world.now_s += 0.999
    world.do(Tick())
    assert not world.session.ended
    world.now_s = world.session.wake_s
    world.do(Tick())
    assert type(failure(world)) is DeadlineExceeded
    assert {p for p, _ in world.cancels()} == {D, P}


def test_time_left_shrinks_from_attempt_to_attempt() -> None:
    world = World(deadline_ms=1_000.0).begin()
    world.now_s += 0.3
    fail(world, D, Fault.PEER)
    world.wait()
    assert world.routes()[-1].deadline_left_ms == pytest.approx(600.0)


@pytest.mark.parametrize("reached", range(5))
def test_a_client_may_go_any_time(reached: int) -> None:
    world = World()
    world.do(Begin())
    steps: list[Callable[[], object]] = [
        world.assign,
        lambda: world.stage(Stage.PREFILLING),
        lambda: world.token(P, 0, "a"),
        lambda: world.stage(Stage.DECODING),
    ]
    for step in steps[:reached]:
        step()
    world.do(ClientGone())
    assert world.end() == Cancelled()
    assert world.state() is RequestState.CANCELLED
    assert {p for p, _ in world.cancels()} == (set() if reached == 0 else {D, P})
    assert world.settled() == [world.session.attempt]
    world.do(ClientGone())
    world.do(Tick())
    assert world.do(WorkerGone(D.process, proven=True)) == []
    assert world.token(D, 1, "b") == [Ignored("after the end")]
    world.end()


def test_a_bug_ends_the_request_with_its_reason() -> None:
    world = World().begin()
    world.do(Broken(BugError("oh")))
    assert str(failure(world)) == "oh"
    assert {p for p, _ in world.cancels()} == {D, P}


def test_an_assignment_needs_a_question() -> None:
    world = World().begin()
    assert world.hear(ROUTER, assignment(world.session.attempt)) == [
        Ignored("second answer of the router")
    ]
