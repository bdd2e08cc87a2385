"""What runs in the next step, and who gets which blocks: the engine's pure heart.

Events in, actions out, no clock, no tensor, no socket: the worker's loop and the planner's
simulator drive the same object. Around it: `admission.py` (who gets blocks), `growth.py` (blocks
for the next token, preemption), `step_builder.py` (what fits into a step), `block_tables.py` (whose
blocks are where), `finish.py` (when a choice ends).

One step is in flight at most: `plan` gives it, StepDone ends it. Between the two its blocks are
being written to, so a group of it that is dropped meanwhile keeps its blocks until StepDone.
Continuous batching follows Orca (Yu et al. 2022), paging and recompute vLLM (Kwon et al. 2023).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core.config import EngineConfig
from core.cost_model import CostModel
from core.errors import BugError, IndexCorrupt
from core.ids import Attempt
from core.request import Request, SampledToken
from engine import actions as act, events as ev
from engine.admission import Admission
from engine.block_pool import BlockPool
from engine.block_tables import BlockTables
from engine.engine_load import EngineLoad, measure_load
from engine.finish import finish_of
from engine.group_lifecycle import GroupEvent, GroupState
from engine.group_queue import GroupQueue
from engine.growth import grow_running
from engine.sequence import Group, Purpose
from engine.step_builder import Member, build_step
from engine.step_plan import Chunk, Drawn, SampleSpec, StepPlan

_DROPS = (GroupEvent.ABORT, GroupEvent.QUARANTINE, GroupEvent.RELEASE)


@dataclass(frozen=True, slots=True)
class _Step:
    """The step in flight. `attempts` are all that it writes for, in chunks or in copies (a dict
    for its order: what a step frees must not depend on hashes)."""

    plan: StepPlan
    members: tuple[Member, ...]
    attempts: dict[Attempt, None]


class Scheduler:
    """One worker's scheduler, for every role.

    Args:
        config: budgets of a step, watermark, block size.
        cost: predicted durations, which size the prefill chunks.
        blocks: KV blocks of the pool.
        max_context: longest prompt and output together, in tokens.
        eos_token_ids: tokens that end a choice unless it ignores them.
        vocab: how many tokens the model knows; None where tokens are only counted (simulation).
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        cost: CostModel,
        blocks: int,
        max_context: int,
        eos_token_ids: tuple[int, ...],
        vocab: int | None = None,
    ) -> None:
        self.late_events_total = 0
        """Events for attempts that aren't here any more; ignored."""
        self._config = config
        self._cost = cost
        self._max_context = max_context
        self._eos_token_ids = eos_token_ids
        self._tables = BlockTables(BlockPool(blocks), config.block_tokens)
        self._admission = Admission(self._tables, config, max_context, vocab)
        self._groups: dict[Attempt, Group] = {}
        self._running = GroupQueue()
        self._receiving = GroupQueue()
        self._waiting = GroupQueue()
        self._preempted = GroupQueue()
        self._queues = {
            GroupState.RUNNING: self._running,
            GroupState.RECEIVING: self._receiving,
            GroupState.WAITING: self._waiting,
            GroupState.PREEMPTED: self._preempted,
        }
        self._step: _Step | None = None
        self._arrivals = 0
        self._preemptions_total = 0
        self._steps_total = 0
        self._step_seconds_total = 0.0
        self._handlers: dict[type, Callable[[Any, float], list[act.Action]]] = {
            ev.AddPrefill: lambda e, now_s: self._add(e.request, Purpose.PREFILL, now_s),
            ev.AddLocal: lambda e, now_s: self._add(e.request, Purpose.LOCAL, now_s),
            ev.Reserve: lambda e, now_s: self._add(e.request, Purpose.REMOTE, now_s),
            ev.Delivered: self._delivered,
            ev.Recompute: self._recompute,
            ev.Abort: lambda e, now_s: self._leave(e.attempt, GroupEvent.ABORT, now_s),
            ev.Quarantine: lambda e, now_s: self._leave(e.attempt, GroupEvent.QUARANTINE, now_s),
            ev.EndQuarantine: lambda e, now_s: self._leave(
                e.attempt, GroupEvent.END_QUARANTINE, now_s
            ),
            ev.Release: lambda e, now_s: self._leave(e.attempt, GroupEvent.RELEASE, now_s),
            ev.StepDone: self._step_done,
        }

    # ---- the interface -------------------------------------------------------------------------

    @property
    def holds_nothing(self) -> bool:
        """Whether no attempt is here, in any state: then every block must be free."""
        return not self._groups

    def handle(self, event: ev.Event, now_s: float) -> list[act.Action]:
        """Take note of what happened; returns what follows from it at once.

        Raises:
            BugError: an event that can't be (an attempt added twice, a step that isn't running).
            IllegalTransition: an event that the attempt's state has no row for.
        """
        actions = self._handlers[type(event)](event, now_s)
        # Running groups grow first, in `plan`, which follows every StepDone. Until then only a
        # scheduler whose groups have had their turn may give blocks to others.
        if self._step is not None or not len(self._running):
            self._admit(now_s, actions)
        return actions

    def plan(self, now_s: float) -> tuple[StepPlan | None, list[act.Action]]:
        """The next step, or None where nothing can be computed now; and what follows from it.

        Raises:
            BugError: a step is in flight.
        """
        if self._step is not None:
            raise BugError("planned a step while another one is running")
        actions: list[act.Action] = []

        def preempt(group: Group) -> None:
            self._move(group, GroupEvent.PREEMPT, now_s)
            self._preemptions_total += 1
            actions.append(act.Preempted(group.attempt))

        grown = grow_running(self._running, self._tables, preempt)
        self._admit(now_s, actions)
        builder = build_step(
            self._running, grown.stalled, self._config, self._cost, self._eos_token_ids
        )
        if not builder.chunks and not grown.copies:
            return None, actions
        plan = StepPlan(chunks=tuple(builder.chunks), copies=grown.copies)
        for group, sequence in builder.members:
            sequence.last_step = self._steps_total
            actions += self._announce(group)
        written = (*(group.attempt for group, _ in builder.members), *grown.copied)
        self._step = _Step(plan, tuple(builder.members), dict.fromkeys(written))
        return plan, actions

    def blocks_of(self, attempt: Attempt) -> tuple[int, ...]:
        """The blocks that hold, or will hold, the tokens to compute, in order: of an AddPrefill
        and of a granted reservation exactly those to hand over. Empty where it has none, also
        where the attempt isn't here any more."""
        group = self._groups.get(attempt)
        if group is None or not group.live:
            return ()
        return group.leader.table[: self._tables.blocks_for(group.trunk)]

    def load(self) -> EngineLoad:
        """Figures for the heartbeat; O(attempts)."""
        return measure_load(
            running=self._running,
            receiving=self._receiving,
            waiting=(*self._preempted, *self._waiting),
            pool=self._tables.pool,
            preemptions_total=self._preemptions_total,
            steps_total=self._steps_total,
            step_seconds_total=self._step_seconds_total,
        )

    def check_integrity(self) -> None:
        """Prove that pool, block tables, queues and states agree.

        Raises:
            PoolCorrupt, IndexCorrupt: with the first contradiction found.
        """
        self._tables.check_integrity(self._groups)
        for state, queue in self._queues.items():
            queue.check_integrity()
            there = {group.attempt for group in queue}
            here = {group.attempt for group in self._groups.values() if group.state is state}
            if there != here:
                raise IndexCorrupt(f"{state}: {sorted(there ^ here)} in the queue or in state only")
        for group in self._groups.values():
            if group.life.ended:
                raise IndexCorrupt(f"{group.attempt} is {group.state} and still here")
            doomed = group.state is GroupState.DOOMED
            if doomed and (self._step is None or group.attempt not in self._step.attempts):
                raise IndexCorrupt(f"{group.attempt} waits for a step that isn't running")

    # ---- arrivals and departures ---------------------------------------------------------------

    def _add(self, request: Request, purpose: Purpose, now_s: float) -> list[act.Action]:
        attempt = request.attempt
        if attempt in self._groups:
            raise BugError(f"{attempt} is added twice: it is {self._groups[attempt].state}")
        if len(request.generated) not in (0, request.sampling.choices):
            return [act.Impossible(attempt, "generated tokens don't match the choices")]
        group = Group(
            request,
            purpose,
            now_s=now_s,
            arrival=self._arrivals,
            eos_token_ids=self._eos_token_ids,
            max_context=self._max_context,
        )
        self._arrivals += 1
        if not group.live:
            if purpose is Purpose.LOCAL:
                return [act.Ended(attempt)]
            return [act.Impossible(attempt, "every choice has ended already")]
        reason = self._admission.refusal(group)
        if reason is not None:
            return [act.Impossible(attempt, reason)]
        self._groups[attempt] = group
        self._waiting.add(group)
        return []

    def _delivered(self, event: ev.Delivered, now_s: float) -> list[act.Action]:
        group = self._known(event.attempt)
        if group is None:
            return []
        computed = group.trunk
        self._move(group, GroupEvent.DELIVER, now_s)
        expected = {sequence.choice: len(sequence.output) for sequence in group.live}
        if {first.choice: first.position for first in event.first} != expected:
            self._move(group, GroupEvent.ABORT, now_s)
            return [act.Impossible(event.attempt, "the first tokens don't match the choices")]
        group.leader.computed = computed
        group.delivered = group.announced = True
        if not group.forked:
            self._tables.fork(group)
        first = {sampled.choice: sampled for sampled in event.first}
        for sequence in tuple(group.live):
            sampled = first[sequence.choice]
            sequence.output.append(sampled.token)
            if sampled.finish is not None:
                self._tables.end(group, sequence)
        return self._end_if_over(group, now_s)

    def _recompute(self, event: ev.Recompute, now_s: float) -> list[act.Action]:
        group = self._known(event.attempt)
        if group is not None:
            self._move(group, GroupEvent.RECOMPUTE, now_s)
            group.purpose = Purpose.LOCAL
        return []

    def _leave(self, attempt: Attempt, event: GroupEvent, now_s: float) -> list[act.Action]:
        group = self._known(attempt)
        if group is None:
            return []
        in_step = self._step is not None and attempt in self._step.attempts
        if in_step and group.state is GroupState.RUNNING and event in _DROPS:
            event = GroupEvent.ABORT_IN_STEP
        self._move(group, event, now_s)
        return []

    def _known(self, attempt: Attempt) -> Group | None:
        group = self._groups.get(attempt)
        if group is None:
            self.late_events_total += 1
        return group

    # ---- planning ------------------------------------------------------------------------------

    def _admit(self, now_s: float, actions: list[act.Action]) -> None:
        """Give blocks to those who wait for them, as far as they go."""
        if not len(self._waiting) and not len(self._preempted):
            return
        admitted = (*self._running, *self._receiving)
        slots = sum(len(group.live) for group in admitted if group.grows)
        while group := self._admission.next_to_start(self._preempted, self._waiting, slots):
            tokens = self._admission.first_tokens(group)
            returns = group.state is GroupState.PREEMPTED
            if group.purpose is Purpose.REMOTE and not returns:
                self._tables.reserve(group, tokens)
                self._move(group, GroupEvent.RESERVE, now_s)
                actions.append(act.Reserved(group.attempt, self.blocks_of(group.attempt)))
            else:
                self._tables.take(group, tokens)
                self._move(group, GroupEvent.START, now_s)
                if returns:
                    actions.append(act.Resumed(group.attempt))
            if group.grows:
                slots += len(group.live)

    def _announce(self, group: Group) -> Iterator[act.Action]:
        if not group.announced:
            group.announced = True
            yield act.Started(group.attempt)
        if group.delivered:
            group.delivered = False
            yield act.DecodeStarted(group.attempt)

    # ---- after a step --------------------------------------------------------------------------

    def _step_done(self, event: ev.StepDone, now_s: float) -> list[act.Action]:
        step = self._step
        if step is None or event.plan is not step.plan:
            raise BugError("a step is done that isn't the running one")
        drawn = event.output.drawn
        if len(drawn) != sum(len(chunk.samples) for chunk in step.plan.chunks):
            raise BugError(f"{len(drawn)} tokens drawn, which isn't what the step asked for")
        self._step = None
        self._steps_total += 1
        self._step_seconds_total += event.output.seconds
        actions: list[act.Action] = []
        taken = 0
        for (group, sequence), chunk in zip(step.members, step.plan.chunks, strict=True):
            draws = drawn[taken : taken + len(chunk.samples)]
            taken += len(chunk.samples)
            if group.state is not GroupState.RUNNING:
                continue  # doomed
            sequence.advance(chunk.end)
            sampled = [
                self._sampled(group, spec, draw)
                for spec, draw in zip(chunk.samples, draws, strict=True)
            ]
            if group.purpose is Purpose.PREFILL:
                actions += self._prefilled(group, chunk, sampled, now_s)
            else:
                actions += self._advanced(group, sampled, now_s)
        for attempt in step.attempts:
            doomed = self._groups.get(attempt)
            if doomed is not None and doomed.state is GroupState.DOOMED:
                self._move(doomed, GroupEvent.STEP_DONE, now_s)
        return actions

    def _sampled(self, group: Group, spec: SampleSpec, draw: Drawn) -> SampledToken:
        finish = finish_of(
            draw.token,
            position=spec.position,
            sequence_tokens=len(group.request.prompt) + spec.position + 1,
            params=spec.params,
            eos_token_ids=self._eos_token_ids,
            max_context=self._max_context,
        )
        return SampledToken(spec.choice, spec.position, draw.token, finish, draw.logprobs)

    def _prefilled(
        self, group: Group, chunk: Chunk, first: list[SampledToken], now_s: float
    ) -> Iterator[act.Action]:
        """A chunk of a prefill for a hand-over is done. Its first tokens aren't appended: they are
        the decode worker's to go on from."""
        yield act.Computed(group.attempt, chunk.end)
        if first:
            self._move(group, GroupEvent.HOLD, now_s)
            yield act.PrefillDone(group.attempt, tuple(first))

    def _advanced(
        self, group: Group, sampled: list[SampledToken], now_s: float
    ) -> Iterator[act.Action]:
        """A chunk of a group that decodes here is done."""
        if not group.forked and group.leader.computed == group.trunk:
            self._tables.fork(group)
        by_choice = {sequence.choice: sequence for sequence in group.live} if sampled else {}
        for each in sampled:
            sequence = by_choice[each.choice]
            sequence.output.append(each.token)
            yield act.Emit(group.attempt, each)
            if each.finish is not None:
                self._tables.end(group, sequence)
        yield from self._end_if_over(group, now_s)

    # ---- moves ---------------------------------------------------------------------------------

    def _end_if_over(self, group: Group, now_s: float) -> list[act.Action]:
        if group.live:
            return []
        self._move(group, GroupEvent.END, now_s)
        return [act.Ended(group.attempt)]

    def _move(self, group: Group, event: GroupEvent, now_s: float) -> None:
        """Make a group's move with all that belongs to it: its queue and its blocks."""
        before = group.state
        for action in group.life.fire(event, now_s):
            self._tables.carry_out(group, action)
        if group.state is before:
            return
        if before in self._queues:
            self._queues[before].remove(group)
        if group.state in self._queues:
            self._queues[group.state].add(group)
        if group.life.ended:
            del self._groups[group.attempt]
