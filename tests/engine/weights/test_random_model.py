"""Random models: what can be asked for, and that equal requests give equal weights."""

import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from core.errors import ModelError
from engine.weights.names import published_shapes
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random
from tests.engine.models.paged_driver import PagedDriver, load_model, prepared_without_tokenizer


def test_defaults_and_every_key() -> None:
    plain = parse_random("random:llama")
    assert (plain.spec.layers, plain.spec.hidden, plain.spec.head_dim, plain.seed) == (2, 64, 16, 0)
    full = parse_random(
        "random:llama?layers=3, hidden=40,heads=5,kv_heads=1,head_dim=6,intermediate=7,vocab=999,"
        "max_context=100,sliding_window=9,tied=1,seed=5,arch=qwen3"
    )
    spec = full.spec
    assert (spec.architecture, spec.qk_norm, spec.tied_embeddings) == ("qwen3", True, True)
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim) == (3, 40, 5, 1, 6)
    assert (spec.intermediate, spec.vocab, spec.max_context, full.seed) == (7, 999, 100, 5)
    assert (spec.sliding_window, spec.sliding_layers) == (9, (0, 1, 2))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("random:llama?layer=4", "unknown key 'layer'; known: layers"),
        ("random:llama?layers", "'layers' should be a whole number, not ''"),
        ("random:llama?layers=-1", "'layers'.*'-1'"),
        ("random:llama?layers=0", "'layers'"),
        ("random:llama?hidden=65", "multiple of heads"),
        ("random:llama?kv_heads=3", "multiple of kv_heads"),
        ("random:bert", "unknown architecture 'bert'"),
        ("random:llama?arch=gpt", "unknown architecture 'gpt'"),
    ],
)
def test_wrong_requests_are_named(source: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        parse_random(source)


def test_weights_depend_on_seed_and_name_alone() -> None:
    def read(source: str, name: str = "model.layers.0.mlp.up_proj.weight") -> torch.Tensor:
        return RandomSource(parse_random(source)).read(name)

    first = read("random:llama?layers=2")
    assert torch.equal(first, read("random:llama?layers=5"))
    assert not torch.equal(first, read("random:llama?seed=1"))
    assert not torch.equal(first, read("random:llama", "model.layers.1.mlp.up_proj.weight"))
    # the figures themselves: a change here changes every recorded answer of a random model
    assert first[0, :2].tolist() == pytest.approx(FIRST_FIGURES, abs=1e-6)


FIRST_FIGURES = [-0.084163353, -0.053668533]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("options", ["", "layers=4,hidden=128", "tied=1"])
def test_greedy_answers_are_varied(architecture: str, options: str, tmp_path: Path) -> None:
    """Neither one token over and over nor the same whatever the prompt."""
    source = RandomSource(parse_random(f"random:{architecture}?{options}"))
    model = load_model(prepared_without_tokenizer(source, "float32", tmp_path))
    prompts = [random.Random(seed).choices(range(256), k=20) for seed in range(4)]
    drawn, logits = PagedDriver(model, blocks=32, block_tokens=16).greedy(prompts, 48, 64)
    assert len({tuple(answer) for answer in drawn}) == 4
    for answer in drawn:
        assert len(set(answer)) >= 20, answer
        assert Counter(answer).most_common(1)[0][1] <= 12, answer
    spread = torch.stack([row for rows in logits for row in rows]).std(-1)
    assert 1.0 < float(spread.mean()) < 8.0


def test_every_tensor_has_its_shape() -> None:
    source = RandomSource(parse_random("random:qwen3?layers=1,vocab=300,head_dim=8"))
    for name, shape in published_shapes(source.spec).items():
        assert source.read(name).shape == shape
        assert source.read(name).dtype == torch.float32
