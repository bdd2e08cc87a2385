"""What a model is, without its weights: shape, position encoding, special tokens, fingerprint."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from core.errors import ModelError
from core.kv_layout import KvLayout

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]
ARCHITECTURES: tuple[Architecture, ...] = ("llama", "mistral", "qwen2", "qwen3")
SPEC_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for contexts beyond the trained ones.

    `linear`: all divided by `factor`. `llama3`: by wavelength, see the Llama 3.1 model card
    (`low_freq_factor`, `high_freq_factor`, `original_context` in tokens). `divisors`: each of the
    head_dim/2 frequencies divided by its own figure (GGUF's `rope_freqs` tensor).
    """

    kind: Literal["linear", "llama3", "divisors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8_192
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model of the Llama family. Sizes in elements, contexts in tokens.

    `fingerprint` is derived from the prepared weights, the dtype and this spec: two workers with
    equal fingerprints may share KV. `sliding_window` (tokens a query may attend to, itself
    included) holds for the layers in `sliding_layers`. `eos_token_ids` is every id that ends
    an answer.
    """

    architecture: Architecture
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context: int
    rms_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    tied_embeddings: bool = False
    sliding_window: int | None = None
    sliding_layers: tuple[int, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ModelError(
                f"unknown architecture '{self.architecture}'; known: {', '.join(ARCHITECTURES)}"
            )
        for name in (
            "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab",
            "max_context",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ModelError(
                    f"{self.name}: {name} must be at least 1, not {getattr(self, name)}"
                )
        if self.heads % self.kv_heads:
            raise ModelError(
                f"{self.name}: heads ({self.heads}) must be a multiple of "
                f"kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ModelError(f"{self.name}: head_dim must be even, not {self.head_dim}")
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ModelError(
                f"{self.name}: sliding_window must be at least 1, not {self.sliding_window}"
            )

    @property
    def query_size(self) -> int:
        """Columns of the query projection: heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Columns of the key (and of the value) projection: kv_heads x head_dim."""
        return self.kv_heads * self.head_dim

    def window_of(self, layer: int) -> int | None:
        """Tokens a query of `layer` may attend to, itself included; None: all before it."""
        return self.sliding_window if layer in self.sliding_layers else None

    def kv_layout(self, block_tokens: int, dtype: str) -> KvLayout:
        return KvLayout(
            layers=self.layers,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            block_tokens=block_tokens,
            dtype=dtype,
        )

    def to_json(self) -> str:
        return json.dumps({"version": SPEC_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`.

        Raises:
            ModelError: not a spec of this version.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw.pop("version", None)
            if version != SPEC_VERSION:
                raise ModelError(f"model spec version {version}, expected {SPEC_VERSION}")
            unknown = raw.keys() - {field.name for field in fields(cls)}
            if unknown:
                raise ModelError(f"model spec has unknown keys {sorted(unknown)}")
            scaling = raw.get("rope_scaling")
            if scaling is not None:
                scaling["divisors"] = tuple(scaling["divisors"])
                raw["rope_scaling"] = RopeScaling(**scaling)
            for name in ("sliding_layers", "eos_token_ids"):
                raw[name] = tuple(raw.get(name, ()))
            return cls(**raw)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise ModelError(f"not a model spec: {error}") from error
