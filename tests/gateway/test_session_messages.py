"""Route and Submit of a first and of a later attempt."""

from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, SampledToken
from core.sampling import SamplingParams
from core.slo import Slo
from gateway.attempt_state import AttemptState
from gateway.choice_stream import ChoiceStream
from gateway.generation import Generation
from gateway.session_messages import ask_router, submit
from tests.gateway.session_world import GATEWAY, D, LetterDetokenizer, P, assignment
from wire.messages import Route, RoutePath, Submit

ATTEMPT = Attempt(RequestId("r"), Epoch(1))


def generation(choices: int, path: RoutePath = RoutePath.REMOTE) -> Generation:
    return Generation(
        request=ATTEMPT.request,
        prompt=(1, 2, 3),
        sampling=SamplingParams(choices=choices, max_tokens=10),
        slo=Slo(),
        tenant="t",
        path=path,
    )


def streams(*lengths: int, ended: int = -1) -> list[ChoiceStream]:
    made = []
    for index, length in enumerate(lengths):
        stream = ChoiceStream(index, LetterDetokenizer(), (), 0)
        for position in range(length):
            last = index == ended and position == length - 1
            finish = FinishReason.LENGTH if last else None
            stream.accept(SampledToken(index, position, 97, finish))
        made.append(stream)
    return made


def route(choices: list[ChoiceStream]) -> Route:
    asked = ask_router(generation(len(choices)), ATTEMPT, GATEWAY, choices, 5.0, (P.process,))
    assert isinstance(asked.message, Route)
    return asked.message


def test_a_first_question() -> None:
    asked = route(streams(0, 0))
    assert (asked.prompt_tokens, asked.max_tokens, asked.choices) == (3, 10, 2)
    assert (asked.path, asked.tenant, asked.deadline_left_ms) == (RoutePath.REMOTE, "t", 5.0)
    assert asked.avoid == (P.process,)


def test_a_later_question_counts_what_is_there_and_what_is_left() -> None:
    asked = route(streams(4))
    assert (asked.prompt_tokens, asked.max_tokens, asked.path) == (7, 6, RoutePath.REMOTE)
    several = route(streams(4, 9, 6, ended=1))
    assert (several.prompt_tokens, several.max_tokens) == (9, 4)
    assert several.path is RoutePath.LOCAL


def test_an_order_keeps_delivered_tokens_apart_from_the_prompt() -> None:
    for lengths, generated in (((0, 0), ()), ((2, 0), ((97, 97), ())), ((1, 2), ((97,), None))):
        choices = streams(*lengths, ended=1)
        current = AttemptState(ATTEMPT, choices)
        assert submit(generation(2), current, GATEWAY, choices, 5.0) == []
        current.assign(assignment(ATTEMPT))
        (order,) = submit(generation(2), current, GATEWAY, choices, 5.0)
        assert order.peer == D
        assert isinstance(order.message, Submit)
        assert order.message.prefill == P
        assert order.message.request.prompt == (1, 2, 3)
        assert order.message.request.generated == generated
