"""Workers die in the middle of answers; clients get the whole answer all the same."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.running import RANDOM_MODEL, Running, deployment

ASKED = {
    "model": "default",
    "prompt": "Once upon a time",
    "max_tokens": 400,
    "ignore_eos": True,
    "seed": 5,
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two workers in each pool."""
    with deployment(
        tmp_path_factory.mktemp("pairs"),
        *("--model", RANDOM_MODEL, "--kv-bytes", "64MiB", "--prefill", "2", "--decode", "2"),
        *("--set", "router.local_prefill_tokens=0"),
    ) as running:
        yield running


def stream_text(client: httpx.Client, on_first: Any = None) -> str:
    """The streamed text; `on_first` is called with the headers after the first piece."""
    text = ""
    with client.stream("POST", "/v1/completions", json={**ASKED, "stream": True}) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: {"):
                continue
            piece = json.loads(line.removeprefix("data: "))
            assert "error" not in piece, piece
            text += piece["choices"][0]["text"]
            if on_first is not None:
                on_first(stream.headers)
                on_first = None
    return text


def test_a_stream_survives_its_decode_worker(pairs: Running) -> None:
    with pairs.client() as client:
        undisturbed = stream_text(client)
        disturbed = stream_text(
            client,
            lambda headers: os.kill(pairs.pid_of(headers["x-baton-decode"]), signal.SIGKILL),
        )
    assert disturbed == undisturbed
    wait_for_all_ready(pairs)
    pairs.wait_until_idle()


def test_requests_survive_a_prefill_worker(pairs: Running) -> None:
    def one(number: int) -> int:
        with pairs.client() as client:
            answer = client.post(
                "/v1/completions",
                json={**ASKED, "prompt": [number] * 2_000, "max_tokens": 8},
            )
            assert answer.status_code == 200, answer.text
            return int(answer.json()["usage"]["completion_tokens"])

    with ThreadPoolExecutor(12) as threads:
        answers = [threads.submit(one, number) for number in range(12)]
        os.kill(pairs.pid_of("prefill-0"), signal.SIGKILL)
        assert [answer.result() for answer in answers] == [8] * 12
    wait_for_all_ready(pairs)
    pairs.wait_until_idle()


def wait_for_all_ready(running: Running, within_s: float = 60.0) -> None:
    """Dead workers are started again."""
    deadline_s = time.monotonic() + within_s
    rows: list[dict[str, Any]] = []
    while time.monotonic() < deadline_s:
        rows = running.status()
        if all(row["state"] == "ready" for row in rows):
            return
    raise AssertionError(f"not all ready again: {rows}")


def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    with deployment(
        tmp_path, "--model", RANDOM_MODEL, "--kv-bytes", "64MiB", "--prefill", "0"
    ) as running:
        start_s = time.monotonic()
        running.launcher.send_signal(signal.SIGINT)
        assert running.launcher.wait(timeout=20) == 0
        assert time.monotonic() - start_s < 5.0
    assert set(os.listdir("/dev/shm")) <= shared_before
