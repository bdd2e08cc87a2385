"""One choice of an answer: tokens from two processes in, text in order out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.request import FinishReason, SampledToken
from gateway.stop_strings import Scan, StopScanner


class Detokenizer(Protocol):
    """Text of a token stream, never a broken character (`engine.detokenizer`)."""

    def push(self, token: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new of a choice. `tokens` are those whose text is now shown, for logprobs; with
    text held back they may come later than they were drawn."""

    choice: int
    text: str
    tokens: tuple[SampledToken, ...]
    finish: FinishReason | None


class ChoiceStream:
    """Puts the tokens of one choice in order, drops duplicates, finds stop strings.

    Token 0 comes from the prefill worker and the rest from the decode worker, over two
    connections, so that any may overtake any other. A token that ends the choice with STOP is
    never shown (workers stop on ids only); it counts in `tokens` nevertheless.
    """

    def __init__(
        self, choice: int, detokenizer: Detokenizer, stops: Sequence[str], min_tokens: int
    ) -> None:
        self._choice = choice
        self._detokenizer = detokenizer
        self._scanner = StopScanner(stops)
        self._min_tokens = min_tokens
        self._early: dict[int, SampledToken] = {}
        """Tokens that wait for one before them. Their number is bounded by max_tokens."""
        self._decoded_chars = 0
        self._shown_chars = 0
        self._unshown: deque[tuple[int, int, SampledToken]] = deque()
        """(start, end) in characters of the text so far, and the token, not yet shown."""
        self.tokens: list[int] = []
        self.finish: FinishReason | None = None
        self.stopped_by_text = False
        """Ended here and not by the worker, which must be told."""

    @property
    def ended(self) -> bool:
        return self.finish is not None

    @property
    def missing(self) -> int | None:
        """The position that later tokens wait for; None: none does."""
        return len(self.tokens) if self._early else None

    def forget_early(self) -> None:
        """The attempt is lost: what can't be delivered yet will be generated again."""
        self._early.clear()

    def is_new(self, position: int) -> bool:
        """Whether the token at `position` is neither delivered nor waiting."""
        return not self.ended and position >= len(self.tokens) and position not in self._early

    def accept(self, sampled: SampledToken) -> Delta | None:
        """Take a token for which `is_new`; returns what can be delivered now, if anything."""
        self._early[sampled.position] = sampled
        text, tokens, delivered = "", [], False
        while not self.ended and (ready := self._early.pop(len(self.tokens), None)) is not None:
            delivered = True
            text += self._deliver(ready)
            tokens += self._take_shown()
        if self.ended:
            self._early.clear()
        return Delta(self._choice, text, tuple(tokens), self.finish) if delivered else None

    def _deliver(self, sampled: SampledToken) -> str:
        """Append one token in its turn; returns the text that may be shown."""
        shown = sampled.finish is not FinishReason.STOP
        piece = self._detokenizer.push(sampled.token) if shown else ""
        scanning = len(self.tokens) >= self._min_tokens
        scan = self._scanner.push(piece) if scanning else Scan(piece, stopped=False)
        self.tokens.append(sampled.token)
        if shown:
            end = self._decoded_chars + len(piece)
            self._unshown.append((self._decoded_chars, end, sampled))
            self._decoded_chars = end
        text = scan.text
        if scan.stopped:
            self.finish = FinishReason.STOP
            self.stopped_by_text = sampled.finish is None
        elif sampled.finish is not None:
            self.finish = sampled.finish
            text += self._scanner.flush()
        self._shown_chars += len(text)
        return text

    def _take_shown(self) -> list[SampledToken]:
        """Tokens whose text is out. When a stop string cut the text, the token it was cut in
        is the last; with nothing cut, all of a token's text must be out."""
        cut = self.ended and self._shown_chars < self._decoded_chars
        taken = []
        while self._unshown:
            start, end, sampled = self._unshown[0]
            if end > self._shown_chars and not (cut and start < self._shown_chars):
                break
            taken.append(sampled)
            self._unshown.popleft()
        return taken
