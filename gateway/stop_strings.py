"""Stop strings, found in text that comes in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scan:
    """What one piece of text led to."""

    text: str
    """May be shown: it can't be part of a stop string any more."""
    stopped: bool
    """A stop string is complete; neither it nor what follows will ever be shown."""


class StopScanner:
    """Passes text on and holds back what may be the beginning of a stop string.

    How the text is cut into pieces makes no difference. Of several stop strings the one that is
    completed first wins; of several completed by the same character, the longest.

    Invariant: `_held` is the longest tail of all text so far that begins some stop string, so
    that every occurrence starts within `_held` plus the new piece.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise ValueError("an empty stop string would stop before the first token")
        self._stops = tuple(stops)
        self._held = ""

    @property
    def held(self) -> str:
        """Text that waits for its fate."""
        return self._held

    def push(self, piece: str) -> Scan:
        """Take the next piece. Nothing may be pushed after a scan that says `stopped`."""
        if not self._stops:
            return Scan(piece, stopped=False)
        text = self._held + piece
        start = self._first_stop(text)
        if start is not None:
            self._held = ""
            return Scan(text[:start], stopped=True)
        keep = self._tail_that_may_stop(text)
        self._held = text[len(text) - keep :]
        return Scan(text[: len(text) - keep], stopped=False)

    def flush(self) -> str:
        """The text is over: what was held back is no stop string after all."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> int | None:
        """Start of the stop string that is completed first, if any."""
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _tail_that_may_stop(self, text: str) -> int:
        """Length of the longest tail of `text` that is a proper beginning of a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
