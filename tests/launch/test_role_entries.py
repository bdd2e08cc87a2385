"""The launcher calls the roles by their real signatures."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import gateway.process
import launch.worker
import router.process
from core.config import Config, PoolConfig, PoolRole
from launch.role_entries import ENTRIES, Report
from launch.role_spec import RoleKind, RoleSpec
from wire.keys import DeploymentKeys

MODULES = {
    RoleKind.ROUTER: router.process,
    RoleKind.GATEWAY: gateway.process,
    RoleKind.WORKER: launch.worker,
}


@pytest.mark.parametrize("role", list(RoleKind))
async def test_each_role_gets_what_it_asks_for(
    role: RoleKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = DeploymentKeys.create()
    keys.save(tmp_path / "key")
    spec = RoleSpec(
        role=role,
        name="it",
        incarnation=1,
        config=Config(),
        pool=PoolConfig(name="d", role=PoolRole.DECODE) if role is RoleKind.WORKER else None,
        prepared_model=tmp_path,
        key_file=tmp_path / "key",
        router_address="tcp://127.0.0.1:20000",
        bind_host="127.0.0.1",
        bind_port=20_000 if role is RoleKind.ROUTER else 0,
        report_fd=0,
        launcher_pid=1,
        log_file=tmp_path / "log",
    )
    signature = inspect.signature(MODULES[role].run)
    given: dict[str, Any] = {}

    async def run(**arguments: Any) -> None:
        signature.bind(**arguments)
        given.update(arguments)

    def report(state: str, detail: str, address: str) -> None:
        return None

    monkeypatch.setattr(MODULES[role], "run", run)
    the_report: Report = report
    await ENTRIES[role](spec, the_report)
    assert given["process"] == spec.process
    assert given["keys"] == keys
    assert given["report"] is report
    expected = {"router": ("bind_port", 20_000), "gateway": ("prepared_model", tmp_path)}
    name, value = expected.get(role, ("pool", spec.pool))
    assert given[name] == value


def test_every_role_has_an_entry() -> None:
    assert set(ENTRIES) == set(RoleKind)
