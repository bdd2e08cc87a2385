"""Seeded random weights for tests and benches."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import xxhash
from torch import Tensor

from engine.model_spec import ModelSpec
from engine.weights.names import EMBEDDING, FINAL_NORM, HEAD, published_shapes
from engine.weights.random_spec import RandomModel

if TYPE_CHECKING:
    from engine.tokenizer_files import TokenizerInfo

HEAD_SPREAD = 3.0
"""Standard deviation of the logits: wide enough that sampling isn't uniform noise."""
ATTENTION_GAIN = 1.5
"""On queries and on keys: attention then picks a few tokens instead of averaging over all, so that
the answer depends on the whole context and greedy decoding doesn't run in circles."""
NORM_JITTER = 0.1
_QUERY_KEY_PRODUCTS = ("q_proj.weight", "k_proj.weight")
_QUERY_KEY_NORMS = ("q_norm.weight", "k_norm.weight")


class RandomSource:
    """A model whose tensors depend on (seed, name, shape) only: not on their order or number."""

    def __init__(self, model: RandomModel) -> None:
        self._spec = model.spec
        self._seed = model.seed
        self._shapes = published_shapes(model.spec)

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def read(self, name: str) -> Tensor:
        """The tensor in float32."""
        shape = self._shapes[name]
        generator = np.random.Generator(
            np.random.PCG64([self._seed, xxhash.xxh3_64_intdigest(name.encode())])
        )
        values = generator.standard_normal(shape, dtype=np.float32)
        if len(shape) > 1:
            return torch.from_numpy(values * np.float32(self._deviation(name, shape[1])))
        if not name.endswith("norm.weight"):
            return torch.from_numpy(NORM_JITTER * values)
        middle = ATTENTION_GAIN if name.endswith(_QUERY_KEY_NORMS) else 1.0
        weight = torch.from_numpy(middle + NORM_JITTER * values)
        if name == FINAL_NORM:
            weight[1::2].neg_()  # keeps tied embeddings from answering each token with itself
        return weight

    def write_tokenizer(self, out_dir: Path) -> "TokenizerInfo":
        from engine.tokenizer_files import write_synthetic

        return write_synthetic(self._spec.vocab, out_dir)

    def _deviation(self, name: str, fan_in: int) -> float:
        scale = 1.0 / math.sqrt(fan_in)
        if name == HEAD or (name == EMBEDDING and self._spec.tied_embeddings):
            return HEAD_SPREAD * scale
        if name == EMBEDDING:
            return 1.0
        return ATTENTION_GAIN * scale if name.endswith(_QUERY_KEY_PRODUCTS) else scale
