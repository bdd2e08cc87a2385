"""A hundred at once, of mixed lengths: each ends once, and nothing is left behind."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.e2e.running import Running

REQUESTS = 100


def test_a_hundred_concurrent_requests(disaggregated: Running) -> None:
    before = disaggregated.metrics()

    def one(number: int) -> tuple[int, int, str]:
        with httpx.Client(base_url=disaggregated.url, timeout=240) as client:
            asked = 1 + (number * 7) % 40
            answer = client.post(
                "/v1/completions",
                json={
                    "model": "default",
                    "prompt": [number % 256] * (1 + (number * 37) % 300),
                    "max_tokens": asked,
                    "ignore_eos": True,
                    "seed": number,
                },
            )
            assert answer.status_code == 200, answer.text
            body = answer.json()
            return asked, body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]

    with ThreadPoolExecutor(REQUESTS) as threads:
        results = list(threads.map(one, range(REQUESTS)))
    assert all(asked == made for asked, made, _ in results)
    assert {reason for _, _, reason in results} == {"length"}
    disaggregated.wait_until_idle()
    after = disaggregated.metrics()
    ended = 'baton_requests_total{outcome="finished"}'
    assert after[ended] - before.get(ended, 0.0) == REQUESTS


def test_a_client_that_goes_away_cancels_everywhere(disaggregated: Running) -> None:
    cancelled = 'baton_requests_total{outcome="cancelled"}'
    before = disaggregated.metrics().get(cancelled, 0.0)
    with disaggregated.client() as client:
        asked = {"model": "default", "prompt": "go on", "max_tokens": 6000, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json={**asked, "stream": True}) as stream:
            next(stream.iter_lines())
    disaggregated.wait_until_idle()
    assert disaggregated.metrics()[cancelled] == before + 1
