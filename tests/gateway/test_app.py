"""The application's routes and limits, and its socket."""

import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from core.config import GatewayConfig
from core.errors import SetupError
from gateway.app import Site
from tests.gateway.conftest import Gateway, StartGateway
from tests.gateway.http_calls import CHAT, TEXT, post, refused


async def test_paths_and_methods_that_do_not_exist(gateway: Gateway) -> None:
    async with gateway.http.get("/v1/nothing") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"
    async with gateway.http.get(CHAT) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert "GET" in (await response.json())["error"]["message"]


async def test_a_body_beyond_the_limit(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(max_body_bytes=1_000)
    status, error = await refused(gateway, TEXT, prompt="x" * 2_000)
    assert (status, error["code"]) == (413, "request_too_large")
    assert "1000 bytes" in error["message"]

    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100

    async with gateway.http.post(TEXT, data=endless()) as response:  # no Content-Length
        assert response.status == 413
    status, _, _ = await post(gateway, TEXT, prompt="x" * 400)
    assert status == 200


async def test_a_site_tells_its_url_and_stops() -> None:
    site = await Site.start(web.Application(), GatewayConfig(port=0))
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{site.url}/nothing") as response:
            assert response.status == 404
        await site.stop()
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{site.url}/nothing")


async def test_a_taken_port_and_a_foreign_host_are_told_apart() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"127.0.0.1:{port} is taken"):
            await Site.start(web.Application(), GatewayConfig(port=port))
    with pytest.raises(SetupError, match=r"gateway\.host: can't listen at 192\.0\.2\.1"):
        await Site.start(web.Application(), GatewayConfig(host="192.0.2.1", port=0))
