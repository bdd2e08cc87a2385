"""Copying blocks moves data: compared bit for bit."""

import torch
from hypothesis import given, strategies as st

from kernels.copy_blocks import copy_blocks, copy_blocks_reference


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8)), unique_by=lambda pair: pair[1], max_size=9
    )
)
def test_equals_the_reference(pairs: list[tuple[int, int]]) -> None:
    """Also where one copy's target is another's source."""
    pool = torch.randn(9, 2, 2, 16, 1, 3)
    wanted = pool.clone()
    sources = torch.tensor([source for source, _ in pairs], dtype=torch.int64)
    targets = torch.tensor([target for _, target in pairs], dtype=torch.int64)
    copy_blocks_reference(wanted, sources, targets)
    copy_blocks(pool, sources, targets)
    assert torch.equal(pool, wanted)
