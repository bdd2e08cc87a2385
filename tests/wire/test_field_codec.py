from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NewType

import pytest

from core.errors import MalformedMessage
from wire.field_codec import codec_of

Celsius = NewType("Celsius", float)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: int | None


@pytest.mark.parametrize(
    ("hint", "value", "packed"),
    [
        (int, 5, 5),
        (float, 5, 5.0),
        (bool, True, True),
        (bytes, b"x", b"x"),
        (Celsius, 1.5, 1.5),
        (Colour, Colour.RED, "red"),
        (int | None, None, None),
        (tuple[int, ...], (1, 2), (1, 2)),
        (tuple[Colour, ...], (Colour.RED,), ["red"]),
        (tuple[int, float], (1, 2.0), [1, 2.0]),
        (Point, Point(1, None), [1, None]),
        (tuple[Point | None, ...], (Point(1, 2), None), [[1, 2], None]),
    ],
)
def test_what_a_value_travels_as(hint: Any, value: Any, packed: Any) -> None:
    assert codec_of(hint).encode(value) == packed

    def arrays_as_tuples(part: Any) -> Any:
        return tuple(map(arrays_as_tuples, part)) if isinstance(part, list) else part

    assert codec_of(hint).decode(arrays_as_tuples(packed)) == value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, True),
        (int, 1.0),
        (float, True),
        (float, "1"),
        (float, float("nan")),
        (bool, 1),
        (str, b"x"),
        (bytes, "x"),
        (Colour, "red"),
        (Colour, 0),
        (tuple[int, ...], [1]),
        (tuple[int, ...], (True,)),
        (tuple[int, float], (1,)),
        (Point, (1, 2, 3)),
        (Point, ("1", 2)),
    ],
)
def test_what_isnt_of_its_type_is_refused_both_ways(hint: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec_of(hint).encode(value)
    if hint is Colour and value == "red":
        return  # on the wire that's what the colour is
    with pytest.raises(MalformedMessage):
        codec_of(hint).decode(value)


@pytest.mark.parametrize(
    "hint", [dict[str, int], list[int], int | str, int | str | None, Any, object, Callable[[], int]]
)
def test_what_doesnt_travel_is_refused_when_the_codec_is_made(hint: Any) -> None:
    with pytest.raises(TypeError, match="travel"):
        codec_of(hint)
