import subprocess
import sys

from core.environment import child_environment
from kv_transfer.transports.nixl_environment import QUIET_ENVIRONMENT

PROGRAM = """
from kv_transfer.region import allocate_region
from kv_transfer.transports.nixl import NixlTransport
transport = NixlTransport("loud")
transport.register(allocate_region(64, 2))
transport.abort()
print("mine")
"""


def test_stdout_stays_the_programs_own_even_where_ucx_is_talkative() -> None:
    loud = {**QUIET_ENVIRONMENT, "UCX_LOG_LEVEL": "info"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=child_environment(loud),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "mine\n"
    assert "UCX" in run.stderr


def test_and_stderr_stays_empty_where_it_is_not() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=child_environment(QUIET_ENVIRONMENT),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == ("mine\n", "")
