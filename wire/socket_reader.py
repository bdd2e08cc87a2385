"""A ZeroMQ socket on an event loop, without a task: a callback per message."""

import asyncio
from collections.abc import Callable

import zmq

BATCH = 64
"""Messages handed over before the loop gets its turn again."""


class SocketReader:
    """Reads `socket` whenever it has something and calls `on_message(frames)` on the loop.

    A ZeroMQ file descriptor tells of *changes*, not of readiness: after each signal, and once at
    the beginning, the socket is read until it says that it is empty. Works with any loop that has
    `add_reader` (asyncio's own, uvloop). The socket stays its owner's, who calls `close()` before
    closing it.
    """

    def __init__(
        self, socket: "zmq.Socket[bytes]", on_message: Callable[[list[bytes]], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._fd = socket.fileno()
        self._on_message = on_message
        self._reading = False
        self._again: asyncio.Handle | None = None
        self.resume()

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._read)
            self._read_soon()

    def pause(self) -> None:
        """Stop reading: what comes stays in the socket's queue, then with the senders."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def close(self) -> None:
        self.pause()

    def _read_soon(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._read)

    def _read(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        for _ in range(BATCH):
            if not self._reading:  # the callback has paused or closed us
                return
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._on_message(frames)
        if self._reading:
            self._read_soon()
