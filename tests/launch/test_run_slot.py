import json
import os
import stat
from pathlib import Path

import pytest

from core.errors import SetupError
from launch import run_slot
from launch.run_slot import DeploymentFile, ProcessRow, RunSlot, running_deployments, state_dir


def deployment(run_id: str) -> DeploymentFile:
    row = ProcessRow("decode", "decode-0", 12, "tcp://127.0.0.1:1", "ready")
    return DeploymentFile(run_id, "http://127.0.0.1:8000", "m", "2026-01-01", (row,))


def test_what_is_written_is_read_while_the_slot_is_held(tmp_path: Path) -> None:
    slot = RunSlot.acquire(tmp_path)
    assert list(running_deployments(tmp_path)) == []
    slot.write(deployment("a"))
    assert list(running_deployments(tmp_path)) == [deployment("a")]
    slot.release()
    assert list(running_deployments(tmp_path)) == []
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["deployment.lock"]


def test_names_that_outsiders_rely_on(tmp_path: Path) -> None:
    slot = RunSlot.acquire(tmp_path)
    slot.write(deployment("a"))
    rows = json.loads((tmp_path / "run" / "deployment.json").read_text())["processes"]
    assert set(rows[0]) == {"role", "name", "pid", "address", "state"}
    slot.release()


def test_each_deployment_has_its_own_slot(tmp_path: Path) -> None:
    first, second = RunSlot.acquire(tmp_path), RunSlot.acquire(tmp_path)
    assert (first.number, second.number) == (1, 2)
    assert first.log_dir != second.log_dir
    assert first.private_dir != second.private_dir
    first.write(deployment("a"))
    second.write(deployment("b"))
    assert [d.run_id for d in running_deployments(tmp_path)] == ["a", "b"]
    first.release()
    assert [d.run_id for d in running_deployments(tmp_path)] == ["b"]
    third = RunSlot.acquire(tmp_path)
    assert third.number == 1
    third.release()
    second.release()


def test_what_a_killed_launcher_left_is_cleared(tmp_path: Path) -> None:
    slot = RunSlot.acquire(tmp_path)
    slot.write(deployment("a"))
    (slot.private_dir / "channel.key").write_text("secret")
    os.close(slot._lock_fd)  # what the kernel does when the process is killed
    assert list(running_deployments(tmp_path)) == []
    again = RunSlot.acquire(tmp_path)
    assert list(again.private_dir.iterdir()) == []
    assert stat.S_IMODE(again.private_dir.stat().st_mode) == 0o700
    assert not again.run_file.exists()
    again.release()


def test_a_half_written_or_foreign_run_file_is_no_deployment(tmp_path: Path) -> None:
    slot = RunSlot.acquire(tmp_path)
    for text in ("", "{", "[]", '{"processes": [{"x": 1}]}', '{"processes": []}', "3"):
        slot.run_file.write_text(text)
        assert list(running_deployments(tmp_path)) == []
    slot.release()


def test_slots_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_slot, "MAX_SLOTS", 1)
    slot = RunSlot.acquire(tmp_path)
    with pytest.raises(SetupError, match=r"1 deployments share .* use --state-dir"):
        RunSlot.acquire(tmp_path)
    slot.release()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="choose another with --state-dir"):
        RunSlot.acquire(tmp_path / "file")


def test_state_dir(tmp_path: Path) -> None:
    assert state_dir(str(tmp_path)) == tmp_path
    assert state_dir(None) == Path.home() / ".cache" / "baton"
    assert state_dir("~/x") == Path.home() / "x"
    assert state_dir("relative").is_absolute()
