"""Real child processes with fake roles: started, killed, restarted, ended."""

import asyncio
import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from launch.cores import deal_cores
from launch.supervision import AllEnded
from tests.launch.running import LAUNCH, Started, started
from tests.launch.support import is_running, shared_memory, story, wait_until


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
