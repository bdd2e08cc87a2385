"""The same answer however a prompt is cut, batched and laid out in the pool."""

import random
from pathlib import Path

import pytest
import torch

from core.errors import ModelError
from engine.models.forward_batch import make_forward_batch
from engine.models.llama import LlamaModel
from engine.weights.random_source import RandomSource
from engine.weights.random_spec import parse_random
from engine.weights.store import map_weights
from kernels.select import select
from tests.engine.models.paged_driver import PagedDriver, load_model, prepared_without_tokenizer

SOURCE = "random:llama?layers=3,hidden=48,heads=6,kv_heads=2,vocab=300,seed=3"
WINDOWED = "random:mistral?layers=2,hidden=32,heads=4,kv_heads=1,vocab=300,sliding_window=19"
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def model_of(source: str, directory: Path) -> LlamaModel:
    return load_model(
        prepared_without_tokenizer(RandomSource(parse_random(source)), "float32", directory)
    )


def prompt_of(tokens: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(300), k=tokens)


@pytest.mark.parametrize("source", [SOURCE, WINDOWED])
@pytest.mark.parametrize("chunk", [1, 7, 16, 31, 128])
def test_chunked_prefill_is_whole_prefill(source: str, chunk: int, tmp_path: Path) -> None:
    model = model_of(source, tmp_path)
    prompt = prompt_of(100)
    whole = PagedDriver(model, blocks=10, block_tokens=16).prefill(prompt, len(prompt))[1]
    cut = PagedDriver(model, blocks=10, block_tokens=16, seed=5).prefill(prompt, chunk)[1]
    torch.testing.assert_close(cut, whole, **CLOSE)  # type: ignore[arg-type]


def test_block_size_does_not_matter(tmp_path: Path) -> None:
    model = model_of(SOURCE, tmp_path)
    prompt = prompt_of(50)
    small = PagedDriver(model, blocks=8, block_tokens=16).greedy([prompt], 20, 64)
    large = PagedDriver(model, blocks=8, block_tokens=64).greedy([prompt], 20, 64)
    assert small[0] == large[0]


@pytest.mark.parametrize("source", [SOURCE, WINDOWED])
def test_company_does_not_matter(source: str, tmp_path: Path) -> None:
    """Prompts join and go on in steps that mix decodes, chunks and whole prompts."""
    model = model_of(source, tmp_path)
    prompts = [prompt_of(length, seed=length) for length in (1, 5, 16, 33, 64, 90)]
    alone = [
        PagedDriver(model, blocks=9, block_tokens=16).greedy([prompt], 12, 128)[0][0]
        for prompt in prompts
    ]
    driver, shuffle = PagedDriver(model, blocks=60, block_tokens=16), random.Random(2)
    sequences = [driver.add() for _ in prompts]
    pending = {seq: list(prompt) for seq, prompt in zip(sequences, prompts, strict=True)}
    drawn: dict[int, list[int]] = {seq: [] for seq in sequences}
    while any(len(tokens) < 12 for tokens in drawn.values()):
        active = [seq for seq in sequences if len(drawn[seq]) < 12 and shuffle.random() < 0.7]
        shuffle.shuffle(active)
        work = []
        for seq in active:
            size = shuffle.choice([1, 8, 40])
            new, pending[seq] = pending[seq][:size], pending[seq][size:]
            work.append((seq, new or drawn[seq][-1:]))
        for (seq, _), logits in zip(work, driver.step(work) if work else (), strict=True):
            if not pending[seq]:
                drawn[seq].append(int(logits.argmax()))
    assert [drawn[seq] for seq in sequences] == alone


def test_logits_come_for_the_wanted_rows_in_their_order(tmp_path: Path) -> None:
    model = model_of(SOURCE, tmp_path)
    pool = torch.zeros(4, 3, 2, 16, 2, 8)
    tokens, tables = [[1, 2, 3], [4, 5]], [[2], [0]]
    every = model.forward(make_forward_batch(tokens, [0, 0], tables, range(5)), pool)
    some = model.forward(make_forward_batch(tokens, [0, 0], tables, [4, 1]), pool)
    none = model.forward(make_forward_batch(tokens, [0, 0], tables, []), pool)
    assert every.shape == (5, 300)
    assert every.dtype == torch.float32
    torch.testing.assert_close(some, every[[4, 1]], **CLOSE)  # type: ignore[arg-type]
    assert none.shape == (0, 300)


def test_only_the_step_s_blocks_are_written(tmp_path: Path) -> None:
    model = model_of(SOURCE, tmp_path)
    pool = torch.full((5, 3, 2, 16, 2, 8), 7.0)
    model.forward(make_forward_batch([[9] * 20], [0], [[3, 1]], [19]), pool)
    assert (pool[[0, 2, 4]] == 7).all()
    assert (pool[3] != 7).all()
    assert (pool[1, :, :, :4] != 7).all()
    assert (pool[1, :, :, 4:] == 0).all(), "the rest of a begun block is cleared"


def test_wrong_weights_are_named(tmp_path: Path) -> None:
    prepared = prepared_without_tokenizer(RandomSource(parse_random(SOURCE)), "float32", tmp_path)
    weights = dict(map_weights(prepared))
    norm = weights.pop("model.norm.weight")
    with pytest.raises(ModelError, match=r"lack 'model\.norm\.weight'"):
        LlamaModel(prepared.spec, weights, select("cpu"))
    with pytest.raises(ModelError, match=r"model\.norm\.weight.*\(47,\).*expected.*\(48,\)"):
        LlamaModel(prepared.spec, {**weights, "model.norm.weight": norm[1:]}, select("cpu"))
    with pytest.raises(ModelError, match=r"float32.*expected.*bfloat16"):
        LlamaModel(prepared.spec, map_weights(prepared), select("cpu"), "cpu", torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("source", [SOURCE, WINDOWED])
def test_cuda_answers_as_the_cpu(source: str, tmp_path: Path) -> None:
    prepared = prepared_without_tokenizer(RandomSource(parse_random(source)), "float32", tmp_path)
    spec, weights = prepared.spec, map_weights(prepared)
    steps: list[tuple[list[list[int]], list[int]]] = [
        ([prompt_of(30), prompt_of(9, seed=1)], [0, 0]),
        ([prompt_of(25, seed=2), [5]], [30, 9]),
        ([[7], [8]], [55, 10]),
    ]
    answers = []
    for device in ("cpu", "cuda"):
        model = LlamaModel(spec, weights, select(device), device)
        shape = (8, spec.layers, 2, 16, spec.kv_heads, spec.head_dim)
        pool = torch.full(shape, float("nan"), device=device)
        logits = [
            model.forward(
                make_forward_batch(tokens, starts, [[3, 1, 6, 2], [7]], [0], device), pool
            )
            for tokens, starts in steps
        ]
        answers.append(torch.cat(logits).cpu())
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-3, atol=1e-3)
