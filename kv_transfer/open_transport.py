"""Which transport a worker speaks, by configuration."""

from collections.abc import Callable

from core.config import TransportConfig
from core.errors import SetupError
from kv_transfer.transport import Transport
from kv_transfer.transports.tcp import TcpTransport

Say = Callable[[str], object]


def open_transport(
    config: TransportConfig, name: str, log: Say, host: str = "127.0.0.1"
) -> Transport:
    """The configured transport, or tcp instead of nixl where that is allowed (and said).

    Args:
        name: unique to the process and this start of it: `str(ProcessId)`.
        log: where a fallback is announced.
        host: the address that tcp listens at.

    Raises:
        SetupError: nixl can't be loaded and `transport.allow_fallback` is off.
    """
    if config.kind == "tcp":
        return TcpTransport(name, host)
    # Only who uses NIXL loads it (0.2 s, and its libraries).
    from kv_transfer.transports.nixl import NixlTransport

    try:
        return NixlTransport(name)
    except SetupError as error:
        if not config.allow_fallback:
            raise SetupError(
                f"{error.message}; set transport.kind to tcp, or transport.allow_fallback to true"
            ) from error
        log(
            f"KV TRANSPORT FALLS BACK TO TCP: {error.message}. Transfers are slower and use both "
            "sides' CPU; `baton doctor` tells what is missing"
        )
        return TcpTransport(name, host)
