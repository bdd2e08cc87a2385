"""Two real processes: one is stopped or killed with SIGKILL, the other must notice and live."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.environment import child_environment
from kv_transfer.region import Region
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
from kv_transfer.transports.nixl_environment import QUIET_ENVIRONMENT
from tests.contracts.polling import poll_until
from tests.contracts.transport_peer import BLOCKS, open_end

ROOT = Path(__file__).parents[2]
NOTICED_WITHIN_S = 2.0
EVERYTHING = [(block, block) for block in range(BLOCKS)]
KINDS = ["tcp", "nixl"]


class Peer:
    def __init__(self, kind: str, role: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.transport_peer", kind, role],
            cwd=ROOT,
            env=child_environment(QUIET_ENVIRONMENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = bytes.fromhex(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Also reaps: whoever kills in earnest does, and only then is the death proven."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Here:
    """This process's end."""

    def __init__(self, kind: str) -> None:
        self.transport: Transport
        self.region: Region
        self.transport, self.region = open_end(kind, f"here@{os.getpid():x}")
        self.told: list[TransportEvent] = []

    def step(self) -> None:
        self.told.extend(self.transport.poll())

    def ended(self, post: int) -> bool:
        return any(isinstance(e, PostDone | PostFailed) and e.post == post for e in self.told)

    def write(self, link: Link, note: bytes = b"") -> int:
        return self.transport.post(link, Op.WRITE, EVERYTHING, note)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def here(kind: str) -> Iterator[Here]:
    end = Here(kind)
    yield end
    end.transport.abort()


@pytest.fixture
def passive(kind: str) -> Iterator[Peer]:
    peer = Peer(kind, "passive")
    yield peer
    peer.kill()


def test_bytes_reach_another_process_and_its_stdout_is_its_own(here: Here, passive: Peer) -> None:
    here.region.buffer[:] = os.urandom(len(here.region.buffer))
    link = here.transport.connect(passive.address)
    post = here.write(link, b"all-of-it")
    poll_until(here.step, lambda: here.ended(post))
    assert here.told == [PostDone(post)]
    assert passive.line() == f"note all-of-it {hashlib.sha256(here.region.buffer).hexdigest()}"
    passive.tell("end")
    assert passive.line() == ""


def test_a_killed_receiver_is_noticed_and_others_are_served(
    kind: str, here: Here, passive: Peer
) -> None:
    link = here.transport.connect(passive.address)
    post = here.write(link)
    poll_until(here.step, lambda: here.ended(post))
    posts = [here.write(link) for _ in range(4)]
    passive.kill()
    posts.append(here.write(link))

    def lost() -> bool:
        return all(map(here.ended, posts)) and any(isinstance(e, LinkLost) for e in here.told)

    assert poll_until(here.step, lost) < NOTICED_WITHIN_S
    assert next(event for event in here.told if isinstance(event, LinkLost)).link == link
    assert any(isinstance(event, PostFailed) for event in here.told)

    other = Peer(kind, "passive")
    try:
        after = here.write(here.transport.connect(other.address), b"after")
        poll_until(here.step, lambda: here.ended(after))
        assert PostDone(after) in here.told
        assert other.line().startswith("note after")
    finally:
        other.kill()


def test_a_killed_sender_harms_nobody(kind: str, here: Here) -> None:
    sender = Peer(kind, "active")
    sender.tell(here.transport.address().hex())
    poll_until(here.step, lambda: len(here.told) >= 2)  # two whole writes: it is in its stride
    sender.kill()
    peers = {event.peer for event in here.told if isinstance(event, Note)}
    assert len(peers) == 1
    # Its death is proven now: on tcp what it sent last may still wait in our socket.
    here.transport.disconnect(Inbound(peers.pop()))
    here.region.buffer[:] = bytes(len(here.region.buffer))
    for _ in range(200):
        here.step()
    assert not any(here.region.buffer[:: 1 << 12])

    other = Peer(kind, "active")
    try:
        before = len(here.told)
        other.tell(here.transport.address().hex())
        poll_until(here.step, lambda: len(here.told) > before)
    finally:
        other.kill()


@pytest.mark.parametrize("then", ["wakes", "dies"])
def test_a_post_to_a_stopped_peer_ends_only_when_it_is_certain_how(
    here: Here, passive: Peer, then: str
) -> None:
    """A post can't be recalled: one that was reported over before the peer woke would be read from
    blocks, and land in blocks, that somebody else has by then."""
    written = os.urandom(len(here.region.buffer))
    here.region.buffer[:] = written
    link = here.transport.connect(passive.address)
    first = here.write(link, b"first")
    poll_until(here.step, lambda: here.ended(first))
    passive.line()
    passive.signal(signal.SIGSTOP)
    posts = [here.write(link) for _ in range(3)]
    here.step()
    here.transport.disconnect(link)
    for _ in range(200):
        here.step()
    assert not any(isinstance(event, PostFailed) for event in here.told)

    if then == "dies":
        passive.kill()
    else:
        passive.signal(signal.SIGCONT)
    took_s = poll_until(here.step, lambda: all(map(here.ended, posts)))
    assert not any(isinstance(event, LinkLost) for event in here.told)
    if then == "dies":
        assert took_s < NOTICED_WITHIN_S
        return

    # From here on the memory is somebody else's: nothing of it may show over there.
    here.region.buffer[:] = bytes(len(written))
    again = here.transport.connect(passive.address)
    last = here.transport.post(again, Op.WRITE, [(0, 0)], b"last")
    poll_until(here.step, lambda: here.ended(last))
    block = here.region.block_bytes
    expected = hashlib.sha256(bytes(block) + written[block:]).hexdigest()
    assert passive.line() == f"note last {expected}"


def test_the_same_where_the_bytes_really_travel() -> None:
    """On one host UCX copies straight into a stopped process; over a network (here its tcp) what
    was posted waits, and is read from the source only when it leaves."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "nixl and stopped", __file__],
        cwd=ROOT,
        env=child_environment({**QUIET_ENVIRONMENT, "UCX_TLS": "tcp,self"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout or ".." in run.stdout
