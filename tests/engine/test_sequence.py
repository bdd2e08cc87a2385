import pytest

from core.request import Request
from engine.sequence import Group, Purpose, Sequence
from tests.engine.engine_cases import EOS, make_request


def make_group(request: Request, purpose: Purpose = Purpose.LOCAL) -> Group:
    return Group(request, purpose, now_s=0.0, arrival=0, eos_token_ids=(EOS,), max_context=100)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 2, (1, 2)),
        (1, 3, (2, 3)),
        (2, 5, (3, 4, 5)),
        (3, 5, (4, 5)),
        (0, 5, (1, 2, 3, 4, 5)),
    ],
)
def test_tokens_run_from_prompt_into_output(
    start: int, end: int, expected: tuple[int, ...]
) -> None:
    assert Sequence(0, (1, 2, 3), (4, 5)).tokens(start, end) == expected


def test_decoding_is_having_just_the_drawn_token_pending() -> None:
    sequence = Sequence(0, (1, 2, 3))
    assert (sequence.pending, sequence.decoding) == (3, False)
    sequence.advance(2)
    assert (sequence.pending, sequence.decoding) == (1, False)
    sequence.advance(3)
    sequence.output.append(9)
    assert (sequence.pending, sequence.length, sequence.decoding) == (1, 4, True)
    sequence.output.append(9)
    assert not sequence.decoding


def test_several_choices_have_the_prompt_in_common() -> None:
    group = make_group(make_request(0, 10, choices=3))
    assert (group.trunk, group.forked, group.hands_over) == (10, False, True)
    assert group.computing() == group.live[:1]
    assert group.target(group.leader) == 10


def test_one_live_choice_is_its_own_trunk() -> None:
    group = make_group(make_request(0, 10, choices=3, generated=(None, (1, 2), None)))
    assert [sequence.choice for sequence in group.live] == [1]
    assert (group.trunk, group.forked, group.hands_over) == (12, True, True)


def test_choices_with_tokens_of_their_own_are_not_handed_over() -> None:
    group = make_group(make_request(0, 10, choices=2, generated=((1,), ())))
    assert (group.trunk, group.hands_over) == (10, False)


def test_replayed_ends_are_honoured() -> None:
    ended_by = [
        make_request(0, 10, ignore_eos=False, generated=((1, EOS),)),
        make_request(0, 10, max_tokens=2, generated=((1, 2),)),
        make_request(0, 98, generated=((1, 2),)),
    ]
    for request in ended_by:
        assert make_group(request).live == []
    assert make_group(make_request(0, 10, generated=((1, EOS),))).live  # ignores EOS


def test_only_prefills_for_a_hand_over_do_not_grow() -> None:
    request = make_request(0, 10)
    grows = {purpose: make_group(request, purpose).grows for purpose in Purpose}
    assert grows == {Purpose.PREFILL: False, Purpose.LOCAL: True, Purpose.REMOTE: True}
