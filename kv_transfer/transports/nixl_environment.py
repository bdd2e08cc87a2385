"""What a process's environment must say before NIXL and its UCX are loaded. Loads nothing."""

from collections.abc import Mapping
from types import MappingProxyType

QUIET_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {"UCX_LOG_FILE": "stderr", "UCX_LOG_LEVEL": "error", "NIXL_LOG_LEVEL": "FATAL"}
)
"""For whoever starts a worker, unless the operator has set them: UCX logs to *stdout* by default,
and both libraries shout about a dead peer, which is an ordinary event to us."""

LOOPBACK_ENVIRONMENT: Mapping[str, str] = MappingProxyType({"UCX_NET_DEVICES": "lo"})
"""For workers of one host: UCX otherwise listens, without authentication, on every network the
machine has. Shared memory and CMA aren't network devices and stay in use."""
