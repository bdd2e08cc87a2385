"""The passive side of the tcp transport: peers' connections into our region."""

import hmac
import secrets
import socket

from core.errors import TransportError
from kv_transfer.region import Region, block_runs
from kv_transfer.transport import Note
from kv_transfer.transports.tcp_connection import Connection
from kv_transfer.transports.tcp_frames import (
    NONCE_BYTES,
    Frame,
    Kind,
    client_mac,
    server_mac,
    split_hello,
)

MAX_STRANGERS = 64
"""Connections that haven't shown the token yet; beyond that the oldest are closed."""


class _Guest:
    """One connection to us; a stranger until it has shown the token."""

    def __init__(self, sock: socket.socket, region: Region) -> None:
        self.peer = ""
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.connection = Connection(sock, region, self._blocks_of)
        self._region = region
        self.connection.send(Frame(Kind.CHALLENGE, extra=self.nonce))

    def _blocks_of(self, frame: Frame) -> list[memoryview]:
        if not self.peer or frame.kind is not Kind.WRITE:
            raise TransportError(f"{frame.kind.name} from {self.peer or 'a stranger'}")
        return views(self._region, frame.blocks)


class InboundSide:
    """Listens, lets in who shows the token, and does for them what they post.

    Args:
        token: what a peer must have read in our address.

    Raises:
        TransportError: the host isn't one of ours.
    """

    def __init__(self, host: str, token: bytes, region: Region) -> None:
        self._token = token
        self._region = region
        self._guests: list[_Guest] = []
        self._revoked: set[str] = set()
        try:
            self._listener = socket.create_server((host, 0))
        except OSError as error:
            raise TransportError(f"can't listen at {host}: {error}") from error
        self._listener.setblocking(False)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def poll(self) -> list[Note]:
        """Serve all connections; returns the notes of posts that are done."""
        self._accept()
        notes: list[Note] = []
        for guest in list(self._guests):
            try:
                for frame in guest.connection.poll():
                    notes.extend(self._serve(guest, frame))
            except TransportError:
                self._drop(guest)
        return notes

    def revoke(self, peer: str) -> None:
        """Close its connections, unread bytes included, and let it in no more."""
        self._revoked.add(peer)
        for guest in [guest for guest in self._guests if guest.peer == peer]:
            self._drop(guest)

    def close(self) -> None:
        self._listener.close()
        for guest in list(self._guests):
            self._drop(guest)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                break  # nobody waits; or whoever did has gone; or no descriptor is free now
            self._guests.append(_Guest(sock, self._region))
        strangers = [guest for guest in self._guests if not guest.peer]
        for guest in strangers[:-MAX_STRANGERS]:
            self._drop(guest)

    def _serve(self, guest: _Guest, frame: Frame) -> list[Note]:
        if not guest.peer:
            self._admit(guest, frame)
            return []
        match frame.kind:
            case Kind.WRITE:
                guest.connection.send(Frame(Kind.DONE, frame.post))
            case Kind.READ:
                answer = Frame(Kind.DATA, frame.post, count=len(frame.blocks))
                guest.connection.send(answer, views(self._region, frame.blocks))
                return []
            case Kind.NOTE:
                pass
            case _:
                raise TransportError(f"an unexpected {frame.kind.name} from {guest.peer}")
        return [Note(guest.peer, frame.extra)] if frame.extra else []

    def _admit(self, guest: _Guest, frame: Frame) -> None:
        if frame.kind is not Kind.HELLO:
            raise TransportError(f"{frame.kind.name} from a stranger")
        mac, nonce, name = split_hello(frame.extra)
        if not hmac.compare_digest(mac, client_mac(self._token, guest.nonce, nonce, name)):
            raise TransportError("a stranger doesn't know the token")
        peer = name.decode(errors="replace")
        if peer in self._revoked:
            raise TransportError(f"{peer} was cut off")
        guest.peer = peer
        proof = server_mac(self._token, guest.nonce, nonce)
        guest.connection.send(Frame(Kind.WELCOME, extra=proof))

    def _drop(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        guest.connection.close()


def views(region: Region, blocks: tuple[int, ...]) -> list[memoryview]:
    """The blocks' bytes, neighbours joined. Raises BugError outside of the region."""
    return [region.run(first, count) for first, count in block_runs(list(blocks))]
