"""Response headers that tell who served and how long the way to the first token took."""

from gateway.request_record import RequestRecord


def served_headers(request_id: str, record: RequestRecord) -> dict[str, str]:
    headers = {"x-request-id": request_id}
    if record.decode:
        headers["x-baton-prefill"] = record.prefill
        headers["x-baton-decode"] = record.decode
    headers["x-baton-cached-tokens"] = str(record.cached_tokens)
    timing = server_timing(record)
    if timing:
        headers["server-timing"] = timing
    return headers


def server_timing(record: RequestRecord) -> str:
    """As in the W3C's Server Timing: `name;dur=milliseconds` of what is known."""
    ttft_s = record.ttft_s
    spans_ms = {
        "route": record.route_ms,
        "queue": record.queue_ms,
        "prefill": record.prefill_ms,
        "first-token": None if ttft_s is None else ttft_s * 1e3,
    }
    return ", ".join(f"{name};dur={ms:.3f}" for name, ms in spans_ms.items() if ms is not None)
