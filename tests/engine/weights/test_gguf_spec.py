"""GGUF metadata into a spec."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from core.errors import ModelError
from engine.weights.gguf_file import open_gguf
from engine.weights.gguf_spec import read_gguf_spec
from tests.engine.weights.gguf_builder import write_gguf, write_tiny


def spec_with(tmp_path: Path, name: str = "m.gguf", **metadata: Any) -> Any:
    dotted = {key.replace("__", "."): value for key, value in metadata.items()}
    write_tiny(tmp_path / name, metadata=dotted)
    return read_gguf_spec(open_gguf(tmp_path / name))


def test_a_plain_model(tmp_path: Path) -> None:
    wanted, _ = write_tiny(tmp_path / "Tiny-1B-Instruct.Q4_K_M.gguf")
    spec = read_gguf_spec(open_gguf(tmp_path / "Tiny-1B-Instruct.Q4_K_M.gguf"))
    assert replace(spec, rms_eps=1e-6) == replace(wanted, name="Tiny-1B-Instruct")
    assert spec.rms_eps == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "SmolLM2-135M-Instruct"),
        ("qwen3-0.6b-q8_0", "qwen3-0.6b"),
        ("model-IQ4_XS", "model"),
        ("model-BF16", "model"),
        ("Llama-3.2-1B", "Llama-3.2-1B"),
    ],
)
def test_the_name_is_the_file_s_without_its_quantisation(
    name: str, wanted: str, tmp_path: Path
) -> None:
    assert spec_with(tmp_path, f"{name}.gguf").name == wanted


def test_tied_embeddings_have_no_head_of_their_own(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", drop=("output.weight",))
    assert read_gguf_spec(open_gguf(tmp_path / "m.gguf")).tied_embeddings


def test_linear_scaling_and_window(tmp_path: Path) -> None:
    spec = spec_with(
        tmp_path,
        rope__scaling__type="linear",
        rope__scaling__factor=4.0,
        attention__sliding_window=32,
    )
    assert (spec.rope_scaling.kind, spec.rope_scaling.factor) == ("linear", 4.0)
    assert [spec.window_of(layer) for layer in range(2)] == [32, 32]


def test_heads_may_be_listed_per_layer_when_equal(tmp_path: Path) -> None:
    assert spec_with(tmp_path, attention__head_count_kv=[2, 2]).kv_heads == 2


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"attention__head_count_kv": [2, 1]}, "one number for all layers"),
        ({"rope__scaling__type": "yarn"}, "rope scaling 'yarn'"),
        ({"rope__dimension_count": 8}, "rope.dimension_count.*8"),
        ({"expert_count": 8}, "mixture-of-experts"),
        ({"attention__scale": 0.5}, "attention.scale"),
        ({"block_count": "two"}, "block_count.*'two'"),
        ({"attention__head_count": 0}, "heads must be at least 1"),
    ],
)
def test_what_we_don_t_compute_is_refused(
    metadata: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=says):
        spec_with(tmp_path, **metadata)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "gemma3", {"block_count": 1}, {})
    with pytest.raises(ModelError, match=r"m\.gguf: unknown architecture 'gemma3'.*llama"):
        read_gguf_spec(open_gguf(tmp_path / "m.gguf"))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": (np.zeros((8, 4), np.float32), Kind.F32)}
    write_gguf(tmp_path / "m.gguf", "llama", {"embedding_length": 4}, tensors)
    with pytest.raises(ModelError, match=r"lacks 'llama\.attention\.head_count'"):
        read_gguf_spec(open_gguf(tmp_path / "m.gguf"))
