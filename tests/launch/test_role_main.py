"""The entry of every child, run as a real process with a spec of our own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import Config, PoolConfig, PoolRole
from core.errors import SetupError
from launch.report import NoticeLine, StateLine, decode_line
from launch.role_main import describe, root_cause
from launch.role_spec import RoleKind, RoleSpec
from launch.supervision import ReportedState
from tests.launch.support import FAKE_COMMAND, PATIENCE_S, is_running, wait_for


class Role:
    """A fake worker started by hand."""

    def __init__(
        self, root: Path, behaviour: str = "", role: RoleKind = RoleKind.WORKER, **changes: object
    ) -> None:
        self.root = root
        (root / "behaviour.json").write_text(json.dumps({"it": behaviour}))
        self._read_fd, report_fd = os.pipe()
        spec = RoleSpec(
            role=role,
            name="it",
            incarnation=5,
            config=Config(),
            pool=PoolConfig(name="decode", role=PoolRole.DECODE),
            prepared_model=root,
            key_file=root / "key",
            router_address="tcp://127.0.0.1:1",
            bind_host="127.0.0.1",
            report_fd=report_fd,
            launcher_pid=os.getpid(),
            log_file=root / "logs" / "it.jsonl",
        ).model_copy(update=changes)
        spec.save(root / "it.json")
        self.popen = subprocess.Popen(
            [*FAKE_COMMAND, "--spec", str(root / "it.json")],
            pass_fds=(report_fd,),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        os.close(report_fd)
        self._pipe = os.fdopen(self._read_fd, "rb")

    def next_line(self) -> StateLine | NoticeLine | None:
        return decode_line(self._pipe.readline())

    def end(self) -> tuple[int, str]:
        """(exit code, what it wrote to stderr)."""
        _, errors = self.popen.communicate(timeout=PATIENCE_S)
        self._pipe.close()
        return self.popen.returncode, errors.decode()

    def log(self) -> list[dict[str, object]]:
        path = self.root / "logs" / "it.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("role", "number"), [(RoleKind.WORKER, signal.SIGTERM), (RoleKind.GATEWAY, signal.SIGINT)]
)
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int, role: RoleKind) -> None:
    running = Role(tmp_path, role=role)  # the gateway's loop is uvloop's, a worker's asyncio's
    assert running.next_line() == StateLine(ReportedState.LOADING, "weights 50 %")
    ready = running.next_line()
    assert ready == StateLine(ReportedState.READY, "", "tcp://127.0.0.1:1/it")
    assert Path(f"/proc/{running.popen.pid}/comm").read_text().strip() == "baton:it"
    running.popen.send_signal(number)
    assert running.end() == (0, "")
    assert (tmp_path / "story.txt").read_text().splitlines()[-1] == "it stopped"
    assert [record["message"] for record in running.log()][-1] == "it@5 ended in order"


def test_a_setup_problem_has_no_traceback(tmp_path: Path) -> None:
    role = Role(tmp_path, "setup-error")
    role.next_line()
    assert role.next_line() == StateLine(
        ReportedState.FAILED, "no model here: mend it", "", setup=True
    )
    assert role.end() == (2, "")
    assert not any("exception" in record for record in role.log())


def test_a_setup_problem_inside_a_task_group_is_still_one(tmp_path: Path) -> None:
    role = Role(tmp_path, "group")
    role.next_line()
    assert role.next_line() == StateLine(ReportedState.FAILED, "inside a group", setup=True)
    assert role.end()[0] == 2


def test_an_uncaught_error_is_logged_whole_and_reported_in_a_line(tmp_path: Path) -> None:
    role = Role(tmp_path, "crash")
    role.next_line()
    assert role.next_line() == StateLine(ReportedState.FAILED, "ValueError: broken in two")
    assert role.end() == (1, "")
    (record,) = [record for record in role.log() if record["level"] == "error"]
    assert "Traceback" in str(record["exception"])


def test_a_role_that_ends_by_itself_has_failed(tmp_path: Path) -> None:
    role = Role(tmp_path, "ends")
    role.next_line()
    state = role.next_line()
    assert isinstance(state, StateLine)
    assert state.detail == "RuntimeError: ended, though nobody asked it to stop"
    assert role.end()[0] == 1


def test_it_goes_to_its_cores_before_anything_is_imported(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    role = Role(tmp_path, cores=(core,))
    role.next_line()
    role.next_line()
    assert os.sched_getaffinity(role.popen.pid) == {core}
    role.popen.terminate()
    role.end()


def test_a_core_that_is_not_there(tmp_path: Path) -> None:
    role = Role(tmp_path, cores=(4_095,))
    state = role.next_line()
    assert isinstance(state, StateLine)
    assert "can't run on cores [4095]" in state.detail
    assert state.setup
    assert role.end()[0] == 2


def test_it_does_not_start_when_its_launcher_is_gone(tmp_path: Path) -> None:
    role = Role(tmp_path, launcher_pid=1 if os.getpid() != 1 else 2)
    assert role.end()[0] == 1
    assert not (tmp_path / "story.txt").exists()


def test_a_spec_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"role": "worker"}')
    for argument, words in ((path, "is no role's spec"), (tmp_path / "no", "can't read")):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "launch.role_main", "--spec", str(argument)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys, time\n"
        "from tests.launch.test_role_main import Role\n"
        "role = Role(pathlib.Path(sys.argv[1]))\n"
        "role.next_line(); role.next_line()\n"
        "print(role.popen.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not is_running(child), "the child's end")


def test_the_setup_problem_is_what_counts_of_many() -> None:
    setup = SetupError("x")
    group = BaseExceptionGroup("", [ValueError("y"), BaseExceptionGroup("", [setup])])
    assert root_cause(group) is setup
    assert str(root_cause(BaseExceptionGroup("", [ValueError("y"), KeyError("z")]))) == "y"


def test_describe() -> None:
    assert describe(ValueError("a\n b")) == "ValueError: a b"
    assert describe(ValueError()) == "ValueError"
