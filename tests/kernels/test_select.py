"""One kernel set per kind of device."""

import pytest
import torch

from kernels.select import TORCH, select


def test_the_cpu_has_kernels() -> None:
    assert select("cpu") is TORCH
    assert select(torch.device("cpu")).name == "torch"


def test_a_device_without_kernels_is_named() -> None:
    with pytest.raises(ValueError, match="meta"):
        select("meta")
