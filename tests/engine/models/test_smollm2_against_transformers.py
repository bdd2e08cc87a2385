"""The demo model from its GGUF file, token for token against transformers' reading of it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from engine.prepared_model import PreparedModel, prepare_model
from engine.weights.resolve import DEMO_PACKAGE, demo_path
from tests.engine.models.paged_driver import PagedDriver, load_model
from tests.engine.models.transformers_reference import greedy

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(DEMO_PACKAGE) is None,
    reason="the demo extra isn't installed",
)
TOKENS = 64
PROMPTS = (
    "The capital of France is",
    "My favourite colour is",
    "def fibonacci(n):\n",
    "Explain why the sky is blue.",
    "1, 1, 2, 3, 5, 8,",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at",
    "The three laws of thermodynamics are",
    "Translate into German: Good morning!",
    "import numpy as np\n\nx =",
    "Q: What is the largest planet?\nA:",
    "A list of fruits:\n- apples\n-",
    "In 1969,",
    "To be, or not to be,",
    "SELECT name FROM users WHERE",
    "The train leaves at 9:15 and arrives at 11:45. The journey takes",
    "Die Hauptstadt von Deutschland ist",
    "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n",
    "Roses are red,",
    "The " * 100,
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    cache: Path = tmp_path_factory.mktemp("prepared")
    return prepare_model("demo", "float32", cache, lambda what, done, total: None)


RECORDED = {
    "Once upon a time, in a small village by the sea,": (
        (6403, 1980, 253, 655, 28, 281, 253, 1165, 6560, 411, 260, 3426, 28),
        (665, 436, 253, 9357, 1573, 267, 19341, 3365, 17644, 793, 30, 909, 4161, 281, 253, 11637,
         10000, 411, 253, 3953, 4480, 4412, 351, 511, 11695, 282, 9077, 6734, 30, 198, 198, 1082),
    ),
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n": (
        (1, 4093, 198, 1780, 314, 9354, 47, 2, 198, 1, 520, 9531, 198),
        (22007, 6463, 314, 253, 4959, 1909, 281, 6944, 338, 6601, 260, 26589, 282, 42548, 2952,
         411, 260, 4313, 282, 2389, 30, 657, 506, 253, 4959, 2325, 282, 260, 6128, 338, 48165,
         260),
    ),
}  # fmt: skip
"""Prompt ids and greedy answers that transformers gave; the slow test checks that it still does."""


def test_two_recorded_prompts(prepared: PreparedModel) -> None:
    driver = PagedDriver(load_model(prepared), blocks=16, block_tokens=16)
    prompts = [ids for ids, _ in RECORDED.values()]
    drawn, _ = driver.greedy(prompts, tokens=32, chunk=9)
    assert drawn == [list(answer) for _, answer in RECORDED.values()]


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_twenty_prompts(prepared: PreparedModel) -> None:
    path, tokenizers, models = demo_path(), _untyped(AutoTokenizer), _untyped(AutoModelForCausalLM)
    tokenizer = tokenizers.from_pretrained(path.parent, gguf_file=path.name)
    reference = models.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        attn_implementation="eager",
    ).eval()
    prompts = [tokenizer(text)["input_ids"] for text in (*PROMPTS, *RECORDED)]
    driver = PagedDriver(load_model(prepared), blocks=320, block_tokens=16)
    drawn, logits = driver.greedy(prompts, TOKENS, chunk=48)
    for i, prompt in enumerate(prompts):
        wanted, wanted_logits = greedy(reference, prompt, TOKENS)
        assert drawn[i] == wanted, f"prompt {i}"
        torch.testing.assert_close(
            torch.stack(logits[i]), torch.stack(wanted_logits), rtol=1e-3, atol=1e-3
        )
    for (ids, answer), prompt, tokens in zip(
        RECORDED.values(), prompts[-2:], drawn[-2:], strict=True
    ):
        assert (list(ids), list(answer)) == (prompt, tokens[:32])


def _untyped(factory: Any) -> Any:
    """transformers' classes have no usable types."""
    return factory
