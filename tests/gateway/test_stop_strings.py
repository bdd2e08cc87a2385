"""Stop strings across piece borders."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from gateway.stop_strings import StopScanner

TEXTS = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def scan_all(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    scanner, shown = StopScanner(stops), ""
    for piece in pieces:
        scan = scanner.push(piece)
        shown += scan.text
        if scan.stopped:
            return shown, True
    return shown + scanner.flush(), False


def naive(stops: list[str], text: str) -> tuple[str, bool]:
    """Grow the text by one character at a time and look at its end."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            return text[: end - max(len(stop) for stop in done)], True
    return text, False


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 40)))
def test_any_cutting_gives_the_same_text(text: str, stops: list[str], cuts: list[int]) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(borders)]
    assert scan_all(stops, pieces) == naive(stops, text)


@given(text=TEXTS, stops=STOPS)
def test_nothing_is_held_that_cannot_stop(text: str, stops: list[str]) -> None:
    scanner = StopScanner(stops)
    for letter in text:
        if scanner.push(letter).stopped:
            assert scanner.held == ""
            return
        assert scanner.held == "" or any(stop.startswith(scanner.held) for stop in stops)


def test_the_beginning_of_a_stop_string_is_shown_when_it_goes_on_otherwise() -> None:
    scanner = StopScanner(["</end>"])
    assert scanner.push("a</").text == "a"
    assert scanner.held == "</"
    assert scanner.push("b>").text == "</b>"
    assert scanner.flush() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopScanner([""])
