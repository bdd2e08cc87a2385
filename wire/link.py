"""One connection to one peer's mailbox: frames out, and the word when it breaks."""

import asyncio
from collections.abc import Callable

import zmq
from zmq.utils.monitor import parse_monitor_message

from core.clock import Clock
from core.errors import PeerLost
from wire.keys import DeploymentKeys
from wire.socket_reader import SocketReader

QUEUE_FRAMES = 50_000
"""Frames that wait for a peer which doesn't read; one more, and it counts as lost."""
CONNECT_PATIENCE_S = 1.8
"""Without a TCP connection for this long, a peer can't be reached."""
HANDSHAKE_PATIENCE_S = 5.0
"""With one: a process that is busy starting up answers late, yet it's there."""
RETRY_MS, RETRY_MAX_MS = 50, 500
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 1_000, 3_000

_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_LOST = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | _HANDSHAKE_FAILED
_WATCHED = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _LOST


class Link:
    """Lives for one connection: what is sent while it is being made waits for it; once it is
    made, its first break is the link's end, told by one call of `on_gone(link, reason)`.

    ZeroMQ would reconnect by itself and go on with whatever is left in its queue, perhaps to
    another process in the old one's place. A link ends instead, and its queue with it.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        keys: DeploymentKeys,
        clock: Clock,
        address: str,
        on_gone: Callable[["Link", str], None],
    ) -> None:
        self.address = address
        self._clock = clock
        self._on_gone = on_gone
        self._since_s = clock.now_s()
        self._connected = False
        self._up = False
        self._socket = _client_socket(context, keys)
        self._monitor = self._socket.get_monitor_socket(_WATCHED)
        self._monitor.linger = 0
        self._reader = SocketReader(self._monitor, self._on_monitor)
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            CONNECT_PATIENCE_S, self._overdue, HANDSHAKE_PATIENCE_S - CONNECT_PATIENCE_S
        )
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close(linger_ms=0)
            raise PeerLost(f"{address!r:.80} is no address: {error.strerror}") from error

    def send(self, frame: bytes) -> None:
        """Queue `frame`.

        Raises:
            PeerLost: QUEUE_FRAMES frames wait already.
        """
        try:
            self._socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            # The socket may not have looked yet at what its I/O thread has taken meanwhile;
            # asking for its events makes it look.
            self._socket.getsockopt(zmq.EVENTS)
            try:
                self._socket.send(frame, zmq.DONTWAIT)
            except zmq.Again:
                raise PeerLost(f"{self.address} doesn't read: {QUEUE_FRAMES} frames wait") from None

    def close(self, linger_ms: int) -> None:
        """End the link without a word; what is queued gets `linger_ms` to leave. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._socket.closed:
            self._reader.close()
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close(linger_ms)

    def _overdue(self, more_s: float) -> None:
        """Not up yet; a peer that is busy with the handshake gets `more_s`, once."""
        if self._connected and more_s:
            self._timer = asyncio.get_running_loop().call_later(more_s, self._overdue, 0.0)
            return
        self._timer = None
        waited_s = self._clock.now_s() - self._since_s
        self._on_gone(self, f"couldn't be reached in {waited_s:.1f} s")

    def _on_monitor(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._up = True
            self._since_s = self._clock.now_s()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif event & zmq.EVENT_CONNECTED:
            self._connected = True
        elif event & _LOST:
            self._connected = False
            if self._up:
                age_s = self._clock.now_s() - self._since_s
                self._on_gone(self, f"its connection broke after {age_s:.1f} s")


def _client_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", keys: DeploymentKeys
) -> "zmq.Socket[bytes]":
    socket = context.socket(zmq.DEALER)
    socket.curve_serverkey = keys.public
    socket.curve_publickey = keys.public
    socket.curve_secretkey = keys.secret
    socket.setsockopt(zmq.SNDHWM, QUEUE_FRAMES)
    socket.setsockopt(zmq.RECONNECT_IVL, RETRY_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RETRY_MAX_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    return socket
