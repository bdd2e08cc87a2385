"""Rotary position embedding (Su et al. 2021), halves paired: element i with i + head_dim / 2."""

import torch
from torch import Tensor


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of each head by its token's angles.

    Args:
        x: [tokens, heads, head_dim]; may be a strided view. cos, sin: [tokens, head_dim / 2], of
            x's dtype.

    Returns:
        A new contiguous tensor of x's shape and dtype.
    """
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.mul(low, cos, out=out[..., :half]).addcmul_(high, sin, value=-1)
    torch.mul(high, cos, out=out[..., half:]).addcmul_(low, sin)
    return out


def rotary_reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The slow truth: one complex multiplication per pair, in float64."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    turned = pairs * torch.complex(cos.double(), sin.double()).unsqueeze(1)
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)
