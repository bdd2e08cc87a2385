"""Whether the KV of one pool can be written into another's blocks as it is."""

from dataclasses import fields

from core.kv_layout import DTYPE_BYTES, KvLayout

ORDERS = frozenset({"token-major"})
"""Element orders inside a (layer, k|v) slab that this version knows; equal orders move as they
are, so that no conversion is needed while there is one."""


def incompatibility(ours: KvLayout, theirs: KvLayout) -> str | None:
    """Why KV can't move between the two, with both sides' values; None if it can.

    Symmetric but for the order in which the values are named.
    """
    differing = [
        f"{field.name} {getattr(ours, field.name)} here, {getattr(theirs, field.name)} there"
        for field in fields(KvLayout)
        if getattr(ours, field.name) != getattr(theirs, field.name)
    ]
    if differing:
        return "KV layouts differ: " + "; ".join(differing)
    if ours.order not in ORDERS:
        return f"KV layout order {ours.order} on both sides isn't known; known: {sorted(ORDERS)}"
    if ours.dtype not in DTYPE_BYTES:
        return f"KV dtype {ours.dtype} on both sides isn't known; known: {sorted(DTYPE_BYTES)}"
    return None
