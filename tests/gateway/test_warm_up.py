"""Ready only when the whole way has been gone."""

import asyncio

import pytest

from core.config import Config, PoolConfig, PoolRole
from gateway.served_model import ServedModel
from gateway.warm_up import warm_up, warm_up_path
from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import D, P, view
from wire.messages import Fault, Role, RoutePath

DECODE = PoolConfig(name="decode", role=PoolRole.DECODE)
LOCAL_ONLY = Config(pools=(DECODE,))


@pytest.mark.parametrize(
    ("pools", "path"),
    [
        ((DECODE, PoolConfig(name="p", role=PoolRole.PREFILL)), RoutePath.REMOTE),
        ((DECODE, PoolConfig(name="p", role=PoolRole.PREFILL, replicas=0)), RoutePath.LOCAL),
        ((DECODE,), RoutePath.LOCAL),
        ((PoolConfig(name="b", role=PoolRole.BOTH, replicas=2),), RoutePath.LOCAL),
    ],
)
def test_the_way_that_is_proven(pools: tuple[PoolConfig, ...], path: RoutePath) -> None:
    assert warm_up_path(Config(pools=pools)) is path


async def test_over_p_the_transfer_and_d(gateway: Gateway, model: ServedModel) -> None:
    phases: list[str] = []
    async with asyncio.timeout(10):
        await warm_up(gateway.dispatcher, model, Config(), phases.append)
    assert gateway.deployment.routes[0].path is RoutePath.REMOTE
    assert gateway.deployment.submits[0].prefill == P
    assert phases == ["warming up"]
    async with gateway.http.get("/metrics") as response:
        assert 'baton_requests_total{outcome="finished"} 0.0' in await response.text()


async def test_local_where_nobody_prefills(gateway: Gateway, model: ServedModel) -> None:
    async with asyncio.timeout(10):
        await warm_up(gateway.dispatcher, model, LOCAL_ONLY, lambda _: None)
    assert gateway.deployment.submits[0].prefill is None


async def test_it_waits_for_workers_and_tries_again(gateway: Gateway, model: ServedModel) -> None:
    deployment = gateway.deployment
    deployment.change_members(view(P, Role.PREFILL))
    await gateway.dispatcher.membership.next_update()
    phases: list[str] = []
    news = asyncio.Event()

    def progress(phase: str) -> None:
        phases.append(phase)
        news.set()

    async def until(text: str) -> None:
        while not any(text in phase for phase in phases):
            news.clear()
            await news.wait()

    async with asyncio.timeout(10):
        warming = asyncio.create_task(warm_up(gateway.dispatcher, model, Config(), progress))
        await until("waiting for a decode worker")
        deployment.fail_at = (0, Fault.US)
        deployment.change_members(view(P, Role.PREFILL), view(D, Role.DECODE))
        await until("warming up: decode-0: no good")
        deployment.fail_at, deployment.hand_over = None, False
        await until("no KV came to decode-0 from prefill-0")
        deployment.hand_over = True
        await warming
