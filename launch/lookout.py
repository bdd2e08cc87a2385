"""The launcher's ear at the router: who of its children hangs. Edge."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from core.clock import Clock
from launch.hang_watch import TICK_S, HangWatch, Verdict
from launch.supervision import ChildView
from wire.channel import Channel, PeerGone
from wire.messages import Members, Peer, Subscribe, WorkerLost

SUBSCRIBE_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class Lookout:
    """Subscribes at the router as a gateway does, and tells what follows for the children.

    Args:
        channel: bound; whoever made it closes it.
        tell: given each verdict, on the event loop.
    """

    def __init__(
        self,
        channel: Channel,
        router_address: str,
        watch: HangWatch,
        clock: Clock,
        tell: Callable[[Verdict], None],
    ) -> None:
        self._channel = channel
        self._router_address = router_address
        self._watch = watch
        self._clock = clock
        self._tell = tell

    def update(self, views: Sequence[ChildView]) -> None:
        """Where the children stand now."""
        self._watch.watch(views, self._clock.now_s())

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive(), name="lookout-receive")
            tasks.create_task(self._subscribe(), name="lookout-subscribe")
            tasks.create_task(self._tick(), name="lookout-tick")

    async def _receive(self) -> None:
        while True:
            heard = await self._channel.receive()
            now_s = self._clock.now_s()
            if isinstance(heard, PeerGone):  # the next Subscribe makes a new connection
                _log.debug("no connection to %s: %s", heard.address, heard.reason)
                continue
            match heard.message:
                case Members() as members:
                    self._tell_all(self._watch.members(heard.sender, members, now_s))
                case WorkerLost() as lost:
                    self._tell_all(self._watch.worker_lost(heard.sender, lost, now_s))
                case message:
                    _log.debug("%s sent a %s", heard.sender, type(message).__name__)

    async def _subscribe(self) -> None:
        me = Peer(self._channel.process, self._channel.address)
        while True:
            self._channel.send(self._router_address, Subscribe(me))
            await asyncio.sleep(SUBSCRIBE_EVERY_S)

    async def _tick(self) -> None:
        while True:
            self._tell_all(self._watch.tick(self._clock.now_s()))
            await asyncio.sleep(TICK_S)

    def _tell_all(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            _log.info("%s", verdict)
            self._tell(verdict)
