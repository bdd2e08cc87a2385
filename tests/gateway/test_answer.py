"""Several sessions as one stream."""

import pytest

from core.errors import BugError
from core.ids import RequestId
from core.sampling import SamplingParams
from core.slo import Slo
from gateway.answer import Answer
from gateway.generation import Generation
from gateway.session_actions import Usage
from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import text_tokens
from wire.messages import Fault


def generations(*names: str, choices: int = 1) -> list[Generation]:
    return [
        Generation(
            request=RequestId(name),
            prompt=tuple(range(20)),
            sampling=SamplingParams(choices=choices, max_tokens=5),
            slo=Slo(),
        )
        for name in names
    ]


async def test_choices_are_counted_over_all_prompts(gateway: Gateway) -> None:
    texts = [""] * 4
    async with Answer(gateway.dispatcher, generations("a", "b", choices=2)) as answer:
        assert not answer.started
        while not answer.ended:
            for delta in await answer.next():
                texts[delta.choice] += delta.text
        assert answer.started
    assert texts == ["Hello"] * 4
    assert answer.usage == Usage(40, 20, 8)


async def test_what_came_before_an_error_comes_before_it(gateway: Gateway) -> None:
    gateway.deployment.script = lambda _: text_tokens("abcdef")
    gateway.deployment.fail_at = (3, Fault.US)
    texts: list[str] = []

    async def read(answer: Answer) -> None:
        while True:
            texts.extend(delta.text for delta in await answer.next())

    async with Answer(gateway.dispatcher, generations("a")) as answer:
        with pytest.raises(BugError):
            await read(answer)
    assert "".join(texts) == "abc"


async def test_leaving_early_cancels(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 2
    async with Answer(gateway.dispatcher, generations("a", "b")) as answer:
        while not answer.started:
            await answer.next()
    assert list(gateway.dispatcher.states()) == []
    assert {attempt.request for attempt in gateway.deployment.settled} == {"a", "b"}


async def test_an_answer_that_can_not_open_leaves_nothing_open(gateway: Gateway) -> None:
    with pytest.raises(BugError):
        async with Answer(gateway.dispatcher, generations("a", "a")):
            pass
    assert list(gateway.dispatcher.states()) == []
