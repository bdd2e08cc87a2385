"""The transport within one process: for tests and for a worker that is both roles."""

import itertools
from collections import deque
from dataclasses import dataclass

from core.errors import BugError, TransportError
from kv_transfer.region import Region
from kv_transfer.transport import (
    Inbound,
    Link,
    LinkLost,
    Note,
    Op,
    Pairs,
    PostDone,
    PostFailed,
    Transport,
    TransportEvent,
    check_post,
)
from kv_transfer.transports.pool_address import (
    PoolAddress,
    check_fits,
    decode_address,
    encode_address,
)


class MemoryHub:
    """Where the memory transports of a process find each other; by name."""

    def __init__(self) -> None:
        self.ends: dict[str, MemoryTransport] = {}


@dataclass(frozen=True, slots=True)
class _Post:
    number: int
    link: Link
    op: Op
    pairs: tuple[tuple[int, int], ...]
    note: bytes


class MemoryTransport(Transport):
    """Copies blocks from region to region when the initiator polls."""

    scheme = "memory"

    def __init__(self, hub: MemoryHub, name: str) -> None:
        if name in hub.ends:
            raise BugError(f"the memory hub has an end named {name} already")
        self._hub = hub
        self._name = name
        self._region: Region | None = None
        self._links: dict[str, Link] = {}
        self._behind: dict[Link, MemoryTransport] = {}
        self._numbers = itertools.count()
        self._posts: deque[_Post] = deque()
        self._events: list[TransportEvent] = []
        self._revoked: set[str] = set()
        self._closed = False

    def register(self, region: Region) -> None:
        if self._region is not None:
            raise BugError(f"{self._name} registers a second region")
        self._region = region
        self._hub.ends[self._name] = self

    def address(self) -> bytes:
        region = self._own()
        return encode_address(
            PoolAddress(self.scheme, self._name, region.block_bytes, region.blocks, {})
        )

    def connect(self, peer: bytes) -> Link:
        address = decode_address(peer, self.scheme)
        check_fits(self._own(), address)
        if (link := self._links.get(address.name)) is not None:
            return link
        end = self._hub.ends.get(address.name)
        if end is None or self._name in end._revoked:
            raise TransportError(f"{address.name} isn't there")
        link = Link(address.name, next(self._numbers))
        self._links[address.name] = link
        self._behind[link] = end
        return link

    def post(self, link: Link, op: Op, pairs: Pairs, note: bytes) -> int:
        end = self._peer(link)
        most = 1 + max((remote for _, remote in pairs), default=0)
        check_post(self._own(), end._own().blocks if end else most, pairs, note)
        post = _Post(next(self._numbers), link, Op(op), tuple(pairs), bytes(note))
        self._posts.append(post)
        return post.number

    def poll(self) -> list[TransportEvent]:
        while self._posts:
            self._carry_out(self._posts.popleft())
        for link in [link for link in self._links.values() if self._peer(link) is None]:
            self._lose(link)
        events, self._events = self._events, []
        return events

    def disconnect(self, link: Link | Inbound) -> bool:
        if isinstance(link, Inbound):
            self._revoked.add(link.peer)
            return True
        if self._links.get(link.peer) == link:
            self._forget(link)
        return False

    def close(self) -> None:
        while self._posts:
            self._carry_out(self._posts.popleft())
        self.abort()

    def abort(self) -> None:
        self._closed = True
        if self._hub.ends.get(self._name) is self:
            del self._hub.ends[self._name]
        self._links.clear()
        self._behind.clear()
        self._posts.clear()
        self._events.clear()

    def _own(self) -> Region:
        if self._region is None or self._closed:
            raise BugError(f"{self._name} has no region registered")
        return self._region

    def _peer(self, link: Link) -> "MemoryTransport | None":
        """Who is behind the link; None once it is lost."""
        end = self._behind.get(link)
        if end is None or self._hub.ends.get(link.peer) is not end or self._name in end._revoked:
            return None
        return end

    def _carry_out(self, post: _Post) -> None:
        end = self._peer(post.link)
        if end is None:
            self._events.append(PostFailed(post.number, f"the link to {post.link.peer} is lost"))
            return
        here, there = self._own(), end._own()
        for local, remote in post.pairs:
            if post.op is Op.WRITE:
                there.block(remote)[:] = here.block(local)
            else:
                here.block(local)[:] = there.block(remote)
        if post.note:
            end._events.append(Note(self._name, post.note))
        self._events.append(PostDone(post.number))

    def _lose(self, link: Link) -> None:
        self._forget(link)
        self._events.append(LinkLost(link, f"{link.peer} is gone"))

    def _forget(self, link: Link) -> None:
        del self._links[link.peer]
        del self._behind[link]
