"""Root-mean-square normalisation (Zhang and Sennrich 2019)."""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last axis; the statistics are float32.

    Args:
        x: [..., n]. weight: [n], of x's dtype.

    Returns:
        A new tensor of x's shape and dtype. In half precision the normalised value is rounded
        before the weight is applied, as the Llama family was trained.
    """
    if x.dtype == torch.float32:
        return functional.rms_norm(x, weight.shape, weight, eps)
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The slow truth, in float64."""
    wide = x.double()
    return (wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()).to(x.dtype)
