"""Reading event streams and metrics, and what a server's failures become."""

import pytest
from aiohttp.test_utils import TestServer

from bench.api_client import ApiClient, BenchError, HistogramTotal, event_data, histogram_total
from tests.bench.fake_server import FakeServer

EXPOSITION = """\
# HELP baton_handoff_seconds x
# TYPE baton_handoff_seconds histogram
baton_handoff_seconds_bucket{le="+Inf",pool="a"} 2
baton_handoff_seconds_sum{pool="a"} 0.5
baton_handoff_seconds_count{pool="a"} 2
baton_handoff_seconds_bucket{le="+Inf",pool="b"} 1
baton_handoff_seconds_sum{pool="b"} 0.25
baton_handoff_seconds_count{pool="b"} 1
# TYPE other_seconds_count counter
other_seconds_count 7
"""


def test_histograms_are_summed_over_their_labels() -> None:
    total = histogram_total(EXPOSITION, "baton_handoff_seconds")
    assert total == HistogramTotal(0.75, 3)
    assert histogram_total(EXPOSITION, "missing") == HistogramTotal()


def test_the_mean_of_what_came_since() -> None:
    assert HistogramTotal(2.0, 4).mean_since(HistogramTotal(1.0, 2)) == 0.5
    assert HistogramTotal(1.0, 2).mean_since(HistogramTotal(1.0, 2)) is None


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b'data: {"a": 1}\n', {"a": 1}),
        (b'data:{"a":1}\r\n', {"a": 1}),
        (b"data: [DONE]\n", None),
        (b"\n", None),
        (b": a comment\n", None),
        (b"event: x\n", None),
    ],
)
def test_lines_of_an_event_stream(line: bytes, data: object) -> None:
    assert event_data(line) == data


async def test_a_refusal_says_what_the_server_said() -> None:
    async with (
        TestServer(FakeServer(fails=True).app()) as server,
        ApiClient(str(server.make_url(""))) as client,
    ):
        with pytest.raises(BenchError, match=r"HTTP 503.*no worker"):
            await client.stream("a b", 4)
        with pytest.raises(BenchError, match=r"completions: HTTP 503"):
            await client.count_tokens("a b")


async def test_a_stream_is_timed() -> None:
    async with (
        TestServer(FakeServer().app()) as server,
        ApiClient(str(server.make_url(""))) as client,
    ):
        timing = await client.stream("a b", 4)
    assert (timing.prompt_tokens, timing.completion_tokens) == (3, 4)
    assert len(timing.arrivals_s) == 4
    assert timing.sent_s <= timing.arrivals_s[0] <= timing.arrivals_s[-1] <= timing.ended_s


async def test_nobody_there_is_not_ready() -> None:
    async with TestServer(FakeServer().app()) as server:
        url = str(server.make_url(""))
        async with ApiClient(url) as client:
            assert await client.is_ready()
    async with ApiClient(url) as client:
        assert not await client.is_ready()
