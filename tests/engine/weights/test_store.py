"""The mapped weights are the file itself: no copy, and one set of pages for all processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.errors import ModelError
from engine.models.forward_batch import make_forward_batch
from engine.prepared_model import WEIGHTS_FILE, PreparedModel
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random
from engine.weights.store import map_weights
from tests.engine.models.paged_driver import load_model, prepared_without_tokenizer

SOURCE = "random:llama?layers=2,hidden=256,vocab=4096,seed=1"
OTHER_WORKER = """
import sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="pt", device="cpu") as file:
    tensors = [file.get_tensor(name) for name in file.keys()]
print(sum(float(tensor.sum()) for tensor in tensors), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedModel:
    return prepared_without_tokenizer(RandomSource(parse_random(SOURCE)), "float32", tmp_path)


def mapping_of(path: Path) -> dict[str, int]:
    """This process's memory figures for its mappings of a file, in bytes, added up."""
    figures: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(path))
        elif inside and line.endswith(" kB"):
            name, value = line.removesuffix(" kB").split(":")
            figures[name] = figures.get(name, 0) + int(value) * 1024
    return figures


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's smaps")
def test_two_processes_share_every_page(prepared: PreparedModel) -> None:
    path = prepared.path / WEIGHTS_FILE
    size = path.stat().st_size
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_WORKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        model = load_model(prepared)
        spec = prepared.spec
        pool = torch.zeros(2, spec.layers, 2, 16, spec.kv_heads, spec.head_dim)
        model.forward(make_forward_batch([list(range(20))], [0], [[0, 1]], [19]), pool)
        weights = map_weights(prepared)
        touched = [float(tensor.sum()) for tensor in weights.values()]
        seen = mapping_of(path)
        assert other.stdin is not None
        other.stdin.close()
    assert len(touched) == len(weights)
    assert seen["Rss"] > 0.95 * size
    assert seen["Shared_Clean"] > 0.95 * seen["Rss"]
    assert seen["Private_Dirty"] == 0


def test_mapped_tensors_are_what_was_written(prepared: PreparedModel) -> None:
    source = RandomSource(parse_random(SOURCE))
    weights = map_weights(prepared)
    prefix = "model.layers.1.self_attn."
    parts = [source.read(f"{prefix}{part}_proj.weight") for part in "qkv"]
    assert torch.equal(weights[f"{prefix}qkv_proj.weight"], torch.cat(parts))
    assert torch.equal(weights["lm_head.weight"], source.read("lm_head.weight"))


@pytest.mark.parametrize("content", [None, b"", b"\x10\0\0\0\0\0\0\0{}"])
def test_a_damaged_file_is_named(prepared: PreparedModel, content: bytes | None) -> None:
    path = prepared.path / WEIGHTS_FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"weights\.safetensors: can't be mapped"):
        map_weights(prepared)
