"""What the engine's tests share: requests, and a runner that computes with tokens alone."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from core.config import EngineConfig
from core.cost_model import CostModel, DecodeCost, PrefillCost
from core.ids import Attempt, Epoch, RequestId
from core.request import Request, SampledToken
from core.sampling import SamplingParams
from core.slo import Slo
from engine import actions as act, events as ev
from engine.engine_loop import Runner
from engine.finish import finish_of
from engine.scheduler import Scheduler
from engine.step_plan import Drawn, SampleSpec, StepOutput, StepPlan

BLOCK_TOKENS = 16
EOS = 7
VOCAB = 2_000
MAX_CONTEXT = 200
FREE_OF_COST = CostModel(
    prefill=PrefillCost(base_s=0.0, per_token_s=0.0),
    decode=DecodeCost(base_s=0.0, per_sequence_s=0.0),
)


def attempt_of(name: int | str) -> Attempt:
    return Attempt(RequestId(f"r{name}"), Epoch(1))


def make_request(
    name: int | str,
    prompt: int | Sequence[int] = 20,
    *,
    max_tokens: int = 8,
    choices: int = 1,
    generated: tuple[tuple[int, ...] | None, ...] = (),
    deadline_ms: float = 60_000.0,
    tpot_ms: float = 100.0,
    ignore_eos: bool = True,
    min_tokens: int = 0,
    repetition_penalty: float = 1.0,
    stop_token_ids: tuple[int, ...] = (),
) -> Request:
    """`prompt`: its tokens, or how many (then drawn from the name)."""
    if isinstance(prompt, int):
        prompt = [zlib.crc32(f"{name}/{i}".encode()) % 1_000 + 10 for i in range(prompt)]
    return Request(
        attempt=attempt_of(name),
        prompt=tuple(prompt),
        generated=generated,
        sampling=SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            choices=choices,
            ignore_eos=ignore_eos,
            min_tokens=min_tokens,
            repetition_penalty=repetition_penalty,
            stop_token_ids=stop_token_ids,
        ),
        slo=Slo(tpot_ms=tpot_ms),
        deadline_left_ms=deadline_ms,
    )


def make_scheduler(
    blocks: int = 64,
    *,
    max_batch: int = 16,
    step_tokens: int = 64,
    max_step_ms: float = 500.0,
    watermark: float = 0.0,
    cost: CostModel = FREE_OF_COST,
    max_context: int = MAX_CONTEXT,
) -> Scheduler:
    config = EngineConfig(
        block_tokens=BLOCK_TOKENS,
        max_batch=max_batch,
        step_tokens=step_tokens,
        max_step_ms=max_step_ms,
        watermark=watermark,
    )
    return Scheduler(
        config,
        cost=cost,
        blocks=blocks,
        max_context=max_context,
        eos_token_ids=(EOS,),
        vocab=VOCAB,
    )


def next_token(context: Sequence[int], choice: int, banned: Sequence[int] = ()) -> int:
    """The test model: the next token is a hash of all tokens before it; one in 20 is EOS."""
    seed = zlib.crc32(repr((tuple(context), choice)).encode())
    token = EOS if seed % 20 == 0 else 10 + seed % 1_000
    return token if token not in banned else 9


def expected_answer(
    request: Request, choice: int, max_context: int = MAX_CONTEXT
) -> list[SampledToken]:
    """What a choice's answer is when nothing else is going on; from position 0."""
    answer: list[SampledToken] = []
    context = list(request.prompt)
    params = request.sampling
    while not answer or answer[-1].finish is None:
        position = len(answer)
        below = position < params.min_tokens
        banned = ((() if params.ignore_eos else (EOS,)) + params.stop_token_ids) if below else ()
        token = next_token(context, choice, banned)
        context.append(token)
        finish = finish_of(
            token,
            position=position,
            sequence_tokens=len(context),
            params=params,
            eos_token_ids=(EOS,),
            max_context=max_context,
        )
        answer.append(SampledToken(choice, position, token, finish))
    return answer


@dataclass
class TokenRunner:
    """A runner whose KV pool holds the tokens themselves, and which reads its context back from
    there: a block that two sequences write to, or that is handed out too early, shows as another
    answer."""

    blocks: int
    kv: list[list[int]] = field(init=False)
    plans: list[StepPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kv = [[-1] * BLOCK_TOKENS for _ in range(self.blocks)]

    def run(self, plan: StepPlan) -> StepOutput:
        self.plans.append(plan)
        sources = [list(self.kv[source]) for source, _ in plan.copies]
        for (_, target), content in zip(plan.copies, sources, strict=True):
            self.kv[target] = content
        for chunk in plan.chunks:
            self.write(chunk.block_table, chunk.start, chunk.tokens)
        drawn = []
        for chunk in plan.chunks:
            context = self.read(chunk.block_table, chunk.end)
            drawn += [self._draw(context, spec) for spec in chunk.samples]
        return StepOutput(drawn=tuple(drawn), seconds=0.001)

    def write(self, table: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        for position, token in enumerate(tokens, start):
            self.kv[table[position // BLOCK_TOKENS]][position % BLOCK_TOKENS] = token

    def read(self, table: Sequence[int], tokens: int) -> list[int]:
        return [self.kv[table[p // BLOCK_TOKENS]][p % BLOCK_TOKENS] for p in range(tokens)]

    def _draw(self, context: list[int], spec: SampleSpec) -> Drawn:
        return Drawn(next_token(context, spec.choice, spec.banned))


RunnerT = TypeVar("RunnerT", bound=Runner)


@dataclass
class Harness(Generic[RunnerT]):
    """A scheduler and a runner, stepped by hand; integrity is checked after every move."""

    scheduler: Scheduler
    runner: RunnerT
    now_s: float = 0.0
    emitted: dict[tuple[Attempt, int], list[SampledToken]] = field(
        default_factory=lambda: defaultdict(list)
    )
    ends: Counter[Attempt] = field(default_factory=Counter)
    """Ended and Impossible."""
    refused: set[Attempt] = field(default_factory=set)
    plan: StepPlan | None = None

    def post(self, event: ev.Event) -> list[act.Action]:
        actions = self.scheduler.handle(event, self.now_s)
        self.note(actions)
        return actions

    def start(self) -> list[act.Action]:
        """Plan a step and leave it in flight."""
        assert self.plan is None
        self.plan, actions = self.scheduler.plan(self.now_s)
        self.note(actions)
        return actions

    def finish(self) -> list[act.Action]:
        """Run the step in flight. Its writes land now, at the end: a block that was given away
        meanwhile shows."""
        assert self.plan is not None
        output = self.runner.run(self.plan)
        done, self.plan = ev.StepDone(self.plan, output), None
        return self.post(done)

    def step(self) -> list[act.Action]:
        actions = self.start()
        return actions + self.finish() if self.plan is not None else actions

    def run_until_idle(self, most_steps: int = 10_000) -> list[act.Action]:
        """Step until nothing is planned any more."""
        actions: list[act.Action] = []
        for _ in range(most_steps):
            actions += self.start()
            if self.plan is None:
                return actions
            actions += self.finish()
        raise AssertionError(f"not idle after {most_steps} steps")

    def deliver(
        self: "Harness[TokenRunner]", request: Request, blocks: Sequence[int]
    ) -> list[act.Action]:
        """Play the prefill worker: write the KV into the reserved blocks, draw the first tokens."""
        first = self.play_prefill(request, blocks)
        return self.post(ev.Delivered(request.attempt, first))

    def play_prefill(
        self: "Harness[TokenRunner]", request: Request, blocks: Sequence[int]
    ) -> tuple[SampledToken, ...]:
        """The prefill worker's part of `deliver`."""
        generated = request.generated or ((),) * request.sampling.choices
        live = {choice: tokens for choice, tokens in enumerate(generated) if tokens is not None}
        tokens = (*request.prompt, *(next(iter(live.values())) if len(live) == 1 else ()))
        self.runner.write(blocks, 0, tokens)
        return tuple(expected_answer(request, choice)[len(own)] for choice, own in live.items())

    def tokens(self, request: Request, choice: int = 0) -> list[SampledToken]:
        return self.emitted[request.attempt, choice]

    def note(self, actions: list[act.Action]) -> None:
        """Record tokens and ends; the order of tokens and the scheduler's integrity must hold."""
        self.scheduler.check_integrity()
        for action in actions:
            if isinstance(action, act.Emit):
                sampled = action.sampled
                tokens = self.emitted[action.attempt, sampled.choice]
                if tokens:
                    assert sampled.position == tokens[-1].position + 1, "a gap or a repetition"
                    assert tokens[-1].finish is None, "a token after the end"
                tokens.append(sampled)
            elif isinstance(action, act.Ended | act.Impossible):
                self.ends[action.attempt] += 1
                if isinstance(action, act.Impossible):
                    self.refused.add(action.attempt)


def make_harness(blocks: int = 64, **limits: Any) -> Harness[TokenRunner]:
    return Harness(make_scheduler(blocks, **limits), TokenRunner(blocks))


def reserved_blocks(actions: list[act.Action]) -> tuple[int, ...]:
    (reserved,) = [action for action in actions if isinstance(action, act.Reserved)]
    return reserved.blocks


def of_kind(actions: list[act.Action], kind: type[act.Action]) -> list[act.Action]:
    return [action for action in actions if isinstance(action, kind)]


def assert_clean(harness: Harness[TokenRunner]) -> None:
    load = harness.scheduler.load()
    assert harness.scheduler.holds_nothing
    assert (load.blocks_owned, load.blocks_receiving, load.blocks_quarantined) == (0, 0, 0)
