import subprocess
import sys

from launch import machine_checks
from launch.machine_checks import Verdict
from launch.nixl_probe import PROBE_PASSED
from tests.launch.support import PATIENCE_S


def test_an_agent_can_be_made_here() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "launch.nixl_probe"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert PROBE_PASSED in done.stdout


def test_the_doctor_names_version_and_transports() -> None:
    finding = machine_checks.ucx()
    assert finding.verdict is Verdict.OK
    assert "UCX 1." in finding.found
    assert "tcp/" in finding.found
