"""Which implementation of each operator runs on a device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention_plan import AttentionPlan, plan_attention
from kernels.copy_blocks import copy_blocks
from kernels.embedding import embedding
from kernels.linear import linear
from kernels.paged_attention import paged_attention
from kernels.rms_norm import rms_norm
from kernels.rotary import rotary
from kernels.silu_mul import silu_mul
from kernels.write_kv import KvSlots, clear_fresh_blocks, plan_kv_slots, write_kv


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The operators that a model is stated in; shapes and dtypes are in each one's module.

    `name` goes into what two workers compare before they expect equal tokens.
    """

    name: str
    embedding: Callable[[Tensor, Tensor], Tensor]
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    rotary: Callable[[Tensor, Tensor, Tensor], Tensor]
    silu_mul: Callable[[Tensor], Tensor]
    plan_kv_slots: Callable[[Tensor, Tensor, Tensor, int], KvSlots]
    clear_fresh_blocks: Callable[[Tensor, KvSlots], None]
    write_kv: Callable[[Tensor, Tensor, Tensor, KvSlots], None]
    plan_attention: Callable[[Tensor, Tensor, Tensor, int, int | None, torch.dtype], AttentionPlan]
    paged_attention: Callable[[Tensor, Tensor, AttentionPlan], Tensor]
    copy_blocks: Callable[[Tensor, Tensor, Tensor], None]


TORCH = KernelSet(
    name="torch",
    embedding=embedding,
    rms_norm=rms_norm,
    linear=linear,
    rotary=rotary,
    silu_mul=silu_mul,
    plan_kv_slots=plan_kv_slots,
    clear_fresh_blocks=clear_fresh_blocks,
    write_kv=write_kv,
    plan_attention=plan_attention,
    paged_attention=paged_attention,
    copy_blocks=copy_blocks,
)


def select(device: torch.device | str) -> KernelSet:
    """The kernel set of a device: torch's own operators, on the CPU and on CUDA alike.

    Raises:
        ValueError: no kernel set runs on such a device.
    """
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"no kernels for device '{kind}'; there are some for cpu and cuda")
    return TORCH
