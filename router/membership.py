"""Who belongs to the deployment, by registration, heartbeats and the launcher's word.

Pure: events and `now_s` in, actions out. The stages and their moves are
`core/member_lifecycle.py`. Incarnations are random, so an older life is told from a newer one by
memory: what was proven gone is remembered, and what it still says is stale.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from core.config import PoolConfig, RouterConfig
from core.errors import IndexCorrupt
from core.ids import ProcessId, WorkerName
from core.kv_layout import KvLayout
from core.lifecycle import Lifecycle
from core.member_lifecycle import MEMBER_TABLE, MemberAction, MemberEvent, MemberStage
from core.recent import RecentSet
from router.events import Event, FromPeer, PeerGone, Tick
from router.pools import ROLES_OF
from wire.messages import (
    Heartbeat,
    Leaving,
    MemberState,
    MemberView,
    ProcessExited,
    Register,
    WorkerCard,
    WorkerLoad,
)

REMEMBERED_LIVES = 4_096
REPEATED_PROOFS = 256
"""So many of the latest proven ends are told to whoever joins or comes back: far more processes
than end while one of them is out of reach, and little to send."""
FORGET_GONE_S = 60.0
"""How long a worker that is proven gone, and not replaced, stays in the members' list."""
STALL_S = 0.5
"""Ticks further apart than this mean that the router itself was stopped; that time is nobody's
silence."""

_STATE_OF: dict[MemberStage, MemberState] = {
    MemberStage.ALIVE: MemberState.ALIVE,
    MemberStage.SUSPECT: MemberState.SUSPECT,
    MemberStage.DRAINING: MemberState.DRAINING,
    MemberStage.LOST: MemberState.DEAD,
    MemberStage.LOST_DRAINING: MemberState.DEAD,
    MemberStage.GONE: MemberState.DEAD,
}
_DEAD = frozenset({MemberStage.LOST, MemberStage.LOST_DRAINING, MemberStage.GONE})


@dataclass(frozen=True, slots=True)
class Joined:
    """Accepted, or accepted again with a newer card: answer Registered, repeat what is proven,
    start counting its load."""

    card: WorkerCard


@dataclass(frozen=True, slots=True)
class Returned:
    """Suspect no longer: repeat what is proven."""

    address: str


@dataclass(frozen=True, slots=True)
class Refused:
    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class AskReregister:
    address: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Tell all others. At most one unproven per loss, and one proven per process; who can't hear
    it now is reminded later (Joined, Returned)."""

    process: ProcessId
    proven: bool
    address: str = ""
    """Where it listened; empty if it was never met here."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A member came or went or stands elsewhere: the gateways want to know."""


MemberChange = Joined | Returned | Refused | AskReregister | Lost | Changed


@dataclass(frozen=True, slots=True)
class Identity:
    """What all workers of a deployment share; the first to register sets it."""

    model: str
    fingerprint: str
    max_context: int
    layout: KvLayout

    @classmethod
    def of(cls, card: WorkerCard) -> "Identity":
        return cls(card.model, card.fingerprint, card.max_context, card.layout)

    def differences(self, other: "Identity") -> list[str]:
        """Each differing value, as `name: theirs here, ours in the deployment`."""
        pairs: list[tuple[str, object, object]] = [
            (name, getattr(other, name), getattr(self, name))
            for name in ("model", "fingerprint", "max_context")
        ]
        pairs += [
            (f"layout.{f.name}", getattr(other.layout, f.name), getattr(self.layout, f.name))
            for f in fields(KvLayout)
        ]
        return [
            f"{name}: {theirs} here, {ours} in the deployment"
            for name, theirs, ours in pairs
            if theirs != ours
        ]


class Member:
    """One incarnation of a worker, as long as it is remembered under its name."""

    __slots__ = ("card", "last_heard_s", "life", "load")

    def __init__(self, card: WorkerCard, now_s: float) -> None:
        self.card = card
        self.load = WorkerLoad(blocks_free=card.blocks_total)
        self.last_heard_s = now_s
        self.life = Lifecycle(MEMBER_TABLE, subject=str(card.peer.process))

    @property
    def process(self) -> ProcessId:
        return self.card.peer.process

    @property
    def address(self) -> str:
        return self.card.peer.address

    @property
    def stage(self) -> MemberStage:
        return self.life.state

    @property
    def dead(self) -> bool:
        return self.life.state in _DEAD

    @property
    def state(self) -> MemberState:
        return _STATE_OF[self.life.state]

    def view(self) -> MemberView:
        return MemberView(self.card, self.load, self.state)


class Membership:
    """All members by name, at most one incarnation each.

    Invariants (`check_integrity`): a name's member is its card's; a member stands as GONE if and
    only if its end was proven; a listed address is that of a member who isn't gone.
    """

    def __init__(self, config: RouterConfig, pools: Mapping[str, PoolConfig]) -> None:
        self._suspect_after_s = config.suspect_after_ms / 1e3
        self._dead_after_s = config.dead_after_ms / 1e3
        self._pools = pools
        self._members: dict[WorkerName, Member] = {}
        self._by_address: dict[str, WorkerName] = {}
        self._proven: RecentSet[ProcessId] = RecentSet(REMEMBERED_LIVES)
        self._last_tick_s: float | None = None
        self.identity: Identity | None = None
        self.stale_total = 0
        """Messages from processes that were proven gone."""
        self.unexpected_total = 0
        """Messages that contradict themselves or make no sense here."""

    def handle(self, event: Event, now_s: float) -> list[MemberChange]:
        match event:
            case Tick():
                return self._tick(now_s)
            case PeerGone(address):
                return self._peer_gone(address, now_s)
            case FromPeer(_, ProcessExited(process)):
                return self._exited(process, now_s, "reaped by its launcher")
            case FromPeer(sender, Register(card)):
                return self._register(sender, card, now_s)
            case FromPeer(sender, Heartbeat() as beat):
                return self._beat(sender, beat, now_s)
            case FromPeer(sender, Leaving()):
                return self._leaving(sender, now_s)
        self.unexpected_total += 1
        return []

    def members(self) -> Iterable[Member]:
        """Every member remembered, the dead among them, in order of joining."""
        return self._members.values()

    def live(self) -> list[Member]:
        """Members that aren't dead: alive, suspect or draining."""
        return [member for member in self._members.values() if not member.dead]

    def member(self, process: ProcessId) -> Member | None:
        """The member in exactly this incarnation."""
        member = self._members.get(process.name)
        return member if member is not None and member.process == process else None

    def proven(self) -> list[ProcessId]:
        """The latest REPEATED_PROOFS processes whose end is proven, oldest first."""
        return self._proven.newest(REPEATED_PROOFS)

    # ---- events --------------------------------------------------------------------------------

    def _register(self, sender: ProcessId, card: WorkerCard, now_s: float) -> list[MemberChange]:
        if card.peer.process != sender:
            self.unexpected_total += 1
            return []
        if sender in self._proven:
            self.stale_total += 1
            return [Refused(card.peer.address, f"{sender} was ended or replaced; start anew")]
        reason = self._objection(card)
        if reason:
            return [Refused(card.peer.address, reason)]
        self.identity = self.identity or Identity.of(card)
        changes: list[MemberChange] = []
        older = self._members.get(sender.name)
        if older is not None and older.process != sender:
            changes += self._exited(older.process, now_s, f"replaced by {sender}")
            older = None
        if older is None:
            member = self._members[sender.name] = Member(card, now_s)
            changes.append(Changed())
        else:
            member = older
            self._unlist_address(member)
            if member.card != card:
                changes.append(Changed())
            member.card = card
        self._by_address[member.address] = sender.name
        member.last_heard_s = now_s
        return changes + self._fire(member, MemberEvent.REGISTER, now_s)

    def _objection(self, card: WorkerCard) -> str:
        """Why this worker can't be had; empty if it can."""
        pool = self._pools.get(card.pool)
        if pool is None:
            return f"pool: {card.pool} here, one of {', '.join(self._pools)} in the deployment"
        if frozenset(card.roles) != ROLES_OF[pool.role]:
            here = "+".join(sorted(card.roles))
            there = "+".join(sorted(ROLES_OF[pool.role]))
            return f"roles of pool '{pool.name}': {here} here, {there} in the deployment"
        if self.identity is None:
            return ""
        return "; ".join(self.identity.differences(Identity.of(card)))

    def _beat(self, sender: ProcessId, beat: Heartbeat, now_s: float) -> list[MemberChange]:
        member = self.member(sender)
        if sender in self._proven:
            self.stale_total += 1
            return []
        if member is None:
            return [AskReregister(beat.address)]
        member.load = beat.load
        member.last_heard_s = now_s
        return self._fire(member, MemberEvent.BEAT, now_s)

    def _leaving(self, sender: ProcessId, now_s: float) -> list[MemberChange]:
        member = self.member(sender)
        if member is None or member.stage is MemberStage.GONE:
            self.stale_total += 1
            return []
        return self._fire(member, MemberEvent.LEAVE, now_s)

    def _exited(self, process: ProcessId, now_s: float, why: str) -> list[MemberChange]:
        if process in self._proven:
            return []
        self._proven.add(process)
        member = self.member(process)
        if member is None:
            # Never met here (this router may be younger than the process), yet others may keep
            # blocks in quarantine until they hear of its end.
            return [Lost(process, proven=True)]
        member.last_heard_s = now_s
        return self._fire(member, MemberEvent.EXITED, now_s, why)

    def _peer_gone(self, address: str, now_s: float) -> list[MemberChange]:
        name = self._by_address.get(address)
        if name is None:
            return []
        return self._fire(self._members[name], MemberEvent.PEER_GONE, now_s, "connection broke")

    def _tick(self, now_s: float) -> list[MemberChange]:
        self._forgive_stall(now_s)
        changes: list[MemberChange] = []
        for member in list(self._members.values()):
            silence_s = now_s - member.last_heard_s
            if member.stage is MemberStage.GONE:
                if silence_s >= FORGET_GONE_S:
                    del self._members[member.process.name]
                    changes.append(Changed())
            elif silence_s >= self._dead_after_s:
                changes += self._fire(member, MemberEvent.SILENT, now_s)
            elif silence_s >= self._suspect_after_s:
                changes += self._fire(member, MemberEvent.LATE, now_s)
        return changes

    def _forgive_stall(self, now_s: float) -> None:
        """Time in which this router didn't run can't be held against those who spoke to it: their
        heartbeats wait in its sockets."""
        gap_s = 0.0 if self._last_tick_s is None else now_s - self._last_tick_s
        self._last_tick_s = now_s
        if gap_s > STALL_S:
            for member in self._members.values():
                member.last_heard_s = min(now_s, member.last_heard_s + gap_s)

    # ---- moves ---------------------------------------------------------------------------------

    def _fire(
        self, member: Member, event: MemberEvent, now_s: float, why: str = ""
    ) -> list[MemberChange]:
        before = member.stage
        if MEMBER_TABLE.rows.get((before, event)) == (before, ()):
            return []  # not told, or heartbeats would fill the story
        changes: list[MemberChange] = []
        for action in member.life.fire(event, now_s, why):
            match action:
                case MemberAction.WELCOME:
                    changes.append(Joined(member.card))
                case MemberAction.REMIND:
                    changes.append(Returned(member.address))
                case MemberAction.ASK_REREGISTER:
                    changes.append(AskReregister(member.address))
                case MemberAction.REPORT_LOST:
                    changes.append(Lost(member.process, False, member.address))
                case MemberAction.REPORT_PROVEN:
                    changes.append(Lost(member.process, True, member.address))
        if member.stage is MemberStage.GONE:
            self._unlist_address(member)
        if _STATE_OF[before] is not member.state:
            changes.append(Changed())
        return changes

    def _unlist_address(self, member: Member) -> None:
        if self._by_address.get(member.address) == member.process.name:
            del self._by_address[member.address]

    def check_integrity(self) -> None:
        """Raises:
        IndexCorrupt: an invariant of the class is broken.
        """
        for name, member in self._members.items():
            if member.process.name != name:
                raise IndexCorrupt(f"member {member.process} is listed as {name}")
            if (member.stage is MemberStage.GONE) != (member.process in self._proven):
                raise IndexCorrupt(f"{member.process} is {member.stage} against the proofs")
        for address, name in self._by_address.items():
            listed = self._members.get(name)
            if listed is None or listed.address != address or listed.stage is MemberStage.GONE:
                raise IndexCorrupt(f"{address} is listed for {name}, which isn't there")
