"""Rotary frequencies against transformers' own, and GGUF's divisors."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from core.errors import ModelError
from engine.model_spec import RopeScaling
from engine.models.rotary_angles import angles, inverse_frequencies
from engine.weights.random_spec import parse_random

SPEC = replace(parse_random("random:llama?hidden=128,heads=2").spec, rope_theta=500_000.0)


def theirs(kind: str, **parameters: Any) -> torch.Tensor:
    config = LlamaConfig(
        hidden_size=128,
        num_attention_heads=2,
        rope_parameters={"rope_type": kind, "rope_theta": 500_000.0, **parameters},
    )
    frequencies: torch.Tensor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")[0]
    return frequencies


def test_linear() -> None:
    spec = replace(SPEC, rope_scaling=RopeScaling(kind="linear", factor=4.0))
    torch.testing.assert_close(inverse_frequencies(spec), theirs("linear", factor=4.0))


def test_llama3() -> None:
    scaling = RopeScaling(
        kind="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )
    wanted = theirs(
        "llama3",
        factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    assert torch.equal(inverse_frequencies(replace(SPEC, rope_scaling=scaling)), wanted)


def test_divisors_divide_and_must_fit() -> None:
    plain = inverse_frequencies(SPEC)
    scaling = RopeScaling(kind="divisors", divisors=tuple(range(1, 33)))
    scaled = inverse_frequencies(replace(SPEC, rope_scaling=scaling))
    torch.testing.assert_close(scaled * torch.arange(1, 33), plain)
    short = replace(SPEC, rope_scaling=RopeScaling(kind="divisors", divisors=(1.0,)))
    with pytest.raises(ModelError, match="1 rotary divisors for 32"):
        inverse_frequencies(short)


def test_angles_keep_their_precision_far_into_a_context() -> None:
    positions = torch.tensor([0, 1, 131_071])
    cos, sin = angles(positions, inverse_frequencies(SPEC), torch.float32)
    exact = positions.double().unsqueeze(1) * inverse_frequencies(SPEC).double()
    assert cos.shape == sin.shape == (3, 32)
    torch.testing.assert_close(cos.double(), exact.cos(), rtol=0, atol=8e-3)
    torch.testing.assert_close(sin.double(), exact.sin(), rtol=0, atol=8e-3)
