"""Writing a prepared model's tokenizer: `tokenizer.json` and `tokenizer_config.json`.

Three sources: a GGUF file's metadata, a Hugging Face directory, and the byte tokenizer of random
models. `engine.tokenizer.Tokenizer` reads what is written here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from core.errors import ModelError
from engine.fast_tokenizer import read_fast_tokenizer, vocabulary_end
from engine.gguf_tokenizer import build_tokenizer, read_vocabulary
from engine.token_table import byte_spelling

if TYPE_CHECKING:
    import gguf

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
MIN_SYNTHETIC_VOCAB = 260

SYNTHETIC_CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """What the model's spec needs to know. `vocab_size` is one past the highest token id."""

    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    vocab_size: int


def write_from_gguf(reader: "gguf.GGUFReader", out_dir: Path) -> TokenizerInfo:
    """Write the tokenizer described in a GGUF file's metadata.

    Raises:
        ModelError: the file carries none, a contradictory one, or one of an unknown kind.
    """
    vocabulary = read_vocabulary(reader)
    tokenizer = build_tokenizer(vocabulary)
    _write(
        out_dir,
        tokenizer,
        bos_id=vocabulary.bos_id,
        eos_ids=vocabulary.eos_ids,
        add_bos=vocabulary.add_bos,
        chat_templates=vocabulary.chat_templates,
    )
    return TokenizerInfo(vocabulary.bos_id, vocabulary.eos_ids, vocabulary_end(tokenizer))


def write_from_directory(src: Path, out_dir: Path) -> TokenizerInfo:
    """Copy the tokenizer of a Hugging Face directory; its `tokenizer.json` is taken as it is.

    Text generation ends at any of `generation_config.json`'s eos ids, `config.json`'s where that
    names none, and the tokenizer's own eos token.

    Raises:
        ModelError: there is no `tokenizer.json`, or one of the files can't be read.
    """
    if not (src / TOKENIZER_FILE).is_file():
        if (src / "tokenizer.model").is_file():
            raise ModelError(
                f"{src}: only a SentencePiece tokenizer.model is here; convert it to "
                "tokenizer.json first (transformers: AutoTokenizer.from_pretrained(DIR)"
                ".save_pretrained(DIR))"
            )
        raise ModelError(f"{src}: tokenizer.json is missing")
    tokenizer = read_fast_tokenizer(src / TOKENIZER_FILE)
    config = _read_json(src / CONFIG_FILE)
    names = {**_read_json(src / "special_tokens_map.json"), **config}
    bos_id = _token_id(tokenizer, names.get("bos_token"))
    eos_ids = _eos_ids(src, _token_id(tokenizer, names.get("eos_token")))
    _write(
        out_dir,
        tokenizer,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=bool(config.get("add_bos_token", False)),
        chat_templates=_chat_templates(src, config),
    )
    return TokenizerInfo(bos_id, eos_ids, vocabulary_end(tokenizer))


def write_synthetic(vocab_size: int, out_dir: Path) -> TokenizerInfo:
    """Write a byte tokenizer with exactly `vocab_size` ids: the 256 bytes, `<|endoftext|>` (bos),
    `<|im_start|>`, `<|im_end|>` (eos), `<|pad|>`, and words no text is encoded to, so that
    whatever a random model draws decodes to something.

    Raises:
        ModelError: vocab_size is below 260.
    """
    if vocab_size < MIN_SYNTHETIC_VOCAB:
        raise ModelError(
            f"a random model's vocabulary must hold at least {MIN_SYNTHETIC_VOCAB} tokens "
            f"(256 bytes and 4 special ones), not {vocab_size}"
        )
    spelling = byte_spelling()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
    vocab = {spelling[byte]: byte for byte in range(256)}
    vocab.update({token: 256 + place for place, token in enumerate(specials)})
    vocab.update({f"{spelling[0x20]}w{i}": i for i in range(len(vocab), vocab_size)})
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in specials]
    )
    bos_id, eos_ids = vocab["<|endoftext|>"], (vocab["<|im_end|>"],)
    _write(
        out_dir,
        tokenizer,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=False,
        chat_templates={"default": SYNTHETIC_CHAT_TEMPLATE},
    )
    return TokenizerInfo(bos_id, eos_ids, vocab_size)


def _write(
    out_dir: Path,
    tokenizer: Tokenizer,
    *,
    bos_id: int | None,
    eos_ids: tuple[int, ...],
    add_bos: bool,
    chat_templates: Mapping[str, str],
) -> None:
    """The two files. The configuration keeps Hugging Face's keys, so that transformers reads it
    too, and adds `eos_token_ids`, all the ids that end a text."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out_dir / TOKENIZER_FILE))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": None if bos_id is None else tokenizer.id_to_token(bos_id),
        "eos_token": tokenizer.id_to_token(eos_ids[0]) if eos_ids else None,
        "add_bos_token": add_bos,
        "bos_token_id": bos_id,
        "eos_token_ids": list(eos_ids),
    }
    if list(chat_templates) == ["default"]:
        config["chat_template"] = chat_templates["default"]
    elif chat_templates:
        config["chat_template"] = [
            {"name": name, "template": template} for name, template in chat_templates.items()
        ]
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (out_dir / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: should hold a JSON object")
    return value


def _token_id(tokenizer: Tokenizer, token: Any) -> int | None:
    """Id of a special token given as a string or as `{"content": …}`."""
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str):
        return None
    found: int | None = tokenizer.token_to_id(token)
    return found


def _eos_ids(src: Path, own: int | None) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        ids = _as_ids(_read_json(src / name).get("eos_token_id"), src / name)
        if ids:
            break
    return tuple(dict.fromkeys([*ids, *([] if own is None else [own])]))


def _as_ids(value: Any, place: Path) -> tuple[int, ...]:
    ids: Iterable[Any] = value if isinstance(value, list) else () if value is None else (value,)
    found = tuple(ids)
    if not all(type(token_id) is int and token_id >= 0 for token_id in found):
        raise ModelError(f"{place}: eos_token_id should be one or more token ids, not {value!r}")
    return found


def _chat_templates(src: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name. A `chat_template.jinja` file wins over the configuration's entry."""
    entry = config.get("chat_template")
    found: dict[str, str] = {}
    if isinstance(entry, str):
        found["default"] = entry
    elif isinstance(entry, list):
        for named in entry:
            if not (
                isinstance(named, dict)
                and isinstance(named.get("name"), str)
                and isinstance(named.get("template"), str)
            ):
                raise ModelError(f"{src / CONFIG_FILE}: chat_template lists something unnamed")
            found[named["name"]] = named["template"]
    elif entry is not None:
        raise ModelError(f"{src / CONFIG_FILE}: chat_template should be text or a list of such")
    files = {"default": src / "chat_template.jinja"}
    files |= {
        path.stem: path for path in sorted((src / "additional_chat_templates").glob("*.jinja"))
    }
    for name, path in files.items():
        if path.is_file():
            found[name] = path.read_text(encoding="utf-8")
    return found
