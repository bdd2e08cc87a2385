from core.ids import Attempt, Epoch, RequestId
from decode_node.last_words import REMEMBERED, REPEATED_FOR_S, LastWords
from wire.messages import AttemptFailed, Fault


def failed(number: int) -> AttemptFailed:
    return AttemptFailed(Attempt(RequestId(f"r{number}"), Epoch(1)), Fault.PEER, "why")


def test_a_word_is_repeated_to_whom_it_was_said_and_only_for_a_while() -> None:
    words = LastWords()
    first = words.say("a", failed(1), 0.0)
    second = words.say("a", failed(2), 10.0)
    words.say("b", failed(3), 10.0)
    assert words.again("a", 11.0) == [first, second]
    assert words.again("a", 11.0) == [first, second]  # each break may take it again
    assert words.again("a", REPEATED_FOR_S + 1.0) == [second]
    assert words.again("a", REPEATED_FOR_S + 10.0) == []


def test_it_is_bounded() -> None:
    words = LastWords()
    for number in range(REMEMBERED + 5):
        words.say("a", failed(number), 0.0)
    assert len(words.again("a", 1.0)) == REMEMBERED
