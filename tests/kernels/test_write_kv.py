"""Writing into the pool moves data: compared bit for bit."""

import torch
from hypothesis import given, strategies as st

from kernels.write_kv import clear_fresh_blocks, plan_kv_slots, write_kv, write_kv_reference
from tests.kernels.paged_cases import paged_case

STEPS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=5)


@given(sequences=STEPS, block_tokens=st.sampled_from([16, 32]))
def test_equals_the_reference(sequences: list[tuple[int, int]], block_tokens: int) -> None:
    case = paged_case(sequences, block_tokens)
    tokens = case.positions.shape[0]
    key, value = torch.randn(tokens, 3, 4), torch.randn(tokens, 5, 4)[:, 1:4]
    pool = torch.randn(case.blocks, 2, 2, block_tokens, 3, 4)
    wanted = pool.clone()
    write_kv_reference(
        key, value, wanted[:, 1], case.positions, case.query_starts, case.block_tables
    )
    slots = plan_kv_slots(case.positions, case.query_starts, case.block_tables, block_tokens)
    write_kv(key, value, pool[:, 1], slots)
    assert torch.equal(pool, wanted)


@given(sequences=STEPS)
def test_nothing_unwritten_is_left_in_a_block_that_a_step_begins(
    sequences: list[tuple[int, int]],
) -> None:
    """Through the steps of several sequences in a pool of NaN, what attention may gather is
    finite: all of a sequence's blocks. What a step doesn't begin, it doesn't clear."""
    case = paged_case(sequences, 16)
    pool = torch.full((case.blocks, 1, 2, 16, 1, 2), float("nan"))
    for positions, starts, tables in _two_steps(sequences, case.block_tables):
        before = pool.clone()
        slots = plan_kv_slots(positions, starts, tables, 16)
        clear_fresh_blocks(pool, slots)
        ones = torch.ones(positions.shape[0], 1, 2)
        write_kv(ones, ones, pool[:, 0], slots)
        assert torch.equal(pool[before == 1], before[before == 1]), "written tokens stay"
    for table, context in zip(case.block_tables, case.context_lengths.tolist(), strict=True):
        blocks = table[: -(-context // 16)]
        assert torch.isfinite(pool[blocks]).all()
        flat = pool[blocks][:, 0, 0, :, 0, 0].reshape(-1)
        assert torch.equal(flat[:context], torch.ones(context))


def _two_steps(
    sequences: list[tuple[int, int]], tables: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """The tokens before, then the queries, of those sequences that have any."""
    steps = []
    for spans in (
        [(i, 0, before) for i, (before, _) in enumerate(sequences) if before],
        [(i, before, before + queries) for i, (before, queries) in enumerate(sequences)],
    ):
        if spans:
            starts = [0]
            for _, begin, end in spans:
                starts.append(starts[-1] + end - begin)
            positions = torch.tensor([p for _, begin, end in spans for p in range(begin, end)])
            steps.append((positions, torch.tensor(starts), tables[[i for i, _, _ in spans]]))
    return steps
