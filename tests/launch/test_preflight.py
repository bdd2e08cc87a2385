import socket

import psutil
import pytest

from core.config import Config, EngineConfig, GatewayConfig, ModelConfig, PoolConfig, PoolRole
from core.errors import ConfigError, SetupError
from engine.model_spec import ModelSpec
from launch import preflight
from launch.preflight import (
    INTERNAL_PORTS,
    check_exposure,
    check_model_fits,
    check_port,
    choose_internal_port,
    memory_warning,
)

SPEC = ModelSpec(
    architecture="llama",
    name="small",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=128,
    vocab=100,
    max_context=4_096,
    rms_eps=1e-5,
    rope_theta=1e4,
)


def config(**gateway: object) -> Config:
    return Config(gateway=GatewayConfig.model_validate(gateway))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("", False),
        ("10.1.2.3", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    if loopback:
        check_exposure(config(host=host))
    else:
        with pytest.raises(ConfigError, match="compulsory"):
            check_exposure(config(host=host))


def test_a_name_that_the_gateway_would_refuse_is_refused_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "_resolve", lambda *_: [])  # whatever it means today
    with pytest.raises(ConfigError, match="reach my-laptop"):
        check_exposure(config(host="my-laptop"))


def test_beyond_loopback_a_key_is_compulsory() -> None:
    check_exposure(config(host="127.0.0.1"))
    check_exposure(config(host="0.0.0.0", api_key="k"))
    with pytest.raises(ConfigError, match=r"reach 0\.0\.0\.0, so a key is compulsory"):
        check_exposure(config(host="0.0.0.0"))
    with pytest.raises(ConfigError, match="reach every interface"):
        check_exposure(config(host=""))


def test_a_host_that_does_not_resolve() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.host: 'no such host' can't be resolved"):
        check_exposure(config(host="no such host"))


def test_a_free_port_is_found_and_kept() -> None:
    port = check_port("127.0.0.1", 0)
    assert port > 0
    assert check_port("127.0.0.1", port) == port


def test_a_taken_port_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError) as caught:
            check_port("127.0.0.1", port)
        assert f"port {port} on 127.0.0.1 is taken by" in str(caught.value)
        assert f"(pid {psutil.Process().pid})" in str(caught.value)
        assert "choose another with --port" in str(caught.value)
        with pytest.raises(SetupError, match="taken"):
            check_port("0.0.0.0", port)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(SetupError, match="is no address of this machine"):
        check_port("192.0.2.1", 0)


def test_internal_ports_are_free_and_not_ephemeral(monkeypatch: pytest.MonkeyPatch) -> None:
    port = choose_internal_port(avoid=0)
    assert port in INTERNAL_PORTS
    monkeypatch.setattr(preflight, "INTERNAL_PORTS", range(port, port + 1))
    assert choose_internal_port(avoid=0) == port
    with pytest.raises(SetupError, match="no free port"):
        choose_internal_port(avoid=port)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(SetupError, match="no free port"),
    ):
        choose_internal_port(avoid=0)


def test_contexts_and_pools_that_fit() -> None:
    check_model_fits(Config(), SPEC)
    with pytest.raises(ConfigError, match="small goes up to 4096, not 5000"):
        check_model_fits(Config(model=ModelConfig(max_context=5_000)), SPEC)


def test_a_pool_that_cannot_hold_one_request_is_refused_at_its_place() -> None:
    # 2 layers × k and v × 2 heads × 16 × 4 bytes: 512 bytes a token, 8 KiB a block.
    one_mib = EngineConfig(kv_bytes=1 << 20)
    with pytest.raises(ConfigError, match=r"^engine.kv_bytes: 1 MiB hold 128 KV blocks"):
        check_model_fits(Config(engine=one_mib), SPEC)
    pools = (PoolConfig(name="d", role=PoolRole.DECODE, engine=one_mib),)
    with pytest.raises(ConfigError, match=r"^pools\[0\]\.engine\.kv_bytes"):
        check_model_fits(Config(pools=pools), SPEC)
    small = ModelConfig(max_context=2_000)
    check_model_fits(Config(engine=one_mib, model=small), SPEC)


def test_pools_beyond_the_whole_machine_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"KV pools take 20 TiB together, and this machine has"):
        check_model_fits(Config(engine=EngineConfig(kv_bytes=10 << 40)), SPEC)


def test_memory() -> None:
    assert memory_warning(Config(engine=EngineConfig(kv_bytes=1 << 20)), 1) is None
    warning = memory_warning(Config(engine=EngineConfig(kv_bytes=1 << 60)), 1)
    assert warning is not None
    assert "KV pools (2.097e+06 TiB)" in warning
