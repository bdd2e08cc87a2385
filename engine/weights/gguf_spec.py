"""A ModelSpec from a GGUF file's metadata."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import ModelError
from engine.model_spec import ARCHITECTURES, ModelSpec, RopeScaling
from engine.weights.gguf_file import CheckedReader

GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Mistral's files say llama."""
ROPE_FREQUENCIES = "rope_freqs.weight"

_QUANTISATION_SUFFIX = re.compile(r"[-._](?:I?Q\d\w*|BF16|F16|F32|FP16|FP32)$", re.IGNORECASE)
_SCALES = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")


class _Metadata:
    """The file's key-value pairs under one architecture's prefix, with demands on them."""

    def __init__(self, reader: CheckedReader, architecture: str) -> None:
        self._reader = reader
        self._architecture = architecture
        self.path = reader.path

    def get(self, key: str) -> Any:
        field = self._reader.get_field(f"{self._architecture}.{key}")
        return None if field is None else field.contents()

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.path}: metadata lacks '{self._architecture}.{key}'")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(
                f"{self.path}: '{self._architecture}.{key}' should be one number for all layers, "
                f"not {value!r:.80}"
            )
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))


def read_gguf_spec(reader: CheckedReader) -> ModelSpec:
    """The spec, without special tokens and fingerprint.

    Raises:
        ModelError: an unknown architecture, a missing key, or a variant we don't compute.
    """
    field = reader.get_field("general.architecture")
    architecture = None if field is None else field.contents()
    if architecture not in GGUF_ARCHITECTURES:
        raise ModelError(
            f"{reader.path}: unknown architecture '{architecture}'; known in GGUF: "
            f"{', '.join(GGUF_ARCHITECTURES)} (Mistral's files say llama)"
        )
    metadata = _Metadata(reader, architecture)
    shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
    _refuse_variants(metadata)
    hidden, heads = metadata.count("embedding_length"), metadata.count("attention.head_count")
    head_dim = metadata.count("attention.key_length", hidden // max(heads, 1))
    layers = metadata.count("block_count")
    _check_head_dim(metadata, head_dim)
    window = metadata.count("attention.sliding_window", 0) or None
    return ModelSpec(
        architecture=next(known for known in ARCHITECTURES if known == architecture),
        name=_QUANTISATION_SUFFIX.sub("", reader.path.stem),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=metadata.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=metadata.count("feed_forward_length"),
        vocab=_vocabulary(reader.path, shapes),
        max_context=metadata.count("context_length"),
        rms_eps=metadata.number("attention.layer_norm_rms_epsilon"),
        rope_theta=metadata.number("rope.freq_base", 10_000.0),
        rope_scaling=_rope_scaling(metadata, reader),
        qk_norm="blk.0.attn_q_norm.weight" in shapes,
        qkv_bias="blk.0.attn_q.bias" in shapes,
        output_bias="blk.0.attn_output.bias" in shapes,
        tied_embeddings="output.weight" not in shapes,
        sliding_window=window,
        sliding_layers=tuple(range(layers)) if window else (),
    )


def _vocabulary(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Rows of the embedding table; GGUF lists the fastest axis first."""
    shape = shapes.get("token_embd.weight")
    if shape is None or len(shape) != 2:
        raise ModelError(f"{path}: tensor 'token_embd.weight' is missing or not a matrix")
    return shape[1]


def _refuse_variants(metadata: _Metadata) -> None:
    if metadata.count("expert_count", 0) > 0:
        raise ModelError(f"{metadata.path}: mixture-of-experts models aren't supported")
    for key in _SCALES:
        if metadata.get(key) is not None:
            raise ModelError(f"{metadata.path}: models with '{key}' aren't supported")


def _check_head_dim(metadata: _Metadata, head_dim: int) -> None:
    for key in ("attention.value_length", "rope.dimension_count"):
        other = metadata.count(key, head_dim)
        if other != head_dim:
            raise ModelError(
                f"{metadata.path}: '{key}' is {other}; only models where it equals the keys' head "
                f"size ({head_dim}) are supported"
            )


def _rope_scaling(metadata: _Metadata, reader: CheckedReader) -> RopeScaling | None:
    """Linear scaling by metadata; Llama 3.1's as the divisors that its converter worked out."""
    kind = metadata.get("rope.scaling.type")
    if kind not in (None, "none", "linear"):
        raise ModelError(
            f"{metadata.path}: rope scaling '{kind}' isn't supported; linear and Llama 3's are"
        )
    factor = metadata.number("rope.scaling.factor", 0.0) or metadata.number(
        "rope.scale_linear", 1.0
    )
    if kind == "none":
        factor = 1.0
    for tensor in reader.tensors:
        if tensor.name == ROPE_FREQUENCIES:
            return RopeScaling(
                kind="divisors", divisors=tuple(float(figure) * factor for figure in tensor.data)
            )
    return None if factor == 1.0 else RopeScaling(kind="linear", factor=factor)
