"""Headers from what is known of a request."""

from gateway.request_record import RequestRecord
from gateway.served_headers import served_headers, server_timing


def test_before_anybody_is_assigned() -> None:
    record = RequestRecord(received_s=1.0, prompt_tokens=5)
    assert served_headers("r", record) == {"x-request-id": "r", "x-baton-cached-tokens": "0"}


def test_of_a_served_request() -> None:
    record = RequestRecord(
        received_s=1.0, prompt_tokens=5, assigned_s=1.002, prefill="local", decode="decode-1",
        queue_ms=0.5, prefill_ms=10.0, cached_tokens=3, first_token_s=1.02,
    )  # fmt: skip
    assert served_headers("r", record) == {
        "x-request-id": "r",
        "x-baton-prefill": "local",
        "x-baton-decode": "decode-1",
        "x-baton-cached-tokens": "3",
        "server-timing": server_timing(record),
    }
    assert server_timing(record) == (
        "route;dur=2.000, queue;dur=0.500, prefill;dur=10.000, first-token;dur=20.000"
    )
