"""What `kv_transfer/transport.py` promises, demanded of every transport in the same words."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgpack
import pytest

from core.errors import BugError, TransportError
from kv_transfer.note import MAX_NOTE_BYTES
from kv_transfer.region import Region, allocate_region
from kv_transfer.transport import (
    Inbound,
    Link,
    LinkLost,
    Note,
    Op,
    PostDone,
    PostFailed,
    Transport,
    TransportEvent,
)
from kv_transfer.transports.memory import MemoryHub, MemoryTransport
from kv_transfer.transports.nixl import NixlTransport
from kv_transfer.transports.tcp import TcpTransport
from tests.contracts.polling import poll_until

BLOCK_BYTES = 4096
BLOCKS = 64
_serial = itertools.count()


@dataclass
class End:
    """One transport with a pool of its own and everything it has told."""

    transport: Transport
    region: Region
    told: list[TransportEvent] = field(default_factory=list)

    def fill(self, block: int, seed: int = 0) -> bytes:
        content = bytes((seed + block + i) % 251 for i in range(BLOCK_BYTES))
        self.region.block(block)[:] = content
        return content

    def holds(self, block: int) -> bytes:
        return bytes(self.region.block(block))

    @property
    def notes(self) -> list[Note]:
        return [event for event in self.told if isinstance(event, Note)]

    @property
    def done(self) -> set[int]:
        return {event.post for event in self.told if isinstance(event, PostDone)}

    @property
    def failed(self) -> dict[int, str]:
        return {event.post: event.reason for event in self.told if isinstance(event, PostFailed)}

    @property
    def lost(self) -> list[Link]:
        return [event.link for event in self.told if isinstance(event, LinkLost)]


class Pair:
    """P and D of one transport kind; `make` makes further ends that can reach them."""

    def __init__(self, kind: str) -> None:
        self._hub = MemoryHub()
        self.kind = kind
        self.ends: list[End] = []
        self.p, self.d = self.make(), self.make()

    def make(
        self, name: str | None = None, block_bytes: int = BLOCK_BYTES, blocks: int = BLOCKS
    ) -> End:
        name = name or f"worker-{next(_serial)}@{os.getpid():x}"
        open_it: dict[str, Callable[[], Transport]] = {
            "memory": lambda: MemoryTransport(self._hub, name),
            "tcp": lambda: TcpTransport(name),
            "nixl": lambda: NixlTransport(name),
        }
        end = End(open_it[self.kind](), allocate_region(block_bytes, blocks))
        end.transport.register(end.region)
        self.ends.append(end)
        return end

    def link(self) -> Link:
        return self.p.transport.connect(self.d.transport.address())

    def poll(self, until: Callable[[], bool], ends: list[End] | None = None) -> None:
        def step() -> None:
            for end in self.ends if ends is None else ends:
                end.told.extend(end.transport.poll())

        poll_until(step, until)

    def close(self) -> None:
        for end in self.ends:
            end.transport.abort()


@pytest.fixture(params=["memory", "tcp", "nixl"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    yield pair
    pair.close()


def test_a_write_lands_where_it_should_and_nowhere_else(pair: Pair) -> None:
    wanted = {1: pair.p.fill(5), 63: pair.p.fill(6), 0: pair.p.fill(0)}
    link = pair.link()
    post = pair.p.transport.post(link, Op.WRITE, [(5, 1), (6, 63), (0, 0)], b"three blocks")
    pair.poll(lambda: bool(pair.p.done and pair.d.notes))
    assert pair.p.done == {post}
    assert [note.data for note in pair.d.notes] == [b"three blocks"]
    for block in range(BLOCKS):
        assert pair.d.holds(block) == wanted.get(block, bytes(BLOCK_BYTES)), block


def test_a_note_names_its_sender_and_comes_after_the_bytes(pair: Pair) -> None:
    content = pair.p.fill(3)
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(3, 4)], b"here")
    pair.poll(lambda: bool(pair.d.notes))
    assert pair.d.holds(4) == content
    names = {pair.make().transport.connect(end.transport.address()).peer for end in pair.ends[:1]}
    assert names == {pair.d.notes[0].peer}


def test_a_read_fetches(pair: Pair) -> None:
    wanted = pair.d.fill(7) + pair.d.fill(8)
    link = pair.link()
    post = pair.p.transport.post(link, Op.READ, [(20, 7), (21, 8)], b"taken")
    pair.poll(lambda: bool(pair.p.done and pair.d.notes))
    assert pair.p.done == {post}
    assert pair.p.holds(20) + pair.p.holds(21) == wanted
    assert [note.data for note in pair.d.notes] == [b"taken"]


def test_without_a_note_nothing_is_told_to_the_peer(pair: Pair) -> None:
    content = pair.p.fill(0)
    pair.p.transport.post(pair.link(), Op.WRITE, [(0, 0)], b"")
    pair.poll(lambda: bool(pair.p.done))
    assert pair.d.holds(0) == content
    assert pair.d.told == []


def test_many_posts_at_once_all_end_and_all_land(pair: Pair) -> None:
    link = pair.link()
    wanted = [pair.p.fill(block, seed=9) for block in range(BLOCKS)]
    posts = [
        pair.p.transport.post(
            link, Op.WRITE, [(b, BLOCKS - 1 - b) for b in range(i, i + 8)], b"%d" % i
        )
        for i in range(0, BLOCKS, 8)
    ]
    assert len(set(posts)) == 8
    pair.poll(lambda: len(pair.p.done) == 8 and len(pair.d.notes) == 8)
    assert pair.p.done == set(posts)
    assert {note.data for note in pair.d.notes} == {b"%d" % i for i in range(0, BLOCKS, 8)}
    assert [pair.d.holds(BLOCKS - 1 - b) for b in range(BLOCKS)] == wanted


def test_both_ways_at_once(pair: Pair) -> None:
    there, back = pair.p.fill(1, seed=1), pair.d.fill(2, seed=2)
    to_d, to_p = pair.link(), pair.d.transport.connect(pair.p.transport.address())
    pair.p.transport.post(to_d, Op.WRITE, [(1, 40)], b"there")
    pair.d.transport.post(to_p, Op.WRITE, [(2, 41)], b"back")
    pair.poll(lambda: bool(pair.p.notes and pair.d.notes and pair.p.done and pair.d.done))
    assert pair.d.holds(40) == there
    assert pair.p.holds(41) == back


def test_several_peers(pair: Pair) -> None:
    other = pair.make()
    first, second = pair.p.fill(0, seed=3), other.fill(0, seed=4)
    pair.p.transport.post(pair.link(), Op.WRITE, [(0, 10)], b"p")
    link = other.transport.connect(pair.d.transport.address())
    other.transport.post(link, Op.WRITE, [(0, 11)], b"other")
    pair.poll(lambda: len(pair.d.notes) == 2)
    assert (pair.d.holds(10), pair.d.holds(11)) == (first, second)
    assert len({note.peer for note in pair.d.notes}) == 2


def test_connecting_again_is_the_same_link(pair: Pair) -> None:
    link = pair.link()
    assert pair.link() == link
    assert link.peer == pair.p.transport.connect(pair.d.transport.address()).peer


@pytest.mark.parametrize("pairs", [[], [(0, BLOCKS)], [(BLOCKS, 0)], [(-1, 0)], [(0, -1)]])
def test_blocks_outside_are_refused_before_anything_moves(
    pair: Pair, pairs: list[tuple[int, int]]
) -> None:
    link = pair.link()
    with pytest.raises(BugError):
        pair.p.transport.post(link, Op.WRITE, pairs, b"")


def test_a_long_note_is_refused(pair: Pair) -> None:
    link = pair.link()
    with pytest.raises(BugError, match="note"):
        pair.p.transport.post(link, Op.WRITE, [(0, 0)], bytes(MAX_NOTE_BYTES + 1))
    pair.p.transport.post(link, Op.WRITE, [(0, 0)], bytes([7]) * MAX_NOTE_BYTES)
    pair.poll(lambda: bool(pair.d.notes))


def test_one_region_is_all_there_is(pair: Pair) -> None:
    with pytest.raises(BugError, match="second region"):
        pair.p.transport.register(pair.p.region)


def test_an_address_of_another_block_size_is_refused_with_both(pair: Pair) -> None:
    other = pair.make(block_bytes=2 * BLOCK_BYTES, blocks=2)
    with pytest.raises(TransportError, match=r"4096 bytes here and 8192 at"):
        pair.p.transport.connect(other.transport.address())


@pytest.mark.parametrize(
    "address",
    [
        b"",
        b"\xc1",
        b"\x00" * 70_000,
        msgpack.packb(("carrier pigeon", "d", BLOCK_BYTES, BLOCKS, {})),
        msgpack.packb((7, "d", BLOCK_BYTES, BLOCKS, {})),
    ],
)
def test_malformed_addresses_are_refused(pair: Pair, address: bytes) -> None:
    with pytest.raises(TransportError):
        pair.p.transport.connect(address)


def test_an_address_of_this_scheme_without_its_details_is_refused(pair: Pair) -> None:
    scheme = pair.p.transport.scheme
    for details in ({}, {"host": 1, "agent": b"x", "base": 0, "port": -1, "token": b""}):
        address = msgpack.packb((scheme, "nobody", BLOCK_BYTES, BLOCKS, details))
        with pytest.raises(TransportError):
            pair.p.transport.connect(address)


def test_a_peer_that_closed_is_an_event_and_no_exception(pair: Pair) -> None:
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"first")
    pair.poll(lambda: bool(pair.d.notes and pair.p.done))
    pair.d.transport.abort()
    alive = [pair.p]
    post = pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"second")
    pair.poll(lambda: bool(pair.p.failed and pair.p.lost), alive)
    assert list(pair.p.failed) == [post]
    assert pair.p.lost == [link]
    # A lost link stays lost, and posting on it is answered, not raised.
    later = pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"third")
    pair.poll(lambda: later in pair.p.failed, alive)
    assert pair.p.lost == [link]


def test_disconnecting_fails_what_is_posted_later_and_tells_no_loss(pair: Pair) -> None:
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"")
    pair.poll(lambda: bool(pair.p.done))
    pair.p.transport.disconnect(link)
    pair.p.transport.disconnect(link)
    post = pair.p.transport.post(link, Op.WRITE, [(0, 1)], b"")
    pair.poll(lambda: post in pair.p.failed)
    assert pair.p.lost == []


def test_connecting_again_after_disconnecting(pair: Pair) -> None:
    first = pair.link()
    pair.p.transport.post(first, Op.WRITE, [(0, 0)], b"")
    pair.poll(lambda: bool(pair.p.done))
    pair.p.transport.disconnect(first)
    content = pair.p.fill(9)
    second = pair.link()
    assert second != first
    post = pair.p.transport.post(second, Op.WRITE, [(9, 9)], b"again")
    pair.poll(lambda: bool(pair.d.notes) and post in pair.p.done)
    assert pair.d.holds(9) == content


def test_every_post_ends_once_whatever_is_disconnected(pair: Pair) -> None:
    link = pair.link()
    posts = [pair.p.transport.post(link, Op.WRITE, [(i, i)], b"") for i in range(16)]
    pair.p.transport.disconnect(link)
    pair.poll(lambda: len(pair.p.done) + len(pair.p.failed) == len(posts))
    ends = [e.post for e in pair.p.told if isinstance(e, PostDone | PostFailed)]
    assert sorted(ends) == posts


def test_closing_waits_for_what_is_under_way(pair: Pair) -> None:
    contents = [pair.p.fill(block) for block in range(8)]
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(9, 9)], b"")
    pair.poll(lambda: bool(pair.p.done))
    pair.p.transport.post(link, Op.WRITE, [(b, b) for b in range(8)], b"")
    closed = threading.Event()

    def the_other_end_polls() -> None:
        while not closed.is_set():
            pair.d.transport.poll()

    other = threading.Thread(target=the_other_end_polls)
    other.start()
    pair.p.transport.close()
    closed.set()
    other.join()
    assert [pair.d.holds(block) for block in range(8)] == contents
    pair.p.transport.close()
    pair.p.transport.abort()


def test_abort_is_idempotent_and_silent(pair: Pair) -> None:
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"")
    pair.p.transport.abort()
    pair.p.transport.abort()
    pair.p.transport.close()


def test_an_idle_poll_tells_nothing(pair: Pair) -> None:
    for end in pair.ends:
        assert end.transport.poll() == []


# ---- the end of a peer's access: certain on tcp and in memory, never on nixl ---------------------


def test_what_revokes_truly_revokes(pair: Pair) -> None:
    link = pair.link()
    pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"hello")
    pair.poll(lambda: bool(pair.d.notes and pair.p.done))
    certain = pair.d.transport.disconnect(Inbound(pair.d.notes[0].peer))
    assert certain == (pair.kind != "nixl")
    if not certain:
        return
    content = pair.d.holds(5)
    pair.p.fill(5)
    late = pair.p.transport.post(link, Op.WRITE, [(5, 5)], b"late")
    pair.poll(lambda: late in pair.p.failed)
    assert pair.d.holds(5) == content
    # Nor may it come back under a new link.
    try:
        again = pair.p.transport.post(pair.link(), Op.WRITE, [(5, 5)], b"again")
    except TransportError:
        return
    pair.poll(lambda: again in pair.p.failed)
    assert pair.d.holds(5) == content


def test_bytes_that_wait_in_the_socket_are_revoked_too() -> None:
    """P has sent all it had and is gone; D must not write it into blocks that it then reuses."""
    pair = Pair("tcp")
    try:
        link = pair.link()
        pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"hello")
        pair.poll(lambda: bool(pair.d.notes and pair.p.done))
        pair.p.fill(5)
        pair.p.transport.post(link, Op.WRITE, [(5, 5)], b"late")
        pair.p.transport.poll()  # the kernel has it now
        pair.p.transport.abort()
        assert pair.d.transport.disconnect(Inbound(pair.d.notes[0].peer))
        pair.d.transport.poll()
        assert pair.d.holds(5) == bytes(BLOCK_BYTES)
    finally:
        pair.close()


def test_nixl_lets_a_late_write_land_after_deregistration() -> None:
    """Why a receiver of one-sided writes quarantines: neither forgetting the peer nor ending the
    registration, here by ending the whole transport, stops a write. If this ever fails, NIXL has
    learnt to revoke, and design.md's rule may be eased."""
    pair = Pair("nixl")
    try:
        link = pair.link()
        pair.p.transport.post(link, Op.WRITE, [(0, 0)], b"hello")
        pair.poll(lambda: bool(pair.d.notes and pair.p.done))
        deregister(pair.d.transport)
        content = pair.p.fill(5)
        late = pair.p.transport.post(link, Op.WRITE, [(5, 5)], b"late")
        pair.poll(lambda: late in pair.p.done)
        assert pair.d.holds(5) == content
    finally:
        pair.close()


def deregister(transport: Transport) -> None:
    assert isinstance(transport, NixlTransport)
    transport._agent.deregister_memory(transport._registered)
    transport._registered = None
