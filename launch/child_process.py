"""One spawned child: its process, its report pipe and what it prints. Edge, on the event loop.

Reaping goes by a pidfd: the child stays a zombie, and its process group's id stays taken, until
whatever it left running in its group has been killed too.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from core.ids import ProcessId
from launch.report import NoticeLine, StateLine, decode_line

READ_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 16
LAST_LINES = 5


class ChildListener(Protocol):
    """Who hears of a child; called on the event loop."""

    def on_state(self, process: ProcessId, line: StateLine) -> None: ...
    def on_notice(self, process: ProcessId, line: NoticeLine) -> None: ...
    def on_output(self, process: ProcessId, line: str) -> None: ...
    def on_exit(self, process: ProcessId, reason: str) -> None: ...


class ChildProcess:
    """A running child. `on_exit` comes last, exactly once, when it is reaped."""

    def __init__(
        self,
        process: ProcessId,
        popen: "subprocess.Popen[bytes]",
        report: "_LinePipe",
        output: "_LinePipe",
        listener: ChildListener,
    ) -> None:
        self.process = process
        self._popen = popen
        self._report = report
        self._output = output
        self._listener = listener
        self._last_output: deque[str] = deque(maxlen=LAST_LINES)
        self._killed = False
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._on_ended)
        report.start(self._on_report)
        output.start(self._on_output)

    @classmethod
    def spawn(
        cls,
        process: ProcessId,
        command: Sequence[str],
        write_spec: Callable[[int], Path],
        environment: Mapping[str, str],
        listener: ChildListener,
    ) -> "ChildProcess":
        """Start `command --spec FILE`; `write_spec` is told the report pipe's descriptor.

        Must be called on the main thread: the kernel ties the child's life to the thread that
        made it (PR_SET_PDEATHSIG).

        Raises:
            OSError: it can't be started; nothing is left open.
        """
        report, report_fd = _LinePipe.open()
        output, output_fd = _LinePipe.open()
        try:
            popen = subprocess.Popen(  # noqa: S603  # our own interpreter, our own module
                [*command, "--spec", str(write_spec(report_fd))],
                stdin=subprocess.DEVNULL,
                stdout=output_fd,
                stderr=output_fd,
                pass_fds=(report_fd,),
                env=dict(environment),
                # Its own session: a terminal's Ctrl-C is for the launcher, which ends all in order.
                start_new_session=True,
            )
        except OSError:
            report.close()
            output.close()
            raise
        finally:
            os.close(report_fd)
            os.close(output_fd)
        return cls(process, popen, report, output, listener)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """At once, with everything it started."""
        self._killed = True
        self._signal(signal.SIGKILL)
        self._kill_group()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _kill_group(self) -> None:
        # Not before the child leads a group of its own, and not after it is reaped.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)

    def _on_ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._kill_group()
        code = self._popen.wait()
        os.close(self._pidfd)
        self._report.close()  # reads what is left first: the reason may be in it
        self._output.close()
        self._listener.on_exit(self.process, self._reason(code))

    def _reason(self, code: int) -> str:
        if code < 0:
            name = signal.Signals(-code).name
            unasked = name == "SIGKILL" and not self._killed
            return f"killed by {name}{' (by hand, or out of memory)' if unasked else ''}"
        said = next((line for line in reversed(self._last_output) if line.strip()), "")
        return f"exit code {code}{f': {said.strip()}' if said and code else ''}"

    def _on_report(self, line: bytes) -> None:
        match decode_line(line):
            case StateLine() as state:
                self._listener.on_state(self.process, state)
            case NoticeLine() as notice:
                self._listener.on_notice(self.process, notice)
            case None:
                text = line.decode("utf-8", "replace")
                self._listener.on_output(self.process, f"not a report: {text}")

    def _on_output(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._last_output.append(text)
        self._listener.on_output(self.process, text)


class _LinePipe:
    """The launcher's end of a pipe from a child, read line by line without blocking."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._on_line: Callable[[bytes], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def open(cls) -> tuple["_LinePipe", int]:
        """(the reading end, the descriptor for the child, which the caller closes)."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        return cls(reading), writing

    def start(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._on_readable)

    def close(self) -> None:
        """Deliver what is there, and stop."""
        if self._loop is not None:
            while self._read():
                pass
            self._loop.remove_reader(self._fd)
            if self._rest:
                self._deliver(self._rest)
        os.close(self._fd)

    def _on_readable(self) -> None:
        if self._read() == 0 and self._loop is not None:
            self._loop.remove_reader(self._fd)  # end of the pipe; `close` comes with the exit

    def _read(self) -> int | None:
        """One gulp, in bytes: 0 at the end of the pipe, None when it has nothing now."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._deliver(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._deliver(self._rest)
            self._rest = b""
        return len(data)

    def _deliver(self, line: bytes) -> None:
        if line and self._on_line is not None:
            self._on_line(line)
