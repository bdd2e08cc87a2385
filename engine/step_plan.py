"""What one forward pass computes, and what comes out of it: the scheduler's words to the runner."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.ids import Attempt
from core.request import TokenLogprobs
from core.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """One token to draw from one row of logits.

    The draw is keyed by (params.seed, choice, position) and depends on nothing else of the batch.

    Args:
        position: index of the drawn token among the choice's output tokens, from 0.
        prompt, output: the tokens before it; both empty unless `params.uses_history`.
        banned: token ids that may not be drawn: EOS and stop ids while below `min_tokens`.
    """

    attempt: Attempt
    choice: int
    position: int
    params: SamplingParams
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn token; `logprobs` only where `params.logprobs` asks for them."""

    token: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of one sequence's tokens that go through the model in this step.

    Args:
        tokens: token ids, at least one; their KV is written at positions `start`,
            `start + 1`, … of the sequence.
        start: how many tokens of the sequence have their KV in the pool already.
        block_table: the sequence's blocks in order; position p lies in block
            `block_table[p // block_tokens]`, slot `p % block_tokens`. Covers every position up to
            the chunk's last, possibly more.
        samples: what is drawn from the logits after the last token: nothing while a prompt goes on,
            one per choice where a prompt ends, one for a decode.
    """

    attempt: Attempt
    choice: int
    tokens: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    samples: tuple[SampleSpec, ...] = ()

    @property
    def end(self) -> int:
        """Tokens of the sequence with KV after this step: the attention's context length."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One forward pass. `copies` (source block, target block) come first, in order: the private
    copies of forked sequences' last blocks. Decodes come before prefill chunks."""

    chunks: tuple[Chunk, ...]
    copies: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens going through the model."""
        return sum(len(chunk.tokens) for chunk in self.chunks)

    def samples(self) -> Iterator[SampleSpec]:
        """Every draw of the step, in the order of `StepOutput.drawn`."""
        for chunk in self.chunks:
            yield from chunk.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """What a step gave: one Drawn per `StepPlan.samples()`, in that order."""

    drawn: tuple[Drawn, ...]
    seconds: float = 0.0
    """Wall time of the step in the runner's thread."""
