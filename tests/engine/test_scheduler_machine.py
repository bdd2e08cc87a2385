"""Any order of events, at any moment of a step: every attempt ends once, with the right tokens.

The runner's KV pool holds tokens, and stray writes of "peers" land wherever they are allowed to, so
a block with two users shows as another answer.
"""

import dataclasses
from collections.abc import Callable

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.ids import Attempt
from core.request import Request
from engine import actions as act, events as ev
from engine.block_pool import BlockState
from tests.engine.engine_cases import (
    Harness,
    TokenRunner,
    expected_answer,
    make_harness,
    make_request,
)

BLOCKS = 14
STRAY = 5
"""What a peer writes where it shouldn't any more; no token of the tests."""


@dataclasses.dataclass
class Tracked:
    """One attempt as the test sees it."""

    request: Request
    kind: type[ev.AddPrefill] | type[ev.AddLocal] | type[ev.Reserve]
    blocks: tuple[int, ...] = ()
    fate: str = ""
    """delivered, recomputed, dropped, quarantined, released; empty while nothing happened."""
    first: int = 0
    """Position of the first token to be emitted here."""
    prefill_done: bool = False


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness: Harness[TokenRunner] = make_harness(
            BLOCKS, max_batch=5, step_tokens=48, watermark=0.1, max_context=120
        )
        self.all: dict[Attempt, Tracked] = {}

    # ---- what may happen -----------------------------------------------------------------------

    @rule(
        kind=st.sampled_from([ev.AddPrefill, ev.AddLocal, ev.Reserve]),
        prompt=st.sampled_from([1, 5, 15, 16, 17, 31, 32, 40, 70]),
        max_tokens=st.sampled_from([1, 2, 16, 17, 40]),
        choices=st.sampled_from([1, 1, 1, 2, 3]),
        deadline_ms=st.sampled_from([100.0, 5_000.0, 60_000.0]),
        ignore_eos=st.booleans(),
        done=st.lists(st.sampled_from([None, 0, 1, 3, 18]), min_size=3, max_size=3),
    )
    def add(
        self,
        kind: type[ev.AddPrefill] | type[ev.AddLocal] | type[ev.Reserve],
        prompt: int,
        max_tokens: int,
        choices: int,
        deadline_ms: float,
        ignore_eos: bool,
        done: list[int | None],
    ) -> None:
        request = make_request(
            len(self.all),
            prompt,
            max_tokens=max_tokens,
            choices=choices,
            deadline_ms=deadline_ms,
            ignore_eos=ignore_eos,
        )
        if any(done):
            request = self._resumed(request, done)
        self.all[request.attempt] = Tracked(request, kind)
        self._note(self.harness.post(kind(request)))

    @rule(pick=st.integers(0, 99), stray=st.booleans())
    def deliver(self, pick: int, stray: bool) -> None:
        tracked = self._pick(pick, lambda t: bool(t.blocks) and not t.fate)
        if tracked is None:
            return
        if stray:
            self.harness.runner.write(tracked.blocks, 0, [STRAY] * 16)
        tracked.fate = "delivered"
        tracked.first = 1
        self._note(self.harness.deliver(tracked.request, tracked.blocks))

    @rule(pick=st.integers(0, 99))
    def recompute(self, pick: int) -> None:
        tracked = self._pick(pick, lambda t: t.kind is ev.Reserve and not t.fate)
        if tracked is None:
            return
        if tracked.blocks:
            self.harness.runner.write(tracked.blocks, 0, [STRAY] * 16)
        tracked.fate = "recomputed"
        self._note(self.harness.post(ev.Recompute(tracked.request.attempt)))

    @rule(pick=st.integers(0, 99))
    def abort(self, pick: int) -> None:
        tracked = self._pick(pick, lambda t: True)
        if tracked is not None:
            # The life of a quarantine isn't the abort's to end.
            tracked.fate = "dropped" if tracked.fate != "quarantined" else tracked.fate
            self._note(self.harness.post(ev.Abort(tracked.request.attempt)))

    @rule(pick=st.integers(0, 99))
    def quarantine(self, pick: int) -> None:
        tracked = self._pick(pick, lambda t: not t.fate and t.kind is not ev.AddPrefill)
        if tracked is not None:
            fenced = bool(tracked.blocks)
            tracked.fate = "quarantined" if fenced else "dropped"
            self._note(self.harness.post(ev.Quarantine(tracked.request.attempt)))

    @rule(pick=st.integers(0, 99))
    def end_quarantine(self, pick: int) -> None:
        tracked = self._pick(pick, lambda t: t.fate == "quarantined")
        if tracked is not None:
            tracked.fate = "dropped"
            self._note(self.harness.post(ev.EndQuarantine(tracked.request.attempt)))

    @rule(pick=st.integers(0, 99))
    def stray_write(self, pick: int) -> None:
        """A peer writes to blocks that are receiving or in quarantine, as it may."""
        tracked = self._pick(pick, lambda t: bool(t.blocks) and t.fate in ("", "quarantined"))
        if tracked is not None:
            self.harness.runner.write(tracked.blocks, 0, [STRAY] * len(tracked.blocks) * 16)

    @rule(pick=st.integers(0, 99), early=st.booleans())
    def release(self, pick: int, early: bool) -> None:
        tracked = self._pick(
            pick, lambda t: t.kind is ev.AddPrefill and not t.fate and (early or t.prefill_done)
        )
        if tracked is not None:
            self._read_back(tracked)
            tracked.fate = "released"
            self._note(self.harness.post(ev.Release(tracked.request.attempt)))

    @precondition(lambda self: self.harness.plan is None)
    @rule()
    def start_step(self) -> None:
        self._note(self.harness.start())

    @precondition(lambda self: self.harness.plan is not None)
    @rule()
    def finish_step(self) -> None:
        self._note(self.harness.finish())

    # ---- what must hold ------------------------------------------------------------------------

    @invariant()
    def budgets_are_kept(self) -> None:
        plan = self.harness.plan
        if plan is not None:
            assert plan.tokens <= 48
            assert len(plan.chunks) <= 5
            written = [
                (chunk.block_table[position // 16], position % 16)
                for chunk in plan.chunks
                for position in range(chunk.start, chunk.end)
            ]
            assert len(written) == len(set(written)), "two chunks write to one slot"

    @invariant()
    def nothing_is_taken_from_a_running_step(self) -> None:
        if self.harness.plan is None:
            return
        pool = self.harness.scheduler._tables.pool
        for chunk in self.harness.plan.chunks:
            assert pool.held_by(chunk.attempt).keys() >= set(chunk.block_table)
        for copy in self.harness.plan.copies:
            assert all(pool.state(block) is BlockState.OWNED for block in copy)

    @invariant()
    def no_wrong_token(self) -> None:
        for tracked in self.all.values():
            for choice in range(tracked.request.sampling.choices):
                emitted = self.harness.tokens(tracked.request, choice)
                start = self._start(tracked, choice)
                expected = expected_answer(self._origin(tracked), choice, 120)
                assert emitted == expected[start : start + len(emitted)]

    def teardown(self) -> None:
        """Let everything come to its end, and look for what is left."""
        if self.harness.plan is not None:
            self.finish_step()
        for _ in range(200):
            self._note(self.harness.run_until_idle(2_000))
            open_ones = [t for t in self.all.values() if t.fate != "dropped"]
            for tracked in open_ones:
                attempt = tracked.request.attempt
                if tracked.fate == "quarantined":
                    tracked.fate = "dropped"
                    self._note(self.harness.post(ev.EndQuarantine(attempt)))
                elif tracked.blocks and not tracked.fate:
                    tracked.fate, tracked.first = "delivered", 1
                    self._note(self.harness.deliver(tracked.request, tracked.blocks))
                elif tracked.prefill_done and not tracked.fate:
                    self._read_back(tracked)
                    tracked.fate = "released"
                    self._note(self.harness.post(ev.Release(attempt)))
            if self.harness.scheduler.holds_nothing:
                break
        load = self.harness.scheduler.load()
        assert self.harness.scheduler.holds_nothing
        assert load.blocks_free == BLOCKS
        for tracked in self.all.values():
            self._check_end(tracked)

    # ---- helpers -------------------------------------------------------------------------------

    def _resumed(self, request: Request, done: list[int | None]) -> Request:
        """The same request after an earlier attempt delivered some tokens of each choice."""
        generated = []
        for choice in range(request.sampling.choices):
            answer = expected_answer(request, choice, 120)
            count = done[choice]
            over = count is None or count >= len(answer)
            generated.append(None if over else tuple(each.token for each in answer[:count]))
        return dataclasses.replace(request, generated=tuple(generated))

    def _origin(self, tracked: Tracked) -> Request:
        return dataclasses.replace(tracked.request, generated=())

    def _start(self, tracked: Tracked, choice: int) -> int:
        generated = tracked.request.generated
        done = generated[choice] if generated else ()
        return len(done or ()) + tracked.first

    def _pick(self, pick: int, fits: Callable[[Tracked], bool]) -> Tracked | None:
        fitting = [
            tracked
            for tracked in self.all.values()
            if fits(tracked) and not self.harness.ends[tracked.request.attempt]
        ]
        return fitting[pick % len(fitting)] if fitting else None

    def _read_back(self, tracked: Tracked) -> None:
        """Held blocks have the prompt's KV, whatever went on around them."""
        if tracked.prefill_done:
            blocks = self.harness.scheduler.blocks_of(tracked.request.attempt)
            prompt = tracked.request.prompt
            assert self.harness.runner.read(blocks, len(prompt)) == list(prompt)

    def _note(self, actions: list[act.Action]) -> None:
        for action in actions:
            tracked = self.all[action.attempt]
            if isinstance(action, act.Preempted):
                assert tracked.kind is not ev.AddPrefill
            if isinstance(action, act.Reserved):
                tracked.blocks = action.blocks
            elif isinstance(action, act.PrefillDone):
                tracked.prefill_done = True
                for sampled in action.first:
                    expected = expected_answer(self._origin(tracked), sampled.choice, 120)
                    assert sampled == expected[sampled.position]

    def _check_end(self, tracked: Tracked) -> None:
        ends = self.harness.ends[tracked.request.attempt]
        if ends or tracked.kind is ev.AddPrefill:
            assert ends <= 1
            assert ends or tracked.prefill_done or tracked.fate in ("dropped", "released")
        else:
            assert tracked.fate == "dropped"
            return
        if tracked.fate in ("delivered", "recomputed") or tracked.kind is ev.AddLocal:
            generated = tracked.request.generated
            for choice in range(tracked.request.sampling.choices):
                if generated and generated[choice] is None:
                    continue
                if tracked.fate == "dropped" or tracked.request.attempt in self.harness.refused:
                    continue
                expected = expected_answer(self._origin(tracked), choice, 120)
                start = self._start(tracked, choice)
                assert self.harness.tokens(tracked.request, choice) == expected[start:]


SchedulerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=60)
TestSchedulerMachine = SchedulerMachine.TestCase
