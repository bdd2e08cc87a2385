"""A process of its own at the other end of a channel: prints its address, echoes what it gets.

`python -m tests.wire.channel_peer KEY_FILE` or, in a test, `async with child_peer(key_file)`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from core.clock import MonotonicClock
from core.ids import Incarnation, ProcessId, WorkerName
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import Cancel

CHILD = ProcessId(WorkerName("child"), Incarnation(1))


@dataclass
class ChildPeer:
    process: asyncio.subprocess.Process
    address: str


@asynccontextmanager
async def child_peer(key_file: Path) -> AsyncIterator[ChildPeer]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.wire.channel_peer",
        str(key_file),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        yield ChildPeer(process, (await process.stdout.readline()).decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def echo(key_file: Path) -> None:
    channel = Channel(CHILD, DeploymentKeys.load(key_file), MonotonicClock())
    print(await channel.bind(), flush=True)
    while True:
        event = await channel.receive()
        if isinstance(event, Received) and isinstance(event.message, Cancel):
            # The test puts its own address into the reason.
            channel.send(event.message.reason, event.message)


if __name__ == "__main__":
    asyncio.run(echo(Path(sys.argv[1])))
