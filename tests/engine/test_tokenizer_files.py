"""The three sources of a tokenizer, checked against transformers where it reads the same."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as FastTokenizer, models, pre_tokenizers, trainers

from core.errors import ModelError
from engine.gguf_tokenizer import SPLIT_KINDS, merges_from_scores
from engine.token_table import byte_spelling
from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_from_directory, write_from_gguf, write_synthetic
from tests.engine.tokenizer_cases import (
    TEXTS,
    byte_level_metadata,
    sentencepiece_metadata,
    smollm2_file,
    write_gguf,
)

BYTE_LEVEL_KINDS = ("smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35", "tekken")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


def transformers_tokenizer(path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


def digits_apart(reference: Any) -> None:
    """Split as SmolLM2's published tokenizer.json does; transformers' GGUF reading forgets it."""
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


def test_smollm2_cuts_digits_out_first(smollm2: Tokenizer) -> None:
    newlines, digit = smollm2.encode("\n\n1")
    assert (smollm2.token_text(newlines), smollm2.token_text(digit)) == ("\n\n", "1")


def test_smollm2_equals_transformers(smollm2: Tokenizer) -> None:
    assert (smollm2.bos_token_id, smollm2.eos_token_ids, smollm2.vocab_size) == (1, (2,), 49_152)
    reference = transformers_tokenizer(smollm2_file())
    digits_apart(reference)
    for text in (*TEXTS, "\n\n".join(TEXTS)):
        ids = smollm2.encode(text)
        assert ids == reference(text).input_ids, text
        assert smollm2.decode(ids) == reference.decode(ids, skip_special_tokens=True), text
    messages = [
        {"role": "user", "content": "Hi <b>&'\" 日本"},
        {"role": "assistant", "content": ""},
    ]
    for wanted in (False, True):
        assert smollm2.render_chat(messages, wanted) == reference.apply_chat_template(
            messages, add_generation_prompt=wanted, tokenize=False
        )


def test_sentencepiece_equals_transformers(tmp_path: Path) -> None:
    source = tmp_path / "spm"
    source.mkdir()
    reader = write_gguf(source / "model.gguf", sentencepiece_metadata())
    info = write_from_gguf(reader, tmp_path / "out")
    assert (info.bos_token_id, info.eos_token_ids) == (1, (2,))
    ours = Tokenizer.load(tmp_path / "out")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (source / "config.json").write_text(json.dumps(config))
    reference = transformers_tokenizer(source / "model.gguf")
    for text in (*TEXTS, "the there then", "  the", "été<think>the", "the</s>the"):
        assert ours.encode(text) == reference(text).input_ids, text
        ids = ours.encode(text, add_special=False)
        assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True), text
    assert ours.encode("the", add_special=True)[0] == 1
    assert ours.encode("the", add_special=False)[0] != 1


@pytest.mark.parametrize("pre", BYTE_LEVEL_KINDS)
def test_byte_level_kinds_equal_transformers(tmp_path: Path, pre: str) -> None:
    trained = FastTokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(
        [*TEXTS, "in the end 12 123 1234 'LL 'S\n\n\n   end!!!\n\n"],
        trainers.BpeTrainer(
            vocab_size=500,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    state = json.loads(trained.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    merges = [" ".join(pair) for pair in state["merges"]]
    metadata = byte_level_metadata(tokens, merges, pre, list(SPECIALS))
    metadata["tokenizer.ggml.add_bos_token"] = pre == "llama-bpe"
    source = tmp_path / "source"
    source.mkdir()
    write_from_gguf(write_gguf(source / "model.gguf", metadata), tmp_path / "out")
    ours = Tokenizer.load(tmp_path / "out")
    reference = transformers_tokenizer(source / "model.gguf")
    if pre == "smollm":
        digits_apart(reference)
    for text in TEXTS:
        if pre.startswith("qwen") and "e\u0301" in text:
            continue  # Qwen's own tokenizer composes characters; transformers' GGUF reading doesn't
        assert ours.encode(text) == reference(text).input_ids, text
        spoken = re.sub("|".join(map(re.escape, SPECIALS)), "", text)
        assert ours.decode(ours.encode(text, False)) == spoken


def test_qwen_composes_characters(tmp_path: Path) -> None:
    metadata = byte_level_metadata(
        list(byte_spelling().values()), ["Ã ©"], "qwen2", ["<|im_start|>", "<|im_end|>"]
    )
    metadata["tokenizer.ggml.tokens"].insert(0, "Ã©")
    metadata["tokenizer.ggml.token_type"].insert(0, 1)
    write_from_gguf(write_gguf(tmp_path / "model.gguf", metadata), tmp_path / "out")
    assert Tokenizer.load(tmp_path / "out").encode("e\u0301") == [0]


def test_merges_from_scores_take_the_best_pair_first() -> None:
    merges = merges_from_scores(["a", "b", "c", "ab", "bc", "abc"], [0, 0, 0, -2.0, -1.0, -3.0])
    assert merges == [("b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "t5"}, "tokenizer 't5' is not supported"),
        ({"tokenizer.ggml.model": None}, "carries no tokenizer"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "klingon"}, "'klingon'"),
        ({"tokenizer.ggml.model": "gpt2"}, "'tokenizer.ggml.merges' is missing"),
        ({"tokenizer.ggml.scores": [0.5]}, "1 scores"),
        ({"tokenizer.ggml.token_type": [1]}, "1 token types"),
        ({"tokenizer.ggml.eos_token_id": 99_999}, "99999"),
        ({"tokenizer.ggml.tokens": "abc"}, "should be list"),
    ],
)
def test_a_faulty_gguf_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    metadata = sentencepiece_metadata() | change
    metadata = {key: value for key, value in metadata.items() if value is not None}
    reader = write_gguf(tmp_path / "model.gguf", metadata)
    with pytest.raises(ModelError, match=message):
        write_from_gguf(reader, tmp_path / "out")


def test_a_merge_without_its_token_is_named(tmp_path: Path) -> None:
    metadata = byte_level_metadata(
        list(byte_spelling().values()), ["a b"], "gpt-2", ["<s>", "</s>"]
    )
    with pytest.raises(ModelError, match="leads to no token"):
        write_from_gguf(write_gguf(tmp_path / "model.gguf", metadata), tmp_path / "out")


def test_end_of_turn_ends_a_text_too(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata() | {"tokenizer.ggml.eot_token_id": 5}
    info = write_from_gguf(write_gguf(tmp_path / "model.gguf", metadata), tmp_path / "out")
    assert info.eos_token_ids == (2, 5)
    assert Tokenizer.load(tmp_path / "out").eos_token_ids == (2, 5)


# ---- directories -------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A Hugging Face directory made from the synthetic tokenizer."""
    out = tmp_path / "hf"
    write_synthetic(300, out)
    config = {"bos_token": {"content": "<|endoftext|>"}, "eos_token": "<|im_end|>"}
    (out / "tokenizer_config.json").write_text(json.dumps(config))
    return out


def test_a_directory_is_taken_as_it_is(directory: Path, tmp_path: Path) -> None:
    info = write_from_directory(directory, tmp_path / "out")
    assert (info.bos_token_id, info.eos_token_ids, info.vocab_size) == (256, (258,), 300)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert tokenizer.encode("hé") == list("hé".encode())
    assert not tokenizer.has_chat_template


def test_generation_config_names_the_ends(directory: Path, tmp_path: Path) -> None:
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert write_from_directory(directory, tmp_path / "a").eos_token_ids == (7, 258)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [259, 258]}))
    assert write_from_directory(directory, tmp_path / "b").eos_token_ids == (259, 258)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": "x"}))
    with pytest.raises(ModelError, match="eos_token_id"):
        write_from_directory(directory, tmp_path / "c")


def test_chat_templates_of_a_directory(directory: Path, tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools: {{ tools | length }}"},
    ]
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    write_from_directory(directory, tmp_path / "a")
    tokenizer = Tokenizer.load(tmp_path / "a")
    assert tokenizer.render_chat([]) == "plain"
    assert tokenizer.render_chat([], tools=[{}]) == "tools: 1"
    (directory / "chat_template.jinja").write_text("from the file")
    write_from_directory(directory, tmp_path / "b")
    assert Tokenizer.load(tmp_path / "b").render_chat([]) == "from the file"


def test_a_directory_without_a_fast_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        write_from_directory(tmp_path, tmp_path / "out")
    (tmp_path / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(ModelError, match="only a SentencePiece"):
        write_from_directory(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_an_unreadable_file_is_named(directory: Path, tmp_path: Path, name: str) -> None:
    (directory / name).write_text("{ not json")
    with pytest.raises(ModelError, match=name):
        write_from_directory(directory, tmp_path / "out")


def test_transformers_reads_what_is_written(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_synthetic(300, tmp_path)
    reference = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = Tokenizer.load(tmp_path)
    messages = [{"role": "user", "content": "hé"}]
    assert ours.render_chat(messages) == reference.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )
    assert ours.encode("hé<|im_end|>") == reference("hé<|im_end|>").input_ids


# ---- synthetic ---------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [260, 261, 1_000])
def test_every_synthetic_id_decodes(tmp_path: Path, vocab_size: int) -> None:
    info = write_synthetic(vocab_size, tmp_path)
    assert (info.bos_token_id, info.eos_token_ids, info.vocab_size) == (256, (258,), vocab_size)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == vocab_size
    assert all(tokenizer.token_bytes(token) for token in range(vocab_size))
    for text in TEXTS:
        assert max(tokenizer.encode(text), default=0) < 260
    assert tokenizer.encode("<|im_start|>a") == [257, ord("a")]


def test_a_synthetic_vocabulary_has_a_least_size(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="260"):
        write_synthetic(259, tmp_path)


def test_files_are_enough_without_their_source(tmp_path: Path) -> None:
    write_synthetic(300, tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert Tokenizer.load(tmp_path / "b").decode(b"moved") == "moved"


def test_every_known_kind_is_tested_or_an_alias() -> None:
    tested = {SPLIT_KINDS[k] for k in BYTE_LEVEL_KINDS}
    assert set(SPLIT_KINDS.values()) == tested
