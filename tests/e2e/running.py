"""A whole deployment as a user starts it: `baton serve` in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

READY_WITHIN_S = 120.0
RANDOM_MODEL = "random:llama?layers=3,hidden=64,heads=4,kv_heads=2,vocab=512,max_context=8192"


@dataclass(frozen=True)
class Running:
    """A deployment that is ready."""

    url: str
    launcher: "subprocess.Popen[bytes]"
    state_dir: Path

    def client(self, timeout_s: float = 120.0) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=timeout_s)

    def status(self) -> list[dict[str, Any]]:
        return status(self.state_dir)

    def pid_of(self, name: str) -> int:
        return int(next(row["pid"] for row in self.status() if row["name"] == name))

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, `name{labels}` → value."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def wait_until_idle(self, within_s: float = 20.0) -> None:
        """Until heartbeats say that no block is in use and every idle check was clean."""
        deadline_s = time.monotonic() + within_s
        held: dict[str, float] = {}
        while time.monotonic() < deadline_s:
            figures = self.metrics()
            held = {
                name: value
                for name, value in figures.items()
                if (name.startswith("baton_kv_blocks{") and 'state="free"' not in name and value)
                or (name.startswith("baton_kv_transfers_open") and value)
                or (name.startswith("baton_integrity_ok") and not value)
            }
            if not held and any(name.startswith("baton_kv_blocks{") for name in figures):
                return
        raise AssertionError(f"not idle within {within_s} s: {held}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def baton(*arguments: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """Run the `baton` command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "launch.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def status(state_dir: Path) -> list[dict[str, Any]]:
    done = baton("status", "--json", "--state-dir", str(state_dir))
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return rows


@contextmanager
def deployment(state_dir: Path, *arguments: str) -> Iterator[Running]:
    """Start `baton serve`, wait until it is ready, stop it in the end, see that nothing is left."""
    port = free_port()
    log = state_dir / "serve.log"
    state_dir.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        launcher = subprocess.Popen(
            [
                *(sys.executable, "-m", "launch.cli", "serve", "--port", str(port)),
                *("--state-dir", str(state_dir), *arguments),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Running(f"http://127.0.0.1:{port}", launcher, state_dir)
    try:
        _wait_ready(running, log)
        yield running
    finally:
        family = _family(launcher.pid)
        if launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
        try:
            launcher.wait(timeout=20)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()
            raise
        _, alive = psutil.wait_procs(family, timeout=5)
        for process in alive:
            process.kill()
        assert not alive, f"left behind: {alive}"


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _wait_ready(running: Running, log: Path) -> None:
    deadline_s = time.monotonic() + READY_WITHIN_S
    with running.client(timeout_s=5.0) as client:
        while time.monotonic() < deadline_s:
            if running.launcher.poll() is not None:
                break
            try:
                if client.get("/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            os.sched_yield()
    raise AssertionError(f"not ready within {READY_WITHIN_S:g} s:\n{log.read_text()}")
