"""The spec: JSON and back, and what it refuses."""

import json
from dataclasses import replace

import pytest

from core.errors import ModelError
from engine.model_spec import ModelSpec, RopeScaling
from engine.weights.random_spec import parse_random

SPEC = replace(
    parse_random("random:mistral?layers=3,sliding_window=5").spec,
    rope_scaling=RopeScaling(kind="divisors", divisors=(1.0, 2.5)),
    bos_token_id=1,
    eos_token_ids=(2, 7),
    fingerprint="ab" * 16,
)


def test_json_round_trip() -> None:
    plain = parse_random("random:llama").spec
    for spec in (SPEC, plain):
        assert ModelSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a model spec"),
        ("[]", "not a model spec"),
        ("{}", "version None, expected 1"),
        (json.dumps({"version": 1}), "missing"),
        (json.dumps({**json.loads(SPEC.to_json()), "wheels": 4}), "unknown keys.*wheels"),
        (json.dumps({**json.loads(SPEC.to_json()), "architecture": "gpt"}), "unknown architecture"),
    ],
)
def test_what_isn_t_a_spec_is_refused(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        ModelSpec.from_json(text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"kv_heads": 3}, "multiple"),
        ({"head_dim": 7}, "even"),
        ({"sliding_window": 0}, "sliding_window"),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, int], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        replace(SPEC, **changes)  # type: ignore[arg-type]


def test_windows_hold_for_their_layers() -> None:
    spec = replace(SPEC, sliding_layers=(1,))
    assert [spec.window_of(layer) for layer in range(3)] == [None, 5, None]


def test_kv_layout() -> None:
    layout = SPEC.kv_layout(16, "bfloat16")
    assert (layout.layers, layout.kv_heads, layout.head_dim) == (3, 2, 16)
    assert layout.block_bytes == 3 * 2 * 16 * 2 * 16 * 2
