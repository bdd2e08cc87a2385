"""A streaming client of the chat API, with the figures that the stream shows."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from core.errors import BatonError, CapacityError, ClientError, PeerError, SetupError, Unauthorized

MAX_EVENT_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 10.0

Message = dict[str, str]


@dataclass(slots=True)
class Turn:
    """What is known of one answer so far. Times in seconds, as the client sees them."""

    prefill: str = ""
    decode: str = ""
    text: str = ""
    tokens: int = 0
    """As the server counts them; 0 until it has said so at the end."""
    finish: str = ""
    sent_s: float = field(default_factory=time.monotonic)
    first_s: float | None = None
    last_s: float | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else 1e3 * (self.first_s - self.sent_s)

    @property
    def tpot_ms(self) -> float | None:
        """Mean time per output token after the first."""
        if self.first_s is None or self.last_s is None or self.tokens < 2:
            return None
        return 1e3 * (self.last_s - self.first_s) / (self.tokens - 1)


class ChatClient:
    """An HTTP session with one deployment."""

    def __init__(
        self, url: str, api_key: str | None, model: str, temperature: float | None = None
    ) -> None:
        bare = url.rstrip("/").removesuffix("/v1")  # as other clients want it
        self._url = bare if "://" in bare else f"http://{bare}"
        self._fields: dict[str, object] = {"model": model}
        if temperature is not None:
            self._fields["temperature"] = temperature
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        # An answer may take minutes; only getting through has a limit.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def stream(self, messages: Sequence[Message], turn: Turn) -> AsyncGenerator[str, None]:
        """The answer's pieces as they arrive; `turn` is filled in on the way.

        Raises:
            SetupError: nothing answers at the URL.
            ClientError, Unauthorized, CapacityError: the server's refusal, in its own words.
            PeerError: the stream broke, or the server failed.
        """
        body = {
            **self._fields,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        turn.sent_s = time.monotonic()
        try:
            async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                if answer.status != 200:
                    raise refusal(answer.status, await answer.text())
                turn.prefill = answer.headers.get("x-baton-prefill", "")
                turn.decode = answer.headers.get("x-baton-decode", "")
                async for event in _events(answer.content):
                    piece = _take(event, turn)
                    if piece:
                        yield piece
        except aiohttp.ClientConnectorError as error:
            raise SetupError(
                f"nothing answers at {self._url} ({error.os_error.strerror or error.os_error}); "
                "start it with: baton serve"
            ) from None
        except aiohttp.InvalidURL:
            raise SetupError(
                f"'{self._url}' is no URL; it looks like http://127.0.0.1:8000"
            ) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PeerError(f"the connection to {self._url} broke: {error}") from error


def refusal(status: int, body: str) -> BatonError:
    """The server's error in OpenAI's shape, as one of ours."""
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {status}: {body[:200]}"
    if status == 401:
        return Unauthorized(f"{message} (see --api-key)")
    if status in (429, 503, 504):
        return CapacityError(message)
    return ClientError(message) if status < 500 else PeerError(message)


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[Any]:
    """The JSON of each `data:` line of a server-sent event stream, up to `[DONE]`."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise PeerError("the server sent an event without an end")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            try:
                yield json.loads(data)
            except ValueError:
                raise PeerError("the server sent an event that isn't JSON") from None
    raise PeerError("the server's stream ended early")


def _take(event: Any, turn: Turn) -> str:
    """Note one event; returns the piece of text in it, if any."""
    try:
        if "error" in event:
            raise PeerError(str(event["error"].get("message", event["error"])))
        if event.get("usage"):
            turn.tokens = int(event["usage"]["completion_tokens"])
        if not event.get("choices"):
            return ""
        choice = event["choices"][0]
        turn.finish = choice.get("finish_reason") or turn.finish
        piece = str(choice.get("delta", {}).get("content") or "")
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise PeerError(f"the server sent an event of another shape: {error}") from None
    if piece:
        turn.last_s = time.monotonic()
        turn.first_s = turn.first_s or turn.last_s
        turn.text += piece
    return piece
