"""What follows from the arrival times of one answer."""

import pytest

from bench.stream_timing import StreamTiming


def timing(arrivals_s: tuple[float, ...], tokens: int, ended_s: float) -> StreamTiming:
    return StreamTiming(
        sent_s=10.0,
        arrivals_s=arrivals_s,
        ended_s=ended_s,
        prompt_tokens=1,
        completion_tokens=tokens,
    )


def test_times_of_an_answer() -> None:
    answer = timing((10.5, 10.6, 10.8, 11.0), tokens=6, ended_s=11.0)
    assert answer.ttft_ms == pytest.approx(500)
    assert answer.itl_mean_ms == pytest.approx(100)
    assert answer.decode_tokens_per_s == pytest.approx(10)
    assert answer.itl_p99_ms == pytest.approx(200)


@pytest.mark.parametrize(("arrivals_s", "tokens"), [((1.0,), 5), ((1.0, 2.0), 1), ((), 0)])
def test_too_short_an_answer(arrivals_s: tuple[float, ...], tokens: int) -> None:
    with pytest.raises(ValueError, match="tells nothing"):
        timing(arrivals_s, tokens, 2.0)
