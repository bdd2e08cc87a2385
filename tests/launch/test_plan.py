from pathlib import Path

from core.config import Config, GatewayConfig, PoolConfig, PoolRole
from launch.cores import deal_cores
from launch.plan import DeploymentPlan, http_url, thread_environment
from launch.role_spec import RoleKind
from launch.supervision import StopGroup


def test_children_of_a_plan() -> None:
    config = Config(
        pools=(
            PoolConfig(name="p", role=PoolRole.PREFILL, replicas=2),
            PoolConfig(name="d", role=PoolRole.DECODE),
            PoolConfig(name="none", role=PoolRole.BOTH, replicas=0),
        )
    )
    plan = DeploymentPlan(
        config=config,
        cores=deal_cores(range(4), config.pools),
        prepared_model=Path("/m"),
        model_name="m",
        router_port=20_001,
    )
    assert [(c.name, c.role, c.group, c.shown_role) for c in plan.children] == [
        ("router", RoleKind.ROUTER, StopGroup.ROUTER, "router"),
        ("p-0", RoleKind.WORKER, StopGroup.WORKER, "prefill"),
        ("p-1", RoleKind.WORKER, StopGroup.WORKER, "prefill"),
        ("d-0", RoleKind.WORKER, StopGroup.WORKER, "decode"),
        ("gateway", RoleKind.GATEWAY, StopGroup.GATEWAY, "gateway"),
    ]
    assert plan.router_address == "tcp://127.0.0.1:20001"
    assert plan.url == "http://127.0.0.1:8000"
    assert plan.children[3].cores == (3,)


def test_urls_that_a_client_on_this_machine_can_use() -> None:
    assert http_url("0.0.0.0", 1) == "http://127.0.0.1:1"
    assert http_url("::", 1) == "http://[::1]:1"
    assert http_url("::1", 1) == "http://[::1]:1"
    assert http_url("example.org", GatewayConfig().port) == "http://example.org:8000"


def test_threads() -> None:
    assert thread_environment(3)["OMP_NUM_THREADS"] == "3"
    assert thread_environment(0)["OMP_NUM_THREADS"] == "1"


def test_only_the_gateway_is_told_the_clients_key() -> None:
    config = Config(gateway=GatewayConfig(api_key="secret"))
    plan = DeploymentPlan(
        config=config,
        cores=deal_cores(range(2), config.pools),
        prepared_model=Path("/m"),
        model_name="m",
        router_port=20_001,
    )
    assert plan.config_for(RoleKind.GATEWAY).gateway.api_key == "secret"
    for role in (RoleKind.ROUTER, RoleKind.WORKER):
        assert plan.config_for(role).gateway.api_key is None
