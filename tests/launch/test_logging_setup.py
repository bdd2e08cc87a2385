import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import SetupError
from launch import logging_setup
from launch.logging_setup import NoticeHandler, close_logging, configure_logging


@pytest.fixture
def shown() -> Iterator[list[tuple[str, str]]]:
    before = logging.getLogger().level
    yield []
    close_logging()
    logging.captureWarnings(False)
    logging.getLogger().setLevel(before)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_json_and_loud_ones_are_shown(
    tmp_path: Path, shown: list[tuple[str, str]]
) -> None:
    path = tmp_path / "logs" / "it.jsonl"
    configure_logging("it", path, "info", lambda level, text: shown.append((level, text)))
    log = logging.getLogger("some.module")
    log.debug("unheard")
    log.info("hello %s", "you", extra={"request": "r1", "path": Path("/x")})
    try:
        raise ValueError("no\nway")
    except ValueError:
        log.exception("it broke")
    first, second = lines(path)
    assert first | {"time": ""} == {
        "time": "",
        "level": "info",
        "process": "it",
        "logger": "some.module",
        "message": "hello you",
        "request": "r1",
        "path": "/x",
    }
    assert "ValueError: no" in str(second["exception"])
    assert shown == [("error", "it broke: ValueError: no\nway")]


def test_warnings_are_logged(tmp_path: Path, shown: list[tuple[str, str]]) -> None:
    configure_logging("it", tmp_path / "it.jsonl", "warning", lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("careful", UserWarning, stacklevel=1)
    assert "careful" in str(lines(tmp_path / "it.jsonl")[0]["message"])


def test_files_are_limited_in_size(
    tmp_path: Path, shown: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging_setup, "MAX_BYTES", 2_000)
    configure_logging("it", tmp_path / "it.jsonl", "info", lambda *_: None)
    for _ in range(200):
        logging.getLogger("x").info("y" * 100)
    files = list(tmp_path.iterdir())
    assert len(files) == 1 + logging_setup.BACKUPS
    assert all(file.stat().st_size <= 2_000 for file in files)


def test_a_repeated_warning_is_shown_once_in_a_while() -> None:
    seen: list[str] = []
    handler = NoticeHandler(lambda _level, text: seen.append(text))
    for number in range(100):
        handler.emit(
            logging.LogRecord("a", logging.WARNING, "", 0, "block %d leaks", (number,), None)
        )
    handler.emit(logging.LogRecord("b", logging.WARNING, "", 0, "block %d leaks", (1,), None))
    assert seen == ["block 0 leaks", "block 1 leaks"]


def test_configuring_twice_writes_once(tmp_path: Path, shown: list[tuple[str, str]]) -> None:
    for _ in range(2):
        configure_logging("it", tmp_path / "it.jsonl", "info", lambda *_: None)
    logging.getLogger("x").info("once")
    assert len(lines(tmp_path / "it.jsonl")) == 1


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="can't write the log"):
        configure_logging("it", tmp_path / "file" / "it.jsonl", "info", lambda *_: None)
