"""The prepared weights as tensors: mapped, so that all workers of a host share one copy."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.errors import ModelError
from engine.prepared_model import WEIGHTS_FILE, PreparedModel


def map_weights(prepared: PreparedModel) -> Mapping[str, Tensor]:
    """Map the weights, by prepared name (engine/weights/names.py).

    Nothing is read or copied now: the tensors are views of one private mapping of the file, whose
    pages are the page cache's own, the same for every process, until someone writes to them.
    Nobody may: a write would be a copy of that page for the writer.

    Raises:
        ModelError: the file is missing or damaged.
    """
    path: Path = prepared.path / WEIGHTS_FILE
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: can't be mapped: {error}") from error
