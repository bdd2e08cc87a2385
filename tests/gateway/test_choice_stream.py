"""Tokens of one choice in any order, once each, as text."""

from hypothesis import given, strategies as st

from core.request import FinishReason, SampledToken
from gateway.choice_stream import ChoiceStream, Delta
from tests.gateway.session_world import LetterDetokenizer


def stream(*stops: str, min_tokens: int = 0) -> ChoiceStream:
    return ChoiceStream(0, LetterDetokenizer(), stops, min_tokens)


def tokens(text: str, finish: FinishReason = FinishReason.LENGTH) -> list[SampledToken]:
    last = len(text) - 1
    return [
        SampledToken(0, at, ord(letter), finish if at == last else None)
        for at, letter in enumerate(text)
    ]


def feed(choice: ChoiceStream, sampled: list[SampledToken]) -> list[Delta]:
    accepted = [choice.accept(token) for token in sampled if choice.is_new(token.position)]
    return [delta for delta in accepted if delta is not None]


def test_a_token_waits_for_the_one_before_it() -> None:
    choice = stream()
    first, second, third = tokens("abc")
    assert choice.accept(second) is None
    assert choice.accept(third) is None
    assert choice.accept(first) == Delta(0, "abc", (first, second, third), FinishReason.LENGTH)


def test_the_token_that_stops_is_counted_and_not_shown() -> None:
    choice = stream()
    deltas = feed(choice, tokens("ab$", FinishReason.STOP))
    assert "".join(delta.text for delta in deltas) == "ab"
    assert sum((delta.tokens for delta in deltas), ()) == tuple(tokens("ab$")[:2])
    assert len(choice.tokens) == 3
    assert choice.finish is FinishReason.STOP
    assert not choice.stopped_by_text


def test_a_stop_string_over_three_tokens_is_never_shown() -> None:
    choice = stream("xyz")
    deltas = feed(choice, tokens("abxyzcd"))
    assert "".join(delta.text for delta in deltas) == "ab"
    assert choice.tokens == [ord(letter) for letter in "abxyz"]
    assert choice.stopped_by_text
    assert deltas[-1].finish is FinishReason.STOP
    assert [t.token for d in deltas for t in d.tokens] == [ord("a"), ord("b")]


def test_held_text_is_shown_when_the_answer_ends_otherwise() -> None:
    for finish, shown in ((FinishReason.LENGTH, "abxy"), (FinishReason.STOP, "abx")):
        choice = stream("xyz")
        deltas = feed(choice, tokens("abxy", finish))
        assert "".join(delta.text for delta in deltas) == shown
        assert choice.finish is finish
        assert [t.token for d in deltas for t in d.tokens] == [ord(letter) for letter in shown]


def test_a_stop_string_in_the_last_token_wins_over_length() -> None:
    choice = stream("b")
    deltas = feed(choice, tokens("ab"))
    assert deltas[-1].finish is FinishReason.STOP
    assert not choice.stopped_by_text, "the worker has ended it as well"


def test_no_stop_string_counts_before_min_tokens() -> None:
    choice = stream("a", min_tokens=2)
    assert "".join(delta.text for delta in feed(choice, tokens("aaab"))) == "aa"


def test_a_lost_attempts_early_tokens_are_forgotten() -> None:
    choice = stream()
    _, second, _ = tokens("abc")
    choice.accept(second)
    assert not choice.is_new(1)
    choice.forget_early()
    assert choice.is_new(1)


@given(
    text=st.text(alphabet="abx\ue000", min_size=1, max_size=30),
    stops=st.lists(st.text(alphabet="abx", min_size=1, max_size=3), max_size=2),
    finish=st.sampled_from(FinishReason),
    data=st.data(),
)
def test_any_order_with_repeats_gives_the_same(
    text: str, stops: list[str], finish: FinishReason, data: st.DataObject
) -> None:
    sampled = tokens(text, finish)
    mixed = data.draw(st.permutations(sampled + data.draw(st.lists(st.sampled_from(sampled)))))
    results = []
    for order in (sampled, mixed):
        choice = stream(*stops)
        deltas = feed(choice, order)
        shown = "".join(delta.text for delta in deltas)
        shown_tokens = [token for delta in deltas for token in delta.tokens]
        results.append((shown, shown_tokens, choice.tokens, choice.finish, choice.stopped_by_text))
        assert [delta.finish for delta in deltas if delta.finish] == [choice.finish]
    assert results[0] == results[1]
