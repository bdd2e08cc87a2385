import math
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from core.config import Config, PoolConfig, PoolRole, RouterConfig
from core.errors import SetupError
from core.ids import Incarnation, ProcessId, WorkerName
from launch.role_spec import RoleKind, RoleSpec


def spec(**changes: object) -> RoleSpec:
    fields: dict[str, object] = {
        "role": RoleKind.WORKER,
        "name": "decode-0",
        "incarnation": 7,
        "config": Config(router=RouterConfig(max_queue_ms=math.inf)),
        "pool": PoolConfig(name="decode", role=PoolRole.DECODE),
        "prepared_model": Path("/models/x"),
        "key_file": Path("/run/key"),
        "router_address": "tcp://127.0.0.1:20000",
        "bind_host": "127.0.0.1",
        "cores": (3, 4),
        "report_fd": 9,
        "launcher_pid": 1,
        "log_file": Path("/logs/x.jsonl"),
    }
    return RoleSpec.model_validate({**fields, **changes})


def test_round_trip_through_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    for _ in range(2):  # a restart replaces it
        spec().save(path)
        assert RoleSpec.load(path) == spec()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_process() -> None:
    assert spec().process == ProcessId(WorkerName("decode-0"), Incarnation(7))


def test_what_is_missing_is_refused() -> None:
    with pytest.raises(ValidationError, match="names its pool"):
        spec(pool=None)
    with pytest.raises(ValidationError, match="names its prepared model"):
        spec(role=RoleKind.GATEWAY, prepared_model=None)
    assert spec(role=RoleKind.ROUTER, prepared_model=None, pool=None)


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="can't read"):
        RoleSpec.load(tmp_path / "none")
    (tmp_path / "bad").write_text('{"role": "cook"}')
    with pytest.raises(SetupError, match="is no role's spec: role"):
        RoleSpec.load(tmp_path / "bad")
