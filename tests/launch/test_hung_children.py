"""Real child processes that are stopped (SIGSTOP), as a hung one would be: alive, and silent."""

import os
import signal
from pathlib import Path

from core.config import RouterConfig
from tests.launch.running import LAUNCH, Started, started
from tests.launch.support import is_running, story, wait_until

QUICK = RouterConfig(heartbeat_ms=50, suspect_after_ms=500, dead_after_ms=1_200)
IMPATIENT = LAUNCH.model_copy(update={"hung_grace_s": 0.6})
PATIENT = LAUNCH.model_copy(update={"hung_grace_s": 60.0})


def state(run: Started, name: str) -> str:
    return run.rows()[name].state


async def until_registered(run: Started, lives: int) -> None:
    def registered() -> bool:
        return sum(line.endswith("registered") for line in story(run.root)) == lives

    await wait_until(registered, f"{lives} registrations")


async def test_a_hung_worker_is_shown_killed_and_restarted(tmp_path: Path) -> None:
    async with started(tmp_path, {}, IMPATIENT, router=QUICK) as run:
        await run.until_ready()
        await until_registered(run, 2)
        old, other = run.pid("prefill-0"), run.pid("decode-0")
        os.kill(old, signal.SIGSTOP)
        await wait_until(lambda: state(run, "prefill-0") == "lost", "it is missed")
        await wait_until(
            lambda: any("hears of the end of prefill-0@" in s for s in story(tmp_path)),
            "the router hears the proof of its death",
        )
        assert not is_running(old)
        await wait_until(lambda: state(run, "prefill-0") == "ready", "a new life")
        assert run.pid("prefill-0") != old
        assert run.pid("decode-0") == other
        told = [text for text in run.display.notices if text.startswith("prefill-0 ")]
        assert told[0].startswith("prefill-0 is silent: no heartbeat for 1 s; it is killed in 0.6")
        assert told[1].startswith("prefill-0 died: it hung (no heartbeat for ")
        assert told[1].endswith(" s) and was killed; it is started again in 0.05 s")
        assert told[2] == "prefill-0 is back"


async def test_a_worker_that_comes_back_in_time_lives_on(tmp_path: Path) -> None:
    async with started(tmp_path, {}, PATIENT, router=QUICK) as run:
        await run.until_ready()
        await until_registered(run, 2)
        pid = run.pid("decode-0")
        os.kill(pid, signal.SIGSTOP)
        await wait_until(lambda: state(run, "decode-0") == "lost", "it is missed")
        os.kill(pid, signal.SIGCONT)
        await wait_until(lambda: state(run, "decode-0") == "ready", "it is found")
        assert run.pid("decode-0") == pid
        assert "decode-0 is back" in run.display.notices


async def test_a_hung_router_is_killed_and_the_workers_outlive_it(tmp_path: Path) -> None:
    async with started(tmp_path, {}, IMPATIENT, router=QUICK) as run:
        await run.until_ready()
        await until_registered(run, 2)
        workers = [run.pid(name) for name in ("prefill-0", "decode-0")]
        old = run.pid("router")
        os.kill(old, signal.SIGSTOP)
        await wait_until(lambda: state(run, "router") == "lost", "it is missed")
        await wait_until(
            lambda: state(run, "router") == "ready" and run.pid("router") != old, "a new router"
        )
        assert not is_running(old)
        await until_registered(run, 4)
        assert [run.pid(name) for name in ("prefill-0", "decode-0")] == workers
        assert any("router died: it hung (no word from it" in text for text in run.display.notices)
