import pytest

from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, Request
from core.sampling import SamplingParams
from core.slo import Slo


@pytest.mark.parametrize(
    ("generated", "resumed"),
    [
        ((), False),
        (((), ()), False),
        (((5,),), True),
        (((), (5,)), True),
        ((None, ()), True),  # that choice had ended: it must not be generated again
    ],
)
def test_a_request_is_resumed_when_something_was_delivered(
    generated: tuple[tuple[int, ...] | None, ...], resumed: bool
) -> None:
    request = Request(
        attempt=Attempt(RequestId("req-1"), Epoch(2)),
        prompt=(1, 2),
        generated=generated,
        sampling=SamplingParams(choices=max(1, len(generated))),
        slo=Slo(),
        deadline_left_ms=1e3,
    )
    assert request.resumed is resumed


def test_finish_reasons_are_the_apis_words() -> None:
    assert [str(reason) for reason in FinishReason] == ["stop", "length"]
