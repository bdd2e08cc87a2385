import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from core.ids import Incarnation, ProcessId, WorkerName
from launch.child_process import ChildProcess
from launch.report import NoticeLine, StateLine, encode_line
from launch.supervision import ReportedState
from tests.launch.support import PATIENCE_S, is_running, wait_until

IT = ProcessId(WorkerName("it"), Incarnation(1))
READY = StateLine(ReportedState.READY, "", "tcp://127.0.0.1:1")
SAY = f"import os, sys, time\nfd = int(sys.argv[2])\nready = {encode_line(READY)!r}\n"
"""The child of these tests is Python with a script; its `--spec` is the report descriptor."""


class Listener:
    def __init__(self) -> None:
        self.states: list[StateLine] = []
        self.notices: list[NoticeLine] = []
        self.output: list[str] = []
        self.exits: list[str] = []
        self.exited = asyncio.Event()

    def on_state(self, process: ProcessId, line: StateLine) -> None:
        assert not self.exits, "nothing comes after the exit"
        self.states.append(line)

    def on_notice(self, process: ProcessId, line: NoticeLine) -> None:
        self.notices.append(line)

    def on_output(self, process: ProcessId, line: str) -> None:
        self.output.append(line)

    def on_exit(self, process: ProcessId, reason: str) -> None:
        assert process == IT
        self.exits.append(reason)
        self.exited.set()

    async def until_exit(self) -> str:
        await asyncio.wait_for(self.exited.wait(), PATIENCE_S)
        await asyncio.sleep(0)
        (reason,) = self.exits
        return reason


def spawn(script: str, listener: Listener) -> ChildProcess:
    command = (sys.executable, "-u", "-c", SAY + script)
    return ChildProcess.spawn(
        IT, command, lambda report_fd: Path(str(report_fd)), dict(os.environ), listener
    )


async def test_what_it_reports_and_prints() -> None:
    listener = Listener()
    before = set(os.listdir("/proc/self/fd"))
    spawn(
        "os.write(fd, ready)\nos.write(fd, b'{\"no\": 1}\\n')\n"
        "print('one\\n\\ntwo')\nsys.stderr.write('three')\n",
        listener,
    )
    assert await listener.until_exit() == "exit code 0"
    assert listener.states == [READY]
    assert sorted(listener.output) == ['not a report: {"no": 1}', "one", "three", "two"]
    assert set(os.listdir("/proc/self/fd")) == before, "a descriptor is left open"


async def test_the_last_words_are_delivered_before_the_exit() -> None:
    listener = Listener()
    spawn("[os.write(fd, ready) for _ in range(500)]\nos._exit(3)\n", listener)
    assert await listener.until_exit() == "exit code 3"
    assert len(listener.states) == 500


async def test_the_reason_quotes_what_it_printed_last() -> None:
    listener = Listener()
    spawn("raise RuntimeError('no memory')\n", listener)
    assert await listener.until_exit() == "exit code 1: RuntimeError: no memory"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
async def test_a_crash_is_named(number: signal.Signals) -> None:
    listener = Listener()
    spawn(f"os.kill(os.getpid(), {int(number)})\n", listener)
    assert await listener.until_exit() == f"killed by {number.name}"


async def test_terminate_and_kill() -> None:
    listener = Listener()
    child = spawn("os.write(fd, ready)\ntime.sleep(1000)\n", listener)
    await wait_until(lambda: bool(listener.states), "it is ready")
    child.terminate()
    assert await listener.until_exit() == "killed by SIGTERM"

    listener = Listener()
    child = spawn("os.write(fd, ready)\ntime.sleep(1000)\n", listener)
    child.kill()
    assert await listener.until_exit() == "killed by SIGKILL"
    assert not is_running(child.pid)


async def test_lines_without_end_are_cut() -> None:
    listener = Listener()
    spawn("sys.stdout.write('x' * 1_000_000)\n", listener)
    await listener.until_exit()
    assert sum(map(len, listener.output)) == 1_000_000
    assert max(map(len, listener.output)) < 200_000


async def test_what_cannot_be_started_leaves_nothing_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        ChildProcess.spawn(IT, ["/no/such/program"], lambda _fd: Path("x"), {}, Listener())
    assert set(os.listdir("/proc/self/fd")) == before
