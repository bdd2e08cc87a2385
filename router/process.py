"""The router process: a mailbox around the pure router."""

import asyncio
import logging
from collections.abc import Callable

from core.clock import Clock, MonotonicClock
from core.config import Config
from core.errors import BatonError
from core.ids import ProcessId
from router.events import Event, Forget, FromPeer, PeerGone, Send, Tick
from router.router import Router
from wire import channel as wire_channel
from wire.channel import Channel
from wire.keys import DeploymentKeys
from wire.messages import Refusal, RefusalKind, Route

TICK_S = 0.1
TOTALS_EVERY_S = 60.0

_log = logging.getLogger(__name__)

Report = Callable[[str, str, str], None]
"""(state, detail, address), for the launcher."""


async def run(
    *,
    process: ProcessId,
    config: Config,
    keys: DeploymentKeys,
    bind_host: str,
    report: Report,
    bind_port: int = 0,
) -> None:
    """Be the router until cancelled; then close the mailbox in order.

    A router that is started again should get its old port as `bind_port`, since that is where
    workers and gateways look for it.

    Raises:
        SetupError: the pools leave a hole, or the address can't be bound.
    """
    report("starting", "", "")
    clock = MonotonicClock()
    router = Router(process=process, config=config)
    for lengths in router.pools.prefilled_locally:
        _log.warning("no prefill pool matches prompts of %s: decode workers do it all", lengths)
    channel = Channel(process, keys, clock)
    try:
        address = await channel.bind(bind_host, bind_port)
        report("ready", f"{len(config.pools)} pools", address)
        edge = _Edge(router, channel, clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(edge.receive(), name="router-receive")
            tasks.create_task(edge.tick(), name="router-tick")
            tasks.create_task(edge.log_totals(), name="router-totals")
    finally:
        _log.info("router ends: %s", dict(router.totals()))
        await channel.close()


class _Edge:
    """Turns what arrives into events, and actions into what is sent. All on one event loop, so the
    router sees one event at a time."""

    def __init__(self, router: Router, channel: Channel, clock: Clock) -> None:
        self._router, self._channel, self._clock = router, channel, clock
        self._faults_total = 0

    async def receive(self) -> None:
        while True:
            match await self._channel.receive():
                case wire_channel.PeerGone(address):
                    self._feed(PeerGone(address))
                case wire_channel.Received(sender, message):
                    self._feed(FromPeer(sender, message))

    async def tick(self) -> None:
        while True:
            self._feed(Tick())
            await asyncio.sleep(TICK_S)

    async def log_totals(self) -> None:
        while True:
            await asyncio.sleep(TOTALS_EVERY_S)
            _log.info(
                "totals: %s, malformed %d, faults %d",
                dict(self._router.totals()),
                self._channel.malformed_total,
                self._faults_total,
            )

    def _feed(self, event: Event) -> None:
        """One event through the router. The process's outermost loop: whatever goes wrong with one
        event ends that request with a reason, and the rest goes on."""
        try:
            for action in self._router.handle(event, self._clock.now_s()):
                match action:
                    case Send(address, message):
                        self._channel.send(address, message)
                    case Forget(address):
                        self._channel.forget(address)
        except Exception as error:  # noqa: BLE001
            self._faults_total += 1
            _log.exception("the router failed on %r", event)
            if isinstance(event, FromPeer) and isinstance(event.message, Route):
                self._refuse(event.message, error)

    def _refuse(self, route: Route, error: Exception) -> None:
        refusal = Refusal(
            attempt=route.attempt,
            kind=RefusalKind.NO_WORKER,
            reason=f"the router failed on this request: {error}",
            retry_after_s=1.0,
        )
        try:
            self._channel.send(route.gateway.address, refusal)
        except BatonError:
            _log.exception("the refusal of %s couldn't be sent", route.attempt)
