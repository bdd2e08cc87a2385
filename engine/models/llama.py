"""The Llama family's forward pass, stated once as a list of operator calls.

Llama 2/3, Mistral, Qwen 2/2.5, Qwen 3, SmolLM2: they differ in biases, in normalised queries and
keys, in rotary scaling and in windows, all of which the spec says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import ModelError
from engine.model_spec import ModelSpec
from engine.models.forward_batch import ForwardBatch
from engine.models.rotary_angles import angles, inverse_frequencies
from engine.weights.names import EMBEDDING, FINAL_NORM, HEAD, layer_prefix, prepared_tensors
from kernels.attention_plan import AttentionPlan
from kernels.select import KernelSet
from kernels.write_kv import KvSlots


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights, rows as in the prepared file (engine/weights/names.py)."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    feed_forward_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of one step share."""

    cos: Tensor
    sin: Tensor
    slots: KvSlots
    plans: Mapping[int | None, AttentionPlan]


class LlamaModel:
    """A model that is ready to run. It owns no KV: the pool is passed in with each step.

    Not safe for several threads at once on one pool.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, Tensor],
        kernels: KernelSet,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take the weights as they are: mapped ones stay mapped where the device is the CPU.

        Args:
            weights: by prepared name (engine/weights/names.py), each of `dtype`.

        Raises:
            ModelError: a tensor is missing or has another shape or dtype.
        """
        self.spec = spec
        self.device = torch.device(device)
        self.dtype = dtype
        self._kernels = kernels
        self._weights = _checked(spec, weights, self.device, dtype)
        self._layers = [self._layer_weights(layer) for layer in range(spec.layers)]
        self._embedding = self._weights[EMBEDDING]
        self._final_norm = self._weights[FINAL_NORM]
        self._head = self._embedding if spec.tied_embeddings else self._weights[HEAD]
        self._frequencies = inverse_frequencies(spec).to(self.device)
        self._windows = tuple({spec.window_of(layer) for layer in range(spec.layers)})

    def _layer_weights(self, layer: int) -> LayerWeights:
        prefix, weights = layer_prefix(layer), self._weights
        return LayerWeights(
            input_norm=weights[prefix + "input_layernorm.weight"],
            qkv=weights[prefix + "self_attn.qkv_proj.weight"],
            qkv_bias=weights.get(prefix + "self_attn.qkv_proj.bias"),
            query_norm=weights.get(prefix + "self_attn.q_norm.weight"),
            key_norm=weights.get(prefix + "self_attn.k_norm.weight"),
            output=weights[prefix + "self_attn.o_proj.weight"],
            output_bias=weights.get(prefix + "self_attn.o_proj.bias"),
            feed_forward_norm=weights[prefix + "post_attention_layernorm.weight"],
            gate_up=weights[prefix + "mlp.gate_up_proj.weight"],
            down=weights[prefix + "mlp.down_proj.weight"],
        )

    def forward(self, batch: ForwardBatch, kv_pool: Tensor) -> Tensor:
        """Run one step: write its tokens' KV into the pool and return the wanted logits.

        Args:
            batch: the step. kv_pool: [block, layer, 2, token, kv_head, head_dim] of the model's
                dtype and device; blocks of the batch's tables hold the KV of all earlier tokens.

        Returns:
            [R, vocab] float32: next-token logits of `batch.logit_rows`, in that order.
        """
        kernels = self._kernels
        with torch.inference_mode():
            step = self._prepare_step(batch, kv_pool)
            hidden = kernels.embedding(batch.tokens, self._embedding)
            for index, layer in enumerate(self._layers):
                plan = step.plans[self.spec.window_of(index)]
                normed = kernels.rms_norm(hidden, layer.input_norm, self.spec.rms_eps)
                attended = self._attention(normed, layer, kv_pool[:, index], plan, step)
                hidden = hidden.add_(attended)
                normed = kernels.rms_norm(hidden, layer.feed_forward_norm, self.spec.rms_eps)
                gated = kernels.silu_mul(kernels.linear(normed, layer.gate_up, None))
                hidden = hidden.add_(kernels.linear(gated, layer.down, None))
            wanted = hidden.index_select(0, batch.logit_rows)
            wanted = kernels.rms_norm(wanted, self._final_norm, self.spec.rms_eps)
            return kernels.linear(wanted, self._head, None).float()

    def _prepare_step(self, batch: ForwardBatch, kv_pool: Tensor) -> _Step:
        kernels, block_tokens = self._kernels, kv_pool.shape[3]
        slots = kernels.plan_kv_slots(
            batch.positions, batch.query_starts, batch.block_tables, block_tokens
        )
        kernels.clear_fresh_blocks(kv_pool, slots)
        plans = {
            window: kernels.plan_attention(
                batch.query_starts,
                batch.context_lengths,
                batch.block_tables,
                block_tokens,
                window,
                self.dtype,
            )
            for window in self._windows
        }
        cos, sin = angles(batch.positions, self._frequencies, self.dtype)
        return _Step(cos, sin, slots, plans)

    def _attention(
        self,
        normed: Tensor,
        layer: LayerWeights,
        layer_kv: Tensor,
        plan: AttentionPlan,
        step: _Step,
    ) -> Tensor:
        kernels, spec = self._kernels, self.spec
        rows, heads, kv_heads = normed.shape[0], spec.heads, spec.kv_heads
        projected = kernels.linear(normed, layer.qkv, layer.qkv_bias)
        projected = projected.view(rows, heads + 2 * kv_heads, spec.head_dim)
        if layer.query_norm is None or layer.key_norm is None:
            turned = kernels.rotary(projected[:, : heads + kv_heads], step.cos, step.sin)
            query, key = turned[:, :heads], turned[:, heads:]
        else:
            query = kernels.rms_norm(projected[:, :heads], layer.query_norm, spec.rms_eps)
            key = kernels.rms_norm(
                projected[:, heads : heads + kv_heads], layer.key_norm, spec.rms_eps
            )
            query = kernels.rotary(query, step.cos, step.sin)
            key = kernels.rotary(key, step.cos, step.sin)
        kernels.write_kv(key, projected[:, heads + kv_heads :], layer_kv, step.slots)
        attended = kernels.paged_attention(query, layer_kv, plan).reshape(rows, spec.query_size)
        return kernels.linear(attended, layer.output, layer.output_bias)


def _checked(
    spec: ModelSpec, weights: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The weights that the spec wants, on the device."""
    checked: dict[str, Tensor] = {}
    for wanted in prepared_tensors(spec):
        tensor = weights.get(wanted.name)
        if tensor is None:
            raise ModelError(f"{spec.name}: the prepared weights lack '{wanted.name}'")
        if tuple(tensor.shape) != wanted.shape or tensor.dtype != dtype:
            raise ModelError(
                f"{spec.name}: '{wanted.name}' is {tensor.dtype} {tuple(tensor.shape)}, expected "
                f"{dtype} {wanted.shape}"
            )
        checked[wanted.name] = tensor.to(device)
    return checked
