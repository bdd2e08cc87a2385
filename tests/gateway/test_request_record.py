"""Figures of one request."""

import pytest

from core.ids import Attempt, Epoch, RequestId
from core.request import SampledToken
from gateway.choice_stream import ChoiceStream
from gateway.request_record import RequestRecord
from tests.gateway.session_world import LetterDetokenizer, assignment, peer
from wire.messages import PrefillReport

ATTEMPT = Attempt(RequestId("r"), Epoch(1))


def choice(tokens: int) -> ChoiceStream:
    stream = ChoiceStream(0, LetterDetokenizer(), (), 0)
    for position in range(tokens):
        stream.accept(SampledToken(0, position, 97))
    return stream


def test_times_are_of_the_first_workers_of_the_last() -> None:
    record = RequestRecord(received_s=10.0, prompt_tokens=3)
    record.assigned(assignment(ATTEMPT), 10.5)
    record.assigned(assignment(ATTEMPT.next(), peer("decode-9"), None), 11.0)
    assert record.route_ms == pytest.approx(500.0)
    assert (record.prefill, record.decode) == ("local", "decode-9")


def test_tpot_is_of_the_longest_choice() -> None:
    record = RequestRecord(received_s=10.0, prompt_tokens=3)
    assert record.ttft_s is None
    record.delivered([choice(1), choice(1)], 10.2)
    assert record.tpot_s is None
    record.delivered([choice(5), choice(2)], 10.6)
    assert record.ttft_s == pytest.approx(0.2)
    assert record.tpot_s == pytest.approx(0.1)
    assert record.completion_tokens == 7
    assert record.log_fields()["ttft_ms"] == pytest.approx(200.0)
    assert record.log_fields()["tpot_ms"] == pytest.approx(100.0)


def test_no_more_is_cached_than_there_is() -> None:
    record = RequestRecord(received_s=10.0, prompt_tokens=3)
    report = PrefillReport(attempt=ATTEMPT, queue_ms=1, prefill_ms=2, cached_tokens=16)
    record.prefilled(report)
    assert record.cached_tokens == 3
