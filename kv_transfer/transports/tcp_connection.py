"""One non-blocking TCP connection that carries frames, and blocks without a copy of ours.

Blocks go from the pool to the kernel (`sendmsg` of views) and from the kernel into the pool
(`recv_into` of views): nothing lies in between.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence

from core.errors import TransportError
from kv_transfer.region import Region
from kv_transfer.transports.tcp_frames import (
    HEADER,
    WITH_BLOCKS,
    Frame,
    decode_frame,
    encode_frame,
    rest_bytes,
)

VIEWS_PER_SEND = 64
BYTES_PER_POLL = 16 << 20
"""Received at most before the caller's loop gets its turn back."""

Resolve = Callable[[Frame], list[memoryview]]
"""Where the blocks of a WRITE or DATA frame belong; raises TransportError if nowhere."""


class Connection:
    """Frames over one socket, which it owns.

    Args:
        region: ours; indices of incoming frames are checked against it.
        resolve: asked once a frame's head is here, before a byte of its blocks is taken.
    """

    def __init__(self, sock: socket.socket, region: Region, resolve: Resolve) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._region = region
        self._resolve = resolve
        self._outgoing: deque[memoryview] = deque()
        self._header = bytearray(HEADER.size)
        self._incoming: deque[memoryview] = deque([memoryview(self._header)])
        """What is still to be filled of the part that is being received."""
        self._rest: bytearray | None = None
        self._frame: Frame | None = None
        self._writing = True
        self._broken = ""

    def send(self, frame: Frame, blocks: Sequence[memoryview] = ()) -> None:
        """Queue a frame; `poll` sends it. The blocks' memory is read until then."""
        if self._writing:
            self._outgoing.append(memoryview(encode_frame(frame)))
            self._outgoing.extend(blocks)

    def poll(self) -> list[Frame]:
        """Send and receive what can be; returns the frames that are wholly here.

        Raises:
            TransportError: the connection is at its end or the peer breaks the protocol.
        """
        if self._broken:
            raise TransportError(self._broken)
        frames: list[Frame] = []
        try:
            self._flush()
            self._receive(frames)
        except OSError as error:
            self._broken = error.strerror or str(error)
        except TransportError as error:
            self._broken = error.message
        if self._broken and not frames:
            raise TransportError(self._broken)
        return frames  # what came before the end counts; the next poll tells of the end

    def stop_writing(self) -> None:
        """Send no more and tell the peer so; what it reads until then is all it will get."""
        self._writing = False
        self._outgoing.clear()
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already; the next poll says so

    def close(self) -> None:
        """At once: nothing more is sent or received."""
        self._writing = False
        self._outgoing.clear()
        self._socket.close()

    def _flush(self) -> None:
        while self._outgoing:
            views = [self._outgoing[i] for i in range(min(VIEWS_PER_SEND, len(self._outgoing)))]
            try:
                sent = self._socket.sendmsg(views)
            except BlockingIOError:
                return
            _advance(self._outgoing, sent)

    def _receive(self, frames: list[Frame]) -> None:
        budget = BYTES_PER_POLL
        while budget > 0:
            while self._incoming:
                try:
                    received = self._socket.recv_into(self._incoming[0])
                except BlockingIOError:
                    return
                if received == 0:
                    raise TransportError("the peer closed the connection")
                _advance(self._incoming, received)
                budget -= received
            if (frame := self._part_is_here()) is not None:
                frames.append(frame)

    def _part_is_here(self) -> Frame | None:
        """Header → rest → blocks → the frame, and again."""
        if self._frame is None and self._rest is None:
            self._rest = bytearray(rest_bytes(bytes(self._header), self._region.blocks))
            if self._rest:
                self._incoming.append(memoryview(self._rest))
                return None
        if self._frame is None:
            rest = bytes(self._rest or b"")
            self._frame = decode_frame(bytes(self._header), rest, self._region.blocks)
            if self._frame.kind in WITH_BLOCKS:
                self._incoming.extend(self._resolve(self._frame))
                return None
        frame, self._frame, self._rest = self._frame, None, None
        self._incoming.append(memoryview(self._header))
        return frame


def _advance(views: deque[memoryview], count: int) -> None:
    while count:
        first = views[0]
        if count < len(first):
            views[0] = first[count:]
            return
        count -= len(first)
        views.popleft()
