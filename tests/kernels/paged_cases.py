"""Steps over a paged pool with everything that can be odd about them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PagedCase:
    """Index tensors of a step (int64) whose sequences own random, disjoint blocks."""

    positions: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    blocks: int


def paged_case(sequences: Sequence[tuple[int, int]], block_tokens: int, seed: int = 0) -> PagedCase:
    """A step of (tokens before, query tokens) sequences."""
    contexts = [before + queries for before, queries in sequences]
    needed = [-(-context // block_tokens) for context in contexts]
    blocks = sum(needed) + 3
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    width = max(needed) + 1
    tables = [[order.pop() for _ in range(count)] for count in needed]
    starts = [0]
    for _, queries in sequences:
        starts.append(starts[-1] + queries)
    return PagedCase(
        positions=torch.tensor([b + i for b, q in sequences for i in range(q)]),
        query_starts=torch.tensor(starts),
        context_lengths=torch.tensor(contexts),
        block_tables=torch.tensor([[*table, *[0] * (width - len(table))] for table in tables]),
        blocks=blocks,
    )
