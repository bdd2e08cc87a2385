"""Calls to a gateway under test, and the shapes of what it answers."""

import json
from typing import Any

from tests.gateway.conftest import Gateway

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello there"}]


async def post(
    gateway: Gateway, path: str, headers: dict[str, str] | None = None, **body: Any
) -> tuple[int, Any, Any]:
    async with gateway.http.post(path, json=body, headers=headers) as response:
        return response.status, await response.json(), response.headers


async def events(gateway: Gateway, path: str = CHAT, **body: Any) -> list[Any]:
    """The `data:` lines of a stream; [DONE] as it is."""
    async with gateway.http.post(path, json={"stream": True, **body}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        lines = (await response.read()).decode().split("\n\n")
    assert lines.pop() == ""
    data = [line.removeprefix("data: ") for line in lines]
    return [line if line == "[DONE]" else json.loads(line) for line in data]


async def refused(gateway: Gateway, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    status, answer, _ = await post(gateway, path, **body)
    assert answer.keys() == {"error"}
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    return status, answer["error"]
