"""Which function runs which role. Imports happen inside: a router loads no torch."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from core.config import PoolConfig
from core.errors import BugError
from launch.role_spec import RoleKind, RoleSpec

Report = Callable[[str, str, str], None]
"""(state, detail, address): states are starting, loading, ready."""
Entry = Callable[[RoleSpec, Report], Awaitable[None]]
"""Runs until it is cancelled."""


async def run_router(spec: RoleSpec, report: Report) -> None:
    from router.process import run
    from wire.keys import DeploymentKeys

    await run(
        process=spec.process,
        config=spec.config,
        keys=DeploymentKeys.load(spec.key_file),
        bind_host=spec.bind_host,
        bind_port=spec.bind_port,
        report=report,
    )


async def run_gateway(spec: RoleSpec, report: Report) -> None:
    from gateway.process import run
    from wire.keys import DeploymentKeys

    await run(
        process=spec.process,
        config=spec.config,
        keys=DeploymentKeys.load(spec.key_file),
        router_address=spec.router_address,
        prepared_model=_model(spec),
        bind_host=spec.bind_host,
        report=report,
    )


async def run_worker(spec: RoleSpec, report: Report) -> None:
    from launch.worker import run
    from wire.keys import DeploymentKeys

    await run(
        process=spec.process,
        config=spec.config,
        pool=_pool(spec),
        keys=DeploymentKeys.load(spec.key_file),
        router_address=spec.router_address,
        prepared_model=_model(spec),
        bind_host=spec.bind_host,
        report=report,
    )


ENTRIES: Mapping[RoleKind, Entry] = MappingProxyType(
    {
        RoleKind.ROUTER: run_router,
        RoleKind.GATEWAY: run_gateway,
        RoleKind.WORKER: run_worker,
    }
)


def _model(spec: RoleSpec) -> Path:
    if spec.prepared_model is None:
        raise BugError(f"{spec.name} was told no prepared model")
    return spec.prepared_model


def _pool(spec: RoleSpec) -> PoolConfig:
    if spec.pool is None:
        raise BugError(f"{spec.name} was told no pool")
    return spec.pool
