"""The shape of a KV block: what both ends of a transfer must agree on, or convert between."""

from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """One block holds `block_tokens` tokens of all layers, contiguous:
    `[layer, k|v, token, kv_head, head_dim]`; a pool is `[block, ...]` of these.

    `order` names how elements lie inside one (layer, k|v) slab; "token-major" is the plain one.
    `dtype` is a name of `DTYPE_BYTES`.
    """

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str
    order: str = "token-major"

    @property
    def block_bytes(self) -> int:
        elements = self.layers * 2 * self.block_tokens * self.kv_heads * self.head_dim
        return elements * DTYPE_BYTES[self.dtype]

    def blocks_for(self, tokens: int) -> int:
        """How many blocks `tokens` tokens fill."""
        return -(-tokens // self.block_tokens)
