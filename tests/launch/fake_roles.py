"""Roles for the launcher's tests: real processes that do nothing but live and die as told.

`behaviour.json` beside the log directory maps a process name to how it behaves; each writes what
it sees to `story.txt` there.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from core.clock import MonotonicClock
from core.errors import SetupError
from launch.role_entries import Report
from launch.role_main import main
from launch.role_spec import RoleKind, RoleSpec
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import ProcessExited


def _root(spec: RoleSpec) -> Path:
    return spec.log_file.parent.parent


def _note(spec: RoleSpec, text: str) -> None:
    with (_root(spec) / "story.txt").open("a") as file:
        file.write(f"{spec.name} {text}\n")


def _behaviour(spec: RoleSpec) -> str:
    path = _root(spec) / "behaviour.json"
    return str(json.loads(path.read_text()).get(spec.name, "")) if path.exists() else ""


async def _live(spec: RoleSpec, report: Report) -> None:
    behaviour = _behaviour(spec)
    report("loading", "weights 50 %", "")
    match behaviour:
        case "setup-error":
            raise SetupError("no model here:\n  mend it")
        case "crash":
            raise ValueError("broken\nin two")
        case "group":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_fail())
        case "exit":
            print("native code says goodbye", flush=True)
            os._exit(7)
        case "never-ready":
            await asyncio.sleep(1_000)
        case "ends":
            return
        case "grandchild":
            child = await asyncio.create_subprocess_exec("sleep", "1000")
            _note(spec, f"grandchild {child.pid}")
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    _note(spec, f"ready {os.getpid()} cores={cores} omp={os.environ['OMP_NUM_THREADS']}")
    report("ready", "", f"tcp://127.0.0.1:1/{spec.name}")
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        await asyncio.sleep(1_000)
    finally:
        _note(spec, "stopped")


async def _fail() -> None:
    raise SetupError("inside a group")


async def _route(spec: RoleSpec, report: Report) -> None:
    if _behaviour(spec):
        await _live(spec, report)
        return
    channel = Channel(spec.process, DeploymentKeys.load(spec.key_file), MonotonicClock())
    address = await channel.bind(spec.bind_host, spec.bind_port)
    _note(spec, f"ready {os.getpid()} at={address}")
    report("ready", "", address)
    try:
        while True:
            received = await channel.receive()
            if isinstance(received, Received) and isinstance(received.message, ProcessExited):
                _note(spec, f"hears of the end of {received.message.process}")
    finally:
        await channel.close()
        _note(spec, "stopped")


if __name__ == "__main__":
    sys.exit(
        main(
            entries={
                RoleKind.ROUTER: _route,
                RoleKind.GATEWAY: _live,
                RoleKind.WORKER: _live,
            }
        )
    )
