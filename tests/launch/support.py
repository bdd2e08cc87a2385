"""What the launcher's tests share."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FAKE_COMMAND = (sys.executable, str(Path(__file__).with_name("fake_roles.py")))
FAKE_LAUNCHER = (sys.executable, "-m", "tests.launch.fake_launcher")
REPOSITORY = Path(__file__).parents[2]
TINY_MODEL = "random:llama?layers=1,hidden=32,heads=2,kv_heads=1,intermediate=64"
PATIENCE_S = 30.0
"""These machines are shared: a limit for what takes a second, not a figure that is measured."""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain for: {what}"
        time.sleep(0.01)


async def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain for: {what}"
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """False for zombies too: they run no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def story(root: Path) -> list[str]:
    """What the fake roles wrote down, in order."""
    with suppress(FileNotFoundError):
        return (root / "story.txt").read_text().splitlines()
    return []


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))
