"""Whatever happens in whatever order, the router keeps its promises; a replay decides alike."""

from collections import Counter

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.ids import ProcessId
from router.events import Action, Event, FromPeer, PeerGone, Send, Tick
from router.router import Router
from tests.router.world import (
    GATEWAY,
    LAUNCHER,
    ROUTER,
    ask,
    beat,
    card,
    config,
    pool,
    process,
    register,
    route,
)
from wire.messages import (
    Assignment,
    Leaving,
    ProcessExited,
    Refusal,
    Registered,
    Role,
    RoutePath,
    Settled,
    Subscribe,
    WorkerCard,
    WorkerLoad,
    WorkerLost,
)

TREE = config(
    pool("prefill", low=64),
    pool("decode-short", high=400),
    pool("decode-long", low=300),
    pool("both", low=1_000),
)
SPANS = {"prefill": (64, 10**6), "decode-short": (1, 400), "decode-long": (300, 10**6)} | {
    "both": (1_000, 10**6)
}
NAMES = [f"{name}-{number}" for name in SPANS for number in (0, 1)]
BLOCKS = {"prefill": 50, "decode-short": 40, "decode-long": 100, "both": 120}
DEAD_AFTER_S = TREE.router.dead_after_ms / 1e3
TICK_S = 0.25


class RouterMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.router = Router(process=ROUTER, config=TREE)
        self.now_s = 0.0
        self.log: list[tuple[Event, float, list[Action]]] = []
        self.cards: dict[str, WorkerCard] = {}
        """The newest life of each worker that has registered."""
        self.heard_s: dict[ProcessId, float] = {}
        self.leaving: set[ProcessId] = set()
        self.proven: set[ProcessId] = set()
        self.reported: Counter[tuple[ProcessId, bool]] = Counter()
        self.losses_allowed: Counter[ProcessId] = Counter()
        self.told: dict[str, set[ProcessId]] = {}
        """Whose proven ends have reached a worker's address since it joined."""
        self.cut_off: set[str] = set()
        """Addresses that nothing reaches for now."""
        self.open: list[int] = []
        self.requests = 0
        self.feed(FromPeer(GATEWAY.process, Subscribe(GATEWAY)))
        self.feed(Tick())
        for name in NAMES:
            self.come(name, reborn=False)

    def feed(self, event: Event) -> list[Action]:
        actions = self.router.handle(event, self.now_s)
        self.log.append((event, self.now_s, actions))
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, WorkerLost):
                self.note_loss(action.address, action.message)
        return actions

    def note_loss(self, address: str, lost: WorkerLost) -> None:
        if address == GATEWAY.address:
            self.reported[lost.process, lost.proven] += 1
        elif lost.proven and address not in self.cut_off:
            self.told.setdefault(address, set()).add(lost.process)

    # ---- what happens --------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), reborn=st.booleans())
    def come(self, name: str, reborn: bool) -> None:
        known = self.cards.get(name)
        incarnation = 1 if known is None else known.peer.process.incarnation + reborn
        mine = card(name, incarnation, blocks=BLOCKS[name.rsplit("-", 1)[0]])
        self.cut_off.discard(mine.peer.address)
        actions = self.feed(register(mine))
        who = mine.peer.process
        welcome = Send(mine.peer.address, Registered(ROUTER)) in actions
        assert welcome == (who not in self.proven)
        if not welcome:
            return
        if known is not None and known.peer.process != who:
            self.proven.add(known.peer.process)
        self.cards[name] = mine
        self.heard_s[who] = self.now_s
        # Each time it joins it may be lost once more.
        self.losses_allowed[who] += 1

    @precondition(lambda self: self.cards)
    @rule(data=st.data(), queued=st.integers(0, 30_000), free=st.integers(0, 120))
    def beat(self, data: st.DataObject, queued: int, free: int) -> None:
        mine = self.cards[data.draw(st.sampled_from(sorted(self.cards)))]
        load = WorkerLoad(prefill_tokens_queued=queued, blocks_free=free, running=1)
        before = self.now_s - self.heard_s[mine.peer.process]
        self.cut_off.discard(mine.peer.address)
        self.feed(beat(mine, load))
        if before < DEAD_AFTER_S:
            self.heard_s[mine.peer.process] = self.now_s

    @rule(seconds=st.sampled_from([0.25, 1.0, 2.0]))
    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.now_s += TICK_S
            self.feed(Tick())
            self.feed(FromPeer(GATEWAY.process, Subscribe(GATEWAY)))

    @rule(seconds=st.sampled_from([1.0, 2.0, 4.0]))
    def wait_while_all_beat(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.wait(TICK_S)
            for mine in list(self.cards.values()):
                if self.now_s - self.heard_s[mine.peer.process] < DEAD_AFTER_S:
                    self.cut_off.discard(mine.peer.address)
                    self.feed(beat(mine))
                    self.heard_s[mine.peer.process] = self.now_s

    @rule(name=st.sampled_from(NAMES), incarnation=st.integers(1, 3))
    def exit(self, name: str, incarnation: int) -> None:
        self.feed(FromPeer(LAUNCHER, ProcessExited(process(name, incarnation))))
        self.proven.add(process(name, incarnation))

    @precondition(lambda self: self.cards)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        who = self.cards[data.draw(st.sampled_from(sorted(self.cards)))].peer.process
        self.feed(FromPeer(who, Leaving()))
        self.leaving.add(who)

    @precondition(lambda self: self.cards)
    @rule(data=st.data())
    def break_connection(self, data: st.DataObject) -> None:
        mine = self.cards[data.draw(st.sampled_from(sorted(self.cards)))]
        self.told.pop(mine.peer.address, None)
        self.cut_off.add(mine.peer.address)
        self.feed(PeerGone(mine.peer.address))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        number = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.feed(FromPeer(GATEWAY.process, Settled(route(f"r{number}").attempt)))

    @rule(
        prompt=st.integers(1, 2_500),
        max_tokens=st.integers(1, 300),
        path=st.sampled_from(RoutePath),
        avoid=st.lists(st.sampled_from(NAMES), max_size=2),
    )
    def ask(self, prompt: int, max_tokens: int, path: RoutePath, avoid: list[str]) -> None:
        self.requests += 1
        wanted = route(
            f"r{self.requests}",
            prompt=prompt,
            max_tokens=max_tokens,
            path=path,
            avoid=tuple(process(name) for name in avoid),
        )
        (action,) = self.feed(ask(wanted))
        assert isinstance(action, Send)
        assert action.address == GATEWAY.address
        made = action.message
        if isinstance(made, Refusal):
            assert made.retry_after_s >= 0.0
            return
        assert isinstance(made, Assignment)
        self.open.append(self.requests)
        decode = self.chosen(made.decode.process, Role.DECODE, prompt)
        assert prompt + max_tokens <= decode.blocks_total * 16 + 1
        if made.prefill is None:
            assert path is not RoutePath.REMOTE
        else:
            assert path is not RoutePath.LOCAL
            assert made.prefill != made.decode
            prefill = self.chosen(made.prefill.process, Role.PREFILL, prompt)
            assert prompt <= prefill.blocks_total * 16

    # ---- what must hold ------------------------------------------------------------------------

    def chosen(self, who: ProcessId, role: Role, prompt: int) -> WorkerCard:
        """Its card, if this worker may get this work."""
        mine = self.cards[who.name]
        assert mine.peer.process == who, "an older life"
        assert who not in self.proven, "proven dead"
        assert who not in self.leaving, "draining"
        assert self.now_s - self.heard_s[who] < DEAD_AFTER_S, "dead by silence"
        assert role in mine.roles
        low, high = SPANS[mine.pool]
        assert low <= prompt <= high, "against its pool's rule"
        return mine

    @invariant()
    def sound(self) -> None:
        self.router.check_integrity()

    @invariant()
    def losses_are_told_once(self) -> None:
        for (who, proven), times in self.reported.items():
            if proven:
                assert times == 1
                assert who in self.proven
            else:
                assert times <= self.losses_allowed[who]
        for who in self.proven:
            assert self.reported[who, True] == 1

    @invariant()
    def whoever_listens_knows_all_the_dead(self) -> None:
        for mine in self.cards.values():
            who, address = mine.peer.process, mine.peer.address
            silent = self.now_s - self.heard_s[who] >= DEAD_AFTER_S
            if who in self.proven or who in self.leaving or silent or address in self.cut_off:
                continue
            assert self.told.get(address, set()) >= self.proven

    @invariant()
    def the_silent_are_lost(self) -> None:
        for mine in self.cards.values():
            who = mine.peer.process
            silent = self.now_s - self.heard_s[who] >= DEAD_AFTER_S
            if silent and who not in self.proven:
                assert self.reported[who, False] >= 1

    def teardown(self) -> None:
        again = Router(process=ROUTER, config=TREE)
        for event, now_s, actions in self.log:
            assert again.handle(event, now_s) == actions


TestRouterMachine = RouterMachine.TestCase
TestRouterMachine.settings = settings(max_examples=60, stateful_step_count=50)
