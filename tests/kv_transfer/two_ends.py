"""Two sessions, two thin nodes and a bad network between them: the world the sessions must survive.

Memory is modelled: a write lands block by block when the test says so, also after its sender has
gone silent, until the sender's process is *proven* dead. Whoever frees a block that a write may
still reach, frees twice, delivers what isn't there or forgets a block fails an assertion here.
"""

from typing import TypeAlias

from core.ids import Attempt, Epoch, RequestId
from core.request import FinishReason, SampledToken
from core.transfer_lifecycle import ReceiveState, SendState
from kv_transfer import actions, events
from kv_transfer.receive_session import Heard as HeardByD, ReceiveSession, ReceiveSessionEvent
from kv_transfer.send_session import Heard as HeardByP, SendLimits, SendSession, SendSessionEvent
from wire.messages import Fault, KvAbort, KvAck, KvRefuse, KvReleased, KvRenew

ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))
LEASE_S = 4.0
LIMITS = SendLimits(writes_in_flight=2, blocks_per_write=2)
ALGORITHM = "sum"


class Offer:
    """Stands for `Prefill`."""


ToP: TypeAlias = Offer | HeardByP
ToD: TypeAlias = HeardByD | events.ChunkArrived


def content(block: int) -> int:
    """What P's KV of the block at this place of the prompt is."""
    return 1000 + block


class TwoEnds:
    """P and D with `blocks` blocks to move; all steps are the test's choice."""

    def __init__(self, blocks: int) -> None:
        self.now_s = 0.0
        self.blocks = tuple(range(50, 50 + blocks))
        self.to_p: list[ToP] = [Offer()]
        self.to_d: list[ToD] = []
        self.p: SendSession | None = None
        self.p_alive = self.d_alive = True
        self.p_proven_dead = False
        self.p_tombstone = False
        """P has said that it won't write for this attempt (`Prefill` must be refused then)."""
        self.writes: dict[int, actions.Write] = {}
        self.p_computed = 0
        self.p_released = 0
        self.p_holds = False
        self.d = ReceiveSession(
            attempt=ATTEMPT,
            blocks=self.blocks,
            algorithm=ALGORITHM,
            lease_s=LEASE_S,
            now_s=self.now_s,
        )
        self.memory: dict[int, int] = {}
        self.verify: actions.Verify | None = None
        self.fates: list[str] = []
        self.quarantined = False
        self.failed = 0

    # ---- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        writable = bool(self.writes) and not self.p_proven_dead
        if self.fates:
            assert not writable, f"{self.fates} while {self.writes} may still land"
        if self.p_released:
            assert not self.writes or not self.p_alive, "P freed blocks that a write still reads"
        assert self.p_released <= 1, "P released twice"
        assert len(self.fates) <= 1, f"D's blocks have two fates: {self.fates}"
        assert self.failed <= 1, "the attempt failed twice"
        assert self.d.ended == bool(self.fates), (self.d.state, self.fates)

    def check_settled(self) -> None:
        """When nothing more can happen: no leak on either side."""
        assert self.fates or not self.d_alive, f"D leaks its blocks in {self.d.state}"
        if self.p_alive and self.p is not None:
            assert self.p.ended, f"P hangs in {self.p.state}"
            assert self.p_released == 1, f"P leaks its blocks in {self.p.state}"
            assert not self.writes

    # ---- P's node ------------------------------------------------------------------------------

    def tell_p(self, event: SendSessionEvent) -> None:
        if self.p is not None and self.p_alive:
            self._act_p(self.p.handle(event, self.now_s))

    def _act_p(self, todo: list[actions.SendAction]) -> None:
        for action in todo:
            match action:
                case actions.Send(message):
                    assert not self.p_tombstone or isinstance(message, KvReleased)
                    self.to_d.append(message)
                case actions.Write(number=number):
                    assert not self.p_tombstone, "P writes after its word that it won't"
                    self.writes[number] = action
                case actions.ReleaseBlocks():
                    self.p_released += 1
                    self.p_tombstone = True
                case actions.DropLink():
                    for number in list(self.writes):
                        self.finish_write(number, ok=False)
                case actions.StopComputing() | actions.Ignored():
                    pass

    def deliver_to_p(self, index: int, keep: bool = False) -> None:
        message = self.to_p[index] if keep else self.to_p.pop(index)
        if not self.p_alive:
            return
        if isinstance(message, Offer):
            if self.p_tombstone or self.p is not None:
                if self.p is None:
                    self.to_d.append(KvRefuse(ATTEMPT, Fault.PEER, "given up before"))
                return
            self.p = SendSession(
                attempt=ATTEMPT,
                remote_blocks=self.blocks,
                algorithm=ALGORITHM,
                lease_s=LEASE_S,
                now_s=self.now_s,
                limits=LIMITS,
            )
        elif self.p is None:
            if isinstance(message, KvAbort):
                self.p_tombstone = True
                self.to_d.append(KvReleased(ATTEMPT))
        else:
            assert isinstance(message, KvAck | KvAbort | KvRenew)
            self.tell_p(message)

    def compute(self, count: int) -> None:
        """P's engine finishes up to `count` more blocks."""
        if self.p is None or self.p.state is not SendState.STREAMING:
            return
        new = self.blocks[self.p_computed : self.p_computed + count]
        if new:
            self.p_computed += len(new)
            sums = tuple(content(block) for block in new)
            self.tell_p(events.BlocksComputed(new, sums))

    def first_tokens(self, last: bool) -> None:
        if self.p is None or self.p.state is not SendState.STREAMING:
            return
        if self.p_computed < len(self.blocks) and not last:
            return
        finish = FinishReason.STOP if last else None
        self.tell_p(events.FirstTokens((SampledToken(0, 0, 7, finish),)))

    def finish_write(self, number: int, ok: bool, noted: bool = True) -> None:
        """A write in flight lands and ends; a failed one may have landed all the same."""
        write = self.writes.pop(number)
        for local, remote in write.pairs:
            self._land(remote, content(local))
        if self.p_alive:
            if noted:
                self.to_d.append(events.ChunkArrived(len(write.pairs)))
            self.tell_p(events.WriteDone(number) if ok else events.WriteFailed(number, "link down"))

    def _land(self, remote: int, value: int) -> None:
        assert remote in self.blocks
        assert not self.fates, "a write landed in blocks that were given away"
        self.memory[remote] = value

    # ---- D's node ------------------------------------------------------------------------------

    def tell_d(self, event: ReceiveSessionEvent) -> None:
        if self.d_alive:
            self._act_d(self.d.handle(event, self.now_s))

    def deliver_to_d(self, index: int, keep: bool = False) -> None:
        self.tell_d(self.to_d[index] if keep else self.to_d.pop(index))

    def answer_verify(self) -> None:
        if self.verify is not None:
            found = tuple(self.memory.get(block, 0) for block in self.verify.blocks)
            ok = found == self.verify.checksums
            self.verify = None
            self.tell_d(events.Verified(ok))

    def _act_d(self, todo: list[actions.ReceiveAction]) -> None:
        for action in todo:
            match action:
                case actions.Send(message):
                    assert isinstance(message, KvAck | KvAbort | KvRenew)
                    self.to_p.append(message)
                case actions.Verify():
                    self.verify = action
                case actions.Deliver():
                    for block in self.blocks:
                        assert self.memory.get(block) == content(block), "a wrong byte"
                    self._fate(action)
                case actions.FreeBlocks() | actions.Recompute():
                    assert not self.quarantined
                    self._fate(action)
                case actions.Quarantine():
                    assert not self.quarantined
                    self.quarantined = True
                case actions.EndQuarantine():
                    assert self.quarantined
                    self._fate(action)
                case actions.FailAttempt():
                    self.failed += 1
                case actions.FinishAttempt():
                    assert self.fates
                case actions.Ignored():
                    pass

    def _fate(self, action: object) -> None:
        self.fates.append(type(action).__name__)

    # ---- death, time, settling -----------------------------------------------------------------

    def kill_p(self) -> None:
        self.p_alive = False

    def kill_d(self) -> None:
        self.d_alive = False

    def prove_p_dead(self) -> None:
        """Reaped: its writes are over, and everybody is told."""
        assert not self.p_alive
        self.p_proven_dead = True
        self.writes.clear()
        self.tell_d(events.PeerLost(True))

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.tell_p(events.Tick())
        self.tell_d(events.Tick())

    def settle(self) -> None:
        """The network mends, the engine ends, deaths become known: everything must end."""
        if not self.p_alive and not self.p_proven_dead:
            self.prove_p_dead()
            self.check()
        if not self.d_alive:
            self.tell_p(events.PeerLost(True))
            self.check()
        for _ in range(200):
            self._settle_once()
            p_over = self.p is None or self.p.ended or not self.p_alive
            if p_over and (self.d.ended or not self.d_alive) and not self.to_p and not self.to_d:
                break
        self.check_settled()

    def _settle_once(self) -> None:
        while self.to_p:
            self.deliver_to_p(0)
            self.check()
        if self.p is not None and self.p.state is SendState.OFFERED:
            self.tell_p(events.Accept())
        self.compute(len(self.blocks))
        self.first_tokens(last=False)
        self.check()
        for number in list(self.writes):
            if number in self.writes:
                self.finish_write(number, ok=True)
            self.check()
        while self.to_d:
            self.deliver_to_d(0)
            self.check()
        if self.d.state is ReceiveState.VERIFYING:
            self.answer_verify()
        self.check()
        self.pass_time(LEASE_S / 4)
        self.check()
