"""Each architecture, token for token and logit for logit against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.weights.safetensors_source import SafetensorsSource
from tests.engine.models.paged_driver import PagedDriver, load_model, prepared_without_tokenizer
from tests.engine.models.transformers_reference import build_random, greedy, load_reference

COMMON: dict[str, Any] = {
    "vocab_size": 331,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-biased": {"model_type": "llama", "attention_bias": True},
    "llama3": {"model_type": "llama", "rope_parameters": LLAMA3_ROPE, "rms_norm_eps": 1e-5},
    "llama-linear": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5_000.0, "factor": 4.0},
    },
    "smollm2": {"model_type": "llama", "tie_word_embeddings": True, "num_attention_heads": 3,
                "num_key_value_heads": 1, "rope_parameters": {"rope_type": "default",
                                                              "rope_theta": 100_000.0}},
    "multi-head": {"model_type": "llama", "num_key_value_heads": 6, "head_dim": 10},
    "mistral": {"model_type": "mistral", "sliding_window": 21},
    "mistral-unwindowed": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-windowed": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 13,
                       "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "qwen3-biased": {"model_type": "qwen3", "head_dim": 24, "attention_bias": True,
                     "tie_word_embeddings": True},
}  # fmt: skip
LENGTHS = (1, 15, 16, 17, 70)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_answers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    build_random({**COMMON, **MODELS[name]}, tmp_path / "hf")
    prepared = prepared_without_tokenizer(
        SafetensorsSource(tmp_path / "hf"), "float32", tmp_path / "prepared"
    )
    generator = torch.Generator().manual_seed(1)
    vocab = prepared.spec.vocab
    prompts = [torch.randint(vocab, (n,), generator=generator).tolist() for n in LENGTHS]
    driver = PagedDriver(load_model(prepared), blocks=64, block_tokens=16)
    drawn, logits = driver.greedy(prompts, tokens=33, chunk=23)
    reference = load_reference(tmp_path / "hf")
    for i, prompt in enumerate(prompts):
        wanted, wanted_logits = greedy(reference, prompt, tokens=33)
        assert drawn[i] == wanted
        torch.testing.assert_close(
            torch.stack(logits[i]), torch.stack(wanted_logits), rtol=1e-4, atol=2e-4
        )
    assert len(set(drawn[-1])) > 8, "a model that always says the same proves nothing"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_transformers(dtype: str, tmp_path: Path) -> None:
    build_random({**COMMON, **MODELS["qwen3"]}, tmp_path / "hf")
    prepared = prepared_without_tokenizer(
        SafetensorsSource(tmp_path / "hf"), dtype, tmp_path / "prepared"
    )
    prompt = list(range(40))
    driver = PagedDriver(load_model(prepared), blocks=8, block_tokens=16)
    _, logits = driver.prefill(prompt, chunk=64)
    exact = greedy(load_reference(tmp_path / "hf"), prompt, 1)[1][0]
    half = greedy(load_reference(tmp_path / "hf", getattr(torch, dtype)), prompt, 1)[1][0]
    ours, theirs = (logits - exact).abs().mean(), (half - exact).abs().mean()
    assert ours < 2 * theirs, f"mean error {ours} against transformers' own {theirs}"
