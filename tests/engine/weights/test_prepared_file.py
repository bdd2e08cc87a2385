"""Writing the prepared file: a format others read, exact values, an honest progress."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from core.errors import ModelError
from engine.model_spec import ModelSpec
from engine.torch_dtypes import TORCH_DTYPES
from engine.weights.names import prepared_tensors
from engine.weights.prepared_file import write_prepared_file
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random

SOURCE = RandomSource(parse_random("random:qwen2?layers=2,hidden=36,vocab=301,heads=3,kv_heads=1"))


def ignore(done: int, total: int) -> None:
    """No progress wanted."""


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_the_safetensors_package_reads_it(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_prepared_file(SOURCE, dtype, path, ignore)
    read = load_file(path)
    wanted = prepared_tensors(SOURCE.spec)
    assert set(read) == {tensor.name for tensor in wanted}
    for tensor in wanted:
        parts = torch.cat([SOURCE.read(part) for part in tensor.parts])
        assert torch.equal(read[tensor.name], parts.to(TORCH_DTYPES[dtype])), tensor.name


def test_data_begin_on_a_page(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_prepared_file(SOURCE, "float32", path, ignore)
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 4096 == 0


def test_progress_counts_up_to_all_bytes(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    path = tmp_path / "w.safetensors"
    write_prepared_file(SOURCE, "bfloat16", path, lambda done, total: told.append((done, total)))
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert told[-1] == (path.stat().st_size - header,) * 2
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert len({total for _, total in told}) == 1


def test_the_hash_is_of_the_values(tmp_path: Path) -> None:
    def digest(source: str, dtype: str = "float32") -> str:
        weights = RandomSource(parse_random(source))
        return write_prepared_file(weights, dtype, tmp_path / "w.safetensors", ignore)

    first = digest("random:llama?seed=1")
    assert first == digest("random:llama?seed=1")
    assert first != digest("random:llama?seed=2")
    assert first != digest("random:llama?seed=1", "bfloat16")


class _Huge:
    """A model with one weight beyond float16's range."""

    @property
    def spec(self) -> ModelSpec:
        return SOURCE.spec

    def read(self, name: str) -> torch.Tensor:
        weight = SOURCE.read(name)
        if name == "model.layers.1.mlp.up_proj.weight":
            weight[3, 5] = 70_000.0
        return weight

    def write_tokenizer(self, out_dir: Path) -> object:
        raise NotImplementedError


def test_a_value_beyond_the_dtype_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_prepared_file(_Huge(), "float32", path, ignore)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj.*float16; try bfloat16"):
        write_prepared_file(_Huge(), "float16", path, ignore)  # type: ignore[arg-type]
