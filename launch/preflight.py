"""What must hold before anything is started; each failure says how to mend it."""

import errno
import secrets
import socket
from typing import Any

import psutil

from core.config import Config
from core.errors import ConfigError, SetupError
from core.size import format_size
from engine.model_spec import ModelSpec
from gateway.auth import require_key_beyond_loopback
from launch.plan import LOOPBACK
from launch.pool_size import check_pool

INTERNAL_PORTS = range(20_000, 32_768)
"""Below Linux's ephemeral range: while the router is down for a restart, no outgoing connection
can be given its port."""
PORT_TRIES = 200


def check_exposure(config: Config) -> None:
    """Beyond loopback an API key is compulsory: by the gateway's own rule, so that it can't be
    let through here and refused there.

    Raises:
        ConfigError: there is none, or the host's name doesn't resolve.
    """
    _resolve(config.gateway.host, 0)
    require_key_beyond_loopback(config.gateway)


def check_port(host: str, port: int) -> int:
    """The port to use: `port` if it is free, and for 0 one that is.

    Raises:
        SetupError: taken, not allowed, or no address of this machine.
    """
    chosen = port
    for family, kind, protocol, address in _resolve(host, port):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address[0], chosen, *address[2:]))
            except OSError as error:
                raise SetupError(_bind_problem(host, port, error)) from None
            chosen = probe.getsockname()[1]
    return chosen


def _bind_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = _holder_of(port)
        return (
            f"port {port} on {host} is taken{f' by {holder}' if holder else ''}; "
            "end that, or choose another with --port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} needs privileges; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; see --host"
    return f"can't listen at {host}:{port}: {error.strerror}"


def _holder_of(port: int) -> str:
    """`python (pid 12)`, or nothing where the system doesn't tell."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.pid:
                continue
            if getattr(connection.laddr, "port", None) == port:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""


def choose_internal_port(avoid: int) -> int:
    """A free loopback port for the router, outside what the system hands out by itself.

    Raises:
        SetupError: none was found.
    """
    for _ in range(PORT_TRIES):
        port = secrets.choice(INTERNAL_PORTS)
        if port == avoid:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise SetupError(f"no free port for the router among {INTERNAL_PORTS[0]}-{INTERNAL_PORTS[-1]}")


def check_model_fits(config: Config, spec: ModelSpec) -> None:
    """Contexts against the model, KV pools against contexts.

    Raises:
        ConfigError: the context is longer than the model's, a pool can't hold one request, or all
            pools together exceed the machine.
    """
    longest = config.model.max_context
    if longest is not None and longest > spec.max_context:
        raise ConfigError(
            "model.max_context", f"{spec.name} goes up to {spec.max_context}, not {longest}"
        )
    for index, pool in enumerate(config.pools):
        engine = config.engine_of(pool)
        layout = spec.kv_layout(engine.block_tokens, config.model.dtype)
        place = f"pools[{index}].engine.kv_bytes" if pool.engine else "engine.kv_bytes"
        check_pool(engine, layout, longest or spec.max_context, place)
    pools_bytes, total_bytes = _pools_bytes(config), psutil.virtual_memory().total
    if pools_bytes > total_bytes:
        raise ConfigError(
            "engine.kv_bytes",
            f"the KV pools take {format_size(pools_bytes)} together, and this machine has "
            f"{format_size(total_bytes)} of memory in all",
        )


def memory_warning(config: Config, weights_bytes: int) -> str | None:
    """Said when the KV pools and the shared weights exceed the memory that is free."""
    pools_bytes = _pools_bytes(config)
    free_bytes = psutil.virtual_memory().available
    if pools_bytes + weights_bytes <= free_bytes:
        return None
    return (
        f"KV pools ({format_size(pools_bytes)}) and weights ({format_size(weights_bytes)}) exceed "
        f"the {format_size(free_bytes)} of memory that are free; see --kv-bytes"
    )


def _pools_bytes(config: Config) -> int:
    return sum(config.engine_of(pool).kv_bytes * pool.replicas for pool in config.pools)


_Info = tuple[socket.AddressFamily, socket.SocketKind, int, tuple[Any, ...]]


def _resolve(host: str, port: int) -> list[_Info]:
    """(family, kind, protocol, socket address) of everything that `host` means; "" is any."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise ConfigError("gateway.host", f"'{host}' can't be resolved: {reason}") from None
    return [(family, kind, protocol, address) for family, kind, protocol, _, address in found]
