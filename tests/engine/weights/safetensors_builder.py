"""Small Hugging Face directories."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.weights.names import published_shapes
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random

TINY = "random:qwen2?layers=2,hidden=32,heads=4,kv_heads=2,vocab=300"
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "vocab_size": 300,
}


def tensors(source: str = TINY) -> dict[str, torch.Tensor]:
    """A random model's tensors by published name."""
    weights = RandomSource(parse_random(source))
    return {name: weights.read(name) for name in published_shapes(weights.spec)}


def write_directory(
    directory: Path, weights: dict[str, torch.Tensor], shards: int, **config: Any
) -> None:
    """config.json (with changes) and the weights in one file or several with an index."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**CONFIG, **config}))
    if shards == 1:
        save_file(weights, directory / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {key: weights[key] for key in list(weights)[shard::shards]}
        save_file(part, directory / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
