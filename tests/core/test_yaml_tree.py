import pytest

from core.errors import ConfigError
from core.yaml_tree import Mark, dotted, parse_yaml


def test_values_and_places() -> None:
    tree = parse_yaml("a: 1\nb:\n  - x\n  - {c: 2.5, d: null}\n", "f.yaml")
    assert tree.value == {"a": 1, "b": ["x", {"c": 2.5, "d": None}]}
    assert tree.mark_of(("a",)) == Mark(1, 1)
    assert tree.mark_of(("b", 1, "d")) == Mark(4, 14)
    assert tree.mark_of(("b", 1, "missing", "deeper")) == Mark(4, 5)


def test_an_empty_document_is_an_empty_mapping() -> None:
    assert parse_yaml("# nothing\n", "f.yaml").value == {}


def test_merge_keys_and_aliases() -> None:
    tree = parse_yaml("base: &b {x: 1, y: 2}\nother:\n  <<: *b\n  y: 3\n", "f.yaml")
    assert tree.value["other"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: 'a' is given twice; first on line 1"),
        ("p:\n  q: {r: 1, r: 2}\n", "f.yaml:2:13: 'p.q.r' is given twice; first on line 2"),
        ("a: [1\n", "f.yaml:2:1: not valid YAML"),
        ("a: 1\n\tb: 2\n", "f.yaml:2:1: not valid YAML"),
        ("a: !!python/name:os.system x", "f.yaml:1:4: not valid YAML"),
        ("!!python/object:os.system {}", "f.yaml:1:1: the tag"),
        ("1: x", "f.yaml:1:1: a key must be text"),
        ("a: &x [*x]", "aliases that contain themselves"),
        ("a: 2020-13-45", "can't be read"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("[" * 1000, "nested too deeply"),
        ("a: \x01", "not valid YAML: unacceptable character"),
    ],
)
def test_what_is_refused_names_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_multiplying_aliases_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="too many"):
        parse_yaml("\n".join(lines), "f.yaml")


def test_dotted() -> None:
    assert dotted(("pools", 1, "match", "max_prompt_tokens")) == "pools[1].match.max_prompt_tokens"
    assert dotted(()) == ""
