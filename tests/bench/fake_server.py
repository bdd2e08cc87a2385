"""A server that speaks as much of the API as the smoke bench needs, a token per word."""

import json
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, generate_latest


class FakeServer:
    """Counts its requests; `hands_over` says whether prompts count as handed over."""

    def __init__(self, *, hands_over: bool = True, fails: bool = False, special: int = 1) -> None:
        self.prompts: list[str] = []
        self._hands_over = hands_over
        self._fails = fails
        self._special = special
        self._registry = CollectorRegistry()
        self._handoff = Histogram("baton_handoff_seconds", "", ["pool"], registry=self._registry)
        self._handoff.labels("before").observe(9.0)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._completions)
        return app

    async def _ready(self, _request: web.Request) -> web.Response:
        return web.json_response({"ready": True})

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake"}]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        if self._fails:
            return web.json_response({"error": {"message": "no worker"}}, status=503)
        self.prompts.append(body["prompt"])
        prompt_tokens = len(body["prompt"].split()) + self._special
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": body["max_tokens"]}
        if not body.get("stream"):
            return web.json_response({"choices": [{"text": "x"}], "usage": usage})
        assert body["ignore_eos"] is True
        assert body["stream_options"] == {"include_usage": True}
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(body["max_tokens"]):
            await _send(response, {"choices": [{"text": "x", "finish_reason": None}]})
        await _send(response, {"choices": [{"text": "", "finish_reason": "length"}]})
        await _send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        if self._hands_over:
            self._handoff.labels("a").observe(0.004)
        return response


async def _send(response: web.StreamResponse, value: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(value).encode() + b"\n\n")
