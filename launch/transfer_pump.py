"""Moves the transport along while transfers are open, and lets it sleep otherwise. An edge."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from core.errors import MalformedMessage, TransportError
from core.ids import Attempt
from kv_transfer.node_actions import NoteArrived, WriteBlocks, WriteEnded
from kv_transfer.note import decode_note
from kv_transfer.transport import Link, LinkLost, Note, Op, PostDone, PostFailed, Transport

TransferEvent: TypeAlias = WriteEnded | NoteArrived

_log = logging.getLogger(__name__)


class TransferPump:
    """One worker's use of its transport, on the worker's loop.

    One-sided transports move only while both ends poll (`docs/adr/0002`): `run` polls while
    `is_open()` says so, every `interval_s`, and waits for `wake` otherwise: an idle worker's core
    is left alone.

    Args:
        on_event: told of writes that ended and of notes that came; may call `write`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        interval_s: float,
        is_open: Callable[[], bool],
        on_event: Callable[[TransferEvent], None],
    ) -> None:
        self._transport = transport
        self._interval_s = interval_s
        self._is_open = is_open
        self._on_event = on_event
        self._links: dict[bytes, Link] = {}
        self._posts: dict[int, tuple[Attempt, int]] = {}
        self._failed: list[WriteEnded] = []
        """Writes that couldn't even be posted; told from `run`, never from within `write`."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something may have opened."""
        self._wake.set()

    def write(self, order: WriteBlocks) -> None:
        """Post one write; its WriteEnded comes later, whatever happens."""
        try:
            link = self._links.get(order.peer)
            if link is None:
                link = self._links[order.peer] = self._transport.connect(order.peer)
            post = self._transport.post(link, Op.WRITE, order.pairs, order.note)
            self._posts[post] = (order.attempt, order.number)
        except TransportError as error:
            self._failed.append(WriteEnded(order.attempt, order.number, error.message))
        self.wake()

    def drop(self, peer: bytes, reason: str) -> None:
        """Cut the link to a peer whose writes don't end."""
        link = self._links.pop(peer, None)
        if link is not None:
            _log.warning("cutting a KV link: %s", reason)
            self._transport.disconnect(link)
        self.wake()

    async def run(self) -> None:
        """Poll while anything is open. Runs until cancelled."""
        while True:
            self._wake.clear()
            self._poll()
            if self._is_open() or self._posts or self._failed:
                await asyncio.sleep(self._interval_s)
            else:
                await self._wake.wait()

    def _poll(self) -> None:
        failed, self._failed = self._failed, []
        for ended in failed:
            self._on_event(ended)
        for event in self._transport.poll():
            match event:
                case PostDone(post):
                    self._ended(post, "")
                case PostFailed(post, reason):
                    self._ended(post, reason or "unknown")
                case Note(data=data):
                    self._noted(data)
                case LinkLost(link, reason):
                    _log.warning("a KV link was lost: %s", reason)
                    self._links = {k: known for k, known in self._links.items() if known != link}

    def _ended(self, post: int, failed: str) -> None:
        attempt_and_number = self._posts.pop(post, None)
        if attempt_and_number is not None:
            self._on_event(WriteEnded(*attempt_and_number, failed=failed))

    def _noted(self, data: bytes) -> None:
        try:
            note = decode_note(data)
        except MalformedMessage as error:
            _log.warning("dropped a transport note: %s", error.message)
            return
        self._on_event(NoteArrived(note.attempt, note.blocks))
