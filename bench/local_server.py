"""A `baton serve` of its own for a bench: on a free port, with a state directory that goes away."""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.api_client import ApiClient, BenchError

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.2
_SHOWN_CHARS = 2_000


@asynccontextmanager
async def local_server(arguments: Sequence[str] = ()) -> AsyncIterator[str]:
    """The URL of a server that is ready; it is stopped at the end, also when the bench is ended
    by SIGTERM, which cancels the calling task.

    Args:
        arguments: further ones for `baton serve`.

    Raises:
        BenchError: it ended instead of becoming ready, or took too long; with what it printed.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as directory:
        output = Path(directory) / "serve.txt"
        port = free_port()
        command = [
            str(Path(sys.executable).with_name("baton")),
            "serve",
            *("--port", str(port), "--state-dir", str(Path(directory) / "state")),
            *arguments,
        ]
        with output.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
            )
        try:
            url = f"http://127.0.0.1:{port}"
            await _until_ready(process, url, output)
            yield url
        finally:
            await _stop(process)


def free_port() -> int:
    """A loopback port that nobody listens at just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _until_ready(process: asyncio.subprocess.Process, url: str, output: Path) -> None:
    until_s = time.monotonic() + READY_TIMEOUT_S
    async with ApiClient(url) as client:
        while not await client.is_ready():
            if process.returncode is not None:
                raise BenchError(f"baton serve ended with {process.returncode}:\n{_end_of(output)}")
            if time.monotonic() > until_s:
                raise BenchError(
                    f"baton serve wasn't ready in {READY_TIMEOUT_S:g} s:\n{_end_of(output)}"
                )
            await asyncio.sleep(_POLL_INTERVAL_S)


def _end_of(output: Path) -> str:
    return output.read_text("utf-8", errors="replace")[-_SHOWN_CHARS:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
