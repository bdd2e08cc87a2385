"""The one module that reads environment variables. Everything else is handed what it needs.

    BATON_CONFIG      the scaling.yaml that `baton serve` reads
    BATON_STATE_DIR   the directory for logs, caches and run files; default: ~/.cache/baton
    BATON_MODEL       the model to serve
    BATON_HOST        the address that the gateway listens at
    BATON_PORT        the HTTP port
    BATON_API_KEY     the key that clients must send, and that `baton chat` sends
    BATON_LOG_LEVEL   of the log files: debug, info, warning or error
    BATON_URL         the deployment that `baton chat` talks to

What wins: the command line, then the environment, then the file, then the default.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PREFIX = "BATON_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the operator's shell says; None where it says nothing."""

    config: str | None = None
    state_dir: str | None = None
    model: str | None = None
    host: str | None = None
    port: str | None = None
    api_key: str | None = None
    log_level: str | None = None
    url: str | None = None


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The operator's settings; an empty variable counts as unset."""
    source = os.environ if variables is None else variables

    def value(name: str) -> str | None:
        return source.get(PREFIX + name) or None

    return Environment(
        config=value("CONFIG"),
        state_dir=value("STATE_DIR"),
        model=value("MODEL"),
        host=value("HOST"),
        port=value("PORT"),
        api_key=value("API_KEY"),
        log_level=value("LOG_LEVEL"),
        url=value("URL"),
    )


def child_environment(
    extra: Mapping[str, str], unless_set: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """What a child process starts with: the caller's environment without baton's own variables
    (a role is told everything by its spec; secrets stay out of /proc/<pid>/environ), plus `extra`,
    plus `unless_set` where the caller's environment says nothing of it.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
    return {**unless_set, **inherited, **extra}
