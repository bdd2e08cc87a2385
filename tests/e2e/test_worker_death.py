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
    "max_tokens": 150,
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
    pids = {row["name"]: row["pid"] for row in pairs.status()}
    lost = pairs.metrics()["baton_attempts_lost_total"]
    with pairs.client() as client:
        undisturbed = stream_text(client)
        disturbed = stream_text(
            client, lambda headers: os.kill(pids[headers["x-baton-decode"]], signal.SIGKILL)
        )
    assert disturbed == undisturbed
    assert pairs.metrics()["baton_attempts_lost_total"] == lost + 1
    wait_for_all_ready(pairs)
    pairs.wait_until_idle()


def test_requests_survive_a_prefill_worker(pairs: Running) -> None:
    def one(number: int) -> int:
        with pairs.client() as client:
            answer = client.post(
                "/v1/completions",
                json={**ASKED, "prompt": [number] * 6_000, "max_tokens": 8},
            )
            assert answer.status_code == 200, answer.text
            return int(answer.json()["usage"]["completion_tokens"])

    pid = pairs.pid_of("prefill-0")
    lost = pairs.metrics()["baton_attempts_lost_total"]
    with ThreadPoolExecutor(12) as threads:
        answers = [threads.submit(one, number) for number in range(12)]
        while not pairs.metrics()['baton_worker_running{worker="prefill-0"}']:
            pass  # heartbeats tell when it is in the middle of them
        os.kill(pid, signal.SIGKILL)
        assert [answer.result() for answer in answers] == [8] * 12
    assert pairs.metrics()["baton_attempts_lost_total"] > lost
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
