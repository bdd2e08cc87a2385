"""The one entry of every child process: `python -P -m launch.role_main --spec FILE`.

Before anything heavy is imported it ties its life to the launcher's, names itself and goes to its
cores. Exit codes: 0 ended as asked, 1 failed, 2 a problem that the operator must mend.
"""

import argparse
import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import uvloop

from core.errors import SetupError
from launch.logging_setup import configure_logging, quieten
from launch.report import ReportPipe, StateLine, one_line
from launch.role_entries import ENTRIES, Entry, Report
from launch.role_spec import RoleKind, RoleSpec
from launch.supervision import ReportedState

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
EXIT_FAILED = 1
EXIT_SETUP = 2

_log = logging.getLogger(__name__)


def main(
    arguments: Sequence[str] | None = None, entries: Mapping[RoleKind, Entry] = ENTRIES
) -> int:
    """Run the role that the spec describes until SIGTERM or SIGINT; returns the exit code."""
    die_with_parent()
    parser = argparse.ArgumentParser(prog="launch.role_main", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="the launcher's JSON file")
    try:
        spec = RoleSpec.load(parser.parse_args(arguments).spec)
    except SetupError as error:
        print(error, file=sys.stderr)
        return EXIT_SETUP
    if os.getppid() != spec.launcher_pid:  # it died before we asked to die with it
        return EXIT_FAILED
    pipe = ReportPipe(spec.report_fd)
    try:
        return _run_role(spec, entries[spec.role], pipe)
    except SetupError as error:
        quieten()  # the report says it, and once is enough
        _log.error("%s", error)
        pipe.state(StateLine(ReportedState.FAILED, error.message, setup=True))
        return EXIT_SETUP
    except Exception as error:  # noqa: BLE001  # the outermost loop of the process
        quieten()
        _log.exception("%s failed", spec.name)
        pipe.state(StateLine(ReportedState.FAILED, describe(error)))
        return EXIT_FAILED


def die_with_parent() -> None:
    """Have the kernel kill this process when the launcher dies, however it dies: no orphans."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def describe(error: BaseException) -> str:
    """One line for an operator: `ValueError: ...`."""
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _run_role(spec: RoleSpec, entry: Entry, pipe: ReportPipe) -> int:
    _set_title(spec.name)
    _go_to_cores(spec.cores)
    configure_logging(spec.name, spec.log_file, spec.log_level, pipe.notice)
    faulthandler.enable()  # a crash in native code leaves its Python stack in the launcher's log
    _log.info("%s starts", spec.process, extra={"cores": list(spec.cores), "pid": os.getpid()})
    stop = _StopSignal()
    # The gateway's sockets gain most from uvloop; workers and router mostly wait for ZeroMQ.
    factory = uvloop.new_event_loop if spec.role is RoleKind.GATEWAY else None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_until_stopped(entry, spec, _reporter(pipe), stop))
    except asyncio.CancelledError:
        if not stop.asked:
            raise RuntimeError("cancelled, though nobody asked it to stop") from None
    except BaseExceptionGroup as group:
        raise root_cause(group) from group
    _log.info("%s ended in order", spec.process)
    return 0


async def _until_stopped(entry: Entry, spec: RoleSpec, report: Report, stop: "_StopSignal") -> None:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("not inside a task")
    stop.watch(asyncio.get_running_loop(), task)
    await entry(spec, report)
    if not stop.asked:
        raise RuntimeError("ended, though nobody asked it to stop")


def root_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to tell of several errors at once: a SetupError if there is one, else the first."""
    leaves: list[BaseException] = []
    todo: list[BaseException] = [group]
    while todo:
        error = todo.pop(0)
        if isinstance(error, BaseExceptionGroup):
            todo = [*error.exceptions, *todo]
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, SetupError)), leaves[0])


class _StopSignal:
    """SIGTERM and SIGINT cancel the role's task; before there is one, they end the process."""

    def __init__(self) -> None:
        self.asked = False
        self._cancel: Callable[[], object] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def watch(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            return  # it is ending already; a second cancel would break its orderly end
        self.asked = True
        if self._cancel is None:
            sys.exit(0)
        _log.info("told to stop by %s", signal.Signals(number).name)
        self._cancel()


def _reporter(pipe: ReportPipe) -> Report:
    def report(state: str, detail: str, address: str) -> None:
        pipe.state(StateLine(ReportedState(state), detail, address))

    return report


def _set_title(name: str) -> None:
    """`baton:decode-0` in `top` and `ps -o comm`; the kernel keeps 15 bytes."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NAME, f"baton:{name}".encode()[:15], 0, 0, 0)


def _go_to_cores(cores: Sequence[int]) -> None:
    """Before torch is imported: its thread pools are sized and placed by what they find."""
    if not cores:
        return
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise SetupError(f"can't run on cores {list(cores)}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
