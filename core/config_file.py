"""`scaling.yaml` and the command line's overrides → the frozen `Config`, and back.

Whatever is wrong names itself, its place and, where one is near, what was probably meant:
`scaling.yaml:12: pools[1].replicas: must be ≥ 0, not -1`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import ValidationError

from core.config import Config
from core.config_problems import describe, section_of_message
from core.errors import ConfigError
from core.size import parse_size
from core.yaml_tree import Path as TreePath, YamlTree, dotted, parse_yaml

NO_FLAGS: Mapping[str, str] = MappingProxyType({})
_TOKEN = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def load_config(
    path: Path | None, overrides: Mapping[str, Any], flags: Mapping[str, str] = NO_FLAGS
) -> Config:
    """Read the file (None: the defaults), lay `overrides` over it and validate the whole.

    `overrides` maps dotted keys (`gateway.port`, `pools.decode.replicas`, `pools[1].replicas`)
    to values; `flags` says which flag of the command line gave one, default `--set KEY`. Sizes
    (`*_bytes`) may be text such as `1GiB`. A pool's `engine` section changes what it names and
    inherits the rest from the top-level one.

    Raises:
        ConfigError: the file can't be read, a key is unknown or given twice, a value is wrong.
    """
    tree = _read(path)
    origins = _Origins(path.name if path else "configuration", tree)
    if not isinstance(tree.value, dict):
        raise ConfigError(origins.place(()), "must be a mapping of keys")
    for key, value in overrides.items():
        flag = flags.get(key, f"--set {key}")
        origins.overridden[_set(tree.value, key, value, flag)] = flag
    _inherit_engine(tree.value)
    _parse_sizes(tree.value, (), origins)
    try:
        config = Config.model_validate(tree.value)
    except ValidationError as error:
        raise _config_error(error, origins) from None
    _refuse_booleans(tree.value, config.model_dump(), (), origins)
    return config


def dump_config(config: Config) -> str:
    """The whole tree as YAML; `load_config` of it gives an equal `config`."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def parse_setting(text: str) -> tuple[str, Any]:
    """`KEY=VALUE` of `--set`; the value is read as YAML (`true`, `3`, `[0, 1]`, `null`, text).

    Raises:
        ConfigError: no `=`, no key, or a value that isn't YAML.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}", "must be KEY=VALUE, such as gateway.port=8080")
    return key.strip(), parse_yaml(value, f"--set {key}").value if value.strip() else ""


@dataclass(slots=True)
class _Origins:
    """Where a path's value came from: the file, or which flag."""

    name: str
    tree: YamlTree
    overridden: dict[TreePath, str] = field(default_factory=dict)

    def place(self, path: TreePath) -> str:
        """`--port`, `scaling.yaml:12` or, where the file doesn't have it, `scaling.yaml`."""
        exact = [flag for over, flag in self.overridden.items() if path[: len(over)] == over]
        inside = [flag for over, flag in self.overridden.items() if over[: len(path)] == path]
        if path and (exact or inside):
            return ", ".join(dict.fromkeys(exact[-1:] or inside))
        mark = self.tree.mark_of(path) if path else None
        return f"{self.name}:{mark.line}" if mark else self.name

    def label(self, path: TreePath) -> str:
        """`place: dotted.key`, without saying the key twice."""
        place = self.place(path)
        return (
            place if place.endswith(f" {dotted(path)}") or not path else f"{place}: {dotted(path)}"
        )


def _read(path: Path | None) -> YamlTree:
    if path is None:
        return YamlTree(value={})
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise ConfigError(str(path), f"can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "isn't UTF-8 text") from None


def _set(tree: dict[str, Any], key: str, value: Any, flag: str) -> TreePath:
    """Put `value` at `key`; sections with defaults that the file leaves out are filled in first."""
    tokens: list[str | int] = [name if name else int(index) for name, index in _TOKEN.findall(key)]
    if not tokens or isinstance(tokens[0], int):
        raise ConfigError(flag, f"'{key}' is no key; keys look like gateway.port")
    if len(tokens) > 1 and tokens[0] in ("pools", "slo_classes"):
        tree.setdefault(tokens[0], Config().model_dump(mode="json")[tokens[0]])
    path: TreePath = ()
    here: Any = tree
    for position, token in enumerate(tokens):
        step = _step(here, token, path, flag)
        path = (*path, step)
        if position == len(tokens) - 1:
            here[step] = value
            break
        if isinstance(here, dict) and here.get(step) is None:
            here[step] = {}
        here = here[step]
    return path


def _step(here: Any, token: str | int, path: TreePath, flag: str) -> str | int:
    """The index or key that `token` means in `here`; items of a list go by number or by name."""
    if isinstance(here, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in here]
        if token in names:
            return names.index(token)
        if str(token).isdigit() and int(token) < len(here):
            return int(token)
        known = ", ".join(str(name) for name in names if name) or "none"
        raise ConfigError(flag, f"{dotted(path)} has no '{token}'; it has: {known}")
    if isinstance(here, dict) and isinstance(token, str):
        return token
    raise ConfigError(flag, f"{dotted(path) or 'the configuration'} has no '{token}' inside")


def _inherit_engine(tree: dict[str, Any]) -> None:
    base, pools = tree.get("engine"), tree.get("pools")
    if not isinstance(base, dict) or not isinstance(pools, list):
        return
    for pool in pools:
        if isinstance(pool, dict) and isinstance(pool.get("engine"), dict):
            pool["engine"] = {**base, **pool["engine"]}


def _parse_sizes(here: Any, path: TreePath, origins: _Origins) -> None:
    """Replace text under keys named `*_bytes` by the number it means, in place."""
    if isinstance(here, list):
        for index, item in enumerate(here):
            _parse_sizes(item, (*path, index), origins)
    if not isinstance(here, dict):
        return
    for key, value in here.items():
        inside = (*path, key)
        if str(key).endswith("_bytes") and isinstance(value, str):
            try:
                here[key] = parse_size(value)
            except ValueError as error:
                raise ConfigError(origins.label(inside), str(error)) from None
        else:
            _parse_sizes(value, inside, origins)


def _refuse_booleans(given: Any, validated: Any, path: TreePath, origins: _Origins) -> None:
    """`replicas: yes` is no number, though Python would take it for 1."""
    if isinstance(given, bool) and not isinstance(validated, bool):
        raise ConfigError(origins.label(path), f"must not be {str(given).lower()}")
    if isinstance(given, dict) and isinstance(validated, dict):
        for key, value in given.items():
            _refuse_booleans(value, validated.get(key), (*path, key), origins)
    if isinstance(given, list) and isinstance(validated, Sequence):
        for index, (value, valid) in enumerate(zip(given, validated, strict=True)):
            _refuse_booleans(value, valid, (*path, index), origins)


def _config_error(error: ValidationError, origins: _Origins) -> ConfigError:
    """The finding that stands first in the file; the rest by name."""
    found: dict[TreePath, str] = {}
    for problem in error.errors(include_url=False):
        path: TreePath = tuple(problem["loc"])
        words = describe(problem)
        if problem["type"] == "value_error":
            path, words = section_of_message(path, words)
        found.setdefault(path, words)
    # A list with a wrong item is itself reported as too short: the item is the cause.
    causes = [
        path
        for path in found
        if not any(other[: len(path)] == path for other in found if other != path)
    ]
    causes.sort(key=lambda path: mark.line if (mark := origins.tree.mark_of(path)) else 0)
    words = found[causes[0]]
    if len(causes) > 1:
        words += f" (and {len(causes) - 1} more: {', '.join(map(dotted, causes[1:5]))})"
    return ConfigError(origins.label(causes[0]), words)
