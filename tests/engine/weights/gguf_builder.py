"""Small GGUF models with given tensors and types."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from engine.model_spec import ModelSpec
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random

Array = NDArray[Any]
TINY = (
    "random:llama?layers=2,hidden=64,heads=4,kv_heads=2,intermediate=96,vocab=275,max_context=256"
)

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(published: str) -> str:
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module, kind = published.rsplit(".", 1)
    if module in whole:
        return f"{whole[module]}.{kind}"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{_LAYER_NAMES[rest]}.{kind}"


def interleaved(rows: Array, heads: int) -> Array:
    """llama.cpp's order of query and key rows (convert_hf_to_gguf.py, LlamaModel.permute)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def gguf_tensors(
    published: Mapping[str, Array], architecture: str, heads: int, kv_heads: int
) -> dict[str, Array]:
    """Published tensors under GGUF's names and in its row order."""
    out: dict[str, Array] = {}
    for name, values in published.items():
        if architecture == "llama" and ".q_proj." in name:
            values = interleaved(values, heads)
        if architecture == "llama" and ".k_proj." in name:
            values = interleaved(values, kv_heads)
        out[gguf_name(name)] = values
    return out


def random_tensors(source: str = TINY) -> tuple[ModelSpec, dict[str, Array]]:
    """A random model's spec and its tensors by published name."""
    from engine.weights.names import published_shapes

    weights = RandomSource(parse_random(source))
    return weights.spec, {
        name: weights.read(name).numpy() for name in published_shapes(weights.spec)
    }


def metadata_of(spec: ModelSpec) -> dict[str, Any]:
    """The keys under the architecture's prefix."""
    return {
        "block_count": spec.layers,
        "context_length": spec.max_context,
        "embedding_length": spec.hidden,
        "feed_forward_length": spec.intermediate,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        "attention.layer_norm_rms_epsilon": spec.rms_eps,
        "rope.freq_base": spec.rope_theta,
        "rope.dimension_count": spec.head_dim,
    }


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[Array, GGMLQuantizationType]],
    general: Mapping[str, Any] | None = None,
) -> None:
    """Write a file. Tensors are (payload, type): float32 values for F32, else raw bytes.

    Args:
        metadata: keys without the architecture's prefix. general: keys as they are.
    """
    writer = gguf.GGUFWriter(path, architecture)
    keys = {f"{architecture}.{key}": value for key, value in metadata.items()} | dict(general or {})
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, (payload, kind) in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(payload), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised(values: Array, kind: GGMLQuantizationType) -> tuple[Array, GGMLQuantizationType]:
    """Vectors stay float32, as llama.cpp leaves them."""
    if values.ndim == 1 or kind is GGMLQuantizationType.F32:
        return values.astype(np.float32), GGMLQuantizationType.F32
    return gguf.quants.quantize(values, kind), kind


def write_tiny(
    path: Path,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    source: str = TINY,
    metadata: Mapping[str, Any] | None = None,
    drop: tuple[str, ...] = (),
    extra: Mapping[str, tuple[Array, GGMLQuantizationType]] | None = None,
    general: Mapping[str, Any] | None = None,
) -> tuple[ModelSpec, dict[str, Array]]:
    """A whole small model; returns its spec and its tensors by published name, before rounding."""
    spec, published = random_tensors(source)
    architecture = "llama" if spec.architecture == "mistral" else spec.architecture
    tensors = gguf_tensors(published, architecture, spec.heads, spec.kv_heads)
    payloads = {
        name: quantised(values, kind) for name, values in tensors.items() if name not in drop
    }
    keys = {**metadata_of(spec), **(metadata or {})}
    write_gguf(path, architecture, keys, {**payloads, **(extra or {})}, general)
    return spec, published
