from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from core.config import (
    Config,
    EngineConfig,
    GatewayConfig,
    MatchConfig,
    ModelConfig,
    PoolConfig,
    PoolRole,
    SloClassConfig,
    TransportConfig,
)
from core.config_file import dump_config, load_config, parse_setting
from core.errors import ConfigError


def load(tmp_path: Path, text: str, overrides: dict[str, Any] | None = None) -> Config:
    path = tmp_path / "scaling.yaml"
    path.write_text(text)
    return load_config(path, overrides or {})


def message(tmp_path: Path, text: str, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


POOLS = """\
# two pools
pools:
  - name: fast
    role: decode
  - name: long
    role: prefill
    replicas: -1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (POOLS, "scaling.yaml:7: pools[1].replicas: must be ≥ 0, not -1"),
        (
            "gateway:\n  prot: 1\n",
            "scaling.yaml:2: gateway.prot: unknown key; did you mean 'gateway.port'?",
        ),
        ("gatway: {}\n", "scaling.yaml:1: gatway: unknown key; did you mean 'gateway'?"),
        ("kv_bytes: 1\n", "scaling.yaml:1: kv_bytes: unknown key; did you mean 'engine.kv_bytes'?"),
        (
            "transport:\n  kind: nxil\n",
            "scaling.yaml:2: transport.kind: must be 'nixl' or 'tcp', not 'nxil'; "
            "did you mean 'nixl'?",
        ),
        ("slo_classes:\n  standard: {}\n  x: {ttft_ms: -1}\n", "scaling.yaml:3: slo_classes.x."),
        ("pools: 5\n", "scaling.yaml:1: pools: must be a list, not 5"),
        ("- 1\n", "scaling.yaml: must be a mapping of keys"),
        ("gateway: {port: yes}\n", "scaling.yaml:1: gateway.port: must not be true"),
        ("gateway: {port: 1.5}\n", "gateway.port: must be a whole number, not 1.5"),
        ("engine: {kv_bytes: 2G}\n", "engine.kv_bytes: '2G' is ambiguous"),
        ("engine: {block_tokens: 17}\n", "must be a multiple of 16, not 17"),
        ("gateway:\n  port: 1\n  port: 2\n", "scaling.yaml:3:3: 'gateway.port' is given twice"),
        (
            "pools:\n- {name: p, role: prefill}\n",
            "scaling.yaml:1: pools: at least one decode worker is needed",
        ),
        (
            "engine:\n  max_batch: 0\n  step_tokens: x\n",
            "scaling.yaml:2: engine.max_batch: must be ≥ 1, not 0 (and 1 more: engine.step_tokens)",
        ),
        (
            "pools:\n- {name: 'A b', role: decode}\n",
            "scaling.yaml:2: pools[0].name: must look like",
        ),
    ],
)
def test_what_is_wrong_names_itself_and_its_place(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in message(tmp_path, text)


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    assert "123456" not in message(tmp_path, "gateway: {api_key: 123456}\n")


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: can't be read: No such file"):
        load_config(tmp_path / "nowhere.yaml", {})
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="isn't UTF-8"):
        load_config(tmp_path / "latin.yaml", {})


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    text = "gateway: {port: 1}\nengine: {kv_bytes: 2GiB}\n"
    config = load(
        tmp_path,
        text,
        {
            "gateway.port": 2,
            "pools.decode.replicas": 3,
            "pools[0].replicas": 4,
            "engine.kv_bytes": "512MiB",
            "slo_classes.interactive.ttft_ms": 321,
        },
    )
    assert config.gateway.port == 2
    assert [pool.replicas for pool in config.pools] == [4, 3]
    assert config.engine.kv_bytes == 512 << 20
    assert config.slo_classes["interactive"] == SloClassConfig(ttft_ms=321, tpot_ms=50)


def test_a_pool_inherits_the_engine_it_does_not_name(tmp_path: Path) -> None:
    text = (
        "engine: {max_batch: 7, step_tokens: 256}\n"
        "pools:\n- {name: d, role: decode, engine: {max_batch: 9}}\n"
    )
    engine = load(tmp_path, text).pools[0].engine
    assert engine == EngineConfig(max_batch=9, step_tokens=256)


@pytest.mark.parametrize(
    ("overrides", "flags", "expected"),
    [
        (
            {"gateway.port": 99_999},
            {"gateway.port": "--port"},
            "--port: gateway.port: must be ≤ 65535, not 99999",
        ),
        ({"gateway.port": 99_999}, {}, "--set gateway.port: must be ≤ 65535, not 99999"),
        ({"gatway.port": 1}, {}, "--set gatway.port: gatway: unknown key; did you mean 'gateway'?"),
        (
            {"pools.decode.replicas": 0},
            {"pools.decode.replicas": "--decode"},
            "--decode: pools: at least one decode worker is needed",
        ),
        ({"pools.x.replicas": 1}, {}, "pools has no 'x'; it has: prefill, decode"),
        (
            {"engine.kv_bytes": "3XB"},
            {"engine.kv_bytes": "--kv-bytes"},
            "--kv-bytes: engine.kv_bytes: 'XB' is no unit of size",
        ),
        ({"gateway.port.x": 1}, {}, "--set gateway.port.x: gateway.port: must be a whole number"),
        ({"": 1}, {}, "'' is no key"),
        ({"pools[0].replicas[1]": 1}, {}, "pools[0].replicas has no '1' inside"),
    ],
)
def test_a_wrong_override_names_its_flag(
    overrides: dict[str, Any], flags: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides, flags)
    assert expected in str(caught.value)


def test_a_wrong_line_is_blamed_although_a_flag_is_near(tmp_path: Path) -> None:
    text = "gateway:\n  port: 1\n  max_attempts: 0\n"
    assert message(tmp_path, text, {"gateway.port": 2}).startswith(
        "scaling.yaml:3: gateway.max_attempts"
    )


def test_settings_are_read_as_yaml() -> None:
    assert parse_setting("gateway.port=8080") == ("gateway.port", 8080)
    assert parse_setting("pools.decode.cores=[0, 1]") == ("pools.decode.cores", [0, 1])
    assert parse_setting("model.served_name=null") == ("model.served_name", None)
    assert parse_setting("model.source=random:llama?layers=4") == (
        "model.source",
        "random:llama?layers=4",
    )
    assert parse_setting("model.served_name=") == ("model.served_name", "")
    for wrong in ("gateway.port", "=3", "a=[1"):
        with pytest.raises(ConfigError, match="--set"):
            parse_setting(wrong)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
POSITIVE = st.floats(min_value=1e-9, max_value=1e12, allow_nan=False)
ENGINES = st.builds(
    EngineConfig,
    block_tokens=st.integers(1, 8).map(lambda n: 16 * n),
    kv_bytes=st.integers(1 << 20, 1 << 50),
    max_step_ms=POSITIVE,
    watermark=st.floats(0, 0.4999),
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[PoolConfig, ...]:
    names = draw(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), unique=True))
    rest = tuple(
        PoolConfig(
            name=name,
            role=draw(st.sampled_from(PoolRole)),
            replicas=draw(st.integers(0, 256)),
            match=MatchConfig(min_prompt_tokens=3, max_prompt_tokens=draw(st.integers(3, 9))),
            engine=draw(st.none() | ENGINES),
            cores=draw(st.none() | st.lists(st.integers(0, 63)).map(tuple)),
        )
        for name in names
    )
    return (*rest, PoolConfig(name="the-last-decode-pool", role=PoolRole.DECODE))


CONFIGS = st.builds(
    Config,
    model=st.builds(ModelConfig, source=TEXT, served_name=st.none() | TEXT),
    engine=ENGINES,
    pools=pools(),
    transport=st.builds(TransportConfig, kind=st.sampled_from(["nixl", "tcp"]), lease_ms=POSITIVE),
    gateway=st.builds(GatewayConfig, host=TEXT, port=st.integers(0, 65535), api_key=TEXT),
    slo_classes=st.dictionaries(TEXT, st.builds(SloClassConfig, ttft_ms=POSITIVE), max_size=3).map(
        lambda classes: {**classes, "standard": SloClassConfig()}
    ),
    state_dir=st.none() | TEXT,
)


@given(CONFIGS)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_what_is_dumped_loads_equal(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "round.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path, {}) == config


def test_the_defaults_round_trip(tmp_path: Path) -> None:
    assert load(tmp_path, dump_config(Config())) == Config() == load_config(None, {})
