"""One stream through the whole deployment: the base line of later work.

    python -m bench.smoke [--url URL] [--api-key KEY] [--repeats 5] [--prompt-tokens 256]
                          [--max-tokens 64] [--model SOURCE] [--json FILE]

Without --url it starts `baton serve` itself and stops it afterwards. Every repeat has a prompt and
a cache salt of its own, so that no prefix cache helps; one request before them is not counted.
`handoff_ms` is the server's own `baton_handoff_seconds`: from the end of prefill to the first
decode step.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from bench.api_client import ApiClient, BenchError
from bench.figures import Conditions, Figure, report
from bench.local_server import local_server
from bench.stream_timing import StreamTiming

_COMMON = """
the of and to in is you that it he was for on are as with his they at be this have from or one had
by but not what all were we when your can said there use an each which she do how their if will up
other about out many then them these so some her would make like him into time has look two more go
see no way could people my than first been call who its now find long down day did get come made
may part over new take only little work know place year"""
_WORDS = tuple(_COMMON.split())
"""Words that are one token each, with the space before them, in most vocabularies."""
_PROBE_WORDS = (64, 128)
_HANDOFF_WAIT_S = 2.0
HANDOFF_METRIC = "baton_handoff_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One repeat. `handoff_ms` is None where the decode worker prefilled the prompt itself."""

    timing: StreamTiming
    handoff_ms: float | None


def prompt_text(words: int, name: str) -> str:
    """`words` words in an order of its own for every name."""
    chooser = random.Random(name)
    return " ".join(chooser.choice(_WORDS) for _ in range(words))


def words_for(tokens: int, probes: Sequence[tuple[int, int]]) -> int:
    """How many words make about `tokens` tokens, by two probes of (words, tokens).

    Raises:
        BenchError: more words didn't make more tokens.
    """
    (few, few_tokens), (many, many_tokens) = probes
    per_word = (many_tokens - few_tokens) / (many - few)
    if per_word <= 0:
        raise BenchError(f"{many} words make {many_tokens} tokens, {few} make {few_tokens}")
    return max(1, round(few + (tokens - few_tokens) / per_word))


def figures_of(runs: Sequence[Run]) -> list[Figure]:
    """Medians over the runs; the hand-off only where there was one."""
    timings = [run.timing for run in runs]
    handoffs = [run.handoff_ms for run in runs if run.handoff_ms is not None]
    figures = [
        Figure.median_of("ttft_ms", [t.ttft_ms for t in timings], "ms"),
        Figure.median_of("itl_mean_ms", [t.itl_mean_ms for t in timings], "ms"),
        Figure.median_of("itl_p99_ms", [t.itl_p99_ms for t in timings], "ms"),
        Figure.median_of(
            "decode_tokens_per_s", [t.decode_tokens_per_s for t in timings], "tokens/s"
        ),
    ]
    return figures + ([Figure.median_of("handoff_ms", handoffs, "ms")] if handoffs else [])


async def measure(
    client: ApiClient, *, repeats: int, prompt_tokens: int, max_tokens: int
) -> list[Run]:
    """`repeats` streams, one after another."""
    probes = [(n, await client.count_tokens(prompt_text(n, f"probe {n}"))) for n in _PROBE_WORDS]
    words = words_for(prompt_tokens, probes)
    await client.stream(prompt_text(words, "warm-up"), max_tokens)
    return [await _one_run(client, words, f"repeat {n}", max_tokens) for n in range(repeats)]


async def _one_run(client: ApiClient, words: int, name: str, max_tokens: int) -> Run:
    before = await client.histogram(HANDOFF_METRIC)
    timing = await client.stream(prompt_text(words, name), max_tokens)
    after = await client.histogram_after(HANDOFF_METRIC, before, _HANDOFF_WAIT_S)
    handoff_s = after.mean_since(before)
    return Run(timing=timing, handoff_ms=None if handoff_s is None else handoff_s * 1e3)


async def _bench(url: str, arguments: argparse.Namespace) -> tuple[list[Figure], Conditions]:
    async with ApiClient(url, arguments.api_key) as client:
        if not await client.is_ready():
            raise BenchError(f"{url} is not ready")
        model = await client.model_name()
        stolen_before, all_before = _cpu_times()
        runs = await measure(
            client,
            repeats=arguments.repeats,
            prompt_tokens=arguments.prompt_tokens,
            max_tokens=arguments.max_tokens,
        )
        stolen, every = _cpu_times()
    conditions = Conditions.collect(
        model=model,
        repeats=arguments.repeats,
        prompt_tokens=sorted(run.timing.prompt_tokens for run in runs)[len(runs) // 2],
        completion_tokens=runs[0].timing.completion_tokens,
        handoffs=sum(run.handoff_ms is not None for run in runs),
        steal_percent=100 * (stolen - stolen_before) / max(every - all_before, 1e-9),
    )
    return figures_of(runs), conditions


def _cpu_times() -> tuple[float, float]:
    """Seconds that other guests took from this machine, and seconds in all, over its cores."""
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0), sum(times)


async def _run(arguments: argparse.Namespace) -> None:
    if arguments.url is not None:
        figures, conditions = await _bench(arguments.url, arguments)
    else:
        extra = ["--model", arguments.model] if arguments.model else []
        async with local_server(extra) as url:
            figures, conditions = await _bench(url, arguments)
    report("smoke", figures, conditions, arguments.json)
    if conditions.more["handoffs"] == 0:
        print("smoke: no prompt was handed over, so there is no hand-off time", file=sys.stderr)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.smoke", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--url", help="of a running server; default: start one")
    parser.add_argument("--api-key")
    parser.add_argument("--repeats", type=_at_least(1), default=5)
    parser.add_argument("--prompt-tokens", type=_at_least(1), default=256)
    parser.add_argument("--max-tokens", type=_at_least(2), default=64)
    parser.add_argument("--model", help="for the server that is started; default: the demo model")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _at_least(least: int) -> Callable[[str], int]:
    def bounded(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    bounded.__name__ = "whole number"  # argparse's word for it where the text is no int
    return bounded


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 where the server failed the bench, 143 where SIGTERM ended it."""
    try:
        asyncio.run(_run(_arguments(argv)))
    except (BenchError, aiohttp.ClientError) as error:
        print(f"smoke: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 143
    return 0


if __name__ == "__main__":
    sys.exit(main())
