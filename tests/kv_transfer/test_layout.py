from dataclasses import replace
from typing import Any

import pytest

from core.kv_layout import KvLayout
from kv_transfer.layout import incompatibility

LAYOUT = KvLayout(layers=4, kv_heads=2, head_dim=16, block_tokens=16, dtype="float32")


def test_equal_layouts_move_as_they_are() -> None:
    assert incompatibility(LAYOUT, replace(LAYOUT)) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 5),
        ("kv_heads", 1),
        ("head_dim", 32),
        ("block_tokens", 32),
        ("dtype", "bfloat16"),
        ("order", "pair-interleaved"),
    ],
)
def test_a_difference_is_refused_with_both_values(field: str, value: Any) -> None:
    other = replace(LAYOUT, **{field: value})
    assert (
        incompatibility(LAYOUT, other)
        == f"KV layouts differ: {field} {getattr(LAYOUT, field)} here, {value} there"
    )
    assert incompatibility(other, LAYOUT) is not None


def test_all_differences_are_named() -> None:
    reason = incompatibility(LAYOUT, replace(LAYOUT, layers=9, dtype="float16"))
    assert reason is not None
    assert "layers 4 here, 9 there" in reason
    assert "dtype float32 here, float16 there" in reason


@pytest.mark.parametrize(("field", "value"), [("order", "odd"), ("dtype", "float8")])
def test_what_is_equal_but_unknown_is_refused(field: str, value: Any) -> None:
    odd = replace(LAYOUT, **{field: value})
    reason = incompatibility(odd, odd)
    assert reason is not None
    assert value in reason
