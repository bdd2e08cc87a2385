"""What a role tells its launcher over a pipe: JSON lines, each short enough to be written whole."""

import json
import os
import select
from dataclasses import dataclass

from launch.supervision import ReportedState

MAX_TEXT_CHARS = 600
"""A line stays below PIPE_BUF (4,096 bytes), up to which a write to a pipe is atomic: even if
every character were escaped to six bytes."""
WRITE_TIMEOUT_MS = 1_000


@dataclass(frozen=True, slots=True)
class StateLine:
    """Where the role stands. `setup`: it failed by something only the operator can mend."""

    state: ReportedState
    detail: str = ""
    address: str = ""
    setup: bool = False


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """A warning or an error that the operator should see at once."""

    level: str
    text: str


def one_line(text: str) -> str:
    """`text` without line breaks, cut to what fits into one report."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_TEXT_CHARS else f"{flat[: MAX_TEXT_CHARS - 1]}…"


def encode_line(line: StateLine | NoticeLine) -> bytes:
    if isinstance(line, NoticeLine):
        fields: dict[str, object] = {"notice": one_line(line.text), "level": line.level}
    else:
        fields = {
            "state": line.state,
            "detail": one_line(line.detail),
            "address": line.address[:200],
            "setup": line.setup,
        }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode_line(line: bytes) -> StateLine | NoticeLine | None:
    """None for what isn't a report; the pipe is the role's alone, so that would be a bug of its."""
    try:
        fields = json.loads(line)
        if "notice" in fields:
            return NoticeLine(str(fields["level"]), str(fields["notice"]))
        return StateLine(
            ReportedState(fields["state"]),
            str(fields["detail"]),
            str(fields["address"]),
            bool(fields["setup"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


class ReportPipe:
    """The role's end of the pipe. Safe to use from any thread; a launcher that is gone or doesn't
    read is no reason to fail or to wait for ever."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)

    def state(self, line: StateLine) -> None:
        """States matter: wait a little for room."""
        self._write(encode_line(line), WRITE_TIMEOUT_MS)

    def notice(self, level: str, text: str) -> None:
        """Notices don't: they are in the log file as well."""
        self._write(encode_line(NoticeLine(level, text)), 0)

    def _write(self, data: bytes, timeout_ms: int) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        try:
            if poller.poll(timeout_ms):
                os.write(self._fd, data)
        except (BlockingIOError, BrokenPipeError):
            return
