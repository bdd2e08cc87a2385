"""YAML that remembers where everything stood, so that a wrong value can be pointed at.

Safe tags only; a key given twice is refused (YAML 1.2 calls it an error, PyYAML takes the last).
"""

from dataclasses import dataclass, field
from typing import Any

import yaml

from core.errors import ConfigError

Path = tuple[str | int, ...]
MAX_NODES = 100_000
"""A limit on aliases that multiply ("billion laughs"); a configuration has a few hundred nodes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, both counted from 1."""

    line: int
    column: int


@dataclass(slots=True)
class YamlTree:
    """`value`: dicts, lists and scalars. `marks`: where each path's key (or list item) stands."""

    value: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)

    def mark_of(self, path: Path) -> Mark | None:
        """Of `path`, or of the nearest thing around it that is in the file."""
        for length in range(len(path), -1, -1):
            mark = self.marks.get(path[:length])
            if mark is not None:
                return mark
        return None


def dotted(path: Path) -> str:
    """`("pools", 1, "replicas")` → `pools[1].replicas`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def parse_yaml(text: str, name: str) -> YamlTree:
    """Read one document; an empty one is an empty mapping.

    Raises:
        ConfigError: not YAML, a key twice, a tag beyond the safe ones; with line and column.
    """
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise _syntax_error(name, error) from None
    try:
        node = loader.get_single_node()
        tree = YamlTree()
        tree.value = {} if node is None else _Builder(name, loader, tree).build(node, ())
        return tree
    except yaml.YAMLError as error:
        raise _syntax_error(name, error) from None
    except RecursionError:
        raise ConfigError(name, "nested too deeply") from None
    finally:
        loader.dispose()


def _syntax_error(name: str, error: yaml.YAMLError) -> ConfigError:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        return ConfigError(place, f"not valid YAML: {error.problem or error.context}")
    return ConfigError(name, f"not valid YAML: {str(error).splitlines()[0]}")


class _Builder:
    """Turns one document's nodes into values, noting the places."""

    def __init__(self, name: str, loader: yaml.SafeLoader, tree: YamlTree) -> None:
        self._name = name
        self._loader = loader
        self._tree = tree
        self._nodes = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or id(node) in self._open:
            raise self._error(node, "aliases that contain themselves, or too many of them")
        self._tree.marks.setdefault(path, _mark(node))
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node)
            raise self._error(node, f"the tag {node.tag} isn't allowed here")
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # the 13th month, an integer of 5,000 digits
            raise self._error(node, f"{node.value[:40]!r} can't be read: {error}") from None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._refuse_duplicates(node, path)
        self._loader.flatten_mapping(node)  # `<<: *base`; own keys stand last and win
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            here = (*path, key)
            self._tree.marks[here] = _mark(key_node)
            built[key] = self.build(value_node, here)
        return built

    def _refuse_duplicates(self, node: yaml.MappingNode, path: Path) -> None:
        seen: dict[str, Mark] = {}
        for key_node, _ in node.value:
            key = self._key(key_node)
            if key in seen:
                raise self._error(
                    key_node,
                    f"'{dotted((*path, key))}' is given twice; first on line {seen[key].line}",
                )
            seen[key] = _mark(key_node)

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag in (
            "tag:yaml.org,2002:str",
            "tag:yaml.org,2002:merge",
        ):
            return str(node.value)
        raise self._error(node, "a key must be text; put it in quotes")

    def _error(self, node: yaml.Node, problem: str) -> ConfigError:
        mark = _mark(node)
        return ConfigError(f"{self._name}:{mark.line}:{mark.column}", problem)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)
