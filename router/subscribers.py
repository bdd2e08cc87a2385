"""The gateways that want to hear about members, as long as they say so."""

from collections.abc import Iterable
from dataclasses import dataclass

from core.ids import ProcessId, WorkerName
from wire.messages import Peer

EXPIRES_AFTER_S = 5.0
"""Gateways subscribe anew every second."""


@dataclass(slots=True)
class _Subscription:
    peer: Peer
    heard_s: float
    reachable: bool = True


class Subscribers:
    """At most one life of each gateway."""

    def __init__(self) -> None:
        self._by_name: dict[WorkerName, _Subscription] = {}

    def subscribe(self, peer: Peer, now_s: float) -> tuple[bool, ProcessId | None]:
        """Note a gateway's wish; whether it needs a first list of members, and which earlier life
        of the gateway it replaces."""
        known = self._by_name.get(peer.process.name)
        self._by_name[peer.process.name] = _Subscription(peer, now_s)
        if known is None:
            return True, None
        replaced = known.peer.process if known.peer.process != peer.process else None
        return replaced is not None or not known.reachable or known.peer != peer, replaced

    def peer_gone(self, address: str) -> None:
        """Nothing is sent there until it subscribes again."""
        for subscription in self._by_name.values():
            if subscription.peer.address == address:
                subscription.reachable = False

    def expire(self, now_s: float) -> list[Peer]:
        """Drop and return those not heard of for EXPIRES_AFTER_S."""
        gone = [s.peer for s in self._by_name.values() if now_s - s.heard_s >= EXPIRES_AFTER_S]
        for peer in gone:
            del self._by_name[peer.process.name]
        return gone

    def remove(self, process: ProcessId) -> bool:
        """The process is gone for good; whether it was subscribed."""
        known = self._by_name.get(process.name)
        if known is None or known.peer.process != process:
            return False
        del self._by_name[process.name]
        return True

    def addresses(self) -> Iterable[str]:
        return [s.peer.address for s in self._by_name.values() if s.reachable]
