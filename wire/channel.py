"""One mailbox per process: the authenticated ZeroMQ channel that all of baton's processes use."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import zmq

from core.clock import Clock
from core.errors import BugError, MalformedMessage, PeerLost, SetupError
from core.ids import ProcessId
from wire.codec import MAX_FRAME_BYTES, decode, encode
from wire.doorkeeper import Doorkeeper, guard
from wire.keys import DeploymentKeys
from wire.link import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS, Link
from wire.messages import Message
from wire.socket_reader import SocketReader

INBOX_FRAMES = 128
"""Frames read ahead of `receive()`; beyond them, senders queue. It's also the longest run of
receives that doesn't let the loop turn."""
SOCKET_FRAMES = 10_000
"""Per connection, in ZeroMQ, before the peer is held up: while it is, its heartbeats wait too."""
LINGER_MS = 500
MAX_SOCKETS = 8_192

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    sender: ProcessId
    message: Message


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The connection we held to `address` broke, or couldn't be made: whatever was sent there
    before may be lost. The next `send` makes a new connection."""

    address: str
    reason: str = ""


class Channel:
    """Frames out to any address, frames in from whoever holds the deployment's keys.

    - A message is handed to its address, or a PeerGone for that address follows within seconds
      (refused: 2 s; a broken connection: at once; a peer that stops answering: 4 s).
    - Messages to one address arrive in the order they were sent; a PeerGone ends that order.
    - Frames that aren't exactly one message of ours are counted and dropped.

    Not thread-safe: everything happens on the loop that `bind`, `send` and `receive` run on; the
    bytes move in ZeroMQ's own thread.
    """

    def __init__(self, process: ProcessId, keys: DeploymentKeys, clock: Clock) -> None:
        self.process = process
        self.malformed_total = 0
        self.peers_gone_total = 0
        self._keys = keys
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._links: dict[str, Link] = {}
        self._inbox: asyncio.Queue[bytes | PeerGone | None] = asyncio.Queue()
        self._mailbox: zmq.Socket[bytes] | None = None
        self._reader: SocketReader | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._address = ""
        self._closed = False

    @property
    def address(self) -> str:
        """Where peers send to; empty before `bind`."""
        return self._address

    @property
    def refused_total(self) -> int:
        """Handshakes with a foreign key that were refused."""
        return self._doorkeeper.refused_total if self._doorkeeper else 0

    async def bind(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Open the mailbox and return its address; port 0 picks a free one.

        Raises:
            SetupError: the port is taken, or the host isn't ours.
        """
        self._refuse_if_closed()
        if self._mailbox is not None:
            raise BugError(f"{self.process} has a mailbox already, at {self._address}")
        mailbox = self._context.socket(zmq.ROUTER)
        mailbox.linger = 0
        mailbox.setsockopt(zmq.RCVHWM, SOCKET_FRAMES)
        # Beyond what the codec refuses, so that a frame that is merely too long is counted; what
        # is longer still costs its sender the connection before it costs us the memory.
        mailbox.setsockopt(zmq.MAXMSGSIZE, 2 * MAX_FRAME_BYTES)
        mailbox.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        mailbox.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        guard(mailbox, self._keys)
        if self._doorkeeper is None:
            self._doorkeeper = Doorkeeper(self._context, self._keys)
        try:
            mailbox.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            mailbox.close()
            raise SetupError(f"can't listen at {host}:{port}: {error.strerror}") from error
        self._mailbox = mailbox
        self._address = mailbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._reader = SocketReader(mailbox, self._on_frames)
        return self._address

    def send(self, address: str, message: Message) -> None:
        """Queue `message` for `address`; connects first where there is no connection yet.

        Raises:
            FrameTooLarge: the message exceeds the codec's limit.
            BugError: no message of ours, or the channel is closed.
        """
        self._refuse_if_closed()
        frame = encode(self.process, message)
        try:
            self._link_to(address).send(frame)
        except PeerLost as lost:
            self._lose(address, lost.message)

    async def receive(self) -> Received | PeerGone:
        """The next message of anybody, or the next broken connection.

        Raises:
            BugError: the channel is, or meanwhile was, closed.
        """
        while True:
            item = await self._inbox.get()
            if item is None:
                self._inbox.put_nowait(None)  # for whoever waits beside us
                raise BugError(f"the channel of {self.process} is closed")
            if self._reader is not None and self._inbox.qsize() < INBOX_FRAMES:
                self._reader.resume()
            if isinstance(item, PeerGone):
                return item
            try:
                return Received(*decode(item))
            except MalformedMessage as error:
                self._drop(error)

    def forget(self, address: str) -> None:
        """Close the connection to `address`, if there is one, without a PeerGone."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close(LINGER_MS)

    async def close(self) -> None:
        """Stop receiving, give what was sent LINGER_MS to leave, free everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for link in self._links.values():
            link.close(LINGER_MS)
        self._links.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._mailbox is not None:
            self._mailbox.close()
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        self._inbox.put_nowait(None)
        # term() blocks until everything queued has left or lingered long enough.
        with ThreadPoolExecutor(max_workers=1) as terminator:
            await asyncio.get_running_loop().run_in_executor(terminator, self._context.term)

    def _link_to(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = Link(self._context, self._keys, self._clock, address, self._on_gone)
            self._links[address] = link
        return link

    def _on_gone(self, link: Link, reason: str) -> None:
        self._lose(link.address, reason)

    def _lose(self, address: str, reason: str) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close(linger_ms=0)
        self.peers_gone_total += 1
        self._inbox.put_nowait(PeerGone(address, reason))

    def _on_frames(self, frames: list[bytes]) -> None:
        if len(frames) != 2:  # the connection's identity, the frame
            self._drop(MalformedMessage(f"{len(frames) - 1} frames in one message"))
            return
        self._inbox.put_nowait(frames[1])
        if self._reader is not None and self._inbox.qsize() >= INBOX_FRAMES:
            self._reader.pause()

    def _drop(self, error: MalformedMessage) -> None:
        self.malformed_total += 1
        _log.warning("dropped a frame: %s", error.message)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BugError(f"the channel of {self.process} is closed")
