"""POST /v1/chat/completions and /v1/completions."""

import asyncio
import time
import zlib
from typing import TypeVar

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from core.errors import BodyTooLarge, ClientError
from gateway.answer import Answer
from gateway.body_reader import parse_body
from gateway.dispatcher import Dispatcher
from gateway.errors import REQUEST_ID
from gateway.event_stream import EventStream
from gateway.openai_models import ChatBody, CompletionBody, GenerationBody
from gateway.preparation import Preparation, Prepared
from gateway.responses import ChatShape, CompletionShape, Envelope, Shape, WholeChoice
from gateway.served_headers import served_headers
from gateway.served_model import ServedModel
from gateway.sse import to_json

BODY_TIMEOUT_S = 60.0
"""A client that takes longer to send its body is told so: a connection isn't held for ever."""

INLINE_BODY_BYTES = 64 << 10
"""Larger bodies are parsed in a thread: a body of the largest size takes half a second."""

ModelBody = TypeVar("ModelBody", bound=GenerationBody)


class RequestTimeout(ClientError):
    http_status = 408
    code = "request_timeout"


class GenerationHandler:
    """Both endpoints: they differ in body and shape only."""

    def __init__(
        self, dispatcher: Dispatcher, preparation: Preparation, model: ServedModel, body_limit: int
    ) -> None:
        self._dispatcher = dispatcher
        self._preparation = preparation
        self._model = model
        self._body_limit = body_limit

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._read(request, ChatBody)
        prepared = await self._preparation.chat(body, request.headers)
        envelope = self._envelope(prepared, body)
        shape = ChatShape(envelope, self._model.tokenizer, bool(body.logprobs))
        return await self._answer(request, prepared, body, shape)

    async def completion(self, request: web.Request) -> web.StreamResponse:
        body = await self._read(request, CompletionBody)
        prepared = await self._preparation.completion(body, request.headers)
        echoes = [echo for echo in prepared.echoes for _ in range(prepared.choices)]
        envelope = self._envelope(prepared, body)
        shape = CompletionShape(envelope, self._model.tokenizer, body.logprobs is not None, echoes)
        return await self._answer(request, prepared, body, shape)

    async def _read(self, request: web.Request, model: type[ModelBody]) -> ModelBody:
        too_large = BodyTooLarge(
            f"The body of the request exceeds the limit of {self._body_limit} bytes."
        )
        if (request.content_length or 0) > self._body_limit:
            raise too_large
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                data = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        except (web.RequestPayloadError, ContentEncodingError, zlib.error):
            encoding = request.headers.get("Content-Encoding", "")
            raise ClientError(f"The body of the request is not valid '{encoding}'.") from None
        except TimeoutError:
            raise RequestTimeout("The body of the request did not arrive in time.") from None
        if len(data) <= INLINE_BODY_BYTES:
            return parse_body(model, data)
        return await asyncio.to_thread(parse_body, model, data)

    def _envelope(self, prepared: Prepared, body: GenerationBody) -> Envelope:
        return Envelope(
            id=prepared.request_id,
            model=self._model.name,
            fingerprint=f"fp_{self._model.fingerprint[:12]}",
            created_s=int(time.time()),
            include_usage=_wants_usage(body),
        )

    async def _answer(
        self, request: web.Request, prepared: Prepared, body: GenerationBody, shape: Shape
    ) -> web.StreamResponse:
        request[REQUEST_ID] = prepared.request_id
        choices = prepared.choices * len(prepared.generations)
        async with Answer(self._dispatcher, prepared.generations) as answer:
            if not body.stream:
                return await _whole(answer, shape, prepared.request_id, choices)
            stream = EventStream(
                answer,
                shape,
                request_id=prepared.request_id,
                choices=choices,
                include_usage=_wants_usage(body),
            )
            return await stream.send(request)


def _wants_usage(body: GenerationBody) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)


async def _whole(answer: Answer, shape: Shape, request_id: str, count: int) -> web.Response:
    choices = [WholeChoice() for _ in range(count)]
    while not answer.ended:
        for delta in await answer.next():
            choices[delta.choice].add(delta)
    return web.Response(
        text=to_json(shape.whole(choices, answer.usage)),
        content_type="application/json",
        headers=served_headers(request_id, answer.record),
    )
