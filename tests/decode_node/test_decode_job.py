from dataclasses import replace

from decode_node.decode_job import DecodeJob
from tests.decode_node.two_workers import GATEWAY, P, request
from wire.messages import Submit


def job(now_s: float = 10.0) -> DecodeJob:
    return DecodeJob(Submit(request=request(1, 20), gateway=GATEWAY, prefill=P), now_s)


def test_the_deadline_counts_from_receipt_and_never_goes_below_a_millisecond() -> None:
    one = job()
    assert one.request_now(11.0).deadline_left_ms == 599_000.0
    assert one.request_now(10_000.0).deadline_left_ms == 1.0


def test_resumed_requests_count_what_was_generated() -> None:
    one = job()
    assert one.prompt_tokens == 20
    resumed = replace(one.order.request, generated=((1, 2, 3),))
    one.order = replace(one.order, request=resumed)
    assert one.prompt_tokens == 23


def test_a_report_of_a_prefill_here_tells_queue_and_prefill_apart() -> None:
    one = job()
    one.started_s = 10.25
    report = one.prefill_report(11.0)
    assert (report.queue_ms, report.prefill_ms) == (250.0, 750.0)
