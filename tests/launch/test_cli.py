import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launch.cli import main
from launch.run_slot import DeploymentFile, ProcessRow, RunSlot

RUNNER = CliRunner()


def baton(*arguments: str, **environment: str) -> tuple[int, str, str]:
    done = RUNNER.invoke(main, arguments, env=environment)
    return done.exit_code, done.stdout, done.stderr


def test_version_and_help() -> None:
    assert baton("version")[:2] == (0, "0.1.0\n")
    code, text, _ = baton("--help")
    assert code == 0
    for command in ("serve", "status", "chat", "doctor", "version"):
        assert command in text
    assert baton("serve", "-h")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "baton: --port: gateway.port: must be ≤ 65535, not 70000\n"),
        (("-c", "/no.yaml"), "baton: /no.yaml: can't be read: No such file or directory\n"),
        (("--log-level", "loud"), "baton: --log-level: must be one of"),
        (("--host", "0.0.0.0"), "baton: gateway.api_key: other machines can reach 0.0.0.0"),
    ],
)
def test_setup_problems_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    code, out, err = baton("serve", "--state-dir", str(tmp_path), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_status_through_the_environment(tmp_path: Path) -> None:
    assert baton("status", "--json", BATON_STATE_DIR=str(tmp_path))[:2] == (1, "[]\n")
    slot = RunSlot.acquire(tmp_path)
    row = ProcessRow("router", "router", 5, "tcp://127.0.0.1:1", "ready")
    slot.write(DeploymentFile("r", "http://127.0.0.1:1", "m", "now", (row,)))
    code, out, _ = baton("status", "--json", "--state-dir", str(tmp_path))
    assert code == 0
    assert json.loads(out)[0]["name"] == "router"
    assert baton("chat", "--state-dir", str(tmp_path))[0] == 0, "nothing was said, nothing asked"
    slot.release()


def test_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, launch.cli, launch.serve, launch.status, launch.chat, launch.doctor\n"
        "heavy = {'torch', 'transformers', 'nixl_cu12'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
