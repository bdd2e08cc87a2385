"""Who serves an attempt, whom it needs, whom it blames."""

from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, SampledToken
from gateway.attempt_state import AttemptState
from gateway.choice_stream import ChoiceStream
from tests.gateway.session_world import D, LetterDetokenizer, P, assignment
from wire.messages import Fault

ATTEMPT = Attempt(RequestId("r"), Epoch(1))


def choices(count: int) -> list[ChoiceStream]:
    return [ChoiceStream(choice, LetterDetokenizer(), (), 0) for choice in range(count)]


def test_nobody_serves_before_the_assignment() -> None:
    state = AttemptState(ATTEMPT, choices(1))
    assert not state.assigned
    assert state.peers() == state.needed_peers() == []
    assert not state.is_served_by(D.process)
    state.assign(assignment(ATTEMPT))
    assert state.peers() == [D, P]
    assert state.is_prefill_worker(P.process)
    assert not state.is_prefill_worker(D.process)


def test_the_prefill_worker_is_needed_until_each_choice_has_a_token() -> None:
    first, second, over = choices(3)
    over.accept(SampledToken(2, 0, 97, FinishReason.LENGTH))
    first.accept(SampledToken(0, 0, 97))
    state = AttemptState(ATTEMPT, [first, second, over])
    state.assign(assignment(ATTEMPT))
    state.decoding = True
    second.accept(SampledToken(1, 0, 97))
    assert state.needed_peers() == [D, P], "the first choice's token is of an earlier attempt"
    first.accept(SampledToken(0, 1, 97))
    assert state.needed_peers() == [D]


def test_whom_to_avoid() -> None:
    (choice,) = choices(1)
    remote, local = AttemptState(ATTEMPT, [choice]), AttemptState(ATTEMPT, choices(1))
    remote.assign(assignment(ATTEMPT))
    local.assign(assignment(ATTEMPT, prefill=None))
    assert remote.blamed(D.process, Fault.PEER) == P
    assert remote.blamed(P.process, Fault.PEER) == D
    assert remote.blamed(D.process, Fault.CAPACITY) == D
    assert remote.blamed(P.process, Fault.CAPACITY) == P
    assert local.blamed(D.process, Fault.PEER) == D
    remote.decoding = True
    choice.accept(SampledToken(0, 0, 97))
    assert remote.blamed(D.process, Fault.PEER) == D, "it needs P no more"
