import pytest
from pydantic import ValidationError

from core.config import (
    Config,
    EngineConfig,
    GatewayConfig,
    MatchConfig,
    ModelConfig,
    PoolConfig,
    PoolRole,
    SloClassConfig,
    default_slo_classes,
)


def pool(name: str = "p", role: PoolRole = PoolRole.DECODE, replicas: int = 1) -> PoolConfig:
    return PoolConfig(name=name, role=role, replicas=replicas)


def test_the_default_is_one_prefill_and_one_decode_worker() -> None:
    config = Config()
    assert [(pool.name, pool.role, pool.replicas) for pool in config.pools] == [
        ("prefill", PoolRole.PREFILL, 1),
        ("decode", PoolRole.DECODE, 1),
    ]
    assert config.gateway.host == "127.0.0.1"
    assert set(config.slo_classes) == {"interactive", "standard", "batch"}


def test_it_is_frozen_and_knows_its_keys() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().model = ModelConfig()
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Config.model_validate({"rooter": {}})
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Config.model_validate({"router": {"heartbeat": 1}})


def test_it_survives_json() -> None:
    config = Config(pools=(pool("a"), pool("b", PoolRole.PREFILL, 0)), state_dir="x")
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("pools", "says"),
    [
        ((), "at least 1 item"),
        ((pool("a"), pool("a")), "names must differ"),
        ((pool(role=PoolRole.PREFILL),), "at least one decode worker"),
        ((pool(replicas=0),), "at least one decode worker"),
    ],
)
def test_pools_that_cant_serve_are_refused(pools: tuple[PoolConfig, ...], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Config(pools=pools)


def test_a_worker_that_does_both_is_enough() -> None:
    assert Config(pools=(pool(role=PoolRole.BOTH),)).pools[0].role is PoolRole.BOTH


@pytest.mark.parametrize("name", ["", "P", "1a", "a_b", "a" * 33])
def test_pool_names_are_plain(name: str) -> None:
    with pytest.raises(ValidationError):
        pool(name)


def test_prompt_lengths_are_a_range() -> None:
    assert MatchConfig(min_prompt_tokens=5, max_prompt_tokens=5).max_prompt_tokens == 5
    with pytest.raises(ValidationError, match="below min_prompt_tokens"):
        MatchConfig(min_prompt_tokens=6, max_prompt_tokens=5)


def test_block_sizes_are_multiples_of_sixteen() -> None:
    assert EngineConfig(block_tokens=32).block_tokens == 32
    for block_tokens in (0, 8, 24):
        with pytest.raises(ValidationError):
            EngineConfig(block_tokens=block_tokens)


def test_requests_that_name_no_class_need_the_standard_one() -> None:
    with pytest.raises(ValidationError, match="'standard' is missing"):
        Config(slo_classes={"batch": SloClassConfig()})
    assert "standard" in default_slo_classes()


def test_a_pool_may_bring_its_own_engine() -> None:
    own = EngineConfig(max_batch=3)
    special = PoolConfig(name="special", role=PoolRole.DECODE, engine=own)
    config = Config(pools=(pool(), special))
    assert config.engine_of(special) is own
    assert config.engine_of(config.pools[0]) is config.engine


@pytest.mark.parametrize("port", [-1, 65_536])
def test_ports_are_ports(port: int) -> None:
    with pytest.raises(ValidationError):
        GatewayConfig(port=port)
