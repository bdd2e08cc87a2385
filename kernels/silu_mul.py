"""The gate of a Llama feed-forward layer: silu(gate) · up (SwiGLU, Shazeer 2020)."""

import torch
from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu of the first half of the last axis times its second half.

    Args:
        gate_up: [tokens, 2 · n].

    Returns:
        [tokens, n], a new tensor of the same dtype.
    """
    half = gate_up.shape[-1] // 2
    return functional.silu(gate_up[..., :half]).mul_(gate_up[..., half:])


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """The slow truth, in float64."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    return (gate / (1 + torch.exp(-gate)) * up).to(gate_up.dtype)
