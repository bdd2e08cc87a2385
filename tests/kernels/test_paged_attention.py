"""Paged attention against the slow truth, over prompts, chunks, decodes and windows."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from kernels.attention_plan import GROUP_TOKENS, plan_attention
from kernels.paged_attention import paged_attention, paged_attention_reference
from tests.kernels.paged_cases import PagedCase, paged_case

SEQUENCES = {
    "one token": [(0, 1)],
    "one prompt": [(0, 37)],
    "full blocks": [(0, 16), (16, 16), (31, 1)],
    "chunks": [(5, 11), (16, 1), (32, 40)],
    "decodes": [(0, 1), (15, 1), (16, 1), (200, 1), (17, 1), (190, 1)],
    "all kinds": [(40, 1), (0, 20), (3, 1), (64, 9), (0, 1)],
}


def filled_pool(case: PagedCase, block_tokens: int, kv_heads: int, head_dim: int) -> Tensor:
    """Layer 1 of a pool of 3: random where a context reaches, zero up to the end of its block
    (what `clear_fresh_blocks` sees to), not a number everywhere else."""
    pool = torch.full((case.blocks, 3, 2, block_tokens, kv_heads, head_dim), float("nan"))
    generator = torch.Generator().manual_seed(7)
    for table, context in zip(case.block_tables, case.context_lengths.tolist(), strict=True):
        for place in range(-(-context // block_tokens)):
            used = min(block_tokens, context - place * block_tokens)
            block = torch.zeros(2, block_tokens, kv_heads, head_dim)
            block[:, :used] = torch.randn(2, used, kv_heads, head_dim, generator=generator)
            pool[int(table[place]), 1] = block
    return pool[:, 1]


def attend(
    case: PagedCase, query: Tensor, layer_kv: Tensor, window: int | None
) -> tuple[Tensor, Tensor]:
    tables = (case.query_starts, case.context_lengths, case.block_tables)
    plan = plan_attention(*tables, layer_kv.shape[2], window, query.dtype)
    covered = [row for group in plan.groups for row in group.rows.tolist()]
    covered += [row for span in plan.spans for row in range(span.first_row, span.end_row)]
    assert sorted(covered) == list(range(query.shape[0])), "each row in exactly one place"
    return (
        paged_attention(query, layer_kv, plan),
        paged_attention_reference(query, layer_kv, *tables, window),
    )


@pytest.mark.parametrize("window", [None, 1, 16, 23, 10_000])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(9, 3, 8), (4, 4, 6), (2, 1, 10)])
@pytest.mark.parametrize("name", SEQUENCES)
def test_equals_the_reference(
    name: str, heads: int, kv_heads: int, head_dim: int, window: int | None
) -> None:
    case = paged_case(SEQUENCES[name], 16)
    layer_kv = filled_pool(case, 16, kv_heads, head_dim)
    query = torch.randn(case.positions.shape[0], heads, head_dim)
    ours, truth = attend(case, query, layer_kv, window)
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-5)


@given(
    sequences=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)), min_size=1, max_size=6),
    block_tokens=st.sampled_from([16, 32]),
    window=st.none() | st.integers(1, 40),
    seed=st.integers(0, 5),
)
def test_equals_the_reference_whatever_the_step(
    sequences: list[tuple[int, int]], block_tokens: int, window: int | None, seed: int
) -> None:
    case = paged_case(sequences, block_tokens, seed)
    layer_kv = filled_pool(case, block_tokens, 2, 4)
    query = torch.randn(case.positions.shape[0], 4, 4)
    ours, truth = attend(case, query, layer_kv, window)
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-5)


def test_a_group_copies_a_bounded_number_of_tokens_and_pads_little() -> None:
    sequences = [(length, 1) for length in (5, 900, 1000, 1010, 5000, 5100, 5200, 9000)] * 3
    case = paged_case(sequences, 16)
    plan = plan_attention(
        case.query_starts, case.context_lengths, case.block_tables, 16, None, torch.float32
    )
    gathered = sum(group.blocks.numel() * 16 for group in plan.groups)
    needed = int(case.context_lengths.sum())
    assert gathered < 1.3 * needed
    assert all(
        group.blocks.numel() * 16 <= GROUP_TOKENS or group.rows.numel() == 1
        for group in plan.groups
    )


def test_blocks_before_the_window_are_not_read() -> None:
    case = paged_case([(500, 1), (500, 20)], 16)
    plan = plan_attention(
        case.query_starts, case.context_lengths, case.block_tables, 16, 40, torch.float32
    )
    assert plan.groups[0].blocks.numel() <= 4
    assert plan.spans[0].blocks.numel() <= 5
