"""config.json into a spec, in the forms that transformers has written over the years."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelError
from engine.model_spec import ModelSpec, RopeScaling
from engine.weights.huggingface_spec import read_huggingface_spec

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "vocab_size": 300,
}


def read(directory: Path, **changes: Any) -> ModelSpec:
    path = directory / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return read_huggingface_spec(path)


def test_defaults_are_transformers_own(tmp_path: Path) -> None:
    spec = read(tmp_path)
    assert (spec.kv_heads, spec.head_dim, spec.max_context) == (4, 16, 2_048)
    assert (spec.rope_theta, spec.rms_eps, spec.rope_scaling) == (10_000.0, 1e-6, None)
    assert not any([spec.tied_embeddings, spec.qkv_bias, spec.qk_norm])
    assert spec.name == tmp_path.name


def test_in_a_hugging_face_cache_the_name_is_the_repository_s(tmp_path: Path) -> None:
    directory = tmp_path / "models--HuggingFaceTB--SmolLM2-135M" / "snapshots" / "93efa2f0"
    directory.mkdir(parents=True)
    assert read(directory).name == "SmolLM2-135M"


@pytest.mark.parametrize("section", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_rope_scaling_old_and_new(section: str, key: str, tmp_path: Path) -> None:
    linear = read(tmp_path, **{section: {key: "linear", "factor": 2.0}, "rope_theta": 7.0})
    assert linear.rope_scaling == RopeScaling(kind="linear", factor=2.0)
    assert linear.rope_theta == 7.0
    settings = {
        key: "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 8192,
    }
    assert read(tmp_path, **{section: settings}).rope_scaling == RopeScaling(
        kind="llama3", factor=8, low_freq_factor=1, high_freq_factor=4, original_context=8192
    )


def test_rope_theta_within_the_parameters_wins(tmp_path: Path) -> None:
    spec = read(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert (spec.rope_theta, spec.rope_scaling) == (5e5, None)


def test_windows(tmp_path: Path) -> None:
    mistral = read(tmp_path, model_type="mistral")
    assert [mistral.window_of(layer) for layer in range(3)] == [4096] * 3
    assert read(tmp_path, model_type="mistral", sliding_window=None).sliding_window is None
    qwen = {"model_type": "qwen2", "sliding_window": 8}
    assert read(tmp_path, **qwen).sliding_window is None
    some = read(tmp_path, **qwen, use_sliding_window=True, max_window_layers=2)
    assert [some.window_of(layer) for layer in range(3)] == [None, None, 8]
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    listed = read(tmp_path, **qwen, use_sliding_window=True, layer_types=kinds)
    assert listed.sliding_layers == (0, 2)


def test_biases_and_norms_by_architecture(tmp_path: Path) -> None:
    assert read(tmp_path, model_type="qwen2").qkv_bias
    assert not read(tmp_path, model_type="qwen2").output_bias
    biased = read(tmp_path, attention_bias=True)
    assert (biased.qkv_bias, biased.output_bias) == (True, True)
    qwen3 = read(tmp_path, model_type="qwen3")
    assert (qwen3.qk_norm, qwen3.qkv_bias, qwen3.head_dim) == (True, False, 128)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "gpt2"}, "unknown architecture.*'gpt2'.*llama, mistral"),
        ({"model_type": None}, "unknown architecture"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": "64"}, "'hidden_size' should be a number"),
        ({"hidden_size": 64.5}, "'hidden_size' should be a whole number"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "'dynamic' isn't supported"),
        ({"rope_scaling": {"type": "linear"}}, "'factor' is missing"),
        ({"rope_scaling": [1]}, "should be an object"),
        ({"tie_word_embeddings": "yes"}, "true or false"),
        ({"num_key_value_heads": 3}, "multiple of kv_heads"),
        (
            {"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["x"]},
            "layer_types",
        ),
    ],
)
def test_what_we_don_t_compute_is_refused(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=says):
        read(tmp_path, **changes)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_file_that_isn_t_a_configuration_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_huggingface_spec(tmp_path / "config.json")
