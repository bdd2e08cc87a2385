"""What a step's attention reads, worked out once per step and shared by its layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP_TOKENS = 16_384
"""Most context tokens gathered at once for decoding sequences: bounds the copy."""
GROUP_SLACK_BLOCKS = 2
"""Sequences share a group when their block counts differ by at most a quarter and this."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """B sequences with one query each and similar contexts.

    rows [B] int64: their query rows. blocks [B · n] int64: n blocks each. mask [B, 1, 1, n ·
    block_tokens]: 0 where a query may look, -inf elsewhere.
    """

    rows: Tensor
    blocks: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class QuerySpan:
    """One sequence with several queries: rows first_row .. end_row.

    blocks [n] int64; of their tokens the first `tokens` are attended to. mask [queries, tokens];
    None where it is the plain causal triangle from token 0 on.
    """

    first_row: int
    end_row: int
    blocks: Tensor
    tokens: int
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Every row of the step is in exactly one group or span. Window: see `plan_attention`."""

    groups: tuple[DecodeGroup, ...]
    spans: tuple[QuerySpan, ...]


@dataclass(frozen=True, slots=True)
class _Single:
    """A sequence with one query: its row, context, and the blocks in view."""

    sequence: int
    row: int
    context: int
    first_block: int
    end_block: int

    @property
    def blocks(self) -> int:
        return self.end_block - self.first_block


def plan_attention(
    query_starts: Tensor,
    context_lengths: Tensor,
    block_tables: Tensor,
    block_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> AttentionPlan:
    """Sort a step's sequences into groups and spans.

    Args:
        query_starts: [S + 1]. context_lengths: [S]. block_tables: [S, max_blocks]. All int64.
        window: tokens that a query may attend to, itself included; None: all before it. Blocks
            wholly before the window are not read.
        dtype: of the queries (and so of the masks).
    """
    starts, contexts = query_starts.tolist(), context_lengths.tolist()
    singles: list[_Single] = []
    spans: list[QuerySpan] = []
    for sequence, context in enumerate(contexts):
        first_row, end_row = starts[sequence], starts[sequence + 1]
        start = context - (end_row - first_row)
        oldest = 0 if window is None else max(0, start - window + 1)
        first_block, end_block = oldest // block_tokens, -(-context // block_tokens)
        if end_row - first_row == 1:
            singles.append(_Single(sequence, first_row, context, first_block, end_block))
            continue
        first_token = first_block * block_tokens
        whole = start == 0 and (window is None or window >= context)
        mask = None if whole else _mask(start, context, first_token, window, dtype, block_tables)
        blocks = block_tables[sequence, first_block:end_block]
        spans.append(QuerySpan(first_row, end_row, blocks, context - first_token, mask))
    groups = tuple(
        _group(members, block_tables, block_tokens, window, dtype)
        for members in _alike(singles, block_tokens)
    )
    return AttentionPlan(groups, tuple(spans))


def _mask(
    start: int, context: int, first_token: int, window: int | None, dtype: torch.dtype, on: Tensor
) -> Tensor:
    """[context - start, context - first_token] of 0 and -inf for queries at start .. context."""
    queries = torch.arange(start, context, device=on.device).unsqueeze(1)
    keys = torch.arange(first_token, context, device=on.device).unsqueeze(0)
    hidden = keys > queries
    if window is not None:
        hidden |= keys <= queries - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=on.device)
    return mask.masked_fill_(hidden, float("-inf"))


def _alike(singles: Sequence[_Single], block_tokens: int) -> list[list[_Single]]:
    """Split into groups whose padding stays small, shortest contexts first."""
    groups: list[list[_Single]] = []
    for single in sorted(singles, key=lambda one: one.blocks):
        if groups:
            shortest, size = groups[-1][0].blocks, len(groups[-1]) + 1
            close = single.blocks <= shortest + shortest // 4 + GROUP_SLACK_BLOCKS
            if close and size * single.blocks * block_tokens <= GROUP_TOKENS:
                groups[-1].append(single)
                continue
        groups.append([single])
    return groups


def _group(
    members: Sequence[_Single],
    block_tables: Tensor,
    block_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> DecodeGroup:
    """Pad the members' block lists to the longest, each with a block of its own."""
    device = block_tables.device
    width = max(member.blocks for member in members)

    def column(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device).unsqueeze(1)

    first = column([member.first_block for member in members])
    end = column([member.end_block for member in members])
    context = column([member.context for member in members])
    index = first + torch.arange(width, device=device)
    index = torch.where(index < end, index, first)
    blocks = block_tables[column([member.sequence for member in members]), index]
    keys = first * block_tokens + torch.arange(width * block_tokens, device=device)
    hidden = keys >= context
    if window is not None:
        hidden |= keys < context - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
    mask.masked_fill_(hidden, float("-inf"))
    rows = column([member.row for member in members]).squeeze(1)
    return DecodeGroup(rows, blocks.reshape(-1), mask[:, None, None, :])
