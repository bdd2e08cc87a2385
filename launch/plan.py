"""What a deployment consists of, decided before anything is started. Pure."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.config import Config, PoolConfig
from launch.cores import CorePlan, Cores, worker_names
from launch.role_spec import RoleKind
from launch.supervision import ChildSpec, StopGroup

LOOPBACK = "127.0.0.1"
ROLE_COMMAND = (sys.executable, "-P", "-m", "launch.role_main")
"""-P: the directory baton is called in may have a `core` or a `launch` of its own."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """One process to run. `shown_role` is the word in `baton status`: a worker's is its pool's."""

    name: str
    role: RoleKind
    group: StopGroup
    cores: Cores
    pool: PoolConfig | None = None

    @property
    def shown_role(self) -> str:
        return self.pool.role if self.pool else self.role

    @property
    def spec(self) -> ChildSpec:
        return ChildSpec(self.name, self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """All of it. `router_port` is chosen once, so that a restarted router is found again."""

    config: Config
    cores: CorePlan
    prepared_model: Path
    model_name: str
    router_port: int
    bind_host: str = LOOPBACK
    log_level: str = "info"
    command: tuple[str, ...] = ROLE_COMMAND
    """What starts a child, without its `--spec FILE`."""

    @property
    def router_address(self) -> str:
        return f"tcp://{self.bind_host}:{self.router_port}"

    @property
    def url(self) -> str:
        return http_url(self.config.gateway.host, self.config.gateway.port)

    def config_for(self, role: RoleKind) -> Config:
        """What a child is told: the key that clients must send concerns the gateway alone."""
        if role is RoleKind.GATEWAY:
            return self.config
        secretless = self.config.gateway.model_copy(update={"api_key": None})
        return self.config.model_copy(update={"gateway": secretless})

    @property
    def children(self) -> tuple[ChildPlan, ...]:
        """Router, workers, gateway."""
        return tuple(self._children())

    def _children(self) -> Iterable[ChildPlan]:
        yield ChildPlan("router", RoleKind.ROUTER, StopGroup.ROUTER, self.cores.router)
        for pool in self.config.pools:
            for name in worker_names(pool):
                cores = self.cores.workers[name]
                yield ChildPlan(name, RoleKind.WORKER, StopGroup.WORKER, cores, pool)
        yield ChildPlan("gateway", RoleKind.GATEWAY, StopGroup.GATEWAY, self.cores.gateway)


def http_url(host: str, port: int) -> str:
    """Where a client on this machine reaches the gateway."""
    if host in ("", "0.0.0.0"):  # noqa: S104  # not bound here: shown
        host = LOOPBACK
    elif host == "::":
        host = "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def thread_environment(threads: int) -> dict[str, str]:
    """Thread pools of numerical libraries, sized before they are loaded."""
    count = str(max(1, threads))
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "RAYON_NUM_THREADS": count,
        "PYTHONUNBUFFERED": "1",
    }
