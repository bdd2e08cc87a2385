import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from launch.run_slot import DeploymentFile, ProcessRow, RunSlot
from launch.status import status

ROWS = (
    ProcessRow("launcher", "launcher", 1, "http://127.0.0.1:8000", "ready"),
    ProcessRow("decode", "decode-0", None, "", "backing-off"),
)


def test_none_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    assert status(tmp_path, False, Console(file=out, width=200)) == 1
    assert f"no deployment runs with the state directory {tmp_path}" in out.getvalue()
    assert status(tmp_path, True, Console(file=out)) == 1
    assert json.loads(capsys.readouterr().out) == []


def test_all_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots = [RunSlot.acquire(tmp_path) for _ in range(2)]
    for slot in slots:
        url = f"http://127.0.0.1:800{slot.number}"
        slot.write(DeploymentFile(f"run{slot.number}", url, "smol", "2026-01-01", ROWS))
    out = io.StringIO()
    assert status(tmp_path, False, Console(file=out, width=200)) == 0
    shown = out.getvalue()
    for words in ("run1", "run2", "http://127.0.0.1:8002", "decode-0", "backing-off", "smol"):
        assert words in shown
    assert status(tmp_path, True, Console(file=out)) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    assert rows[1] == {
        "role": "decode",
        "name": "decode-0",
        "pid": None,
        "address": "",
        "state": "backing-off",
    }
    for slot in slots:
        slot.release()
