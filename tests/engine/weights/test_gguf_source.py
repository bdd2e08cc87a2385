"""GGUF tensors: types, names and row order."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType as Kind, get_tensor_name_map
from gguf.quants import dequantize

from core.errors import ModelError
from engine.weights.gguf_source import GgufSource, published_name, rows_by_halves
from engine.weights.names import published_shapes
from engine.weights.random_spec import parse_random
from tests.engine.weights.gguf_builder import Array, gguf_tensors, interleaved, write_tiny

WIDE = "random:llama?layers=1,hidden=256,heads=4,kv_heads=2,intermediate=256,vocab=275"
DOWN = "model.layers.0.mlp.down_proj.weight"


@pytest.mark.parametrize(
    "kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q5_0]
)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_tensors_come_back_dequantised_and_in_order(
    kind: Kind, architecture: str, tmp_path: Path
) -> None:
    source = (
        f"random:{architecture}?layers=2,hidden=64,heads=4,kv_heads=2,intermediate=96,vocab=275"
    )
    spec, published = write_tiny(tmp_path / "m.gguf", kind, source)
    ours = GgufSource(tmp_path / "m.gguf")
    assert (ours.spec.qkv_bias, ours.spec.qk_norm) == (spec.qkv_bias, spec.qk_norm)
    for name, values in published.items():
        read = ours.read(name)
        assert read.dtype == torch.float32
        if kind is Kind.F32 or values.ndim == 1:
            assert np.array_equal(read.numpy(), values), name
        else:
            rounded = dequantize(_quantised_rows(values, kind), kind)
            assert np.array_equal(read.numpy(), rounded), name


def _quantised_rows(values: Array, kind: Kind) -> Array:
    """Quantisation works row by row, so the order of rows doesn't matter to it."""
    from gguf.quants import quantize

    return quantize(values, kind)


def _bits(value: int, at: int, count: int) -> int:
    return (value >> at) & ((1 << count) - 1)


def q4_k_reference(block: bytes) -> list[float]:
    """One 144-byte superblock, element by element (ggml-quants.c, dequantize_row_q4_K)."""
    (d, dmin), scales, quants = struct.unpack("<2e", block[:4]), block[4:16], block[16:]
    out: list[float] = []
    for j in range(8):
        if j < 4:
            scale, low = _bits(scales[j], 0, 6), _bits(scales[j + 4], 0, 6)
        else:
            scale = _bits(scales[j + 4], 0, 4) | _bits(scales[j - 4], 6, 2) << 4
            low = _bits(scales[j + 4], 4, 4) | _bits(scales[j], 6, 2) << 4
        for i in range(32):
            quant = _bits(quants[32 * (j // 2) + i], 4 * (j % 2), 4)
            out.append(d * scale * quant - dmin * low)
    return out


def q6_k_reference(block: bytes) -> list[float]:
    """One 210-byte superblock, element by element (ggml-quants.c, dequantize_row_q6_K)."""
    low, high = block[:128], block[128:192]
    scales = struct.unpack("<16b", block[192:208])
    (d,) = struct.unpack("<e", block[208:])
    out: list[float] = []
    for index in range(256):
        half, quarter, place = index // 128, index % 128 // 32, index % 32
        nibble = _bits(low[64 * half + place + 32 * (quarter % 2)], 4 * (quarter // 2), 4)
        top = _bits(high[32 * half + place], 2 * quarter, 2)
        out.append(d * scales[index // 16] * ((nibble | top << 4) - 32))
    return out


@pytest.mark.parametrize(
    ("kind", "block_bytes", "half_floats", "reference"),
    [(Kind.Q4_K, 144, (0, 2), q4_k_reference), (Kind.Q6_K, 210, (208,), q6_k_reference)],
)
def test_superblocks_equal_an_independent_reading(
    kind: Kind, block_bytes: int, half_floats: tuple[int, ...], reference: object, tmp_path: Path
) -> None:
    """The gguf package can't write these: random bytes, read by it and element by element."""
    assert callable(reference)
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (256, block_bytes), dtype=np.uint8)
    for row in rows:
        for at in half_floats:
            row[at : at + 2] = np.frombuffer(np.float16(random.uniform(-2, 2)).tobytes(), np.uint8)
    extra = {"blk.0.ffn_down.weight": (rows, kind)}
    write_tiny(tmp_path / "m.gguf", source=WIDE, extra=extra)
    read = GgufSource(tmp_path / "m.gguf").read(DOWN)
    wanted = torch.tensor([reference(row.tobytes()) for row in rows], dtype=torch.float64)
    assert read.shape == (256, 256)
    torch.testing.assert_close(read.double(), wanted, rtol=1e-6, atol=1e-6)


def test_rope_frequencies_become_divisors(tmp_path: Path) -> None:
    figures = np.linspace(1, 8, 8, dtype=np.float32)
    write_tiny(tmp_path / "m.gguf", extra={"rope_freqs.weight": (figures, Kind.F32)})
    scaling = GgufSource(tmp_path / "m.gguf").spec.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.divisors) == ("divisors", tuple(figures.tolist()))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", drop=("blk.1.ffn_up.weight",))
    with pytest.raises(ModelError, match=r"m\.gguf.*missing: model\.layers\.1\.mlp\.up_proj"):
        GgufSource(tmp_path / "m.gguf")


def test_a_foreign_tensor_is_named(tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": (np.zeros(4, np.float32), Kind.F32)}
    write_tiny(tmp_path / "m.gguf", extra=extra)
    with pytest.raises(ModelError, match=r"no place.*blk\.0\.attn_sinks\.weight"):
        GgufSource(tmp_path / "m.gguf")


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    extra = {"blk.0.attn_v.weight": (np.zeros((32, 32), np.float32), Kind.F32)}
    write_tiny(tmp_path / "m.gguf", extra=extra)
    with pytest.raises(ModelError, match=r"v_proj.*\(32, 32\), expected \(32, 64\)"):
        GgufSource(tmp_path / "m.gguf")


def test_a_type_that_can_t_be_dequantised_is_named(tmp_path: Path) -> None:
    extra = {"blk.0.attn_norm.weight": (np.zeros(64, np.int8), Kind.I8)}
    write_tiny(tmp_path / "m.gguf", extra=extra)
    with pytest.raises(ModelError, match=r"blk\.0\.attn_norm\.weight.*I8"):
        GgufSource(tmp_path / "m.gguf")


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (3, 10), (4, 16)])
def test_row_order_of_weights_and_biases_is_undone(heads: int, head_dim: int) -> None:
    for shape in ((heads * head_dim,), (heads * head_dim, 5)):
        rows = np.random.default_rng(0).random(shape)
        undone = rows_by_halves(torch.from_numpy(interleaved(rows, heads)), heads)
        assert np.array_equal(undone.numpy(), rows)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_names_are_those_of_the_gguf_package(architecture: str) -> None:
    spec = parse_random(f"random:{architecture}").spec
    known = get_tensor_name_map(MODEL_ARCH[architecture.upper()], spec.layers)
    for published in published_shapes(spec):
        gguf_name = known.get_name(published, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None
        assert published_name(gguf_name) == published


def test_the_builder_s_row_order_is_not_the_published_one() -> None:
    """Else the tests above would prove nothing about it."""
    rows = np.arange(16, dtype=np.float32).reshape(16, 1)
    name = "model.layers.0.self_attn.q_proj.weight"
    out = gguf_tensors({name: rows}, "llama", 2, 2)["blk.0.attn_q.weight"]
    assert out[:8, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
