import pytest
from hypothesis import given, strategies as st

from core.config import EngineConfig
from core.errors import ConfigError
from core.kv_layout import KvLayout
from launch.pool_size import check_pool

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=16, block_tokens=16, dtype="float32")


def test_the_advice_is_right() -> None:
    with pytest.raises(ConfigError) as caught:
        check_pool(EngineConfig(kv_bytes=1 << 20), LAYOUT, 4_096)
    assert str(caught.value) == (
        "engine.kv_bytes: 1 MiB hold 128 KV blocks of 8 KiB; a request of 4096 tokens needs 257: "
        "give at least 3MiB, or model.max_context of at most 2032"
    )
    check_pool(EngineConfig(kv_bytes=3 << 20), LAYOUT, 4_096)
    check_pool(EngineConfig(kv_bytes=1 << 20), LAYOUT, 2_032)


@given(st.integers(1 << 20, 1 << 30), st.integers(1, 100_000))
def test_it_holds_one_request_and_a_block_more(kv_bytes: int, max_context: int) -> None:
    blocks = kv_bytes // LAYOUT.block_bytes
    engine = EngineConfig(kv_bytes=kv_bytes)
    if blocks >= -(-max_context // 16) + 1:
        check_pool(engine, LAYOUT, max_context)
    else:
        with pytest.raises(ConfigError):
            check_pool(engine, LAYOUT, max_context)
