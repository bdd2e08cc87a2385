"""From a prepared model to a runner that is ready for its first step."""

import torch

from core.clock import Clock
from core.config import EngineConfig
from core.errors import ConfigError
from engine.model_runner import ModelRunner
from engine.models.llama import LlamaModel
from engine.prepared_model import PreparedModel
from engine.sampler import Sampler
from engine.torch_dtypes import TORCH_DTYPES
from engine.weights.store import map_weights
from kernels.select import select


def load_runner(
    prepared: PreparedModel,
    config: EngineConfig,
    clock: Clock,
    device: torch.device | str = "cpu",
) -> ModelRunner:
    """Map the weights and allocate the KV pool of `config.kv_bytes` (as many blocks as fit).

    Raises:
        ModelError: the prepared model is damaged.
        ConfigError: `kv_bytes` is less than one block.
    """
    layout = prepared.spec.kv_layout(config.block_tokens, prepared.dtype)
    blocks = config.kv_bytes // layout.block_bytes
    if not blocks:
        raise ConfigError(
            "engine.kv_bytes",
            f"one block of {config.block_tokens} tokens of this model takes {layout.block_bytes} "
            f"bytes, and there are {config.kv_bytes} in all",
        )
    kernels = select(device)
    model = LlamaModel(
        prepared.spec, map_weights(prepared), kernels, device, TORCH_DTYPES[prepared.dtype]
    )
    return ModelRunner(
        model,
        Sampler(prepared.spec.vocab),
        kernels.copy_blocks,
        layout=layout,
        blocks=blocks,
        clock=clock,
        device=device,
    )
