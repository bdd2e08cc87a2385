"""A ModelSpec from a Hugging Face config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import ModelError
from engine.model_spec import ARCHITECTURES, Architecture, ModelSpec, RopeScaling

_DEFAULT_CONTEXT = {"llama": 2_048, "mistral": 131_072, "qwen2": 32_768, "qwen3": 32_768}
_MISTRAL_WINDOW = 4_096
_QWEN_WINDOW_LAYERS = 28
"""`max_window_layers` of a Qwen config that doesn't say: layers before it see everything."""


class _Settings:
    """The keys of config.json, with demands on their types."""

    def __init__(self, path: Path, raw: Mapping[str, Any]) -> None:
        self.path = path
        self._raw = raw

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def get(self, key: str) -> Any:
        return self._raw.get(key)

    def number(self, key: str, default: float | None = None) -> float:
        value = self._raw.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.path}: '{key}' is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"{self.path}: '{key}' should be a number, not {value!r:.80}")
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise ModelError(f"{self.path}: '{key}' should be a whole number, not {value}")
        return int(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._raw.get(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.path}: '{key}' should be true or false, not {value!r:.80}")
        return value


def read_huggingface_spec(path: Path) -> ModelSpec:
    """The spec in a config.json, without special tokens and fingerprint.

    Raises:
        ModelError: unreadable, of an unknown architecture, or a variant we don't compute.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: can't be read as JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: should hold a JSON object")
    settings = _Settings(path, raw)
    architecture = _architecture(settings)
    _refuse_variants(settings)
    hidden, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    layers = settings.count("num_hidden_layers")
    attention_bias = architecture in ("llama", "qwen3") and settings.flag("attention_bias")
    window, window_layers = _window(settings, architecture, layers)
    return ModelSpec(
        architecture=architecture,
        name=_name(path.parent.resolve()),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=settings.count("num_key_value_heads", heads),
        head_dim=settings.count(
            "head_dim", 128 if architecture == "qwen3" else hidden // max(heads, 1)
        ),
        intermediate=settings.count("intermediate_size"),
        vocab=settings.count("vocab_size"),
        max_context=settings.count("max_position_embeddings", _DEFAULT_CONTEXT[architecture]),
        rms_eps=settings.number("rms_norm_eps", 1e-6),
        rope_theta=_rope(settings).number("rope_theta", settings.number("rope_theta", 10_000.0)),
        rope_scaling=_rope_scaling(_rope(settings), settings),
        qk_norm=architecture == "qwen3",
        qkv_bias=attention_bias or architecture == "qwen2",
        output_bias=attention_bias,
        tied_embeddings=settings.flag("tie_word_embeddings"),
        sliding_window=window,
        sliding_layers=window_layers,
    )


def _name(directory: Path) -> str:
    """The directory's name; within a Hugging Face cache, that of the repository."""
    if directory.parent.name == "snapshots":
        return directory.parent.parent.name.split("--")[-1]
    return directory.name


def _architecture(settings: _Settings) -> Architecture:
    for known in ARCHITECTURES:
        if settings.get("model_type") == known:
            return known
    raise ModelError(
        f"{settings.path}: unknown architecture: model_type is "
        f"{settings.get('model_type')!r:.80}; known: {', '.join(ARCHITECTURES)}"
    )


def _refuse_variants(settings: _Settings) -> None:
    if settings.get("hidden_act") not in (None, "silu", "swish"):
        raise ModelError(
            f"{settings.path}: hidden_act '{settings.get('hidden_act')}' isn't supported; silu is"
        )
    if settings.flag("mlp_bias"):
        raise ModelError(f"{settings.path}: models with mlp_bias aren't supported")
    if settings.number("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{settings.path}: models with partial_rotary_factor aren't supported")
    if settings.get("quantization_config") is not None:
        raise ModelError(
            f"{settings.path}: quantised safetensors aren't supported; take the unquantised model "
            "or a GGUF file"
        )


def _rope(settings: _Settings) -> _Settings:
    """The rotary settings: `rope_parameters` (transformers 5) or `rope_scaling` (before)."""
    section = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(section, dict):
        raise ModelError(f"{settings.path}: the rope settings should be an object")
    return _Settings(settings.path, section)


def _rope_scaling(rope: _Settings, settings: _Settings) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope.number("factor"))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_context=rope.count("original_max_position_embeddings"),
        )
    raise ModelError(
        f"{settings.path}: rope scaling {kind!r:.80} isn't supported; linear and llama3 are"
    )


def _window(
    settings: _Settings, architecture: Architecture, layers: int
) -> tuple[int | None, tuple[int, ...]]:
    """The sliding window and the layers that have it."""
    if architecture == "mistral":
        if "sliding_window" in settings and settings.get("sliding_window") is None:
            return None, ()
        return settings.count("sliding_window", _MISTRAL_WINDOW), tuple(range(layers))
    if architecture == "llama" or not settings.flag("use_sliding_window"):
        return None, ()
    kinds = settings.get("layer_types")
    if kinds is None:
        first = settings.count("max_window_layers", _QWEN_WINDOW_LAYERS)
        chosen = tuple(range(min(first, layers), layers))
    elif isinstance(kinds, list) and len(kinds) == layers:
        chosen = tuple(i for i, kind in enumerate(kinds) if kind == "sliding_attention")
    else:
        raise ModelError(f"{settings.path}: 'layer_types' should name a kind for each layer")
    window = settings.count("sliding_window", _MISTRAL_WINDOW)
    return (window, chosen) if chosen else (None, ())
