"""The tokenizer as the gateway uses it."""

import json
from pathlib import Path

import pytest

from core.errors import ClientError, ModelError
from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_synthetic


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_synthetic(300, tmp_path)
    return tmp_path


def test_loading(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    assert tokenizer.vocab_size == 300
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (256, (258,))
    assert tokenizer.has_chat_template


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_missing_and_broken_files_are_named(directory: Path, name: str) -> None:
    (directory / name).write_text("{")
    with pytest.raises(ModelError, match=name):
        Tokenizer.load(directory)
    (directory / name).unlink()
    with pytest.raises(ModelError, match=name):
        Tokenizer.load(directory)


def test_special_tokens_in_text_are_tokens(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    assert tokenizer.encode("<|im_start|>a<|im_end|>") == [257, 97, 258]
    assert tokenizer.decode([257, 97, 258]) == "a"


def test_half_a_surrogate_pair_is_the_callers(directory: Path) -> None:
    with pytest.raises(ClientError, match="surrogate"):
        Tokenizer.load(directory).encode("a\ud83d")


def test_ids_without_a_token_are_nothing(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    assert tokenizer.decode([-1, 97, 300, 10**9]) == "a"
    assert (tokenizer.token_bytes(-1), tokenizer.token_text(300)) == (b"", "")


def test_special_tokens_have_names_in_templates(directory: Path) -> None:
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["chat_template"] = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ mood }}"
    path.write_text(json.dumps(config))
    tokenizer = Tokenizer.load(directory)
    text = tokenizer.render_chat([], variables={"mood": "good"})
    assert text == "<|endoftext|>|<|im_end|>||good"


def test_a_chat_becomes_tokens_and_back(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    text = tokenizer.render_chat([{"role": "user", "content": "hé"}])
    ids = tokenizer.encode(text, add_special=False)
    assert ids.count(257) == 2
    assert tokenizer.decode(ids) == "user\nhé\nassistant\n"
