import pytest
from hypothesis import given, strategies as st

from core.kv_layout import DTYPE_BYTES, KvLayout


def layout(dtype: str = "float32") -> KvLayout:
    return KvLayout(layers=30, kv_heads=3, head_dim=64, block_tokens=16, dtype=dtype)


@pytest.mark.parametrize(("dtype", "size"), sorted(DTYPE_BYTES.items()))
def test_a_block_holds_keys_and_values_of_all_layers(dtype: str, size: int) -> None:
    assert layout(dtype).block_bytes == 30 * 2 * 16 * 3 * 64 * size


@given(st.integers(0, 1_000_000))
def test_tokens_fill_just_enough_blocks(tokens: int) -> None:
    blocks = layout().blocks_for(tokens)
    assert blocks * 16 >= tokens > (blocks - 1) * 16
