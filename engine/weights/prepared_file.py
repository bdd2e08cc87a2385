"""The prepared weights file: safetensors, written tensor by tensor, mapped by every worker.

The safetensors package writes a file from tensors that all lie in memory at once; a model of
which half the memory is full can't be. The format is a length, a JSON header and the data, so
it is written here as it comes, and read back by the package's own reader.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import torch
import xxhash
from torch import Tensor

from core.errors import ModelError
from core.kv_layout import DTYPE_BYTES
from engine.torch_dtypes import TORCH_DTYPES
from engine.weights.names import PreparedTensor, prepared_tensors
from engine.weights.weight_source import WeightSource

DATA_ALIGNMENT_BYTES = 4_096
"""Data begin on a page of their own, which readers may then map as they are."""

_FORMAT_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

Progress = Callable[[int, int], None]


def write_prepared_file(source: WeightSource, dtype: str, path: Path, progress: Progress) -> str:
    """Convert a model's weights into one file, durable on return.

    Args:
        dtype: a name of TORCH_DTYPES. progress: told (bytes done, bytes in all).

    Returns:
        A 128-bit hash of the data in file order, in hex.

    Raises:
        ModelError: a weight can't be expressed in the dtype.
    """
    tensors = prepared_tensors(source.spec)
    header, total = _header(tensors, dtype)
    digest, done = xxhash.xxh3_128(), 0
    with path.open("wb") as file:
        file.write(header)
        for tensor in tensors:
            payload = _convert(source, tensor, dtype)
            digest.update(payload)
            file.write(payload)
            done += len(payload)
            progress(done, total)
        _settle(file)
    return digest.hexdigest()


def _header(tensors: Sequence[PreparedTensor], dtype: str) -> tuple[bytes, int]:
    """The file's first bytes and the length of the data behind them."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin = end
        end += torch.Size(tensor.shape).numel() * DTYPE_BYTES[dtype]
        entries[tensor.name] = {
            "dtype": _FORMAT_NAMES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    length = -(-(8 + len(text)) // DATA_ALIGNMENT_BYTES) * DATA_ALIGNMENT_BYTES - 8
    return length.to_bytes(8, "little") + text.ljust(length), end


def _convert(source: WeightSource, tensor: PreparedTensor, dtype: str) -> memoryview:
    """The bytes of one prepared tensor."""
    parts = [_cast(source.read(part), dtype, part, source.spec.name) for part in tensor.parts]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    if tuple(whole.shape) != tensor.shape:
        raise ModelError(
            f"{source.spec.name}: '{tensor.name}' came out as {tuple(whole.shape)}, expected "
            f"{tensor.shape}"
        )
    flat = whole.contiguous().view(-1).view(torch.uint8)
    return memoryview(flat.numpy().data)


def _cast(weight: Tensor, dtype: str, name: str, model: str) -> Tensor:
    cast = weight.to(TORCH_DTYPES[dtype])
    if not bool(torch.isfinite(cast).all()):
        hint = "; try bfloat16 or float32" if dtype == "float16" else ""
        raise ModelError(f"{model}: '{name}' has values that aren't finite in {dtype}{hint}")
    return cast


def _settle(file: BinaryIO) -> None:
    """On the disk before anyone relies on it: a torn file would be wrong answers, not an error."""
    file.flush()
    os.fsync(file.fileno())
