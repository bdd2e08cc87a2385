"""The names of `core.kv_layout.DTYPE_BYTES` as torch's own objects."""

import torch

TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
