"""The gateway as a process: channel, sessions, HTTP, until it is cancelled."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from core.clock import MonotonicClock
from core.config import Config
from core.ids import ProcessId
from gateway.app import Site, build_app
from gateway.auth import require_key_beyond_loopback
from gateway.dispatcher import Dispatcher
from gateway.metrics import GatewayMetrics
from gateway.readiness import Readiness
from gateway.served_model import ServedModel
from gateway.warm_up import warm_up
from wire.channel import Channel
from wire.keys import DeploymentKeys
from wire.messages import Peer

Report = Callable[[str, str, str], None]
"""(state, detail, address) for the launcher."""

_log = logging.getLogger(__name__)


async def run(
    *,
    process: ProcessId,
    config: Config,
    keys: DeploymentKeys,
    router_address: str,
    prepared_model: Path,
    bind_host: str,
    report: Report,
) -> None:
    """Serve HTTP until cancelled. `bind_host` is the channel's; HTTP's is in the configuration.

    Raises:
        SetupError: no key where one is needed, no model, or the port is taken.
    """
    require_key_beyond_loopback(config.gateway)
    report("starting", "reading the tokenizer", "")
    model = ServedModel.open(prepared_model, config.model, int(time.time()))
    clock = MonotonicClock()
    channel = Channel(process, keys, clock)
    try:
        address = await channel.bind(bind_host)
        metrics = GatewayMetrics(model.name)
        dispatcher = Dispatcher(
            channel=channel,
            gateway=Peer(process, address),
            router_address=router_address,
            tokenizer=model.tokenizer,
            max_attempts=config.gateway.max_attempts,
            clock=clock,
            metrics=metrics,
        )
        await _serve(config, model, dispatcher, metrics, report)
    finally:
        await channel.close()


async def _serve(
    config: Config,
    model: ServedModel,
    dispatcher: Dispatcher,
    metrics: GatewayMetrics,
    report: Report,
) -> None:
    readiness = Readiness(dispatcher.membership)
    app = build_app(
        config=config, model=model, dispatcher=dispatcher, readiness=readiness, metrics=metrics
    )
    site = await Site.start(app, config.gateway)
    _log.info("listening at %s", site.url)

    def progress(phase: str) -> None:
        if phase != readiness.phase:
            readiness.warming(phase)
            report("starting", phase, site.url)

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dispatcher.run())
            await warm_up(dispatcher, model, config, progress)
            readiness.warmed()
            _log.info("ready at %s", site.url)
            report("ready", f"serving {model.name}", site.url)
    finally:
        # Streams end with an event that says why, then their sockets close.
        dispatcher.close()
        await site.stop()
