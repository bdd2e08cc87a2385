"""Weights out of a GGUF file, dequantised tensor by tensor."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.gguf_reader import ReaderTensor
from gguf.quants import dequantize
from torch import Tensor

from core.errors import ModelError
from engine.model_spec import ModelSpec
from engine.weights.gguf_file import open_gguf
from engine.weights.gguf_spec import ROPE_FREQUENCIES, read_gguf_spec
from engine.weights.names import EMBEDDING, FINAL_NORM, HEAD, Shape, layer_prefix
from engine.weights.weight_source import check_tensors

if TYPE_CHECKING:
    from engine.tokenizer_files import TokenizerInfo

_WHOLE = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": HEAD,
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_INTEGERS = ("I8", "I16", "I32", "I64")


def published_name(gguf_name: str) -> str:
    """Hugging Face's name of a GGUF tensor; the name itself where we know none."""
    if gguf_name in _WHOLE:
        return _WHOLE[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[1].isdecimal() and parts[2] in _PER_LAYER:
        return f"{layer_prefix(int(parts[1]))}{_PER_LAYER[parts[2]]}.{parts[3]}"
    return gguf_name


def rows_by_halves(rows: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's order of query and key rows, which pairs neighbours for its rotary.

    Args:
        rows: [heads · head_dim, ...], element 2i of a head paired with 2i + 1.

    Returns:
        The same rows with i paired with i + head_dim / 2, as Hugging Face has them.
    """
    pairs = rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


class GgufSource:
    """A checked, mapped GGUF file.

    Raises (from the constructor):
        ModelError: see `open_gguf`, `read_gguf_spec`, `check_tensors`; or a tensor's type is one
            that can't be dequantised.
    """

    def __init__(self, path: Path) -> None:
        self._reader = open_gguf(path)
        self._spec = read_gguf_spec(self._reader)
        self._path = path
        self._tensors: dict[str, ReaderTensor] = {
            published_name(tensor.name): tensor
            for tensor in self._reader.tensors
            if tensor.name != ROPE_FREQUENCIES
        }
        check_tensors(
            str(path), {name: _shape(tensor) for name, tensor in self._tensors.items()}, self._spec
        )
        for tensor in self._tensors.values():
            self._check_type(tensor)

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def read(self, name: str) -> Tensor:
        """The tensor in float32, rows in Hugging Face's order."""
        tensor = self._tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if not values.flags.writeable:  # a view of the file itself, which torch can't mark so
            values = values.copy()
        weight = torch.from_numpy(values).view(_shape(tensor))
        if self._spec.architecture == "llama" and ".q_proj." in name:
            return rows_by_halves(weight, self._spec.heads)
        if self._spec.architecture == "llama" and ".k_proj." in name:
            return rows_by_halves(weight, self._spec.kv_heads)
        return weight

    def write_tokenizer(self, out_dir: Path) -> "TokenizerInfo":
        from engine.tokenizer_files import write_from_gguf

        return write_from_gguf(self._reader, out_dir)

    def _check_type(self, tensor: ReaderTensor) -> None:
        """Dequantise one row, so that a type we can't read is refused before any work."""
        kind: GGMLQuantizationType = tensor.tensor_type
        try:
            if kind.name in _INTEGERS:
                raise NotImplementedError("not a type of weights")
            dequantize(tensor.data.reshape(-1, tensor.data.shape[-1])[:1], kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: tensor '{tensor.name}' has type {kind.name}, which can't be read "
                f"here ({error})"
            ) from error


def _shape(tensor: ReaderTensor) -> Shape:
    """Slowest axis first; GGUF lists the fastest first."""
    return tuple(int(size) for size in reversed(tensor.shape))
