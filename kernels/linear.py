"""Matrix product with a weight that lies row by row, as it is mapped from the file."""

import torch
from torch import Tensor
from torch.nn import functional

FEW_ROWS = range(3, 25)
"""Row counts for which the product is computed transposed on a CPU: MKL's kernels for float32
walk a row-major weight once per two rows of a small x, but only once for a small right side
(measured: 8 rows, 30 % less time; 1, 2 and 32 rows or more are quicker the plain way)."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias.

    Args:
        x: [tokens, k]. weight: [n, k]. bias: [n]. All of one dtype.

    Returns:
        [tokens, n], contiguous.
    """
    if x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[0] in FEW_ROWS:
        product = torch.mm(weight, x.t()).t().contiguous()
        return product if bias is None else product.add_(bias)
    return functional.linear(x, weight, bias)


def linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The slow truth, in float64."""
    product = torch.einsum("tk,nk->tn", x.double(), weight.double())
    return (product if bias is None else product + bias.double()).to(x.dtype)
