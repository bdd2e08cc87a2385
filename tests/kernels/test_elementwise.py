"""rms_norm, rotary, silu_mul, linear, embedding: each against its reference, odd sizes included."""

import pytest
import torch

from kernels.embedding import embedding, embedding_reference
from kernels.linear import linear, linear_reference
from kernels.rms_norm import rms_norm, rms_norm_reference
from kernels.rotary import rotary, rotary_reference
from kernels.silu_mul import silu_mul, silu_mul_reference

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
DTYPES = list(TOLERANCE)


def assert_near(ours: torch.Tensor, truth: torch.Tensor, spread: float = 1.0) -> None:
    """Equal up to rounding in the dtype of values of that spread."""
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, truth, rtol=tolerance, atol=spread * tolerance)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 64), (2, 3, 33), (0, 8)])
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = numbers(*shape, dtype=dtype), numbers(shape[-1], dtype=dtype, seed=1)
    assert_near(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))


def test_rms_norm_of_zeros_is_zero() -> None:
    assert torch.equal(rms_norm(torch.zeros(2, 5), torch.ones(5), 1e-6), torch.zeros(2, 5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(1, 1, 2), (5, 3, 6), (17, 9, 64)])
def test_rotary_on_a_strided_view(
    tokens: int, heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    whole = numbers(tokens, heads + 2, head_dim, dtype=dtype)
    before = whole.clone()
    angle = numbers(tokens, head_dim // 2, seed=1) * 10
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    view = whole[:, 1 : 1 + heads]
    turned = rotary(view, cos, sin)
    assert turned.is_contiguous()
    assert_near(turned, rotary_reference(view, cos, sin))
    assert torch.equal(whole, before), "the input is left as it was"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (3, 14), (17, 128)])
def test_silu_mul(shape: tuple[int, int], dtype: torch.dtype) -> None:
    gate_up = numbers(*shape, dtype=dtype) * 4
    before = gate_up.clone()
    out = silu_mul(gate_up)
    assert out.shape == (shape[0], shape[1] // 2)
    assert_near(out, silu_mul_reference(gate_up))
    assert torch.equal(gate_up, before), "the input is left as it was"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("k", "n"), [(37, 29), (29, 37)])
@pytest.mark.parametrize("rows", [0, 1, 4, 5, 16, 17, 64, 65])
def test_linear(rows: int, k: int, n: int, biased: bool, dtype: torch.dtype) -> None:
    x, weight = numbers(rows, k, dtype=dtype), numbers(n, k, dtype=dtype, seed=1)
    bias = numbers(n, dtype=dtype, seed=2) if biased else None
    out = linear(x, weight, bias)
    assert out.is_contiguous()
    assert_near(out, linear_reference(x, weight, bias), spread=37**0.5)


@pytest.mark.parametrize("tokens", [[], [0], [4, 4, 0, 6]])
def test_embedding_copies_rows_exactly(tokens: list[int]) -> None:
    table, ids = numbers(7, 5), torch.tensor(tokens, dtype=torch.int64)
    out = embedding(ids, table)
    assert torch.equal(out, embedding_reference(ids, table))
    out.zero_()
    assert table.abs().sum() > 0, "the rows are copies"
