"""Whether an attempt's tokens still come: a missing one, or none at all, is noticed by time.

Tokens travel over two connections, and a connection that breaks takes with it what was on its way:
the others may come and one never. Nobody else would notice before the deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.choice_stream import ChoiceStream

GAP_PATIENCE_S = 3.0
"""Two connections differ by far less; a broken one is found out sooner."""
SILENCE_PATIENCE_S = 60.0
"""A request that is being decoded may be preempted and wait for room. What takes longer has lost
its worker's word that it gave up, or had better go on elsewhere."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Why the attempt counts as lost. `position`: the missing token's, None for silence."""

    why: str
    position: int | None


class TokenGap:
    """Of one attempt. `choices` are its request's."""

    def __init__(self, choices: Sequence[ChoiceStream]) -> None:
        self._choices = choices
        self._missing: dict[int, tuple[int, float]] = {}
        """Choice → (position that later tokens wait for, since when)."""
        self._heard_s: float | None = None

    def heard(self, now_s: float) -> None:
        """Tokens have been taken, or D has begun to decode."""
        self._heard_s = now_s
        for number, choice in enumerate(self._choices):
            position = choice.missing
            if position is None:
                self._missing.pop(number, None)
            elif number not in self._missing or self._missing[number][0] != position:
                self._missing[number] = (position, now_s)

    def stall(self, now_s: float) -> Stall | None:
        for number, (position, since_s) in self._missing.items():
            if now_s >= since_s + GAP_PATIENCE_S:
                return Stall(f"token {position} of choice {number} never came", position)
        if self._heard_s is not None and now_s >= self._heard_s + SILENCE_PATIENCE_S:
            return Stall(f"no token came for {SILENCE_PATIENCE_S:g} s", None)
        return None

    def wake_s(self) -> float | None:
        """When `stall` will speak if nothing is heard; None: never."""
        due_s = [since_s + GAP_PATIENCE_S for _, since_s in self._missing.values()]
        if self._heard_s is not None:
            due_s.append(self._heard_s + SILENCE_PATIENCE_S)
        return min(due_s, default=None)
