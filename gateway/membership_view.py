"""The workers as the router last reported them."""

import asyncio

from core.ids import ProcessId, WorkerName
from wire.messages import MemberState, MemberView, Role

STALE_AFTER_S = 5.0
"""The router speaks twice a second."""


class MembershipView:
    """The latest snapshot, and who is lost since the one before."""

    def __init__(self) -> None:
        self.members: tuple[MemberView, ...] = ()
        self._living: dict[WorkerName, ProcessId] = {}
        self._heard_s: float | None = None
        self._news = asyncio.Event()

    def update(self, members: tuple[MemberView, ...], now_s: float) -> list[tuple[ProcessId, bool]]:
        """Take a snapshot; returns (process, proven) of workers that are lost by it.

        WorkerLost says the same sooner; but it may have been sent while our connection was down.
        A process that a newer incarnation has replaced has ended for certain. One that isn't
        mentioned isn't lost: a restarted router knows nobody at first.
        """
        lost = []
        for view in members:
            process = view.card.peer.process
            before = self._living.get(process.name)
            if view.state is MemberState.DEAD:
                if before == process:
                    del self._living[process.name]
                    lost.append((process, False))
                continue
            if before is not None and before != process:
                lost.append((before, True))
            self._living[process.name] = process
        self.members, self._heard_s = members, now_s
        self._news.set()
        self._news = asyncio.Event()
        return lost

    async def next_update(self) -> None:
        await self._news.wait()

    def address_of(self, process: ProcessId) -> str | None:
        for view in self.members:
            if view.card.peer.process == process:
                return view.card.peer.address
        return None

    def serving(self, role: Role) -> list[MemberView]:
        """Workers of a role that the router gives work to."""
        return [view for view in self.members if _takes_work(view) and role in view.card.roles]

    def is_fresh(self, now_s: float) -> bool:
        """Whether the router has spoken lately."""
        return self._heard_s is not None and now_s - self._heard_s < STALE_AFTER_S


def _takes_work(view: MemberView) -> bool:
    return view.state in (MemberState.ALIVE, MemberState.SUSPECT)
