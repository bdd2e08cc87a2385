"""The tensors of one step: what a model is run on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """S sequences, T query tokens of all of them in a row, R of which need logits.

    All int64, on the model's device:
        tokens [T], positions [T] (index of each token in its sequence, from 0),
        query_starts [S + 1] (sequence s has rows query_starts[s] .. query_starts[s + 1]),
        context_lengths [S] (tokens of each sequence after this step, its query tokens included),
        block_tables [S, max_blocks] (pool blocks in token order; padded with 0),
        logit_rows [R] (rows of `tokens` whose next-token logits are wanted).

    A sequence's query tokens are its last ones: their positions are context_length - queries ..
    context_length - 1. A sequence has at least one query token.
    """

    tokens: Tensor
    positions: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    logit_rows: Tensor


def make_forward_batch(
    tokens: Sequence[Sequence[int]],
    starts: Sequence[int],
    block_tables: Sequence[Sequence[int]],
    logit_rows: Sequence[int],
    device: torch.device | str = "cpu",
) -> ForwardBatch:
    """A batch from plain lists, one entry per sequence.

    Args:
        tokens: each sequence's query tokens of this step (at least one).
        starts: position of the first of them: how many tokens already have KV in the pool.
        block_tables: each sequence's blocks in token order; enough for start + len(tokens).
        logit_rows: rows of the concatenated tokens whose logits are wanted.
    """
    flat: list[int] = []
    positions: list[int] = []
    query_starts = [0]
    contexts: list[int] = []
    widest = max(map(len, block_tables), default=0)
    for query, start in zip(tokens, starts, strict=True):
        if not query:
            raise ValueError("a sequence of a step has at least one query token")
        flat.extend(query)
        positions.extend(range(start, start + len(query)))
        query_starts.append(len(flat))
        contexts.append(start + len(query))
    padded = [[*table, *[0] * (widest - len(table))] for table in block_tables]

    def tensor(values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return ForwardBatch(
        tokens=tensor(flat),
        positions=tensor(positions),
        query_starts=tensor(query_starts),
        context_lengths=tensor(contexts),
        block_tables=tensor(padded).view(len(contexts), widest),
        logit_rows=tensor(logit_rows),
    )
