"""The spec in `random:llama?layers=4,hidden=64,...`: a small model with random weights."""

from dataclasses import dataclass

from core.errors import ModelError
from engine.model_spec import ARCHITECTURES, Architecture, ModelSpec

PREFIX = "random:"
_COUNTS = {
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 0,
    "intermediate": 0,
    "vocab": 512,
    "max_context": 8_192,
    "sliding_window": 0,
    "tied": 0,
    "seed": 0,
}
_ZERO_ALLOWED = ("head_dim", "intermediate", "sliding_window", "tied", "seed")


@dataclass(frozen=True, slots=True)
class RandomModel:
    """What a random source asks for: equal ones have equal weights, on any machine."""

    spec: ModelSpec
    seed: int


def parse_random(source: str) -> RandomModel:
    """Read `random:ARCHITECTURE?key=value,...`.

    Keys: layers, hidden, heads, kv_heads, head_dim (hidden / heads), intermediate (4 · hidden),
    vocab, max_context, sliding_window (0: none), tied (0 or 1), seed, and arch, which wins over
    the name before the question mark.

    Raises:
        ModelError: an unknown key or architecture, or a value that isn't a whole number.
    """
    named, _, options = source.removeprefix(PREFIX).partition("?")
    figures = dict(_COUNTS)
    for option in filter(None, options.split(",")):
        key, _, value = (part.strip() for part in option.partition("="))
        if key == "arch":
            named = value
            continue
        if key not in figures:
            raise ModelError(
                f"{source}: unknown key '{key}'; known: {', '.join([*figures, 'arch'])}"
            )
        if not value.isdecimal() or (int(value) == 0 and key not in _ZERO_ALLOWED):
            raise ModelError(f"{source}: '{key}' should be a whole number, not '{value}'")
        figures[key] = int(value)
    architecture = _architecture(source, named.strip() or "llama")
    hidden, heads = figures["hidden"], figures["heads"]
    if not figures["head_dim"] and hidden % heads:
        raise ModelError(f"{source}: hidden ({hidden}) must be a multiple of heads ({heads})")
    window = figures["sliding_window"] or None
    layers = figures["layers"]
    spec = ModelSpec(
        architecture=architecture,
        name=f"random-{architecture}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=figures["kv_heads"],
        head_dim=figures["head_dim"] or hidden // heads,
        intermediate=figures["intermediate"] or 4 * hidden,
        vocab=figures["vocab"],
        max_context=figures["max_context"],
        rms_eps=1e-6,
        rope_theta=10_000.0,
        qk_norm=architecture == "qwen3",
        qkv_bias=architecture == "qwen2",
        tied_embeddings=bool(figures["tied"]),
        sliding_window=window,
        sliding_layers=tuple(range(layers)) if window else (),
    )
    return RandomModel(spec, figures["seed"])


def _architecture(source: str, named: str) -> Architecture:
    for known in ARCHITECTURES:
        if named == known:
            return known
    raise ModelError(f"{source}: unknown architecture '{named}'; known: {', '.join(ARCHITECTURES)}")
