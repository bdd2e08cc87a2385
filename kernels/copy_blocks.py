"""Copy whole KV blocks within a pool (copy-on-write forks)."""

from torch import Tensor


def copy_blocks(pool: Tensor, sources: Tensor, targets: Tensor) -> None:
    """pool[targets[i]] = pool[sources[i]], bit for bit.

    All sources are read before any target is written.

    Args:
        pool: [block, layer, 2, token, kv_head, head_dim].
        sources, targets: [n] int64; targets differ from one another.
    """
    pool.index_copy_(0, targets, pool.index_select(0, sources))


def copy_blocks_reference(pool: Tensor, sources: Tensor, targets: Tensor) -> None:
    """The slow truth: one block after another, from a copy."""
    before = pool.clone()
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        pool[target] = before[source]
