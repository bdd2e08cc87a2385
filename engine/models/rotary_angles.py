"""Angles of the rotary position embedding, with the context stretching a model asks for."""

import math

import torch
from torch import Tensor

from core.errors import ModelError
from engine.model_spec import ModelSpec, RopeScaling


def inverse_frequencies(spec: ModelSpec) -> Tensor:
    """Radians per token of each pair: [head_dim / 2], float32."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    plain = 1.0 / (spec.rope_theta**exponents)
    return plain if spec.rope_scaling is None else _scaled(plain, spec.rope_scaling, spec.name)


def _scaled(plain: Tensor, scaling: RopeScaling, model: str) -> Tensor:
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _scaled_llama3(plain, scaling)
    if len(scaling.divisors) != plain.shape[0]:
        raise ModelError(
            f"{model}: {len(scaling.divisors)} rotary divisors for {plain.shape[0]} frequencies"
        )
    return plain / torch.tensor(scaling.divisors, dtype=torch.float32)


def _scaled_llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1's: long waves divided by the factor, short ones kept, a ramp between them."""
    low_wave = scaling.original_context / scaling.low_freq_factor
    high_wave = scaling.original_context / scaling.high_freq_factor
    wave = 2 * math.pi / plain
    divided = torch.where(wave > low_wave, plain / scaling.factor, plain)
    ramp = (scaling.original_context / wave - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - ramp) * divided / scaling.factor + ramp * divided
    between = (wave >= high_wave) & (wave <= low_wave)
    return torch.where(between, blended, divided)


def angles(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of a step's tokens.

    Worked out per step rather than tabled: a table of a long context is larger than the work.

    Args:
        positions: [T] int64. frequencies: [head_dim / 2] float32.

    Returns:
        Two tensors [T, head_dim / 2] of `dtype`, computed in float32.
    """
    turned = positions.float().unsqueeze(1) * frequencies
    return turned.cos().to(dtype), turned.sin().to(dtype)
