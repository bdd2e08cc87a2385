"""Events that every reader cuts at the same places."""

import json
import math

import pytest
from hypothesis import given, strategies as st

from gateway.sse import DONE, event, to_json


@given(text=st.text())
def test_an_event_is_one_line_for_any_reader(text: str) -> None:
    data = event({"text": text})
    assert data.endswith(b"\n\n")
    lines = data.decode().removesuffix("\n\n").splitlines()  # splits at U+2028 and the like too
    assert len(lines) == 1
    if text.isprintable():
        assert json.loads(lines[0].removeprefix("data: ")) == {"text": text}


def test_the_last_event_is_openais() -> None:
    assert DONE == b"data: [DONE]\n\n"


def test_what_json_does_not_have_is_refused() -> None:
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match="not JSON compliant"):
            to_json([value])
