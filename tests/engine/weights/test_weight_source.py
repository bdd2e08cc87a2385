"""A source must bring exactly the tensors of its model."""

import pytest

from core.errors import ModelError
from engine.weights.names import published_shapes
from engine.weights.random_spec import parse_random
from engine.weights.weight_source import check_tensors

SPEC = parse_random("random:llama?layers=2,hidden=32,heads=2,kv_heads=1,vocab=320").spec
SHAPES = published_shapes(SPEC)


def test_the_right_tensors_pass() -> None:
    check_tensors("here", SHAPES, SPEC)


def test_a_missing_tensor_is_named() -> None:
    name = next(iter(SHAPES))
    with pytest.raises(ModelError, match=rf"here: 1 tensor\(s\).*missing: {name}"):
        check_tensors("here", {n: s for n, s in SHAPES.items() if n != name}, SPEC)


def test_a_wrong_shape_is_told_beside_the_right_one() -> None:
    name, shape = next(iter(SHAPES.items()))
    with pytest.raises(ModelError, match=r"has shape .*1.*expected"):
        check_tensors("here", {**SHAPES, name: (1, *shape[1:])}, SPEC)


def test_a_foreign_tensor_is_named() -> None:
    with pytest.raises(ModelError, match=r"no place .*: extra"):
        check_tensors("here", {**SHAPES, "extra": (1,)}, SPEC)
