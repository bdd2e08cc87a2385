"""The transport for machines without UCX: blocks over TCP, written by the receiver's own hand.

Because the receiver's process does the writing, closing the socket there truly ends the sender's
access (`disconnect(Inbound(peer))` is certain). Because bytes that were sent may still lie in the
receiver's socket, a sender that disconnects hears of its posts' end only when the receiver has
closed its side.
"""

import hmac
import itertools
import secrets
import socket
from dataclasses import dataclass, field
from enum import Enum

from core.errors import BugError, TransportError
from kv_transfer.region import Region
from kv_transfer.transport import (
    Inbound,
    Link,
    LinkLost,
    Op,
    Pairs,
    PostDone,
    PostFailed,
    Transport,
    TransportEvent,
    check_post,
)
from kv_transfer.transports.draining import drain
from kv_transfer.transports.pool_address import (
    Detail,
    PoolAddress,
    check_fits,
    decode_address,
    encode_address,
)
from kv_transfer.transports.tcp_connection import Connection
from kv_transfer.transports.tcp_frames import (
    NONCE_BYTES,
    TOKEN_BYTES,
    Frame,
    Kind,
    client_mac,
    server_mac,
)
from kv_transfer.transports.tcp_inbound import InboundSide, views


class _Stage(Enum):
    GREETING = "greeting"
    READY = "ready"
    LEAVING = "leaving"
    """Disconnected by us; waiting for the peer to have read what was under way."""


@dataclass(frozen=True, slots=True)
class _Post:
    op: Op
    local: tuple[int, ...]
    remote: tuple[int, ...]
    note: bytes


@dataclass(slots=True, eq=False)
class _Outgoing:
    """Our connection behind one Link."""

    link: Link
    address: PoolAddress
    connection: Connection
    stage: _Stage = _Stage.GREETING
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(NONCE_BYTES))
    welcome: bytes = b""
    posts: dict[int, _Post] = field(default_factory=dict)


class TcpTransport(Transport):
    """Listens at `host` on a port of the system's choice."""

    scheme = "tcp"

    def __init__(self, name: str, host: str = "127.0.0.1") -> None:
        self._name = name
        self._host = host
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._region: Region | None = None
        self._inbound: InboundSide | None = None
        self._numbers = itertools.count()
        self._outgoing: dict[Link, _Outgoing] = {}
        self._events: list[TransportEvent] = []

    # ---- the verbs -----------------------------------------------------------------------------

    def register(self, region: Region) -> None:
        if self._region is not None:
            raise BugError(f"{self._name} registers a second region")
        self._inbound = InboundSide(self._host, self._token, region)
        self._region = region

    def address(self) -> bytes:
        region, inbound = self._own(), self._listening()
        details: dict[str, Detail] = {
            "host": self._host,
            "port": inbound.port,
            "token": self._token,
        }
        return encode_address(
            PoolAddress(self.scheme, self._name, region.block_bytes, region.blocks, details)
        )

    def connect(self, peer: bytes) -> Link:
        address = decode_address(peer, self.scheme)
        check_fits(self._own(), address)
        for known in self._outgoing.values():
            if known.stage is not _Stage.LEAVING and known.address == address:
                return known.link
        host, port = address.text("host"), address.number("port")
        address.data("token")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            sock.setblocking(False)
            sock.connect((host, port))
        except BlockingIOError:
            pass  # as it should be; the outcome shows when it is polled
        except (OSError, OverflowError) as error:
            sock.close()
            raise TransportError(f"can't connect to {address.name}: {error}") from error
        link = Link(address.name, next(self._numbers))
        connection = Connection(sock, self._own(), lambda frame: self._blocks_of(link, frame))
        self._outgoing[link] = _Outgoing(link, address, connection)
        return link

    def post(self, link: Link, op: Op, pairs: Pairs, note: bytes) -> int:
        out = self._outgoing.get(link)
        most = 1 + max((remote for _, remote in pairs), default=0)
        check_post(self._own(), out.address.blocks if out else most, pairs, note)
        number = next(self._numbers)
        if out is None or out.stage is _Stage.LEAVING:
            self._events.append(PostFailed(number, f"the link to {link.peer} is lost"))
            return number
        local, remote = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        out.posts[number] = _Post(Op(op), local, remote, bytes(note))
        if out.stage is _Stage.READY:
            self._start(out, number)
        return number

    def poll(self) -> list[TransportEvent]:
        if self._inbound is not None:
            self._events.extend(self._inbound.poll())
        for out in list(self._outgoing.values()):
            try:
                for frame in out.connection.poll():
                    self._answer(out, frame)
            except TransportError as error:
                self._drop_outgoing(out, error.message)
        events, self._events = self._events, []
        return events

    def disconnect(self, link: Link | Inbound) -> bool:
        if isinstance(link, Inbound):
            self._listening().revoke(link.peer)
            return True
        out = self._outgoing.get(link)
        if out is not None and out.stage is _Stage.GREETING:
            out.stage = _Stage.LEAVING
            self._drop_outgoing(out, "disconnected")  # not a byte of a block was sent
        elif out is not None and out.stage is _Stage.READY:
            out.stage = _Stage.LEAVING
            out.connection.stop_writing()
        return False

    def close(self) -> None:
        drain(lambda: any(out.posts for out in self._outgoing.values()), self.poll)
        self.abort()

    def abort(self) -> None:
        if self._inbound is not None:
            self._inbound.close()
            self._inbound = None
        for out in self._outgoing.values():
            out.connection.close()
        self._outgoing.clear()
        self._events.clear()

    def _own(self) -> Region:
        if self._region is None:
            raise BugError(f"{self._name} has no region registered")
        return self._region

    def _listening(self) -> InboundSide:
        if self._inbound is None:
            raise BugError(f"{self._name} isn't open")
        return self._inbound

    # ---- as the initiator ----------------------------------------------------------------------

    def _answer(self, out: _Outgoing, frame: Frame) -> None:
        match frame.kind:
            case Kind.CHALLENGE if out.stage is _Stage.GREETING and not out.welcome:
                token, name = out.address.data("token"), self._name.encode()
                out.welcome = server_mac(token, frame.extra, out.nonce)
                proof = client_mac(token, frame.extra, out.nonce, name)
                out.connection.send(Frame(Kind.HELLO, extra=proof + out.nonce + name))
            case Kind.WELCOME if out.stage is _Stage.GREETING and out.welcome:
                if not hmac.compare_digest(frame.extra, out.welcome):
                    raise TransportError(f"another process than {out.link.peer} answered")
                out.stage = _Stage.READY
                for number in out.posts:
                    self._start(out, number)
            case Kind.DONE if frame.post in out.posts:
                del out.posts[frame.post]
                self._events.append(PostDone(frame.post))
            case Kind.DATA if frame.post in out.posts:
                post = out.posts.pop(frame.post)
                if post.note:
                    out.connection.send(Frame(Kind.NOTE, extra=post.note))
                self._events.append(PostDone(frame.post))
            case _:
                raise TransportError(f"an unexpected {frame.kind.name} from {out.link.peer}")

    def _start(self, out: _Outgoing, number: int) -> None:
        post = out.posts[number]
        if post.op is Op.READ:
            out.connection.send(Frame(Kind.READ, number, blocks=post.remote))
            return
        frame = Frame(Kind.WRITE, number, post.note, post.remote)
        out.connection.send(frame, views(self._own(), post.local))

    def _blocks_of(self, link: Link, frame: Frame) -> list[memoryview]:
        """Where DATA for one of our READs belongs."""
        out = self._outgoing.get(link)
        post = out.posts.get(frame.post) if out else None
        if frame.kind is not Kind.DATA or post is None or frame.count != len(post.local):
            raise TransportError(f"{frame.kind.name} that nobody asked for, from {link.peer}")
        return views(self._own(), post.local)

    def _drop_outgoing(self, out: _Outgoing, reason: str) -> None:
        del self._outgoing[out.link]
        out.connection.close()
        self._events.extend(PostFailed(number, reason) for number in out.posts)
        if out.stage is not _Stage.LEAVING:
            self._events.append(LinkLost(out.link, reason))
