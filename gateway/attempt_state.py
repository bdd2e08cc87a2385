"""One try at a request, as the gateway sees it: who serves it and how far they are."""

from collections.abc import Sequence

from core.ids import Attempt, ProcessId
from core.request import SampledToken
from gateway.choice_stream import ChoiceStream
from gateway.token_gap import TokenGap
from wire.messages import Assignment, Fault, Peer


class AttemptState:
    """Made when the router is asked; `assign` fills in the workers."""

    def __init__(self, attempt: Attempt, choices: Sequence[ChoiceStream]) -> None:
        self.attempt = attempt
        self.decode: Peer | None = None
        self.prefill: Peer | None = None
        self.decoding = False
        """D has said that the KV is there: from now on it needs P no more."""
        self.gap = TokenGap(choices)
        self._choices = choices
        self._base_tokens = [len(choice.tokens) for choice in choices]

    @property
    def assigned(self) -> bool:
        return self.decode is not None

    def assign(self, assignment: Assignment) -> None:
        self.decode, self.prefill = assignment.decode, assignment.prefill

    def peers(self) -> list[Peer]:
        """Both workers, D first, as far as they are known."""
        return [peer for peer in (self.decode, self.prefill) if peer is not None]

    def is_served_by(self, process: ProcessId) -> bool:
        return any(peer.process == process for peer in self.peers())

    @property
    def delivered(self) -> bool:
        """Whether anything new came of it."""
        counts = zip(self._choices, self._base_tokens, strict=True)
        return any(len(choice.tokens) > base for choice, base in counts)

    def tokens_from(self, process: ProcessId) -> None:
        """Tokens of this attempt came from `process`. D gives none before it has the KV, so they
        prove what its Progress says, which may be lost."""
        if self.prefill is not None and not self.is_prefill_worker(process):
            self.decoding = True

    def is_first(self, sampled: SampledToken) -> bool:
        """Whether it is its choice's first of this attempt: P says it, and D once more when it has
        the KV, in case P's word was lost."""
        return sampled.position == self._base_tokens[sampled.choice]

    def needs_prefill_worker(self) -> bool:
        """P matters until its first tokens are here and D has all it needs to go on alone."""
        first_tokens = all(
            choice.ended or len(choice.tokens) > base
            for choice, base in zip(self._choices, self._base_tokens, strict=True)
        )
        return not (self.decoding and first_tokens)

    def needed_peers(self) -> list[Peer]:
        """The workers whose loss is the attempt's loss."""
        return [p for p in self.peers() if p is self.decode or self.needs_prefill_worker()]

    def is_prefill_worker(self, process: ProcessId) -> bool:
        return self.prefill is not None and self.prefill.process == process

    def owes(self, position: int | None) -> Peer | None:
        """Who should have sent the token at `position` (None: whichever is next)."""
        from_prefill = position is not None and position in self._base_tokens
        return self.prefill if from_prefill and self.prefill is not None else self.decode

    def blamed(self, sender: ProcessId, fault: Fault) -> Peer | None:
        """Whom the next attempt had better avoid when `sender` reports `fault`."""
        if self.is_prefill_worker(sender):
            return self.prefill if fault is Fault.CAPACITY else self.decode
        # Alone, or with all it needed from P, D can only mean itself.
        alone = self.prefill is None or not self.needs_prefill_worker()
        return self.decode if fault is Fault.CAPACITY or alone else self.prefill
