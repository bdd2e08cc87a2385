"""Where weights come from: one interface for GGUF, safetensors and random models."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from core.errors import ModelError
from engine.model_spec import ModelSpec
from engine.weights.names import Shape, published_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from engine.tokenizer_files import TokenizerInfo

NAMES_IN_A_MESSAGE = 5


class WeightSource(Protocol):
    """A model as published. Opening one has checked every header, name, shape and size, so that
    `read` fails only where the data themselves can't be read."""

    @property
    def spec(self) -> ModelSpec:
        """Without special tokens and fingerprint, which preparing adds."""
        ...

    def read(self, name: str) -> "Tensor":
        """The tensor of a published name (engine/weights/names.py), in a floating dtype."""
        ...

    def write_tokenizer(self, out_dir: Path) -> "TokenizerInfo":
        """Write tokenizer.json and tokenizer_config.json."""
        ...


def check_tensors(place: str, found: Mapping[str, Shape], spec: ModelSpec) -> None:
    """Demand exactly the tensors that the spec's model has.

    Args:
        place: the file or directory, for the message. found: shapes by published name.

    Raises:
        ModelError: a tensor is missing, has another shape, or has no place in the model.
    """
    wanted = published_shapes(spec)
    missing = wanted.keys() - found.keys()
    if missing:
        raise ModelError(
            f"{place}: {len(missing)} tensor(s) of a {spec.architecture} model with {spec.layers} "
            f"layers are missing: {_some(missing)}"
        )
    for name, shape in wanted.items():
        if found[name] != shape:
            raise ModelError(f"{place}: tensor '{name}' has shape {found[name]}, expected {shape}")
    foreign = found.keys() - wanted.keys()
    if foreign:
        raise ModelError(
            f"{place}: {len(foreign)} tensor(s) have no place in a {spec.architecture} model "
            f"with {spec.layers} layers: {_some(foreign)}"
        )


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = (
        f" and {len(ordered) - NAMES_IN_A_MESSAGE} more"
        if len(ordered) > NAMES_IN_A_MESSAGE
        else ""
    )
    return ", ".join(ordered[:NAMES_IN_A_MESSAGE]) + more
