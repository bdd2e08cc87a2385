"""Write a step's keys and values into their places in the paged pool."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KvSlots:
    """Where a step's T tokens go, worked out once for all layers. All int64.

    `blocks` [T] and `offsets` [T]: block and place within it. `fresh` [F]: blocks whose first
    token is written in this step and which it doesn't fill.
    """

    blocks: Tensor
    offsets: Tensor
    fresh: Tensor


def plan_kv_slots(
    positions: Tensor, query_starts: Tensor, block_tables: Tensor, block_tokens: int
) -> KvSlots:
    """The places of a step's tokens.

    Args:
        positions: [T]. query_starts: [S + 1]. block_tables: [S, max_blocks]. All int64.
    """
    counts = query_starts[1:] - query_starts[:-1]
    sequences = torch.repeat_interleave(
        torch.arange(counts.shape[0], device=counts.device), counts, output_size=positions.shape[0]
    )
    blocks = block_tables[sequences, positions // block_tokens]
    offsets = positions % block_tokens
    last_rows = query_starts[1:] - 1
    starts_in_step = positions[last_rows] - offsets[last_rows] >= positions[query_starts[:-1]]
    unfilled = offsets[last_rows] < block_tokens - 1
    return KvSlots(blocks, offsets, blocks[last_rows[starts_in_step & unfilled]])


def clear_fresh_blocks(pool: Tensor, slots: KvSlots) -> None:
    """Zero the blocks that this step begins and doesn't fill, over all layers.

    Attention reads whole blocks and gives the places beyond the context a weight of zero; what
    lies there must be finite, whatever a former owner or a torn transfer left (0 · NaN is NaN).

    Args:
        pool: [block, layer, 2, token, kv_head, head_dim].
    """
    if slots.fresh.numel():
        pool.index_fill_(0, slots.fresh, 0)


def write_kv(key: Tensor, value: Tensor, layer_kv: Tensor, slots: KvSlots) -> None:
    """Write one layer's keys and values.

    Args:
        key, value: [T, kv_head, head_dim], of the pool's dtype.
        layer_kv: [block, 2, token, kv_head, head_dim], one layer's view of the pool.
    """
    layer_kv[:, 0].index_put_((slots.blocks, slots.offsets), key)
    layer_kv[:, 1].index_put_((slots.blocks, slots.offsets), value)


def write_kv_reference(
    key: Tensor,
    value: Tensor,
    layer_kv: Tensor,
    positions: Tensor,
    query_starts: Tensor,
    block_tables: Tensor,
) -> None:
    """The slow truth: token by token."""
    block_tokens = layer_kv.shape[2]
    starts = query_starts.tolist()
    for sequence, (first, last) in enumerate(pairwise(starts)):
        for row in range(first, last):
            position = int(positions[row])
            block = int(block_tables[sequence, position // block_tokens])
            layer_kv[block, 0, position % block_tokens] = key[row]
            layer_kv[block, 1, position % block_tokens] = value[row]
