"""The command line of `baton serve` and the environment → the configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import Config, PoolRole
from core.config_file import load_config, parse_setting
from core.environment import Environment
from core.errors import ConfigError
from launch.logging_setup import LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The flags as given; None where they weren't."""

    config_file: Path | None = None
    model: str | None = None
    prefill: int | None = None
    decode: int | None = None
    host: str | None = None
    port: int | None = None
    api_key: str | None = None
    state_dir: str | None = None
    dtype: str | None = None
    kv_bytes: str | None = None
    max_context: int | None = None
    transport: str | None = None
    allow_fallback: bool = False
    settings: tuple[str, ...] = ()
    """`KEY=VALUE` of each --set."""
    log_level: str | None = None


def build_config(options: ServeOptions, environment: Environment) -> Config:
    """The whole configuration: command line over environment over file over defaults.

    Raises:
        ConfigError: names the flag, the variable or the line that is wrong.
    """
    named = environment.config
    path = options.config_file or (Path(named).expanduser() if named else None)
    overrides: dict[str, Any] = {}
    flags: dict[str, str] = {}

    def put(key: str, value: Any, origin: str) -> None:
        if value is not None:
            overrides[key], flags[key] = value, origin

    for key, value, origin in _from_environment(environment):
        put(key, value, origin)
    for key, value, origin in _from_flags(options):
        put(key, value, origin)
    base = load_config(path, {})
    for role, replicas in ((PoolRole.PREFILL, options.prefill), (PoolRole.DECODE, options.decode)):
        if replicas is not None:
            put(f"pools.{_only_pool(base, role)}.replicas", replicas, f"--{role}")
    for setting in options.settings:
        key, value = parse_setting(setting)
        overrides[key], flags[key] = value, f"--set {key}"
    config = load_config(path, overrides, flags)
    if config.gateway.api_key == "":
        raise ConfigError(flags.get("gateway.api_key", "gateway.api_key"), "must not be empty")
    return config


def chosen_log_level(options: ServeOptions, environment: Environment) -> str:
    """One of LEVELS.

    Raises:
        ConfigError: none of them.
    """
    level = options.log_level or environment.log_level or "info"
    if level.lower() not in LEVELS:
        origin = "--log-level" if options.log_level else "BATON_LOG_LEVEL"
        raise ConfigError(origin, f"must be one of {', '.join(LEVELS)}, not '{level}'")
    return level.lower()


def _from_environment(environment: Environment) -> tuple[tuple[str, Any, str], ...]:
    return (
        ("state_dir", environment.state_dir, "BATON_STATE_DIR"),
        ("model.source", environment.model, "BATON_MODEL"),
        ("gateway.host", environment.host, "BATON_HOST"),
        ("gateway.port", environment.port, "BATON_PORT"),
        ("gateway.api_key", environment.api_key, "BATON_API_KEY"),
    )


def _from_flags(options: ServeOptions) -> tuple[tuple[str, Any, str], ...]:
    return (
        ("model.source", options.model, "--model"),
        ("model.dtype", options.dtype, "--dtype"),
        ("model.max_context", options.max_context, "--max-context"),
        ("engine.kv_bytes", options.kv_bytes, "--kv-bytes"),
        ("gateway.host", options.host, "--host"),
        ("gateway.port", options.port, "--port"),
        ("gateway.api_key", options.api_key, "--api-key"),
        ("state_dir", options.state_dir, "--state-dir"),
        ("transport.kind", options.transport, "--transport"),
        ("transport.allow_fallback", options.allow_fallback or None, "--allow-fallback"),
    )


def _only_pool(config: Config, role: PoolRole) -> str:
    """The pool whose size the flag means."""
    names = [pool.name for pool in config.pools if pool.role is role]
    if len(names) == 1:
        return names[0]
    flag = f"--{role}"
    if not names:
        raise ConfigError(flag, f"the configuration has no pool of role {role}")
    raise ConfigError(
        flag,
        f"there are {len(names)} {role} pools ({', '.join(names)}); "
        f"use --set pools.{names[0]}.replicas=N",
    )
