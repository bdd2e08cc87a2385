"""The router: who serves what. Pure: events and `now_s` in, messages out.

The same events at the same times give the same messages, so a recorded event log replays every
decision (`router/events.py` has the events).
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from core.config import Config
from core.ids import ProcessId
from router.admission import Declined
from router.candidate import Candidate
from router.demand import Demand
from router.events import Action, Event, Forget, FromPeer, PeerGone, Send, Tick
from router.load_view import LoadView, Placement
from router.membership import (
    AskReregister,
    Changed,
    Joined,
    Lost,
    MemberChange,
    Membership,
    Refused,
    Returned,
)
from router.policy import Choice, LeastTtft, Policy
from router.pools import Pools
from router.subscribers import Subscribers
from wire.messages import (
    Assignment,
    Heartbeat,
    Leaving,
    Members,
    MemberState,
    ProcessExited,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    RegisterRefused,
    Reregister,
    Role,
    Route,
    Settled,
    Subscribe,
    WorkerLost,
)

MEMBERS_EVERY_S = 0.5
EXPIRE_EVERY_S = 1.0


class Outcome(StrEnum):
    """What became of a Route."""

    REMOTE = "remote"
    LOCAL = "local"
    OVERLOADED = "overloaded"
    NO_WORKER = "no_worker"
    TOO_LONG = "too_long"
    STALE = "stale"
    """An older attempt of a request that is placed already: not answered."""


_OUTCOME_OF = {
    RefusalKind.OVERLOADED: Outcome.OVERLOADED,
    RefusalKind.NO_WORKER: Outcome.NO_WORKER,
    RefusalKind.TOO_LONG: Outcome.TOO_LONG,
}


class Router:
    """Membership, load view, pools and policy behind one `handle`.

    Raises (when made):
        ConfigError: the pools leave a hole (see `router/pools.py`).
    """

    def __init__(self, *, process: ProcessId, config: Config, policy: Policy | None = None) -> None:
        self._process = process
        self._config = config
        self.pools = Pools(config)
        self.membership = Membership(config.router, self.pools.by_name)
        # A heartbeat earlier than this may have left the worker before the request came to it.
        self.loads = LoadView(covered_after_s=config.router.heartbeat_ms / 1e3)
        self._subscribers = Subscribers()
        self._policy = policy or LeastTtft(config.router)
        self._candidates: dict[int, tuple[list[Candidate], list[Candidate]]] = {}
        """Per segment of prompt lengths: for prefill, for decode. Filled when needed, emptied when
        the members change."""
        self._members_sent_s = 0.0
        self._expired_s = 0.0
        self.outcomes: Counter[Outcome] = Counter()
        self.expired_total = 0
        """Requests that nobody settled by their deadline."""
        self.stale_total = 0
        """Settlements of attempts that aren't counted (any more)."""
        self.unexpected_total = 0
        """Messages that the router isn't the right one for."""

    def handle(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case FromPeer(_, Route() as route):
                return self._route(route, now_s)
            case FromPeer(_, Settled(attempt)):
                self.stale_total += not self.loads.settle(attempt, now_s)
                return []
            case FromPeer(_, Subscribe(peer)):
                fresh, replaced = self._subscribers.subscribe(peer, now_s)
                if replaced is not None:
                    self.loads.forget_gateway(replaced)
                if not fresh:
                    return []
                return [Send(peer.address, self._members()), *self._proofs_for(peer.address)]
            case FromPeer(sender, Heartbeat(load)):
                changes = self.membership.handle(event, now_s)
                self.loads.heartbeat(sender, load, now_s)
                return self._carry_out(changes, now_s)
            case FromPeer(_, ProcessExited(process)):
                if self._subscribers.remove(process):
                    self.loads.forget_gateway(process)
                return self._carry_out(self.membership.handle(event, now_s), now_s)
            case FromPeer(_, Register() | Leaving()):
                return self._carry_out(self.membership.handle(event, now_s), now_s)
            case PeerGone(address):
                self._subscribers.peer_gone(address)
                return self._carry_out(self.membership.handle(event, now_s), now_s)
            case Tick():
                return self._tick(now_s)
        self.unexpected_total += 1
        return []

    # ---- routes --------------------------------------------------------------------------------

    def _route(self, route: Route, now_s: float) -> list[Action]:
        older = self.loads.placement(route.attempt.request)
        if older is not None:
            if older.attempt.epoch > route.attempt.epoch:
                self.outcomes[Outcome.STALE] += 1
                return []
            self.loads.forget(route.attempt.request)
        prefill, decode = self._candidates_for(route.prompt_tokens)
        decision = self._policy.choose(route, prefill, decode)
        answer: Assignment | Refusal
        if isinstance(decision, Declined):
            self.outcomes[_OUTCOME_OF[decision.kind]] += 1
            answer = Refusal(
                attempt=route.attempt,
                kind=decision.kind,
                reason=decision.reason,
                retry_after_s=decision.retry_after_s,
            )
        else:
            answer = self._assign(route, decision, now_s)
        return [Send(route.gateway.address, answer)]

    def _assign(self, route: Route, choice: Choice, now_s: float) -> Assignment:
        remote = choice.prefill
        self.outcomes[Outcome.LOCAL if remote is None else Outcome.REMOTE] += 1
        self.loads.place(
            Placement(
                attempt=route.attempt,
                gateway=route.gateway.process,
                decode=choice.decode.process,
                prefill=None if remote is None else remote.process,
                prompt_tokens=route.prompt_tokens,
                choices=route.choices,
                blocks=Demand.of(route, choice.decode.card).begin_blocks,
                assigned_s=now_s,
                expires_s=now_s + route.deadline_left_ms / 1e3,
            )
        )
        return Assignment(
            attempt=route.attempt,
            decode=choice.decode.card.peer,
            prefill=None if remote is None else remote.card.peer,
            predicted_ttft_ms=choice.ttft_s * 1e3,
            predicted_tpot_ms=choice.tpot_s * 1e3,
        )

    def _candidates_for(self, prompt_tokens: int) -> tuple[list[Candidate], list[Candidate]]:
        index = self.pools.index_of(prompt_tokens)
        found = self._candidates.get(index)
        if found is None:
            segment = self.pools.segments[index]
            found = self._candidates[index] = (
                self._candidates_in(segment.prefill, Role.PREFILL),
                self._candidates_in(segment.decode, Role.DECODE),
            )
        return found

    def _candidates_in(self, pools: tuple[str, ...], role: Role) -> list[Candidate]:
        candidates = []
        for member in self.membership.live():
            card = member.card
            takes_work = member.state in (MemberState.ALIVE, MemberState.SUSPECT)
            if not takes_work or card.pool not in pools or role not in card.roles:
                continue
            engine = self._config.engine_of(self.pools.by_name[card.pool])
            candidates.append(
                Candidate(
                    card=card,
                    state=member.state,
                    figures=self.loads.figures(member.process),
                    max_batch=engine.max_batch,
                    step_tokens=engine.step_tokens,
                )
            )
        return sorted(candidates, key=lambda c: c.process.name)

    # ---- members -------------------------------------------------------------------------------

    def _carry_out(self, changes: list[MemberChange], now_s: float) -> list[Action]:
        actions: list[Action] = []
        for change in changes:
            match change:
                case Joined(card):
                    self.loads.add_worker(card)
                    self._candidates.clear()
                    actions.append(Send(card.peer.address, Registered(self._process)))
                    actions += self._proofs_for(card.peer.address)
                case Returned(address):
                    actions += self._proofs_for(address)
                case Refused(address, reason):
                    actions.append(Send(address, RegisterRefused(reason)))
                case AskReregister(address):
                    actions.append(Send(address, Reregister()))
                case Lost():
                    actions += self._lost(change)
                case Changed():
                    self._candidates.clear()
        if any(isinstance(change, Changed) for change in changes):
            actions += self._send_members(now_s)
        return actions

    def _lost(self, lost: Lost) -> list[Action]:
        self.loads.remove_worker(lost.process)
        self._candidates.clear()
        others = [m.address for m in self.membership.live() if m.process != lost.process]
        actions: list[Action] = [
            Send(address, WorkerLost(lost.process, lost.proven))
            for address in (*self._subscribers.addresses(), *others)
        ]
        if lost.address and lost.address not in others:
            actions.append(Forget(lost.address))
        return actions

    def _proofs_for(self, address: str) -> list[Action]:
        """For whoever may have missed them: the launcher tells a restarted router before anybody
        has joined it, and a broken connection drops what waits in it. Hearing of an end twice
        changes nothing, never hearing of it keeps blocks in quarantine for ever."""
        return [Send(address, WorkerLost(dead, True)) for dead in self.membership.proven()]

    def _tick(self, now_s: float) -> list[Action]:
        actions = self._carry_out(self.membership.handle(Tick(), now_s), now_s)
        for gateway in self._subscribers.expire(now_s):
            self.loads.forget_gateway(gateway.process)
            actions.append(Forget(gateway.address))
        if now_s - self._expired_s >= EXPIRE_EVERY_S:
            self._expired_s = now_s
            self.expired_total += self.loads.expire(now_s)
        if now_s - self._members_sent_s >= MEMBERS_EVERY_S:
            actions += self._send_members(now_s)
        return actions

    def _send_members(self, now_s: float) -> list[Action]:
        self._members_sent_s = now_s
        addresses = self._subscribers.addresses()
        if not addresses:
            return []
        members = self._members()
        return [Send(address, members) for address in addresses]

    def _members(self) -> Members:
        return Members(tuple(member.view() for member in self.membership.members()))

    # ---- what it knows -------------------------------------------------------------------------

    def totals(self) -> Mapping[str, int]:
        """Counters since the start, by name."""
        return {
            **{f"routes_{outcome}": self.outcomes[outcome] for outcome in Outcome},
            "expired": self.expired_total,
            "stale": self.stale_total + self.membership.stale_total,
            "unexpected": self.unexpected_total + self.membership.unexpected_total,
        }

    def check_integrity(self) -> None:
        """Raises:
        IndexCorrupt: the members or the loads contradict themselves.
        """
        self.membership.check_integrity()
        self.loads.check_integrity()
