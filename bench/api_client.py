"""A small client of the OpenAI API and of `/metrics`, for benches. Talks HTTP only."""

import asyncio
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bench.stream_timing import StreamTiming


class BenchError(Exception):
    """The server didn't do what the bench needs; says what it did instead."""


@dataclass(frozen=True, slots=True)
class HistogramTotal:
    """Sum and count of a Prometheus histogram over all its labels."""

    sum: float = 0.0
    count: int = 0

    def mean_since(self, before: "HistogramTotal") -> float | None:
        """Mean of what was observed after `before`; None where nothing was."""
        count = self.count - before.count
        return (self.sum - before.sum) / count if count else None


def histogram_total(exposition: str, name: str) -> HistogramTotal:
    """Of the histogram `name` in a Prometheus text exposition; zero where it isn't there."""
    total, count = 0.0, 0.0
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == f"{name}_sum":
                total += sample.value
            elif sample.name == f"{name}_count":
                count += sample.value
    return HistogramTotal(total, int(count))


def event_data(line: bytes) -> Any:
    """The JSON of one line of an event stream; None for lines that carry none and for [DONE]."""
    field, colon, value = line.strip().partition(b":")
    value = value.strip()
    if field != b"data" or not colon or value == b"[DONE]":
        return None
    return json.loads(value)


class ApiClient:
    """One server, one connection pool. Use as an async context manager."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=600.0)
        )

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/ready") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def model_name(self) -> str:
        """The first model the server lists."""
        async with self._session.get(f"{self._url}/v1/models") as response:
            value = await self._json(response)
        return str(value["data"][0]["id"])

    async def count_tokens(self, prompt: str) -> int:
        """How many tokens the server makes of `prompt`; generates one more."""
        body = {"model": "default", "prompt": prompt, "max_tokens": 1, "temperature": 0}
        async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
            value = await self._json(response)
        return int(value["usage"]["prompt_tokens"])

    async def stream(self, prompt: str, max_tokens: int) -> StreamTiming:
        """Generate exactly `max_tokens` greedily in one stream, and time it. A random cache salt
        keeps what earlier requests left in the server's prefix caches out of it.

        Raises:
            BenchError: an error instead of an answer, no usage in it, or too few tokens.
        """
        body = {
            "model": "default",
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_salt": secrets.token_hex(8),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        arrivals_s: list[float] = []
        usage: dict[str, int] | None = None
        sent_s = ended_s = time.monotonic()
        async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
            if response.status != 200:
                raise await self._refusal(response)
            async for line in response.content:
                now_s = time.monotonic()
                event = event_data(line)
                if event is None:
                    continue
                if "error" in event:
                    raise BenchError(f"the stream broke off: {event['error']}")
                usage = event.get("usage") or usage
                if any(choice["text"] for choice in event["choices"]):
                    arrivals_s.append(now_s)
                if event["choices"]:
                    ended_s = now_s
        if usage is None:
            raise BenchError("the stream ended without usage")
        try:
            return StreamTiming(
                sent_s=sent_s,
                arrivals_s=tuple(arrivals_s),
                ended_s=ended_s,
                prompt_tokens=usage["prompt_tokens"],
                completion_tokens=usage["completion_tokens"],
            )
        except ValueError as error:
            raise BenchError(str(error)) from error

    async def histogram(self, name: str) -> HistogramTotal:
        async with self._session.get(f"{self._url}/metrics") as response:
            if response.status != 200:
                raise await self._refusal(response)
            return histogram_total(await response.text(), name)

    async def histogram_after(
        self, name: str, before: HistogramTotal, wait_s: float
    ) -> HistogramTotal:
        """The histogram once it has grown beyond `before`, or after `wait_s` as it is then: what
        workers report reaches the metrics a little after the answer reaches the client."""
        until_s = time.monotonic() + wait_s
        while True:
            total = await self.histogram(name)
            if total.count > before.count or time.monotonic() >= until_s:
                return total
            await asyncio.sleep(0.05)

    async def _json(self, response: aiohttp.ClientResponse) -> Any:
        if response.status != 200:
            raise await self._refusal(response)
        return await response.json()

    @staticmethod
    async def _refusal(response: aiohttp.ClientResponse) -> BenchError:
        text = (await response.text())[:500]
        return BenchError(f"{response.method} {response.url.path}: HTTP {response.status}: {text}")
