"""`baton serve`: check everything, prepare the model, start the roles, stay until told to end."""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from rich.console import Console

from core.config import Config, PoolRole
from core.environment import Environment
from core.errors import SetupError
from engine.prepared_model import WEIGHTS_FILE, PreparedModel, prepare_model
from launch.cores import deal_cores
from launch.deployment import Deployment
from launch.display import Display, ModelProgress, open_display
from launch.logging_setup import close_logging, configure_logging
from launch.plan import ROLE_COMMAND, DeploymentPlan
from launch.preflight import (
    check_exposure,
    check_model_fits,
    check_port,
    choose_internal_port,
    memory_warning,
)
from launch.run_slot import RunSlot, state_dir
from launch.serve_options import ServeOptions, build_config, chosen_log_level
from launch.supervision import AllEnded

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_FAILED = 1

_log = logging.getLogger(__name__)


class StopAsked(BaseException):
    """A signal arrived before there was anything to stop."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What a deployment is started from."""

    config: Config
    prepared: PreparedModel
    warning: str | None


def serve(
    options: ServeOptions,
    environment: Environment,
    console: Console,
    command: tuple[str, ...] = ROLE_COMMAND,
) -> int:
    """Run a deployment in the foreground; returns the exit code (0 when ended by a signal).

    Raises:
        SetupError: before any port was opened, or by a role at its first start.
    """
    since_s = time.monotonic()
    try:
        with _signals_raise():
            level = chosen_log_level(options, environment)
            config = build_config(options, environment)
            check_exposure(config)
            cores = deal_cores(sorted(os.sched_getaffinity(0)), config.pools)
            config = _settled(config)
            slot = RunSlot.acquire(Path(config.state_dir or ""))
            try:
                start = _prepare(config, console)
                plan = DeploymentPlan(
                    config=start.config,
                    cores=cores,
                    prepared_model=start.prepared.path,
                    model_name=config.model.served_name or start.prepared.spec.name,
                    router_port=choose_internal_port(avoid=config.gateway.port),
                    log_level=level,
                    command=command,
                )
                ended = _run(plan, slot, console, start.warning, since_s)
            finally:
                close_logging()
                slot.release()
    except StopAsked:
        console.print("stopped")
        return 0
    return _outcome(ended, slot, console)


def _settled(config: Config) -> Config:
    """With an absolute state directory and a port that is free now."""
    gateway = config.gateway
    port = check_port(gateway.host, gateway.port)
    return config.model_copy(
        update={
            "gateway": gateway.model_copy(update={"port": port}),
            "state_dir": str(state_dir(config.state_dir)),
        }
    )


def _prepare(config: Config, console: Console) -> _Start:
    with ModelProgress(console) as progress:
        prepared = prepare_model(
            config.model.source,
            config.model.dtype,
            Path(config.state_dir or "") / "models",
            progress,
        )
    check_model_fits(config, prepared.spec)
    memory = memory_warning(config, (prepared.path / WEIGHTS_FILE).stat().st_size)
    return _Start(config, prepared, memory)


def _run(
    plan: DeploymentPlan,
    slot: RunSlot,
    console: Console,
    warning: str | None,
    since_s: float,
) -> AllEnded:
    with open_display(console) as display:
        configure_logging(
            "launcher", slot.log_dir / "launcher.jsonl", plan.log_level, display.notice
        )
        if warning:
            _log.warning("%s", warning)
        ended = asyncio.run(_run_until_stopped(plan, slot, display, since_s))
        for number in STOP_SIGNALS:  # what is left takes milliseconds; one more Ctrl-C spares none
            signal.signal(number, signal.SIG_IGN)
        return ended


async def _run_until_stopped(
    plan: DeploymentPlan, slot: RunSlot, display: Display, since_s: float
) -> AllEnded:
    def on_ready() -> None:
        display.settle()
        display.say(ready_text(plan, time.monotonic() - since_s, slot.log_dir))

    deployment = Deployment(plan, slot, display, on_ready)
    asked = 0

    def on_signal() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            display.say("stopping; press Ctrl-C again to kill everything at once")
        deployment.stop()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        if not _ignored(number):
            loop.add_signal_handler(number, on_signal)
    return await deployment.run()


def _outcome(ended: AllEnded, slot: RunSlot, console: Console) -> int:
    if ended.failure is None:
        console.print("stopped")
        return 0
    if ended.setup:
        raise SetupError(ended.failure)
    console.print(
        f"baton: {ended.failure}\nthe logs are in {slot.log_dir}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return EXIT_FAILED


def ready_text(plan: DeploymentPlan, elapsed_s: float, log_dir: Path) -> str:
    """What to do now: the addresses, and a line to try."""
    config = plan.config
    counts = {
        role: sum(pool.replicas for pool in config.pools if pool.role is role) for role in PoolRole
    }
    workers = ", ".join(f"{count} {role}" for role, count in counts.items() if count)
    key = " -H 'Authorization: Bearer YOUR_API_KEY'" if config.gateway.api_key else ""
    body = json.dumps(
        {
            "model": "default",
            "stream": True,
            "temperature": 0.2,
            "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        }
    )
    return (
        f"\nbaton {version('baton-serve')} is ready after {elapsed_s:.1f} s: {plan.model_name}, "
        f"{config.model.dtype}, workers: {workers}\n\n"
        f"  API   {plan.url}/v1\n"
        f"  Chat  {plan.url}/   (or: baton chat --url {plan.url})\n"
        f"  Logs  {log_dir}\n\n"
        f"  curl -N {plan.url}/v1/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d '{body}'\n"
    )


def _ignored(number: signal.Signals) -> bool:
    """Under nohup SIGHUP is ignored, and must stay so. (A shell's `&` ignores SIGINT in scripts;
    that one is meant for us when somebody sends it.)"""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Stop signals end what runs inside by StopAsked, until an event loop takes them over."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StopAsked

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if not _ignored(number)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
