from pathlib import Path

import pytest

from core.environment import Environment
from core.errors import ConfigError
from launch.serve_options import ServeOptions, build_config, chosen_log_level


def test_flags_reach_their_places() -> None:
    config = build_config(
        ServeOptions(
            model="m.gguf",
            prefill=2,
            decode=3,
            host="0.0.0.0",
            port=1,
            api_key="123",
            state_dir="/s",
            dtype="bfloat16",
            kv_bytes="512MiB",
            max_context=99,
            transport="tcp",
            allow_fallback=True,
            settings=("router.heartbeat_ms=50", "gateway.port=2"),
        ),
        Environment(),
    )
    assert (config.model.source, config.model.dtype, config.model.max_context) == (
        "m.gguf",
        "bfloat16",
        99,
    )
    assert [pool.replicas for pool in config.pools] == [2, 3]
    assert (config.gateway.host, config.gateway.port, config.gateway.api_key) == (
        "0.0.0.0",
        2,
        "123",
    )
    assert (config.transport.kind, config.transport.allow_fallback) == ("tcp", True)
    assert config.engine.kv_bytes == 512 << 20
    assert config.state_dir == "/s"
    assert config.router.heartbeat_ms == 50


def test_command_line_over_environment_over_file(tmp_path: Path) -> None:
    path = tmp_path / "scaling.yaml"
    path.write_text("model: {source: file}\ngateway: {host: 127.0.0.5, port: 5, api_key: f}\n")
    environment = Environment(config=str(path), model="env", port="6")
    config = build_config(ServeOptions(port=7), environment)
    assert config.model.source == "env"
    assert (config.gateway.host, config.gateway.port, config.gateway.api_key) == (
        "127.0.0.5",
        7,
        "f",
    )
    other = tmp_path / "other.yaml"
    other.write_text("gateway: {host: 127.0.0.6}")
    assert build_config(ServeOptions(config_file=other), environment).gateway.host == "127.0.0.6"


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (ServeOptions(port=70_000), Environment(), "--port: gateway.port: must be ≤ 65535"),
        (ServeOptions(), Environment(port="x"), "BATON_PORT: gateway.port: must be a whole number"),
        (ServeOptions(decode=0), Environment(), "--decode: pools: at least one decode worker"),
        (ServeOptions(prefill=-1), Environment(), "--prefill: pools[0].replicas: must be ≥ 0"),
        (ServeOptions(kv_bytes="2"), Environment(), "--kv-bytes: engine.kv_bytes: must be ≥"),
        (ServeOptions(dtype="int8"), Environment(), "--dtype: model.dtype: must be 'float32'"),
        (ServeOptions(api_key=""), Environment(), "--api-key: must not be empty"),
        (ServeOptions(settings=("a.b",)), Environment(), "--set a.b: must be KEY=VALUE"),
        (ServeOptions(config_file=Path("/no.yaml")), Environment(), "/no.yaml: can't be read"),
    ],
)
def test_what_is_wrong_names_its_flag(
    options: ServeOptions, environment: Environment, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(options, environment)
    assert message in str(caught.value)


def test_a_count_needs_one_pool_to_mean(tmp_path: Path) -> None:
    path = tmp_path / "scaling.yaml"
    path.write_text("pools:\n- {name: a, role: decode}\n- {name: b, role: decode}\n")
    with pytest.raises(ConfigError, match=r"2 decode pools \(a, b\); use --set pools.a.replicas"):
        build_config(ServeOptions(config_file=path, decode=2), Environment())
    with pytest.raises(ConfigError, match="--prefill: the configuration has no pool of role"):
        build_config(ServeOptions(config_file=path, prefill=2), Environment())


def test_log_level() -> None:
    assert chosen_log_level(ServeOptions(), Environment()) == "info"
    assert chosen_log_level(ServeOptions(), Environment(log_level="DEBUG")) == "debug"
    assert chosen_log_level(ServeOptions(log_level="error"), Environment(log_level="x")) == "error"
    with pytest.raises(ConfigError, match="BATON_LOG_LEVEL: must be one of debug, info"):
        chosen_log_level(ServeOptions(), Environment(log_level="x"))
