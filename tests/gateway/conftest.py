"""A gateway with its real HTTP site in front of a fake deployment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from core.clock import MonotonicClock
from core.config import Config, GatewayConfig
from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_synthetic
from gateway.app import Site, build_app
from gateway.dispatcher import Dispatcher
from gateway.metrics import GatewayMetrics
from gateway.readiness import Readiness
from gateway.served_model import ServedModel
from tests.gateway.fake_deployment import ROUTER_ADDRESS, FakeDeployment, make_peer

MAX_CONTEXT = 512
VOCAB = 300


@dataclass(frozen=True)
class Gateway:
    url: str
    deployment: FakeDeployment
    dispatcher: Dispatcher
    readiness: Readiness
    http: aiohttp.ClientSession


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    out: Path = tmp_path_factory.mktemp("synthetic-tokenizer")
    write_synthetic(VOCAB, out)
    return Tokenizer.load(out)


@pytest.fixture(scope="session")
def model(tokenizer: Tokenizer) -> ServedModel:
    return ServedModel(
        name="org/fake-1b",
        tokenizer=tokenizer,
        max_context=MAX_CONTEXT,
        vocab=VOCAB,
        fingerprint="f" * 32,
        created_s=1_700_000_000,
    )


StartGateway = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def start_gateway(model: ServedModel) -> AsyncIterator[StartGateway]:
    """Starts gateways with any field of GatewayConfig; they end with the test."""
    async with AsyncExitStack() as stack:

        async def start(**fields: object) -> Gateway:
            return await stack.enter_async_context(_gateway(model, fields))

        yield start


@pytest.fixture
async def gateway(start_gateway: StartGateway) -> Gateway:
    return await start_gateway()


@asynccontextmanager
async def _gateway(model: ServedModel, fields: dict[str, object]) -> AsyncIterator[Gateway]:
    section = GatewayConfig.model_validate({"port": 0, "default_max_tokens": 64, **fields})
    config = Config(gateway=section)
    deployment = FakeDeployment()
    metrics = GatewayMetrics(model.name)
    dispatcher = Dispatcher(
        channel=deployment,
        gateway=make_peer("gateway-0"),
        router_address=ROUTER_ADDRESS,
        tokenizer=model.tokenizer,
        max_attempts=config.gateway.max_attempts,
        clock=MonotonicClock(),
        metrics=metrics,
    )
    readiness = Readiness(dispatcher.membership)
    app = build_app(
        config=config, model=model, dispatcher=dispatcher, readiness=readiness, metrics=metrics
    )
    site = await Site.start(app, config.gateway)
    running = asyncio.create_task(dispatcher.run())
    try:
        await dispatcher.membership.next_update()
        async with aiohttp.ClientSession(site.url) as http:
            yield Gateway(site.url, deployment, dispatcher, readiness, http)
    finally:
        dispatcher.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await site.stop()
        await deployment.close()
