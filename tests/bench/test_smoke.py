"""The smoke bench against a server of the test's own."""

import json
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from bench import smoke
from bench.api_client import ApiClient, BenchError
from bench.stream_timing import StreamTiming
from tests.bench.fake_server import FakeServer


def run(handoff_ms: float | None, end_s: float = 2.0) -> smoke.Run:
    timing = StreamTiming(
        sent_s=0.0,
        arrivals_s=(1.0, end_s),
        ended_s=end_s,
        prompt_tokens=8,
        completion_tokens=2,
    )
    return smoke.Run(timing=timing, handoff_ms=handoff_ms)


def test_figures_are_medians_over_the_runs() -> None:
    figures = {f.name: f for f in smoke.figures_of([run(3.0), run(None, 1.5), run(5.0, 4.0)])}
    assert list(figures) == [
        "ttft_ms",
        "itl_mean_ms",
        "itl_p99_ms",
        "decode_tokens_per_s",
        "handoff_ms",
    ]
    assert figures["itl_mean_ms"].value == 1000
    assert (figures["itl_mean_ms"].low, figures["itl_mean_ms"].high) == (500, 3000)
    assert figures["handoff_ms"].value == 4.0


def test_no_hand_off_no_figure() -> None:
    assert "handoff_ms" not in {figure.name for figure in smoke.figures_of([run(None)])}


def test_words_for_a_number_of_tokens() -> None:
    assert smoke.words_for(256, [(64, 65), (128, 129)]) == 255
    assert smoke.words_for(256, [(64, 320), (128, 640)]) == 51
    assert smoke.words_for(1, [(64, 65), (128, 129)]) == 1
    with pytest.raises(BenchError, match="words make"):
        smoke.words_for(256, [(64, 65), (128, 65)])


def test_prompts_differ_by_name_only() -> None:
    assert smoke.prompt_text(50, "a") == smoke.prompt_text(50, "a") != smoke.prompt_text(50, "b")
    assert len(smoke.prompt_text(50, "a").split()) == 50


async def test_measuring() -> None:
    fake = FakeServer()
    async with TestServer(fake.app()) as server, ApiClient(str(server.make_url(""))) as client:
        runs = await smoke.measure(client, repeats=3, prompt_tokens=100, max_tokens=5)
    assert [run.timing.prompt_tokens for run in runs] == [100] * 3
    assert [run.timing.completion_tokens for run in runs] == [5] * 3
    assert [run.handoff_ms for run in runs] == [pytest.approx(4.0)] * 3
    assert len(set(fake.prompts)) == len(fake.prompts)


async def test_without_hand_offs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "_HANDOFF_WAIT_S", 0.0)
    async with (
        TestServer(FakeServer(hands_over=False).app()) as server,
        ApiClient(str(server.make_url(""))) as client,
    ):
        runs = await smoke.measure(client, repeats=1, prompt_tokens=100, max_tokens=5)
    assert runs[0].handoff_ms is None


async def test_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "smoke.json"
    async with TestServer(FakeServer().app()) as server:
        options = ["--repeats", "2", "--prompt-tokens", "40", "--max-tokens", "3"]
        arguments = smoke._arguments(
            ["--url", str(server.make_url("")), *options, "--json", str(file)]
        )
        await smoke._run(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["figure", name]
        for name in ("ttft_ms", "itl_mean_ms", "itl_p99_ms", "decode_tokens_per_s", "handoff_ms")
    ]
    assert lines[-1].startswith("conditions machine=")
    conditions = json.loads(file.read_text())["conditions"]
    assert conditions["model"] == "fake"
    assert conditions["prompt_tokens"] == 40
    assert conditions["handoffs"] == 2


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main(["--url", "http://127.0.0.1:9"]) == 1
    assert "not ready" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--repeats=0", "--max-tokens=1", "--prompt-tokens=x"])
def test_wrong_arguments(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        smoke.main([option])
    assert option.split("=")[0] in capsys.readouterr().err
