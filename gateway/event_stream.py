"""An answer as server-sent events."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from core.errors import BatonError
from gateway.answer import Answer
from gateway.choice_stream import Delta
from gateway.errors import error_json
from gateway.responses import Shape
from gateway.served_headers import served_headers
from gateway.sse import DONE, event

READER_TIMEOUT_S = 120.0
"""A client that takes nothing of its stream for this long counts as gone."""


class EventStream:
    """Writes one answer to one client, as fast as that client reads; others don't notice."""

    def __init__(
        self, answer: Answer, shape: Shape, *, request_id: str, choices: int, include_usage: bool
    ) -> None:
        self._answer = answer
        self._shape = shape
        self._request_id = request_id
        self._choices = choices
        self._include_usage = include_usage

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Raises:
        BatonError: before the first token, when an error can still have its own status.
            Afterwards it is an event of the stream, and its last.
        """
        first = await self._answer.next()
        while not (self._answer.started or self._answer.ended):
            first += await self._answer.next()
        response = web.StreamResponse(
            headers={
                **served_headers(self._request_id, self._answer.record),
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",  # tells nginx and its like not to collect the stream
            }
        )
        try:
            await response.prepare(request)
            await self._write_all(response, first)
            await response.write_eof()
        except ConnectionError:
            pass  # the client is gone; leaving the answer abandons its request
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # else closing would wait for the same reader again
        return response

    async def _write_all(self, response: web.StreamResponse, first: list[Delta]) -> None:
        shape, answer = self._shape, self._answer
        opening = [chunk for index in range(self._choices) for chunk in shape.opening(index)]
        events = [event(chunk) for chunk in opening] + self._events(first)
        await _write(response, events)
        try:
            while not answer.ended:
                await _write(response, self._events(await answer.next()))
        except BatonError as error:
            # No [DONE] after it: nobody shall take the answer for whole.
            await _write(response, [event(error_json(error))])
            return
        ending = [event(shape.usage_chunk(answer.usage))] if self._include_usage else []
        await _write(response, [*ending, DONE])

    def _events(self, deltas: Sequence[Delta]) -> list[bytes]:
        return [
            event(chunk) for delta in deltas for chunk in self._shape.chunks(delta.choice, delta)
        ]


async def _write(response: web.StreamResponse, events: Sequence[bytes]) -> None:
    """One write for all: a reader that is behind catches up in large steps."""
    if events:
        async with asyncio.timeout(READER_TIMEOUT_S):
            await response.write(b"".join(events))
