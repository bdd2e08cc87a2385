"""A worker's standing with the router: registered, heard of, registered again. An edge."""

import asyncio
from collections.abc import Callable

from core.clock import Clock
from core.errors import SetupError
from wire.channel import Channel
from wire.messages import (
    Heartbeat,
    Message,
    Register,
    Registered,
    RegisterRefused,
    Reregister,
    WorkerCard,
    WorkerLoad,
)

REGISTER_EVERY_S = 1.0


class Registration:
    """Registers at the router until it answers, then sends heartbeats.

    Args:
        on_registered: told each time the router has taken us in.
    """

    def __init__(
        self,
        channel: Channel,
        router_address: str,
        card: WorkerCard,
        *,
        period_s: float,
        load: Callable[[], WorkerLoad],
        on_registered: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._channel = channel
        self._router_address = router_address
        self._card = card
        self._period_s = period_s
        self._load = load
        self._on_registered = on_registered
        self._clock = clock
        self._registered = False

    def gone(self, address: str) -> None:
        """A connection broke; the router comes back at the same address."""
        if address == self._router_address:
            self._registered = False

    def hear(self, message: Message) -> bool:
        """Take the router's word; False for any message that isn't about registration.

        Raises:
            SetupError: the router refuses this worker: another model, layout or protocol.
        """
        match message:
            case Registered():
                if not self._registered:
                    self._registered = True
                    self._on_registered()
            case RegisterRefused(reason):
                raise SetupError(f"the router refuses this worker: {reason}")
            case Reregister():
                self._register()
            case _:
                return False
        return True

    async def run(self) -> None:
        """Until cancelled."""
        last_s = -REGISTER_EVERY_S
        while True:
            now_s = self._clock.now_s()
            if self._registered:
                beat = Heartbeat(self._load(), self._card.peer.address)
                self._channel.send(self._router_address, beat)
            elif now_s - last_s >= REGISTER_EVERY_S:
                last_s = now_s
                self._register()
            await asyncio.sleep(self._period_s)

    def _register(self) -> None:
        self._channel.send(self._router_address, Register(self._card))
