"""Through P, the transfer and D a request is answered as by one worker alone."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.running import RANDOM_MODEL, Running, deployment

LENGTHS = [1, 15, 16, 17, 200]


def greedy(client: httpx.Client, prompt: list[int], tokens: int) -> tuple[list[Any], httpx.Headers]:
    """Greedy tokens with their log probabilities, and the response's headers."""
    answer = client.post(
        "/v1/completions",
        json={
            "model": "default",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
        },
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["logprobs"]["tokens"], answer.headers


def prompt_of(length: int) -> list[int]:
    return [(7 * n + length) % 256 for n in range(length)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One worker that prefills for itself."""
    with deployment(
        tmp_path_factory.mktemp("alone"),
        *("--model", RANDOM_MODEL, "--prefill", "0", "--kv-bytes", "64MiB"),
    ) as running:
        yield running


def test_handed_over_equals_local(disaggregated: Running, alone: Running) -> None:
    with disaggregated.client() as pair, alone.client() as single:
        for length in LENGTHS:
            there, headers = greedy(pair, prompt_of(length), 24)
            here, local_headers = greedy(single, prompt_of(length), 24)
            assert headers["x-baton-prefill"] == "prefill-0"
            assert local_headers["x-baton-prefill"] == "local"
            assert there == here, f"prompt of {length} tokens"
    moved = disaggregated.metrics()
    assert moved['baton_kv_transfer_bytes_total{transport="nixl"}'] > 0


@pytest.mark.slow
def test_long_prompts_in_a_batch_of_16(tmp_path: Path) -> None:
    """4,000 tokens, 16 at once: handed over, against alone."""
    lengths = [4_000] + [250 * n for n in range(1, 16)]
    kv = ("--model", RANDOM_MODEL, "--kv-bytes", "256MiB")
    answers = []
    for name, extra in (("pair", ()), ("alone", ("--prefill", "0"))):
        with (
            deployment(tmp_path / name, *kv, *extra) as running,
            running.client(300) as client,
        ):
            answers.append(together(client.base_url, lengths))
            running.wait_until_idle()
    assert answers[0] == answers[1]


def together(url: httpx.URL, lengths: list[int]) -> list[list[Any]]:
    from concurrent.futures import ThreadPoolExecutor

    def one(length: int) -> list[Any]:
        with httpx.Client(base_url=url, timeout=300) as client:
            return greedy(client, prompt_of(length), 16)[0]

    with ThreadPoolExecutor(len(lengths)) as threads:
        return list(threads.map(one, lengths))


@pytest.mark.slow
def test_smollm2_handed_over_equals_local(tmp_path: Path) -> None:
    """The demo model, prompts of 1 to 1,000 tokens."""
    answers = []
    for extra in (("--set", "router.local_prefill_tokens=0"), ("--prefill", "0")):
        with (
            deployment(tmp_path, "--kv-bytes", "512MiB", *extra) as running,
            running.client(300) as client,
        ):
            answers.append(
                [greedy(client, prompt_of(length), 32)[0] for length in (1, 15, 16, 17, 1_000)]
            )
            running.wait_until_idle()
    assert answers[0] == answers[1]
