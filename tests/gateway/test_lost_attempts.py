"""Pauses, limits, and when a request is taken for the killer of its workers."""

import pytest

from core.ids import Attempt, Epoch, RequestId
from core.request import SampledToken
from gateway.attempt_state import AttemptState
from gateway.choice_stream import ChoiceStream
from gateway.lost_attempts import (
    DEATH_BELONGS_S,
    LOSSES_KEPT,
    PAUSES_S,
    PROOF_PAUSE_S,
    LostAttempts,
)
from tests.gateway.session_world import D, LetterDetokenizer, P, assignment, peer
from wire.messages import Peer


class Attempts:
    """One request's, one after the other."""

    def __init__(self) -> None:
        self.choice = ChoiceStream(0, LetterDetokenizer(), (), 0)
        self.epoch = 0

    def next(
        self, *, delivers: bool = False, decode: Peer = D, prefill: Peer | None = P
    ) -> AttemptState:
        self.epoch += 1
        attempt = Attempt(RequestId("r"), Epoch(self.epoch))
        state = AttemptState(attempt, [self.choice])
        state.assign(assignment(attempt, decode, prefill))
        if delivers:
            self.choice.accept(SampledToken(0, len(self.choice.tokens), 97))
        return state


def test_pauses_grow_while_nothing_is_delivered() -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    pauses_s = [lost.pause_s()]
    for _ in range(5):
        lost.add(attempts.next(), None, 0.0)
        pauses_s.append(lost.pause_s())
    first, second, last = PAUSES_S
    assert pauses_s == [0.0, first, max(second, PROOF_PAUSE_S), last, last, last]


def test_a_first_loss_after_tokens_costs_no_pause() -> None:
    lost, attempts = LostAttempts(limit=4), Attempts()
    lost.add(attempts.next(delivers=True), None, 0.0)
    assert lost.pause_s() == 0.0
    lost.add(attempts.next(delivers=True), None, 0.0)
    assert lost.pause_s() == PROOF_PAUSE_S


def test_only_attempts_in_a_row_without_a_token_count() -> None:
    lost, attempts = LostAttempts(limit=3), Attempts()
    for delivers in [False, False, True] * 10 + [False, False]:
        lost.add(attempts.next(delivers=delivers), None, 0.0)
        assert not lost.exhausted
    lost.add(attempts.next(), None, 0.0)
    assert lost.exhausted
    assert lost.fruitless == 3


def test_whom_to_avoid_is_told_once() -> None:
    lost, attempts = LostAttempts(limit=4), Attempts()
    for blamed in (P, None, D, P):
        lost.add(attempts.next(), blamed, 0.0)
    assert lost.avoid == (P.process, D.process)


@pytest.mark.parametrize("proof_first", [True, False])
def test_a_second_attempt_that_a_process_died_on_is_the_last(proof_first: bool) -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    for number in range(2):
        assert not lost.poisonous
        decode = peer(f"decode-{number}")
        current = attempts.next(decode=decode, prefill=None, delivers=True)
        if proof_first:
            lost.process_ended(decode.process, 1.0)
            assert lost.has_ended(decode.process)
        lost.add(current, decode, 1.0)
        if not proof_first:
            lost.process_ended(decode.process, 1.5)
    assert lost.poisonous
    assert lost.dead == "decode-0, decode-1"


def test_both_workers_of_one_attempt_count_once() -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    lost.add(attempts.next(), D, 0.0)
    lost.process_ended(D.process, 0.1)
    lost.process_ended(P.process, 0.2)
    assert not lost.poisonous


def test_one_process_counts_once_however_often_it_was_lost() -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    lost.add(attempts.next(), D, 0.0)
    lost.add(attempts.next(), D, 0.0)
    lost.process_ended(D.process, 0.1)
    lost.process_ended(D.process, 0.1)
    assert not lost.poisonous


def test_a_process_that_was_not_needed_or_ends_much_later_has_died_of_something_else() -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    for number in range(2):
        lost.add(attempts.next(decode=peer(f"decode-{number}"), prefill=None), None, 0.0)
    lost.process_ended(P.process, 0.0)
    for number in range(2):
        lost.process_ended(peer(f"decode-{number}").process, DEATH_BELONGS_S + 0.1)
    assert not lost.poisonous
    handed_over = attempts.next(delivers=True)
    handed_over.decoding = True
    lost.add(handed_over, D, 100.0)
    lost.process_ended(peer("decode-2").process, 100.0)
    assert not lost.poisonous


def test_what_is_remembered_is_bounded() -> None:
    lost, attempts = LostAttempts(limit=9), Attempts()
    lost.add(attempts.next(decode=peer("old"), prefill=None), None, 0.0)
    for _ in range(LOSSES_KEPT):
        lost.add(attempts.next(), None, 0.0)
    lost.process_ended(peer("old").process, 0.0)
    assert lost.dead == ""
