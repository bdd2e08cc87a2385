"""One attempt in the engine: a group of sequences, one per choice, over one prompt."""

from enum import StrEnum

from core.ids import Attempt
from core.lifecycle import Lifecycle
from core.request import Request
from engine.finish import finish_of
from engine.group_lifecycle import GROUP_TABLE, GroupAction, GroupEvent, GroupState


class Purpose(StrEnum):
    PREFILL = "prefill"
    """Compute the prompt and hold its blocks for a hand-over."""
    LOCAL = "local"
    """Compute the prompt and decode."""
    REMOTE = "remote"
    """Let a peer write the prompt's KV, then decode."""


class Sequence:
    """One choice: its tokens, and how many of them have their KV in which blocks.

    Invariant: `computed` ≤ `length`, and `table` covers at least `computed` positions. The last
    token drawn has no KV until the next step computes it.
    """

    __slots__ = (
        "choice",
        "computed",
        "last_step",
        "output",
        "prompt",
        "shares_tail",
        "table",
    )

    def __init__(self, choice: int, prompt: tuple[int, ...], output: tuple[int, ...] = ()) -> None:
        self.choice = choice
        self.prompt = prompt
        self.output = list(output)
        self.computed = 0
        self.table: tuple[int, ...] = ()
        self.shares_tail = False
        """Whether the block of the next position may be another choice's too (copy-on-write)."""
        self.last_step = -1
        """Number of the last step it was in; for taking turns."""

    @property
    def length(self) -> int:
        """Tokens known: prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def pending(self) -> int:
        """Tokens known whose KV isn't computed."""
        return self.length - self.computed

    @property
    def decoding(self) -> bool:
        """Whether its next step is a decode: just the token drawn last."""
        return bool(self.output) and self.computed > 0 and self.pending == 1

    def advance(self, end: int) -> None:
        """A step has written the KV of all positions below `end`, the last ones to own blocks."""
        self.computed = end
        self.shares_tail = False

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Tokens at positions start … end - 1 of prompt and output together."""
        prompt = len(self.prompt)
        if start >= prompt:
            return tuple(self.output[start - prompt : end - prompt])
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + tuple(self.output[: end - prompt])


class Group:
    """One attempt: its request, its life, its live choices.

    Until `forked`, only the first live sequence (the leader) has blocks, and computes the tokens
    that all live ones have in common: the *trunk*. That is the whole sequence where one choice is
    live, and the prompt where several are.

    Args:
        arrival: running number, which orders groups of equal deadline.
    """

    __slots__ = (
        "announced",
        "arrival",
        "attempt",
        "deadline_s",
        "delivered",
        "forked",
        "life",
        "live",
        "purpose",
        "request",
        "tpot_s",
    )

    def __init__(
        self,
        request: Request,
        purpose: Purpose,
        *,
        now_s: float,
        arrival: int,
        eos_token_ids: tuple[int, ...],
        max_context: int,
    ) -> None:
        self.request = request
        self.attempt: Attempt = request.attempt
        self.purpose = purpose
        self.arrival = arrival
        self.deadline_s = now_s + request.deadline_left_ms / 1_000
        self.tpot_s = request.slo.tpot_ms / 1_000
        self.life: Lifecycle[GroupState, GroupEvent, GroupAction] = Lifecycle(
            GROUP_TABLE, str(request.attempt)
        )
        self.live = _live_sequences(request, eos_token_ids, max_context)
        self.forked = len(self.live) == 1
        self.announced = False
        """Whether Started was told."""
        self.delivered = False
        """Whether its KV came from a peer and DecodeStarted is still to be told."""

    @property
    def key(self) -> tuple[float, int]:
        """Order among groups: deadline, then arrival."""
        return (self.deadline_s, self.arrival)

    @property
    def state(self) -> GroupState:
        return self.life.state

    @property
    def leader(self) -> Sequence:
        return self.live[0]

    @property
    def trunk(self) -> int:
        """Tokens that all live sequences have in common and that are computed once."""
        return self.leader.length if len(self.live) == 1 else len(self.request.prompt)

    @property
    def hands_over(self) -> bool:
        """Whether a prefill worker can compute it for another: every live choice's next token is
        drawn from the trunk's last logits. (False for several choices with tokens of their own.)"""
        return all(sequence.length == self.trunk for sequence in self.live)

    @property
    def grows(self) -> bool:
        """Whether it decodes here, now or later: it will need further blocks."""
        return self.purpose is not Purpose.PREFILL

    def target(self, sequence: Sequence) -> int:
        """Up to where `sequence` is to be computed now."""
        return sequence.length if self.forked else self.trunk

    def computing(self) -> list[Sequence]:
        """The sequences that take part in steps now."""
        return self.live if self.forked else self.live[:1]

    def forget_kv(self) -> None:
        """After its blocks are freed: nothing is computed any more."""
        self.forked = len(self.live) == 1
        for sequence in self.live:
            sequence.computed = 0
            sequence.table = ()
            sequence.shares_tail = False


def _live_sequences(
    request: Request, eos_token_ids: tuple[int, ...], max_context: int
) -> list[Sequence]:
    """The choices that still want tokens. What an earlier attempt delivered is replayed: a choice
    whose last token was an end has ended, even where its gateway didn't mark it so."""
    live = []
    for choice in range(request.sampling.choices):
        generated = request.generated[choice] if request.generated else ()
        if generated is None:
            continue
        if generated and finish_of(
            generated[-1],
            position=len(generated) - 1,
            sequence_tokens=len(request.prompt) + len(generated),
            params=request.sampling,
            eos_token_ids=eos_token_ids,
            max_context=max_context,
        ):
            continue
        live.append(Sequence(choice, request.prompt, generated))
    return live
