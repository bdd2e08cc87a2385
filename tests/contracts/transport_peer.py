"""A real process at the other end of a transport, for tests that kill or stop it.

    python -m tests.contracts.transport_peer KIND passive   waits to be written to
    python -m tests.contracts.transport_peer KIND active    writes to the address it is told

Lines on stdout: its address in hex; then `note TEXT DIGEST` for each note that comes (the digest
is of its whole pool), or `writing` once its first write is done. It ends when stdin does.
"""

import hashlib
import os
import select
import sys

from kv_transfer.region import Region, allocate_region
from kv_transfer.transport import Note, Op, PostDone, Transport
from kv_transfer.transports.nixl import NixlTransport
from kv_transfer.transports.tcp import TcpTransport

BLOCK_BYTES = 1 << 20
BLOCKS = 32
POLL_S = 0.0005


def open_end(kind: str, name: str) -> tuple[Transport, Region]:
    transport = TcpTransport(name) if kind == "tcp" else NixlTransport(name)
    region = allocate_region(BLOCK_BYTES, BLOCKS)
    transport.register(region)
    return transport, region


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def stdin_is_readable() -> bool:
    return bool(select.select([sys.stdin], [], [], POLL_S)[0])


def passive(transport: Transport, region: Region) -> None:
    while not stdin_is_readable():
        for event in transport.poll():
            if isinstance(event, Note):
                digest = hashlib.sha256(region.buffer).hexdigest()
                say(f"note {event.data.decode()} {digest}")


def active(transport: Transport) -> None:
    link = transport.connect(bytes.fromhex(sys.stdin.readline()))
    everything = [(block, block) for block in range(BLOCKS)]
    transport.post(link, Op.WRITE, everything, b"first")
    said = False
    while True:
        for event in transport.poll():
            if isinstance(event, PostDone):
                if not said:
                    say("writing")
                    said = True
                transport.post(link, Op.WRITE, everything, b"more")


def main() -> None:
    transport, region = open_end(sys.argv[1], f"peer@{os.getpid():x}")
    say(transport.address().hex())
    if sys.argv[2] == "passive":
        passive(transport, region)
    else:
        active(transport)
    transport.close()


if __name__ == "__main__":
    main()
