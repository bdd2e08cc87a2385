"""A prefill and a decode worker made of their pure parts (role + scheduler), a gateway's ears and a
network whose every delivery is the test's choice. Memory is modelled, so that a token decoded from
the wrong bytes, or a block written to after it was given away, fails an assertion.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from core.config import EngineConfig
from core.cost_model import CostModel
from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId, WorkerName
from core.kv_layout import KvLayout
from core.request import Request, SampledToken
from core.sampling import SamplingParams
from core.slo import Slo
from decode_node.decode_role import DecodeRole
from engine import events as engine_events
from engine.scheduler import Scheduler
from engine.step_plan import Drawn, StepOutput, StepPlan
from kv_transfer.node_actions import (
    AddressGone,
    BlocksVerified,
    Checksummed,
    ComputeChecksums,
    FromEngine,
    FromPeer,
    NoteArrived,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    VerifyBlocks,
    WriteBlocks,
    WriteEnded,
)
from kv_transfer.note import decode_note
from prefill_node.prefill_role import PrefillRole
from wire.messages import AttemptFailed, Peer, Submit, TokenItem, Tokens, WorkerLost

LAYOUT = KvLayout(layers=1, kv_heads=1, head_dim=2, block_tokens=16, dtype="float32")
EOS = 7


def peer(name: str) -> Peer:
    return Peer(ProcessId(WorkerName(name), Incarnation(1)), f"tcp://{name}")


GATEWAY, P, D = peer("gateway"), peer("prefill-0"), peer("decode-0")


def token_at(attempt: Attempt, choice: int, position: int) -> int:
    """What the model of this world always draws there."""
    return 100 + (hash((attempt.request, choice, position)) % 1000)


def request(number: int, tokens: int, max_tokens: int = 4, choices: int = 1) -> Request:
    return Request(
        attempt=Attempt(RequestId(f"req-{number}"), Epoch(1)),
        prompt=tuple(range(tokens)),
        sampling=SamplingParams(max_tokens=max_tokens, choices=choices),
        slo=Slo(),
        deadline_left_ms=600_000.0,
    )


@dataclass
class Side:
    """One worker: its role, its scheduler, its memory, and the step that is running."""

    name: str
    role: Any
    scheduler: Scheduler
    memory: dict[int, tuple[Attempt, int] | None] = field(default_factory=dict)
    running: StepPlan | None = None
    threads: deque[Any] = field(default_factory=deque)
    """Checksum jobs under way; their answers are events for the role."""


class TwoWorkers:
    """Moves are methods; a test calls those of `moves()` in any order."""

    def __init__(self, *, blocks: int = 24, step_tokens: int = 32) -> None:
        self.now_s = 0.0
        config = EngineConfig(step_tokens=step_tokens, max_batch=8)
        schedulers = [
            Scheduler(
                config,
                cost=CostModel(),
                blocks=blocks,
                max_context=1_000,
                eos_token_ids=(EOS,),
            )
            for _ in range(2)
        ]
        self.p = Side(
            "P",
            PrefillRole(
                layout=LAYOUT,
                transport="memory",
                algorithm="sum",
                blocks_of=schedulers[0].blocks_of,
            ),
            schedulers[0],
        )
        self.d = Side(
            "D",
            DecodeRole(
                me=D,
                layout=LAYOUT,
                transport="memory",
                transport_address=b"d",
                algorithm="sum",
                lease_ms=4_000.0,
            ),
            schedulers[1],
        )
        self.wires: dict[tuple[str, str], deque[Any]] = {}
        self.writes: deque[WriteBlocks] = deque()
        self.tokens: dict[tuple[Attempt, int], dict[int, SampledToken]] = {}
        self.said: set[tuple[str, Attempt, int, int]] = set()
        self.failed: list[AttemptFailed] = []
        self.requests: dict[Attempt, Request] = {}
        self.stale = 0
        self.transfers_ended = 0
        self.p_alive = True

    # ---- what may happen -----------------------------------------------------------------------

    def submit(self, request: Request, *, local: bool = False) -> None:
        self.requests[request.attempt] = request
        order = Submit(request=request, gateway=GATEWAY, prefill=None if local else P)
        self.wires.setdefault((GATEWAY.address, D.address), deque()).append(order)

    def send_from_gateway(self, to: Peer, message: Any) -> None:
        self.wires.setdefault((GATEWAY.address, to.address), deque()).append(message)

    def moves(self) -> list[tuple[str, Any]]:
        """Everything that can happen next."""
        found: list[tuple[str, Any]] = [("deliver", k) for k, q in self.wires.items() if q]
        for side in self.sides():
            if side.running is not None:
                found.append(("finish_step", side))
            elif not side.scheduler.holds_nothing:
                found.append(("start_step", side))
            if side.threads:
                found.append(("finish_thread", side))
        if self.writes and self.p_alive:
            found.append(("land_write", None))
        return found

    def move(self, kind: str, what: Any) -> None:
        getattr(self, f"_{kind}")(*([] if what is None else [what]))
        self.check()

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        for side in self.sides():
            self._act(side, side.role.handle(RoleTick(), self.now_s))
        self.check()

    def kill_p(self, proven: bool) -> None:
        """P is gone; its writes in flight land no more once that is proven."""
        self.p_alive = False
        self.writes.clear()
        self.wires = {k: q for k, q in self.wires.items() if P.address not in k}
        lost = FromPeer(GATEWAY.process, WorkerLost(P.process, proven))
        self._act(self.d, self.d.role.handle(lost, self.now_s))
        self.check()

    def break_wire(self) -> None:
        """D's connection to P breaks: what was under way on it is lost, and D notices."""
        self.wires.pop((D.address, P.address), None)
        self._act(self.d, self.d.role.handle(AddressGone(P.address), self.now_s))
        self.check()

    def sides(self) -> list[Side]:
        return [self.p, self.d] if self.p_alive else [self.d]

    def check(self) -> None:
        for side in self.sides():
            side.scheduler.check_integrity()

    def run(self, limit: int = 5_000) -> None:
        """Let everything that can happen happen, in a fixed fair order."""
        for _ in range(limit):
            moved = False
            for kind, what in self.moves():
                if (kind, what) in self.moves():
                    self.move(kind, what)
                    moved = moved or kind != "start_step" or what.running is not None
            if not moved:
                return
        raise AssertionError("the world does not come to rest")

    def run_until_writes_wait(self) -> None:
        """A few rounds of everything but the writes: they stay in flight."""
        for _ in range(12):
            for kind, what in self.moves():
                if kind != "land_write" and (kind, what) in self.moves():
                    self.move(kind, what)
        assert self.writes

    # ---- moves ---------------------------------------------------------------------------------

    def _start_step(self, side: Side) -> None:
        side.running, actions = side.scheduler.plan(self.now_s)
        self._act(side, side.role.handle(FromEngine(tuple(actions)), self.now_s))

    def _finish_step(self, side: Side) -> None:
        plan, side.running = side.running, None
        assert plan is not None
        for source, target in plan.copies:
            side.memory[target] = side.memory.get(source)
        for chunk in plan.chunks:
            tokens = len(self.requests[chunk.attempt].prompt)
            for position in range(chunk.start, chunk.start + len(chunk.tokens)):
                index = position // 16
                side.memory[chunk.block_table[index]] = (chunk.attempt, index)
            for index in range(LAYOUT.blocks_for(min(tokens, chunk.start))):
                held = side.memory.get(chunk.block_table[index])
                assert held == (chunk.attempt, index), f"{side.name} attends to {held}"
        drawn = tuple(Drawn(token_at(s.attempt, s.choice, s.position)) for s in plan.samples())
        done = engine_events.StepDone(plan, StepOutput(drawn=drawn, seconds=0.01))
        actions = side.scheduler.handle(done, self.now_s)
        self._act(side, side.role.handle(FromEngine(tuple(actions)), self.now_s))

    def _finish_thread(self, side: Side) -> None:
        self._act(side, side.role.handle(side.threads.popleft(), self.now_s))

    def _land_write(self) -> None:
        write = self.writes.popleft()
        for local, remote in write.pairs:
            self.d.memory[remote] = self.p.memory.get(local)
        note = decode_note(write.note)
        self._act(self.d, self.d.role.handle(NoteArrived(note.attempt, note.blocks), self.now_s))
        ended = WriteEnded(write.attempt, write.number)
        self._act(self.p, self.p.role.handle(ended, self.now_s))

    def _deliver(self, wire: tuple[str, str]) -> None:
        source, target = wire
        message = self.wires[wire].popleft()
        if target == GATEWAY.address:
            self._hear(source, message)
            return
        side = self.p if target == P.address else self.d
        sender = {P.address: P, D.address: D, GATEWAY.address: GATEWAY}[source]
        if side is self.p and not self.p_alive:
            return
        self._act(side, side.role.handle(FromPeer(sender.process, message), self.now_s))

    def _hear(self, source: str, message: Any) -> None:
        if isinstance(message, AttemptFailed):
            self.failed.append(message)
        if isinstance(message, Tokens):
            for item in message.items:
                self._hear_token(source, item)

    def _hear_token(self, source: str, item: TokenItem) -> None:
        """Each worker says a token once; token 0 comes from P and, after the hand-over, from D."""
        sampled = item.sampled
        stream = self.tokens.setdefault((item.attempt, sampled.choice), {})
        said = (source, item.attempt, sampled.choice, sampled.position)
        assert said not in self.said, f"{item} a second time from {source}"
        self.said.add(said)
        assert sampled.token == token_at(item.attempt, sampled.choice, sampled.position)
        stream[sampled.position] = sampled

    # ---- what the roles ask for ----------------------------------------------------------------

    def _act(self, side: Side, actions: list[Any]) -> None:
        todo = deque(actions)
        me = P if side is self.p else D
        while todo:
            match todo.popleft():
                case SendTo(address, _) if address == P.address and not self.p_alive:
                    gone = AddressGone(P.address)
                    todo.extend(side.role.handle(gone, self.now_s))
                case SendTo(address, message):
                    self.wires.setdefault((me.address, address), deque()).append(message)
                case ToEngine(event):
                    told = side.scheduler.handle(event, self.now_s)
                    todo.extend(side.role.handle(FromEngine(tuple(told)), self.now_s))
                case ComputeChecksums(attempt, blocks):
                    sums = tuple(hash(side.memory.get(block)) for block in blocks)
                    side.threads.append(Checksummed(attempt, blocks, sums))
                case VerifyBlocks(attempt, blocks, checksums):
                    sums = tuple(hash(side.memory.get(block)) for block in blocks)
                    side.threads.append(BlocksVerified(attempt, sums == checksums))
                case WriteBlocks() as write:
                    self.writes.append(write)
                case Stale():
                    self.stale += 1
                case TransferEnded():
                    self.transfers_ended += 1

    def answer(self, attempt: Attempt, choice: int = 0) -> list[int]:
        stream = self.tokens.get((attempt, choice), {})
        assert sorted(stream) == list(range(len(stream))), f"gaps in {attempt}: {sorted(stream)}"
        return [stream[position].token for position in sorted(stream)]

    def complete(self, attempt: Attempt) -> bool:
        asked = self.requests[attempt].sampling
        return all(
            len(self.answer(attempt, choice)) == asked.max_tokens for choice in range(asked.choices)
        )

    def at_rest(self) -> None:
        """Nothing is held any more, by nobody."""
        for side in self.sides():
            load = side.scheduler.load()
            assert side.scheduler.holds_nothing, f"{side.name} still holds something"
            assert load.blocks_owned == load.blocks_receiving == load.blocks_quarantined == 0
            assert side.role.open_transfers == 0
