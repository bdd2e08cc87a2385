"""Logs as JSON lines in size-limited files, one per role; loud things also reach the operator."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from core.errors import SetupError

MAX_BYTES = 8 << 20
BACKUPS = 3
"""A role's logs never take more than (1 + BACKUPS) × MAX_BYTES."""
NOTICE_INTERVAL_S = 5.0
"""The same warning (by its format, not its figures) reaches the console this often at most."""
LEVELS = ("debug", "info", "warning", "error")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One record per line: time (UTC), level, logger, message, the process, and every `extra`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update(
            (key, value) for key, value in record.__dict__.items() if key not in _STANDARD
        )
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, ensure_ascii=False, default=str)


class NoticeHandler(logging.Handler):
    """Hands warnings and errors to `show(level, text)`, a repeated one every few seconds only."""

    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._last_s: dict[tuple[str, str], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        key, now_s = (record.name, str(record.msg)), time.monotonic()
        if now_s - self._last_s.get(key, -NOTICE_INTERVAL_S) < NOTICE_INTERVAL_S:
            return
        if len(self._last_s) > 1_000:
            self._last_s.clear()
        self._last_s[key] = now_s
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._show(record.levelname.lower(), text)


def configure_logging(
    process: str, log_file: Path, level: str, show: Callable[[str, str], None]
) -> None:
    """Send everything of this process at or above `level` (see LEVELS) to `log_file`, and what is
    loud to `show` too. Replaces earlier handlers.

    Raises:
        SetupError: the file can't be written.
    """
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            log_file, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8"
        )
    except OSError as error:
        raise SetupError(f"can't write the log {log_file}: {error.strerror}") from error
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    close_logging()
    root.addHandler(handler)
    root.addHandler(NoticeHandler(show))
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def quieten() -> None:
    """From now on everything goes to the file only."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, NoticeHandler):
            root.removeHandler(handler)


def close_logging() -> None:
    """Flush and detach what `configure_logging` set up."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, RotatingFileHandler | NoticeHandler):
            root.removeHandler(handler)
            handler.close()
