"""A launcher's deployment of fake roles, in this process, for the tests to look at."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from core.config import Config, LaunchConfig, PoolConfig, PoolRole, RouterConfig
from launch.cores import deal_cores
from launch.deployment import Deployment
from launch.plan import DeploymentPlan
from launch.preflight import choose_internal_port
from launch.run_slot import ProcessRow, RunSlot, running_deployments
from launch.supervision import AllEnded, ChildView
from tests.launch.support import FAKE_COMMAND, story

LAUNCH = LaunchConfig(restart_backoff_s=0.05, ready_timeout_s=30)
ROUTER = RouterConfig()


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
        self,
        root: Path,
        behaviour: dict[str, str],
        launch: LaunchConfig,
        replicas: int,
        router: RouterConfig,
    ) -> None:
        self.root = root
        (root / "behaviour.json").write_text(json.dumps(behaviour))
        self.config = Config(
            launch=launch,
            router=router,
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
    root: Path,
    behaviour: dict[str, str],
    launch: LaunchConfig = LAUNCH,
    replicas: int = 1,
    router: RouterConfig = ROUTER,
) -> AsyncIterator[Started]:
    run = Started(root, behaviour, launch, replicas, router)
    try:
        yield run
    finally:
        if not run.task.done():
            run.deployment.stop()
            run.deployment.stop()
            await asyncio.wait_for(run.task, 30)
        run.slot.release()
