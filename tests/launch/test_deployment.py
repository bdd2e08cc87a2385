"""Real child processes with fake roles: started, killed, restarted, ended."""

import asyncio
import json
import os
import signal
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from core.config import Config, LaunchConfig, PoolConfig, PoolRole
from launch.cores import deal_cores
from launch.deployment import Deployment
from launch.plan import DeploymentPlan
from launch.preflight import choose_internal_port
from launch.run_slot import ProcessRow, RunSlot, running_deployments
from launch.supervision import AllEnded, ChildView
from tests.launch.support import FAKE_COMMAND, is_running, shared_memory, story, wait_until

LAUNCH = LaunchConfig(restart_backoff_s=0.05, ready_timeout_s=30)


class QuietDisplay:
    def __init__(self) -> None:
        self.notices: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def update(self, views: Sequence[ChildView]) -> None:
        return None

    def notice(self, level: str, text: str) -> None:
        self.notices.append(text)

    def say(self, text: str) -> None:
        return None

    def settle(self) -> None:
        return None


class Started:
    """A running deployment of fake roles and what can be seen of it from outside."""

    def __init__(
        self, root: Path, behaviour: dict[str, str], launch: LaunchConfig, replicas: int
    ) -> None:
        self.root = root
        (root / "behaviour.json").write_text(json.dumps(behaviour))
        self.config = Config(
            launch=launch,
            pools=(
                PoolConfig(name="prefill", role=PoolRole.PREFILL, replicas=replicas),
                PoolConfig(name="decode", role=PoolRole.DECODE),
            ),
        )
        self.slot = RunSlot.acquire(root)
        self.display = QuietDisplay()
        self.ready = asyncio.Event()
        plan = DeploymentPlan(
            config=self.config,
            cores=deal_cores(sorted(os.sched_getaffinity(0)), self.config.pools),
            prepared_model=root,
            model_name="fake",
            router_port=choose_internal_port(avoid=0),
            command=FAKE_COMMAND,
        )
        self.deployment = Deployment(plan, self.slot, self.display, self.ready.set)
        self.task = asyncio.create_task(self.deployment.run())

    async def until_ready(self) -> None:
        waiting = asyncio.create_task(self.ready.wait())
        await asyncio.wait({waiting, self.task}, timeout=30, return_when="FIRST_COMPLETED")
        waiting.cancel()
        assert self.ready.is_set(), story(self.root)

    def rows(self) -> dict[str, ProcessRow]:
        (deployment,) = running_deployments(self.root)
        return {row.name: row for row in deployment.processes}

    def pid(self, name: str) -> int:
        pid = self.rows()[name].pid
        assert pid is not None
        return pid

    async def ended(self) -> AllEnded:
        return await asyncio.wait_for(self.task, 30)


@asynccontextmanager
async def started(
    root: Path, behaviour: dict[str, str], launch: LaunchConfig = LAUNCH, replicas: int = 1
) -> AsyncIterator[Started]:
    run = Started(root, behaviour, launch, replicas)
    try:
        yield run
    finally:
        if not run.task.done():
            run.deployment.stop()
            run.deployment.stop()
            await asyncio.wait_for(run.task, 30)
        run.slot.release()


async def test_start_kill_restart_and_an_orderly_end(tmp_path: Path) -> None:
    before = shared_memory()
    async with started(tmp_path, {}) as run:
        await run.until_ready()
        rows = run.rows()
        assert {(row.name, row.role, row.state) for row in rows.values()} == {
            ("launcher", "launcher", "ready"),
            ("router", "router", "ready"),
            ("prefill-0", "prefill", "ready"),
            ("decode-0", "decode", "ready"),
            ("gateway", "gateway", "ready"),
        }
        assert rows["gateway"].address == "http://127.0.0.1:8000"
        assert rows["decode-0"].address == "tcp://127.0.0.1:1/decode-0"

        first = run.pid("decode-0")
        os.kill(first, signal.SIGKILL)
        await wait_until(
            lambda: run.rows()["decode-0"].state == "ready" and run.pid("decode-0") != first,
            "decode-0 in a new life",
        )
        await wait_until(
            lambda: any("router hears of the end of decode-0@" in s for s in story(tmp_path)),
            "the router hears of the exit",
        )
        assert run.display.notices == [
            "decode-0 died: killed by SIGKILL (by hand, or out of memory); "
            "it is started again in 0.05 s",
            "decode-0 is back",
        ]

        pids = [row.pid for row in run.rows().values() if row.pid and row.role != "launcher"]
        asked_s = time.monotonic()
        run.deployment.stop()
        assert await run.ended() == AllEnded(None, False)
        assert time.monotonic() - asked_s < 5
        assert not [pid for pid in pids if is_running(pid)]
    stops = [line.split()[0] for line in story(tmp_path) if line.endswith("stopped")]
    assert stops[0] == "gateway"
    assert stops[-1] == "router"
    assert set(stops[1:-1]) == {"prefill-0", "decode-0"}
    assert shared_memory() <= before
    assert list((tmp_path / "run").glob("*deployment*")) == [tmp_path / "run/deployment.lock"]


def check_cores_and_files(run: Started) -> None:
    tmp_path = run.root
    cores = deal_cores(sorted(os.sched_getaffinity(0)), run.config.pools)
    told = {line.split()[0]: line for line in story(tmp_path) if " ready " in line}
    for name, expected in cores.workers.items():
        shown = ",".join(map(str, expected))
        assert told[name].endswith(f"cores={shown} omp={len(expected)}")
    for path in run.slot.private_dir.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(run.slot.private_dir.stat().st_mode) == 0o700
    first = (tmp_path / "logs" / "decode-0.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["process"] == "decode-0"
    assert json.loads(first)["pid"] == run.pid("decode-0")


async def test_a_restarted_router_is_at_its_old_address_and_hears_old_exits(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, {}) as run:
        await run.until_ready()
        check_cores_and_files(run)
        address = run.rows()["router"].address
        os.kill(run.pid("prefill-0"), signal.SIGKILL)
        await wait_until(
            lambda: any("hears of the end of prefill-0" in s for s in story(tmp_path)), "the exit"
        )
        old = run.pid("router")
        os.kill(old, signal.SIGTERM)  # not asked by the launcher: it counts as a death
        await wait_until(
            lambda: (
                run.rows()["router"].pid not in (None, old)
                and run.rows()["router"].state == "ready"
            ),
            "a new router",
        )
        assert run.rows()["router"].address == address
        await wait_until(
            lambda: sum("hears of the end of prefill-0" in s for s in story(tmp_path)) == 2,
            "the new router hears of it too",
        )


@pytest.mark.parametrize(
    ("behaviour", "failure", "setup"),
    [
        ("setup-error", "decode-0 failed: no model here: mend it", True),
        ("exit", "decode-0 failed 3 times: exit code 7: native code says goodbye", False),
    ],
)
async def test_a_start_that_fails_says_why(
    tmp_path: Path, behaviour: str, failure: str, setup: bool
) -> None:
    async with started(tmp_path, {"decode-0": behaviour}) as run:
        assert await run.ended() == AllEnded(failure, setup)
        assert not run.ready.is_set()


async def test_a_start_that_takes_too_long_ends(tmp_path: Path) -> None:
    launch = LAUNCH.model_copy(update={"ready_timeout_s": 1.5})
    async with started(tmp_path, {"decode-0": "never-ready"}, launch) as run:
        ended = await run.ended()
        assert ended.failure is not None
        assert "not ready within 1.5 s" in ended.failure


async def test_a_stubborn_child_is_killed_at_the_grace_limit(tmp_path: Path) -> None:
    launch = LAUNCH.model_copy(update={"stop_grace_s": 1.0})
    async with started(tmp_path, {"prefill-0": "stubborn"}, launch) as run:
        await run.until_ready()
        pid = run.pid("prefill-0")
        asked_s = time.monotonic()
        run.deployment.stop()
        assert (await run.ended()).failure is None
        assert 0.9 < time.monotonic() - asked_s < 5
        assert not is_running(pid)


async def test_a_second_stop_kills_at_once(tmp_path: Path) -> None:
    async with started(tmp_path, {"gateway": "stubborn", "prefill-0": "stubborn"}) as run:
        await run.until_ready()
        asked_s = time.monotonic()
        run.deployment.stop()
        run.deployment.stop()
        await run.ended()
        assert time.monotonic() - asked_s < LAUNCH.stop_grace_s / 2


async def test_grandchildren_end_too_and_a_failing_spawn_is_tried_again(tmp_path: Path) -> None:
    async with started(tmp_path, {"decode-0": "grandchild"}) as run:
        await run.until_ready()
        (line,) = [line for line in story(tmp_path) if "grandchild" in line]
        grandchild = int(line.split()[-1])
        assert is_running(grandchild)
        run.slot.private_dir.joinpath("decode-0.draft").mkdir()  # the spec can't be written
        os.kill(run.pid("decode-0"), signal.SIGKILL)
        await wait_until(
            lambda: any("can't be started" in text for text in run.display.notices), "the notice"
        )
        await wait_until(lambda: not is_running(grandchild), "the grandchild's end")
        run.slot.private_dir.joinpath("decode-0.draft").rmdir()
        await wait_until(lambda: run.rows()["decode-0"].state == "ready", "it comes back")


async def test_cancelling_the_launcher_leaves_no_process(tmp_path: Path) -> None:
    async with started(tmp_path, {}) as run:
        await run.until_ready()
        pids = [row.pid for row in run.rows().values() if row.pid and row.role != "launcher"]
        run.task.cancel()
        await asyncio.wait({run.task})
        assert not [pid for pid in pids if is_running(pid)]
