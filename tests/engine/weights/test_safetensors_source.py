"""Hugging Face directories: whole, sharded, damaged."""

import json
import os
from pathlib import Path

import pytest
import torch

from core.errors import ModelError
from engine.weights.safetensors_source import SafetensorsSource
from tests.engine.weights.safetensors_builder import CONFIG, tensors, write_directory


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_come_back(shards: int, tmp_path: Path) -> None:
    weights = tensors()
    write_directory(tmp_path, weights, shards)
    source = SafetensorsSource(tmp_path)
    for name, values in weights.items():
        assert torch.equal(source.read(name), values)


def test_what_every_reader_recomputes_is_passed_over(tmp_path: Path) -> None:
    weights = tensors()
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    write_directory(tmp_path, weights, 1, tie_word_embeddings=True)
    assert SafetensorsSource(tmp_path).spec.tied_embeddings


def test_an_empty_directory_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor model.*index\.json"):
        SafetensorsSource(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_directory(tmp_path, tensors(), 3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"shard 'model-00002-of-00003\.safetensors'.*missing"):
        SafetensorsSource(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", '{"weight_map": 3}', "[1]"])
def test_a_damaged_index_is_named(content: str, tmp_path: Path) -> None:
    write_directory(tmp_path, tensors(), 2)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=r"index\.json"):
        SafetensorsSource(tmp_path)


def test_an_index_may_not_lead_out_of_its_directory(tmp_path: Path) -> None:
    write_directory(tmp_path, tensors(), 2)
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside its directory"):
        SafetensorsSource(tmp_path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    write_directory(tmp_path, tensors(), 1)
    path = tmp_path / "model.safetensors"
    for size in (path.stat().st_size - 1, path.stat().st_size // 2, 900, 9, 8, 3, 0):
        os.truncate(path, size)
        with pytest.raises(ModelError, match=rf"model\.safetensors: truncated.*\({size} bytes\)"):
            SafetensorsSource(tmp_path)


def test_missing_foreign_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    weights = tensors()
    norm = weights.pop("model.norm.weight")
    write_directory(tmp_path, weights, 1)
    with pytest.raises(ModelError, match=r"missing: model\.norm\.weight"):
        SafetensorsSource(tmp_path)
    write_directory(tmp_path, {**weights, "model.norm.weight": norm, "adapter.x": torch.ones(1)}, 1)
    with pytest.raises(ModelError, match=r"no place.*adapter\.x"):
        SafetensorsSource(tmp_path)
    write_directory(tmp_path, {**weights, "model.norm.weight": torch.ones(31)}, 1)
    with pytest.raises(ModelError, match=r"'model\.norm\.weight'.*\(31,\), expected \(32,\)"):
        SafetensorsSource(tmp_path)


def test_an_unreadable_dtype_is_named(tmp_path: Path) -> None:
    weights = {**tensors(), "model.norm.weight": torch.ones(32, dtype=torch.int8)}
    write_directory(tmp_path, weights, 1)
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' has dtype I8"):
        SafetensorsSource(tmp_path)
