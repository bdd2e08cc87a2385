"""Names and shapes of the tensors of a model: the ones published, and the ones we prepare.

The published names are Hugging Face's for the Llama family. In the prepared file the rows of
q, k, v and of gate, up lie in one tensor each, so that a layer is four products and nothing is
copied when the file is mapped.
"""

from dataclasses import dataclass

from engine.model_spec import ModelSpec

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class PreparedTensor:
    """One tensor of the prepared file: the rows of `parts` (published names), one below another."""

    name: str
    shape: Shape
    parts: tuple[str, ...]


def layer_prefix(layer: int) -> str:
    return f"model.layers.{layer}."


def published_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor that a model of this spec needs, by its published name.

    `lm_head.weight` is absent where the embeddings are tied.
    """
    shapes: dict[str, Shape] = {EMBEDDING: (spec.vocab, spec.hidden)}
    for layer in range(spec.layers):
        prefix = layer_prefix(layer)
        shapes |= {prefix + name: shape for name, shape in _layer_shapes(spec).items()}
    shapes[FINAL_NORM] = (spec.hidden,)
    if not spec.tied_embeddings:
        shapes[HEAD] = (spec.vocab, spec.hidden)
    return shapes


def _layer_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, queries, keys = spec.hidden, spec.query_size, spec.kv_size
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (spec.intermediate, hidden),
        "mlp.up_proj.weight": (spec.intermediate, hidden),
        "mlp.down_proj.weight": (hidden, spec.intermediate),
    }
    if spec.qkv_bias:
        shapes |= {
            "self_attn.q_proj.bias": (queries,),
            "self_attn.k_proj.bias": (keys,),
            "self_attn.v_proj.bias": (keys,),
        }
    if spec.output_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if spec.qk_norm:
        shapes |= {
            "self_attn.q_norm.weight": (spec.head_dim,),
            "self_attn.k_norm.weight": (spec.head_dim,),
        }
    return shapes


_FUSED = {
    "self_attn.q_proj": ("self_attn.qkv_proj", ("q_proj", "k_proj", "v_proj")),
    "mlp.gate_proj": ("mlp.gate_up_proj", ("gate_proj", "up_proj")),
}
_INTO_OTHERS = ("k_proj", "v_proj", "up_proj")


def prepared_tensors(spec: ModelSpec) -> tuple[PreparedTensor, ...]:
    """The tensors of the prepared file, in file order: that of a forward pass."""
    shapes = published_shapes(spec)
    prepared: list[PreparedTensor] = []
    for name, shape in shapes.items():
        module, kind = name.rsplit(".", 1)
        fused = next((stem for stem in _FUSED if module.endswith(stem)), None)
        if fused is not None:
            target, members = _FUSED[fused]
            prefix, group = module.removesuffix(fused), fused.split(".")[0]
            parts = tuple(f"{prefix}{group}.{member}.{kind}" for member in members)
            rows = sum(shapes[part][0] for part in parts)
            prepared.append(PreparedTensor(f"{prefix}{target}.{kind}", (rows, *shape[1:]), parts))
        elif not module.endswith(_INTO_OTHERS):
            prepared.append(PreparedTensor(name, shape, (name,)))
    return tuple(prepared)
