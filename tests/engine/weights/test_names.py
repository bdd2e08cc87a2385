"""The prepared tensors hold every published one exactly once."""

import pytest

from engine.weights.names import prepared_tensors, published_shapes
from engine.weights.random_spec import parse_random


@pytest.mark.parametrize("source", ["random:llama?tied=1", "random:qwen2", "random:qwen3"])
def test_every_published_tensor_is_in_one_prepared_tensor(source: str) -> None:
    spec = parse_random(source).spec
    published, prepared = published_shapes(spec), prepared_tensors(spec)
    parts = [part for tensor in prepared for part in tensor.parts]
    assert sorted(parts) == sorted(published)
    for tensor in prepared:
        rows = sum(published[part][0] for part in tensor.parts)
        assert tensor.shape == (rows, *published[tensor.parts[0]][1:])


def test_what_is_fused_and_in_which_order() -> None:
    prepared = {t.name: t for t in prepared_tensors(parse_random("random:qwen2").spec)}
    prefix = "model.layers.1."
    assert prepared[prefix + "self_attn.qkv_proj.bias"].parts == tuple(
        f"{prefix}self_attn.{part}_proj.bias" for part in "qkv"
    )
    assert prepared[prefix + "mlp.gate_up_proj.weight"].parts == (
        prefix + "mlp.gate_proj.weight",
        prefix + "mlp.up_proj.weight",
    )
    assert prepared[prefix + "self_attn.o_proj.weight"].shape == (64, 64)
