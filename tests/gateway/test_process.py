"""The process entry on real channels: start, warm-up, serve, stop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from core.clock import MonotonicClock
from core.config import Config, GatewayConfig, ModelConfig
from core.errors import ConfigError, ModelError, SetupError
from core.ids import new_incarnation
from engine.prepared_model import prepare_model
from gateway import process
from tests.gateway.fake_deployment import ROUTER, D, FakeDeployment, P, make_peer
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import Message, Peer, Subscribe


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = "random:llama?layers=1,hidden=16,heads=2,kv_heads=1,vocab=300,max_context=512"
    cache = tmp_path_factory.mktemp("prepared")
    return prepare_model(source, "float32", cache, lambda *_: None).path


class WiredDeployment(FakeDeployment):
    """The same script, each process of it with a channel of its own."""

    def __init__(self, keys: DeploymentKeys) -> None:
        super().__init__()
        clock = MonotonicClock()
        self._channels = {
            peer.process: Channel(peer.process, keys, clock) for peer in (ROUTER, P, D)
        }
        self._gateway_address = ""
        self._listening: list[asyncio.Task[None]] = []

    async def bind(self) -> str:
        """Returns the router's address."""
        addresses = {p: await channel.bind() for p, channel in self._channels.items()}
        self.place(
            decode=Peer(D.process, addresses[D.process]),
            prefill=Peer(P.process, addresses[P.process]),
        )
        self._listening = [
            asyncio.create_task(self._listen(channel)) for channel in self._channels.values()
        ]
        return addresses[ROUTER.process]

    def say(self, sender: Peer, message: Message) -> None:
        self._channels[sender.process].send(self._gateway_address, message)

    async def close(self) -> None:
        await super().close()
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()

    async def _listen(self, channel: Channel) -> None:
        while True:
            incoming = await channel.receive()
            if isinstance(incoming, Received):
                if isinstance(incoming.message, Subscribe):
                    self._gateway_address = incoming.message.gateway.address
                self.send(channel.address, incoming.message)


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[WiredDeployment, DeploymentKeys, str]]:
    keys = DeploymentKeys.create()
    deployment = WiredDeployment(keys)
    try:
        yield deployment, keys, await deployment.bind()
    finally:
        await deployment.close()


async def run(
    config: Config,
    prepared: Path,
    keys: DeploymentKeys | None = None,
    router_address: str = "tcp://127.0.0.1:9",
    report: process.Report = lambda *_: None,
) -> None:
    await process.run(
        process=make_peer("gateway-0", new_incarnation()).process,
        config=config,
        keys=keys or DeploymentKeys.create(),
        router_address=router_address,
        prepared_model=prepared,
        bind_host="127.0.0.1",
        report=report,
    )


async def test_it_starts_serves_and_stops_in_order(prepared: Path) -> None:
    reports: list[tuple[str, str, str]] = []
    ready = asyncio.Event()

    def report(state: str, detail: str, address: str) -> None:
        reports.append((state, detail, address))
        if state == "ready":
            ready.set()

    config = Config(gateway=GatewayConfig(port=0), model=ModelConfig(served_name="tiny"))
    async with wired() as (deployment, keys, router_address), asyncio.timeout(30):
        running = asyncio.create_task(run(config, prepared, keys, router_address, report))
        await ready.wait()
        assert reports[0][0] == "starting"
        state, detail, url = reports[-1]
        assert (state, detail) == ("ready", "serving tiny")
        async with aiohttp.ClientSession(url) as http:
            async with http.get("/ready") as response:
                assert response.status == 200
            body = {"prompt": "hello there", "model": "tiny", "max_tokens": 5}
            async with http.post("/v1/completions", json=body) as response:
                assert (await response.json())["choices"][0]["text"] == "Hello"
                assert response.headers["x-baton-prefill"] == "prefill-0"
            deployment.hold_at = 2
            async with http.post("/v1/completions", json={**body, "stream": True}) as response:
                await response.content.readline()
                running.cancel()
                assert b"shutting down" in await response.read()
        with pytest.raises(asyncio.CancelledError):
            await running
        await deployment.until(lambda: len(deployment.cancels) == 2)


async def test_a_taken_port_is_the_operators_to_mend(prepared: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = Config(gateway=GatewayConfig(port=other.getsockname()[1]))
        with pytest.raises(SetupError, match="taken by another process"):
            await run(config, prepared)


async def test_it_refuses_to_be_open_to_the_network(prepared: Path) -> None:
    with pytest.raises(ConfigError, match="a key is compulsory"):
        await run(Config(gateway=GatewayConfig(host="0.0.0.0", port=0)), prepared)


async def test_it_needs_a_prepared_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        await run(Config(gateway=GatewayConfig(port=0)), tmp_path)
