"""Attention over the paged KV pool (PagedAttention, Kwon et al. 2023), grouped queries included."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from kernels.attention_plan import AttentionPlan, DecodeGroup, QuerySpan


def paged_attention(query: Tensor, layer_kv: Tensor, plan: AttentionPlan) -> Tensor:
    """softmax(q · kᵀ / sqrt(head_dim)) · v for every query row over its sequence's tokens.

    The step's own keys and values must lie in the pool already. Query head h reads KV head
    h // (heads / kv_heads).

    Args:
        query: [T, heads, head_dim], contiguous.
        layer_kv: [block, 2, token, kv_head, head_dim], one layer's view of the pool.
        plan: of this step and this layer's window.

    Returns:
        [T, heads, head_dim], a new tensor of the query's dtype.
    """
    out = torch.empty_like(query)
    for group in plan.groups:
        _decode(query, layer_kv, group, out)
    for span in plan.spans:
        _prefill(query, layer_kv, span, out)
    return out


def _decode(query: Tensor, layer_kv: Tensor, group: DecodeGroup, out: Tensor) -> None:
    batch, head_dim = group.rows.shape[0], query.shape[-1]
    kv_heads = layer_kv.shape[3]
    # the queries that share a KV head stand where a prompt's queries would
    rows = query.index_select(0, group.rows).view(batch, kv_heads, -1, head_dim)
    keys = layer_kv[:, 0].index_select(0, group.blocks).view(batch, -1, kv_heads, head_dim)
    values = layer_kv[:, 1].index_select(0, group.blocks).view(batch, -1, kv_heads, head_dim)
    attended = functional.scaled_dot_product_attention(
        rows, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=group.mask
    )
    out.index_copy_(0, group.rows, attended.reshape(batch, -1, head_dim))


def _prefill(query: Tensor, layer_kv: Tensor, span: QuerySpan, out: Tensor) -> None:
    kv_heads, head_dim = layer_kv.shape[3:]
    rows = query[span.first_row : span.end_row].transpose(0, 1).unsqueeze(0)
    keys = layer_kv[:, 0].index_select(0, span.blocks).view(1, -1, kv_heads, head_dim)
    values = layer_kv[:, 1].index_select(0, span.blocks).view(1, -1, kv_heads, head_dim)
    attended = functional.scaled_dot_product_attention(
        rows,
        keys[:, : span.tokens].transpose(1, 2),
        values[:, : span.tokens].transpose(1, 2),
        attn_mask=span.mask,
        is_causal=span.mask is None,
        enable_gqa=query.shape[1] != kv_heads,
    )
    out[span.first_row : span.end_row] = attended[0].transpose(0, 1)


def paged_attention_reference(
    query: Tensor,
    layer_kv: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    block_tables: Tensor,
    window: int | None,
) -> Tensor:
    """The slow truth: one query row and head after another, in float64."""
    block_tokens, kv_heads = layer_kv.shape[2], layer_kv.shape[3]
    heads, head_dim = query.shape[1:]
    out = torch.empty_like(query)
    starts, contexts = query_starts.tolist(), context_lengths.tolist()
    for sequence, context in enumerate(contexts):
        places = [
            (int(block_tables[sequence, token // block_tokens]), token % block_tokens)
            for token in range(context)
        ]
        tokens = torch.stack([layer_kv[block, :, offset].double() for block, offset in places])
        for row in range(starts[sequence], starts[sequence + 1]):
            last = context - (starts[sequence + 1] - row)
            oldest = 0 if window is None else max(0, last - window + 1)
            for head in range(heads):
                kv_head = head // (heads // kv_heads)
                keys = tokens[oldest : last + 1, 0, kv_head]
                values = tokens[oldest : last + 1, 1, kv_head]
                scores = keys @ query[row, head].double() / math.sqrt(head_dim)
                out[row, head] = (torch.softmax(scores, 0) @ values).to(query.dtype)
    return out
