"""What transformers answers: the other side of the model tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM


def build_random(config: dict[str, Any], directory: Path, seed: int = 0, **save: Any) -> None:
    """Save a random model of the configuration (with `model_type`) as a Hugging Face directory.

    Weights are spread wider than transformers' own initialisation, so that attention, biases and
    norms all matter and greedy answers vary.
    """
    torch.manual_seed(seed)
    settings = AutoConfig.for_model(**config, pad_token_id=None)
    factory: Any = AutoModelForCausalLM
    model = factory.from_config(settings, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                centre = 0.0 if name.endswith("bias") else 1.0
                weight.copy_(centre + 0.3 * torch.randn(weight.shape))
            else:
                weight.copy_(torch.randn(weight.shape) * 1.5 / weight.shape[1] ** 0.5)
    model.save_pretrained(directory, **save)


def load_reference(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    factory: Any = AutoModelForCausalLM
    model = factory.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    return model.eval()


def greedy(model: Any, prompt: Sequence[int], tokens: int) -> tuple[list[int], list[Tensor]]:
    """Greedy decoding with transformers' own cache: drawn tokens and their logits."""
    drawn: list[int] = []
    logits: list[Tensor] = []
    ids, cache = torch.tensor([list(prompt)]), None
    with torch.inference_mode():
        for _ in range(tokens):
            out = model(ids, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logits.append(out.logits[0, -1].float())
            drawn.append(int(logits[-1].argmax()))
            ids = torch.tensor([[drawn[-1]]])
    return drawn, logits
