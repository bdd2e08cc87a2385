"""Both sessions over every real transport: bytes, notes, checksums and all."""

import os
from collections.abc import Iterator

import pytest

from core.ids import Attempt, Epoch, RequestId
from core.request import SampledToken
from kv_transfer import actions, events
from kv_transfer.checksum import ALGORITHM, block_checksums, checksums_match
from kv_transfer.note import decode_note
from kv_transfer.receive_session import ReceiveSession, ReceiveSessionEvent
from kv_transfer.send_session import SendLimits, SendSession, SendSessionEvent
from kv_transfer.transport import Note, Op, PostDone, PostFailed
from tests.contracts.polling import poll_until
from tests.contracts.test_transport_contract import Pair

A = Attempt(RequestId("req-1"), Epoch(1))
FIRST = (SampledToken(0, 0, 5),)
SOURCE = tuple(range(10, 30))
TARGET = (*range(40, 50), *range(9, -1, -1))
LIMITS = SendLimits(writes_in_flight=2, blocks_per_write=3)


class Handover:
    """The thinnest possible nodes: the control channel is a call."""

    def __init__(self, pair: Pair, spoil: bool = False) -> None:
        self.pair = pair
        self.spoil = spoil
        self.fate = ""
        self.released = False
        self.link = pair.link()
        self.posts: dict[int, int] = {}
        self.p = SendSession(
            attempt=A,
            remote_blocks=TARGET,
            algorithm=ALGORITHM,
            lease_s=1e9,
            now_s=0.0,
            limits=LIMITS,
        )
        self.d = ReceiveSession(
            attempt=A, blocks=TARGET, algorithm=ALGORITHM, lease_s=1e9, now_s=0.0
        )

    def tell_p(self, event: SendSessionEvent) -> None:
        for action in self.p.handle(event, 0.0):
            match action:
                case actions.Send(message):
                    self.tell_d(message)
                case actions.Write(number, pairs, note):
                    post = self.pair.p.transport.post(self.link, Op.WRITE, pairs, note)
                    self.posts[post] = number
                case actions.ReleaseBlocks():
                    self.released = True

    def tell_d(self, event: ReceiveSessionEvent) -> None:
        for action in self.d.handle(event, 0.0):
            match action:
                case actions.Send(message):
                    self.tell_p(message)
                case actions.Verify(blocks, _, checksums):
                    if self.spoil:
                        self.pair.d.region.block(blocks[3])[7] ^= 1
                    ok = checksums_match(A, self.pair.d.region, blocks, checksums)
                    self.tell_d(events.Verified(ok))
                case actions.Deliver() | actions.Recompute():
                    self.fate = type(action).__name__

    def step(self) -> None:
        for event in self.pair.p.transport.poll():
            assert isinstance(event, PostDone | PostFailed)
            number = self.posts.pop(event.post)
            if isinstance(event, PostDone):
                self.tell_p(events.WriteDone(number))
            else:
                self.tell_p(events.WriteFailed(number, event.reason))
        for event in self.pair.d.transport.poll():
            assert isinstance(event, Note)
            note = decode_note(event.data)
            assert note.attempt == A
            self.tell_d(events.ChunkArrived(note.blocks))

    def run(self) -> None:
        """Chunks of eight blocks, computed while the earlier ones travel."""
        self.tell_p(events.Accept())
        region = self.pair.p.region
        for start in range(0, len(SOURCE), 8):
            chunk = SOURCE[start : start + 8]
            self.tell_p(events.BlocksComputed(chunk, block_checksums(A, region, chunk)))
            self.step()
        self.tell_p(events.FirstTokens(FIRST))
        poll_until(self.step, lambda: bool(self.fate) and self.released)


@pytest.fixture(params=["memory", "tcp", "nixl"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    pair.p.region.buffer[:] = os.urandom(len(pair.p.region.buffer))
    yield pair
    pair.close()


def test_the_prompts_kv_is_handed_over(pair: Pair) -> None:
    handover = Handover(pair)
    handover.run()
    assert handover.fate == "Deliver"
    for local, remote in zip(SOURCE, TARGET, strict=True):
        assert pair.d.holds(remote) == pair.p.holds(local)
    untouched = set(range(64)) - set(TARGET)
    assert not any(any(pair.d.region.block(block)) for block in untouched)
    assert handover.p.blocks_written == len(TARGET)


def test_one_wrong_bit_is_recomputed(pair: Pair) -> None:
    handover = Handover(pair, spoil=True)
    handover.run()
    assert handover.fate == "Recompute"
