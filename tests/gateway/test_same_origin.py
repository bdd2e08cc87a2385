"""Pages of other origins can't use a gateway without a key; programs and its own page can."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from core.config import GatewayConfig
from gateway.errors import answer_errors
from gateway.same_origin import same_origin

Get = Callable[[dict[str, str]], Awaitable[int]]


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


async def _client(config: GatewayConfig) -> TestClient[web.Request, web.Application]:
    app = web.Application(middlewares=[answer_errors, same_origin(config)])
    app.router.add_get("/", _ok)
    client = TestClient(TestServer(app))
    await client.start_server()
    return client


@pytest.fixture
async def get() -> AsyncIterator[Get]:
    client = await _client(GatewayConfig())

    async def status(headers: dict[str, str]) -> int:
        async with client.get("/", headers=headers) as answer:
            return answer.status

    yield status
    await client.close()


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "localhost"])
async def test_programs_and_its_own_page(get: Get, host: str) -> None:
    assert await get({"Host": host}) == 200
    assert await get({"Host": host, "Origin": f"http://{host}"}) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"},
        {"Host": "[broken"},
    ],
)
async def test_foreign_pages(get: Get, headers: dict[str, str]) -> None:
    assert await get(headers) == 403


async def test_a_key_is_enough() -> None:
    client = await _client(GatewayConfig(host="0.0.0.0", api_key="k"))
    async with client.get("/", headers={"Host": "chat.example", "Origin": "http://x"}) as answer:
        assert answer.status == 200
    await client.close()
