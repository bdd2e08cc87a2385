"""The production transport: one-sided writes through NIXL over the UCX in its wheel.

Settings (measured, ADR 2): UCX backend, no progress thread (it would spin on a compute core),
UCX's own choice of ways (shared memory, CMA, RDMA, TCP), its peer error handling, descriptor lists
of both whole pools prepared once per peer, so that a post is a list of indices; NIXL joins
neighbouring blocks itself.

What NIXL doesn't do, and what follows from it:

- *A post can't be recalled.* Releasing a handle in flight and removing the remote agent both
  "succeed", and bytes still land afterwards, read from the source as it is *then* (seen over tcp
  with a stopped peer). So `disconnect` keeps handle and agent until the post has really ended.
- *A receiver can't revoke.* After deregistering its memory and removing the peer, a late write
  still lands. `disconnect(Inbound)` is therefore never a proof, and the node quarantines.
- *The passive side doesn't see its peer die*; the control channel does.
- *Posting may copy.* On one host `post` itself moves the bytes (CMA), in the caller's thread.

`nixl_environment.QUIET_ENVIRONMENT` belongs into a worker's environment before it starts: without
it UCX logs to stdout.
"""

import importlib
import itertools
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from core.errors import BugError, SetupError, TransportError
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
from kv_transfer.transports.draining import drain
from kv_transfer.transports.pool_address import (
    Detail,
    PoolAddress,
    check_fits,
    decode_address,
    encode_address,
)

if TYPE_CHECKING:
    from nixl_cu12._api import nixl_agent, nixl_prepped_dlist_handle, nixl_xfer_handle

HOST_MEMORY = "DRAM"
THIS_SIDE = "NIXL_INIT_AGENT"
DONE, IN_PROGRESS = "DONE", "PROC"


@dataclass(slots=True, eq=False)
class _Peer:
    """A remote agent, and what we have under way to it."""

    link: Link
    address: PoolAddress
    blocks: "nixl_prepped_dlist_handle"
    posts: "dict[int, nixl_xfer_handle]" = field(default_factory=dict)
    lost: str = ""
    """Why no post may be added; its agent is removed once `posts` is empty."""
    told: bool = False


class NixlTransport(Transport):
    """One NIXL agent. Its name, like every transport's, must be unique in the deployment.

    Raises:
        SetupError: NIXL or its UCX backend can't be loaded here.
    """

    scheme = "nixl"

    def __init__(self, name: str) -> None:
        self._name = name
        self._agent, self._errors = _open_agent(name)
        self._region: Region | None = None
        self._registered: object = None
        self._own_blocks: nixl_prepped_dlist_handle | None = None
        self._peers: dict[str, _Peer] = {}
        self._numbers = itertools.count()
        self._events: list[TransportEvent] = []
        self._closed = False

    # ---- the verbs -----------------------------------------------------------------------------

    def register(self, region: Region) -> None:
        if self._region is not None:
            raise BugError(f"{self._name} registers a second region")
        memory = [(region.address, region.buffer.nbytes, 0, "")]
        try:
            self._registered = self._agent.register_memory(memory, HOST_MEMORY)
            self._own_blocks = self._agent.prep_xfer_dlist(
                THIS_SIDE,
                _every_block(region.address, region.block_bytes, region.blocks),
                HOST_MEMORY,
            )
        except self._errors as error:
            raise TransportError(
                f"NIXL can't register {region.buffer.nbytes} bytes: {_say(error)}"
            ) from error
        self._region = region

    def address(self) -> bytes:
        region = self._own()
        details: dict[str, Detail] = {
            "agent": self._agent.get_agent_metadata(),
            "base": region.address,
        }
        return encode_address(
            PoolAddress(self.scheme, self._name, region.block_bytes, region.blocks, details)
        )

    def connect(self, peer: bytes) -> Link:
        address = decode_address(peer, self.scheme)
        check_fits(self._own(), address)
        known = self._peers.get(address.name)
        if known is not None and not known.lost and known.address == address:
            return known.link
        if known is not None:
            self._lose(known, "replaced by a new address")
            self._forget_if_idle(known)
        if address.name in self._peers:
            raise TransportError(f"posts to an earlier link to {address.name} haven't ended yet")
        metadata, base = address.data("agent"), address.number("base")
        try:
            found = self._agent.add_remote_agent(metadata)
            name = found.decode() if isinstance(found, bytes) else found
            if name != address.name:
                self._agent.remove_remote_agent(name)
                raise TransportError(f"the address of {address.name} is that of {name!r:.40}")
            blocks = self._agent.prep_xfer_dlist(
                name, _every_block(base, address.block_bytes, address.blocks), HOST_MEMORY
            )
        except self._errors as error:
            raise TransportError(f"NIXL can't connect to {address.name}: {_say(error)}") from error
        link = Link(address.name, next(self._numbers))
        self._peers[address.name] = _Peer(link, address, blocks)
        return link

    def post(self, link: Link, op: Op, pairs: Pairs, note: bytes) -> int:
        peer, own_blocks = self._live(link), self._own_blocks
        most = 1 + max((remote for _, remote in pairs), default=0)
        check_post(self._own(), peer.address.blocks if peer else most, pairs, note)
        number = next(self._numbers)
        if peer is None or peer.lost or own_blocks is None:
            self._events.append(PostFailed(number, f"the link to {link.peer} is lost"))
            return number
        indices = np.asarray(pairs, dtype=np.int32)
        try:
            handle = self._agent.make_prepped_xfer(
                Op(op).name,
                own_blocks,
                np.ascontiguousarray(indices[:, 0]),
                peer.blocks,
                np.ascontiguousarray(indices[:, 1]),
                bytes(note),
            )
            peer.posts[number] = handle
            self._agent.transfer(handle)
        except self._errors as error:
            self._fail(peer, number, _say(error))
        return number

    def poll(self) -> list[TransportEvent]:
        for name, notes in self._new_notes().items():
            self._events.extend(Note(name, note) for note in notes)
        for peer in list(self._peers.values()):
            for number, handle in list(peer.posts.items()):
                self._check(peer, number, handle)
            self._forget_if_idle(peer)
        events, self._events = self._events, []
        return events

    def disconnect(self, link: Link | Inbound) -> bool:
        if isinstance(link, Link) and (peer := self._live(link)) is not None:
            peer.told = True
            self._lose(peer, "disconnected")
            self._forget_if_idle(peer)
        return False

    def close(self) -> None:
        if not self._closed:
            drain(lambda: any(peer.posts for peer in self._peers.values()), self.poll)
        self.abort()

    def abort(self) -> None:
        if self._closed:
            return
        self._closed = True
        for peer in list(self._peers.values()):
            for number in list(peer.posts):
                self._release(peer.posts.pop(number))
            self._remove(peer)
        if self._own_blocks is not None:
            self._release(self._own_blocks)
        if self._registered is not None:
            with suppress(*self._errors):  # nobody is left to be told
                self._agent.deregister_memory(self._registered)
        self._events.clear()
        # The last references: the agent ends here and not at the garbage collector's leisure.
        self._own_blocks = self._registered = None
        del self._agent

    # ---- posts ---------------------------------------------------------------------------------

    def _check(self, peer: _Peer, number: int, handle: "nixl_xfer_handle") -> None:
        """The note of a post leaves only when its initiator asks after the data is through."""
        try:
            state = self._agent.check_xfer_state(handle)
        except self._errors as error:
            self._fail(peer, number, _say(error))
            return
        if state == IN_PROGRESS:
            return
        if state != DONE:
            self._fail(peer, number, f"NIXL says {state}")
            return
        self._release(peer.posts.pop(number))
        self._events.append(PostDone(number))

    def _fail(self, peer: _Peer, number: int, reason: str) -> None:
        """NIXL has given the post up: its endpoint is in error, which ends all that was under way
        on it. Whatever the reason, such a link isn't used again."""
        handle = peer.posts.pop(number, None)
        if handle is not None:
            self._release(handle)
        self._events.append(PostFailed(number, reason))
        self._lose(peer, reason)

    def _new_notes(self) -> dict[str, list[bytes]]:
        try:
            return dict(self._agent.get_new_notifs())
        except self._errors:
            return {}  # a peer died while it was being read from; its posts tell

    # ---- peers ---------------------------------------------------------------------------------

    def _live(self, link: Link) -> _Peer | None:
        peer = self._peers.get(link.peer)
        return peer if peer is not None and peer.link == link else None

    def _lose(self, peer: _Peer, reason: str) -> None:
        peer.lost = peer.lost or reason
        if not peer.told:
            peer.told = True
            self._events.append(LinkLost(peer.link, reason))

    def _forget_if_idle(self, peer: _Peer) -> None:
        if peer.lost and not peer.posts:
            self._remove(peer)

    def _remove(self, peer: _Peer) -> None:
        self._release(peer.blocks)
        with suppress(*self._errors):  # it may be gone already
            self._agent.remove_remote_agent(peer.link.peer)
        del self._peers[peer.link.peer]

    def _release(self, handle: "nixl_xfer_handle | nixl_prepped_dlist_handle") -> None:
        with suppress(*self._errors):  # the agent frees at its end what it can't free yet
            handle.release()  # type: ignore[no-untyped-call]

    def _own(self) -> Region:
        if self._region is None or self._closed:
            raise BugError(f"{self._name} has no region registered")
        return self._region


def _every_block(base: int, block_bytes: int, blocks: int) -> npt.NDArray[np.uint64]:
    """NIXL's strided list: (address, length, device, stride, count)."""
    return np.array([[base, block_bytes, 0, block_bytes, blocks]], dtype=np.uint64)


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _open_agent(name: str) -> "tuple[nixl_agent, tuple[type[Exception], ...]]":
    """The agent, and the classes of what it raises (NIXL's own share no base, and its bindings
    turn C++ exceptions into Python's)."""
    try:
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        bindings = importlib.import_module("nixl_cu12._bindings")
    except (ImportError, OSError) as error:
        raise SetupError(f"NIXL can't be loaded: {error}") from error
    _log_to_stderr()
    errors: tuple[type[Exception], ...] = (
        RuntimeError,
        ValueError,
        OverflowError,
        *(
            kind
            for label, kind in sorted(vars(bindings).items())
            if label.endswith("Error") and isinstance(kind, type) and issubclass(kind, Exception)
        ),
    )
    try:
        agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    except errors as error:
        raise SetupError(f"NIXL can't start: {_say(error)}") from error
    if "UCX" not in agent.backends:
        raise SetupError("NIXL has no UCX backend here")
    return agent, errors


def _log_to_stderr() -> None:
    """NIXL's Python side prints to stdout, which may be a protocol channel or a user's terminal."""
    logger = logging.getLogger("nixl")
    logger.handlers[:] = [logging.StreamHandler(sys.stderr)]
    logger.setLevel(logging.WARNING)
