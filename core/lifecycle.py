"""A life cycle is a table: `(state, event) -> (state, actions)`.

A missing row is an error that changes nothing and tells the recorded story (after h11's
EVENT_TRIGGERED_TRANSITIONS and dask's WorkerState stories). The tables themselves are
`core/request_lifecycle.py`, `core/attempt_lifecycle.py` and `core/transfer_lifecycle.py`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from core.errors import IllegalTransition

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)
Action = TypeVar("Action", bound=StrEnum)

STORY_STEPS = 64


@dataclass(frozen=True)
class Table(Generic[State, Event, Action]):
    """All legal moves of one kind of subject.

    Invariants, checked when the table is made: final states have no rows; every other state
    answers each event in `everywhere` (abort, peer death, timeout: whatever can happen any
    time); every state can be reached from `initial`.
    """

    name: str
    initial: State
    finals: frozenset[State]
    everywhere: frozenset[Event]
    rows: Mapping[tuple[State, Event], tuple[State, tuple[Action, ...]]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", MappingProxyType(dict(self.rows)))
        states = type(self.initial)
        for state, event in self.rows:
            if state in self.finals:
                raise ValueError(f"{self.name}: final state {state} has a row for {event}")
        for state in states:
            for event in self.everywhere:
                if state not in self.finals and (state, event) not in self.rows:
                    raise ValueError(f"{self.name}: {state} has no row for {event}")
        unreachable = set(states) - self._reachable()
        if unreachable:
            raise ValueError(f"{self.name}: unreachable states: {', '.join(sorted(unreachable))}")

    def _reachable(self) -> set[State]:
        seen, todo = {self.initial}, [self.initial]
        while todo:
            here = todo.pop()
            for (state, _), (after, _) in self.rows.items():
                if state == here and after not in seen:
                    seen.add(after)
                    todo.append(after)
        return seen


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a story."""

    now_s: float
    before: str
    event: str
    after: str
    why: str

    def __str__(self) -> str:
        because = f" ({self.why})" if self.why else ""
        return f"{self.now_s:.6f} s: {self.before} --{self.event}--> {self.after}{because}"


class Lifecycle(Generic[State, Event, Action]):
    """Where one subject stands in its table, and how it came there."""

    def __init__(self, table: Table[State, Event, Action], subject: str) -> None:
        self._table = table
        self._subject = subject
        self.state: State = table.initial
        self._story: deque[Step] = deque(maxlen=STORY_STEPS)

    @property
    def ended(self) -> bool:
        return self.state in self._table.finals

    @property
    def story(self) -> tuple[Step, ...]:
        """The last moves, oldest first; at most STORY_STEPS of them."""
        return tuple(self._story)

    def can(self, event: Event) -> bool:
        return (self.state, event) in self._table.rows

    def fire(self, event: Event, now_s: float, why: str = "") -> tuple[Action, ...]:
        """Make the move for `event` and return its actions.

        Raises:
            IllegalTransition: the table has no such row; nothing has changed.
        """
        row = self._table.rows.get((self.state, event))
        if row is None:
            story = "\n  ".join(str(step) for step in self._story) or "(no move yet)"
            raise IllegalTransition(
                f"{self._table.name} of {self._subject}: no move for '{event}' in state "
                f"'{self.state}'{f' ({why})' if why else ''}; its story:\n  {story}"
            )
        after, actions = row
        self._story.append(Step(now_s, self.state, event, after, why))
        self.state = after
        return actions
