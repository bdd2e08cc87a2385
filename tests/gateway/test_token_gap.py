"""A token that never comes, and no token at all."""

import pytest

from core.request import FinishReason, SampledToken
from gateway.choice_stream import ChoiceStream
from gateway.token_gap import GAP_PATIENCE_S, SILENCE_PATIENCE_S, TokenGap
from tests.gateway.session_world import LetterDetokenizer


class Taken:
    """Two choices whose tokens come at stated times."""

    def __init__(self) -> None:
        self.choices = [ChoiceStream(number, LetterDetokenizer(), (), 0) for number in range(2)]
        self.gap = TokenGap(self.choices)

    def token(
        self, now_s: float, choice: int, position: int, finish: FinishReason | None = None
    ) -> None:
        self.choices[choice].accept(SampledToken(choice, position, 97, finish))
        self.gap.heard(now_s)

    def missing_at(self, now_s: float) -> int | None:
        stall = self.gap.stall(now_s)
        return None if stall is None else stall.position


def test_nothing_is_due_before_anything_is_heard() -> None:
    gap = Taken().gap
    assert gap.wake_s() is None
    assert gap.stall(1e9) is None


def test_later_tokens_of_a_choice_wait_so_long_for_a_missing_one() -> None:
    taken = Taken()
    taken.token(10.0, 0, 1)
    taken.token(12.0, 0, 2)
    taken.token(12.5, 1, 0)
    assert taken.gap.wake_s() == 10.0 + GAP_PATIENCE_S, "others' progress doesn't help"
    assert taken.gap.stall(10.0 + GAP_PATIENCE_S - 0.01) is None
    assert taken.missing_at(10.0 + GAP_PATIENCE_S) == 0


def test_a_token_that_comes_ends_the_wait_for_it() -> None:
    taken = Taken()
    taken.token(10.0, 0, 1)
    taken.token(10.0, 0, 3)
    taken.token(11.0, 0, 0)
    assert taken.missing_at(10.0 + GAP_PATIENCE_S) is None
    assert taken.missing_at(11.0 + GAP_PATIENCE_S) == 2
    taken.token(12.0, 0, 2)
    assert taken.gap.stall(12.0 + GAP_PATIENCE_S) is None


def test_an_ended_choice_waits_for_nothing() -> None:
    taken = Taken()
    taken.token(10.0, 0, 1)
    taken.token(10.0, 0, 0, FinishReason.LENGTH)
    assert taken.gap.stall(10.0 + GAP_PATIENCE_S) is None


def test_silence_is_a_stall_too() -> None:
    taken = Taken()
    taken.token(10.0, 0, 0)
    taken.token(20.0, 0, 1)
    assert taken.gap.wake_s() == pytest.approx(20.0 + SILENCE_PATIENCE_S)
    assert taken.gap.stall(20.0 + SILENCE_PATIENCE_S - 0.01) is None
    stall = taken.gap.stall(20.0 + SILENCE_PATIENCE_S)
    assert stall is not None
    assert stall.position is None
