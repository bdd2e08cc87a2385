"""Roles for the launcher's tests: real processes that do nothing but live and die as told.

`behaviour.json` beside the log directory maps a process name to how it behaves; each writes what
it sees to `story.txt` there.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from core.clock import MonotonicClock
from core.cost_model import CostModel, DecodeCost, PrefillCost, TransferCost
from core.errors import SetupError
from core.kv_layout import KvLayout
from launch.registration import Registration
from launch.role_entries import Report
from launch.role_main import main
from launch.role_spec import RoleKind, RoleSpec
from router.events import Event, Forget, FromPeer, Send, Tick
from router.pools import ROLES_OF
from router.router import Router
from wire.channel import Channel, PeerGone, Received
from wire.keys import DeploymentKeys
from wire.messages import Peer, ProcessExited, WorkerCard, WorkerLoad

TICK_S = 0.1


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
        async with _registered(spec):
            await asyncio.sleep(1_000)
    finally:
        _note(spec, "stopped")


@contextlib.asynccontextmanager
async def _registered(spec: RoleSpec) -> AsyncIterator[None]:
    """A worker of a deployment stands with its router as a real one does."""
    if spec.pool is None or not spec.key_file.exists():
        yield
        return
    clock = MonotonicClock()
    channel = Channel(spec.process, DeploymentKeys.load(spec.key_file), clock)
    registration = Registration(
        channel,
        spec.router_address,
        _card(spec, await channel.bind(spec.bind_host)),
        period_s=spec.config.router.heartbeat_ms / 1e3,
        load=WorkerLoad,
        on_registered=lambda: _note(spec, "registered"),
        clock=clock,
    )

    async def listen() -> None:
        while True:
            heard = await channel.receive()
            if isinstance(heard, PeerGone):
                registration.gone(heard.address)
            else:
                registration.hear(heard.message)

    tasks = [asyncio.create_task(registration.run()), asyncio.create_task(listen())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await channel.close()


def _card(spec: RoleSpec, address: str) -> WorkerCard:
    assert spec.pool is not None
    return WorkerCard(
        peer=Peer(spec.process, address),
        pool=spec.pool.name,
        roles=tuple(sorted(ROLES_OF[spec.pool.role])),
        model="fake",
        fingerprint="fake",
        max_context=1_024,
        layout=KvLayout(layers=1, kv_heads=1, head_dim=8, block_tokens=16, dtype="float32"),
        blocks_total=100,
        transport="memory",
        cost=CostModel(
            prefill=PrefillCost(base_s=0.01, per_token_s=0.001),
            decode=DecodeCost(base_s=0.02, per_sequence_s=0.001, per_context_token_s=1e-6),
            transfer=TransferCost(latency_s=0.001, bytes_per_s=1e9),
        ),
    )


async def _fail() -> None:
    raise SetupError("inside a group")


async def _route(spec: RoleSpec, report: Report) -> None:
    if _behaviour(spec):
        await _live(spec, report)
        return
    channel = Channel(spec.process, DeploymentKeys.load(spec.key_file), MonotonicClock())
    address = await channel.bind(spec.bind_host, spec.bind_port)
    router = Router(process=spec.process, config=spec.config)

    def feed(event: Event) -> None:
        for action in router.handle(event, time.monotonic()):
            match action:
                case Send(to, message):
                    channel.send(to, message)
                case Forget(whom):
                    channel.forget(whom)

    async def tick() -> None:
        while True:
            feed(Tick())
            await asyncio.sleep(TICK_S)

    _note(spec, f"ready {os.getpid()} at={address}")
    report("ready", "", address)
    ticking = asyncio.create_task(tick())
    try:
        while True:
            received = await channel.receive()
            if isinstance(received, Received):
                if isinstance(received.message, ProcessExited):
                    _note(spec, f"hears of the end of {received.message.process}")
                feed(FromPeer(received.sender, received.message))
    finally:
        ticking.cancel()
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
