from pathlib import Path

import pytest

from core.clock import MonotonicClock
from core.config import Config, EngineConfig, ModelConfig, PoolConfig, PoolRole
from core.errors import ConfigError
from core.kv_layout import KvLayout
from engine.prepared_model import prepare_model
from launch.pool_size import check_pool
from launch.worker_engine import build_engine

POOL = PoolConfig(name="decode", role=PoolRole.DECODE)
SOURCE = "random:llama?layers=2,hidden=32,heads=2,kv_heads=1,vocab=320,max_context=256"
LAYOUT = KvLayout(layers=2, kv_heads=1, head_dim=16, block_tokens=16, dtype="float32")


def test_an_engine_is_built_to_the_configuration(tmp_path: Path) -> None:
    prepared = prepare_model(SOURCE, "float32", tmp_path, lambda *_: None)
    config = Config(
        model=ModelConfig(source=SOURCE, max_context=128), engine=EngineConfig(kv_bytes=1 << 20)
    )
    engine = build_engine(config, POOL, prepared.path, 1, MonotonicClock())
    assert engine.max_context == 128
    assert engine.runner.blocks == (1 << 20) // engine.layout.block_bytes
    assert engine.fingerprint.startswith(prepared.spec.fingerprint)
    assert engine.cost.prefill.seconds(100) > 0
    engine.scheduler.check_integrity()


def test_a_pool_too_small_says_what_would_fit() -> None:
    engine = EngineConfig(kv_bytes=1 << 20)
    blocks = (1 << 20) // LAYOUT.block_bytes
    fits = (blocks - 1) * LAYOUT.block_tokens
    check_pool(engine, LAYOUT, fits)
    with pytest.raises(ConfigError, match=f"at most {fits}"):
        check_pool(engine, LAYOUT, fits + 1)
