"""Weights out of a Hugging Face directory, sharded or not."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.errors import ModelError
from engine.model_spec import ModelSpec
from engine.weights.huggingface_spec import read_huggingface_spec
from engine.weights.names import HEAD, Shape
from engine.weights.weight_source import check_tensors

if TYPE_CHECKING:
    from engine.tokenizer_files import TokenizerInfo

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = ("F32", "F16", "BF16", "F64")
_RECOMPUTED = ".rotary_emb.inv_freq"
"""Buffers that old checkpoints carry and every reader works out itself."""


class SafetensorsSource:
    """A checked directory: every shard opened, every name, shape and dtype compared.

    Raises (from the constructor):
        ModelError: a file is missing or truncated, or a tensor isn't what the config says.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        spec = read_huggingface_spec(directory / CONFIG)
        self._shards: dict[Path, Any] = {}
        self._places: dict[str, Path] = {}
        shapes: dict[str, Shape] = {}
        for path in shard_paths(directory):
            shard = self._shards[path] = _open_shard(path)
            for name in shard.keys():  # noqa: SIM118  # not a dict
                if name.endswith(_RECOMPUTED) or (spec.tied_embeddings and name == HEAD):
                    continue
                part = shard.get_slice(name)
                if part.get_dtype() not in DTYPES:
                    raise ModelError(
                        f"{path}: tensor '{name}' has dtype {part.get_dtype()}; "
                        f"readable ones: {', '.join(DTYPES)}"
                    )
                shapes[name] = tuple(part.get_shape())
                self._places[name] = path
        check_tensors(str(directory), shapes, spec)
        self._spec = spec

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def read(self, name: str) -> Tensor:
        """The tensor as stored; its memory is the mapped file's."""
        tensor: Tensor = self._shards[self._places[name]].get_tensor(name)
        return tensor

    def write_tokenizer(self, out_dir: Path) -> "TokenizerInfo":
        from engine.tokenizer_files import write_from_directory

        return write_from_directory(self._directory, out_dir)


def shard_paths(directory: Path) -> tuple[Path, ...]:
    """The weight files of a directory, each of them there.

    Raises:
        ModelError: none, or one that the index names is missing.
    """
    index = directory / INDEX
    if not index.is_file():
        if not (directory / SINGLE).is_file():
            raise ModelError(f"{directory}: has neither {SINGLE} nor {INDEX}")
        return (directory / SINGLE,)
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in weight_map.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: can't be read as an index of shards: {error}") from error
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{index}: names a file outside its directory: '{name}'")
        if not (directory / name).is_file():
            raise ModelError(f"{directory}: shard '{name}' of {INDEX} is missing")
    return tuple(directory / name for name in names)


def _open_shard(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path}: truncated or not a safetensors file ({path.stat().st_size} bytes): {error}"
        ) from error
