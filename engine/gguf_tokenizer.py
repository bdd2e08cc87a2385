"""A fast tokenizer from the metadata of a GGUF file (keys `tokenizer.ggml.*` of llama.cpp).

Two families: `gpt2` (byte-level BPE with a named way to split text first) and `llama`
(SentencePiece BPE with scores and byte fallback, whose merges are rebuilt from the scores).
What comes out splits text as the published tokenizers do, with which the models were trained, and
as llama.cpp does. (transformers, given a GGUF file, ignores SmolLM2's `smollm` and splits as GPT-2
does: another result where two or more white-space characters stand before a digit.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from core.errors import ModelError
from engine.token_table import byte_spelling

if TYPE_CHECKING:
    import gguf


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufVocabulary:
    """What a GGUF file says about its tokenizer."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    """TokenKind values, one per token."""
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    bos_id: int | None
    eos_ids: tuple[int, ...]
    unknown_id: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    chat_templates: Mapping[str, str]
    """By name; the usual one is `default`."""


_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class SplitKind:
    """How text is cut before byte-level BPE. `pattern` None: GPT-2's own. The published
    tokenizers of Llama 3 and Mistral take a piece that is a token as it is (`whole_pieces`),
    begin every text with BOS unless told otherwise; Qwen's compose characters (NFC) first;
    SmolLM's cut every digit out before anything else (`digits_apart`)."""

    pattern: str | None
    whole_pieces: bool = False
    add_bos: bool = False
    compose: bool = False
    digits_apart: bool = False


_GPT2 = SplitKind(None)
_LLAMA3 = SplitKind(_LLAMA3_SPLIT, whole_pieces=True, add_bos=True)
_QWEN2 = SplitKind(_QWEN2_SPLIT, compose=True)

SPLIT_KINDS: Mapping[str, SplitKind] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "smollm": SplitKind(None, digits_apart=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": SplitKind(_QWEN35_SPLIT, compose=True),
    "tekken": SplitKind(_TEKKEN_SPLIT, whole_pieces=True, add_bos=True),
}


class _Fields:
    """Typed access to a reader's metadata; a wrong type names the key."""

    def __init__(self, reader: "gguf.GGUFReader") -> None:
        self._reader = reader

    def get(self, key: str, kind: type, default: Any) -> Any:
        field = self._reader.get_field(key)
        if field is None:
            return default
        value = field.contents()
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(f"GGUF metadata '{key}' should be {kind.__name__}, not {value!r:.80}")
        return value

    def need(self, key: str, kind: type) -> Any:
        value = self.get(key, kind, None)
        if value is None:
            raise ModelError(f"GGUF metadata '{key}' is missing: the file carries no tokenizer")
        return value

    def chat_templates(self) -> dict[str, str]:
        found: dict[str, str] = {}
        default = self.get("tokenizer.chat_template", str, None)
        if default is not None:
            found["default"] = default
        for name in self.get("tokenizer.chat_templates", list, []):
            named = self.get(f"tokenizer.chat_template.{name}", str, None)
            if named is not None:
                found[str(name)] = named
        return found


def read_vocabulary(reader: "gguf.GGUFReader") -> GgufVocabulary:
    """The tokenizer's metadata, checked.

    Raises:
        ModelError: a key is missing or contradicts another; the tokenizer is of an unknown kind.
    """
    fields = _Fields(reader)
    model = fields.need("tokenizer.ggml.model", str)
    pre = fields.get("tokenizer.ggml.pre", str, "default")
    if model not in ("gpt2", "llama"):
        raise ModelError(f"GGUF tokenizer '{model}' is not supported (gpt2 and llama are)")
    if model == "gpt2" and pre not in SPLIT_KINDS:
        known = ", ".join(sorted(SPLIT_KINDS))
        raise ModelError(f"GGUF pre-tokenizer '{pre}' is not known; known are {known}")
    tokens = tuple(str(token) for token in fields.need("tokenizer.ggml.tokens", list))
    kinds = tuple(
        fields.get("tokenizer.ggml.token_type", list, [int(TokenKind.NORMAL)] * len(tokens))
    )
    if len(kinds) != len(tokens):
        raise ModelError(f"GGUF tokenizer: {len(tokens)} tokens but {len(kinds)} token types")
    scores = tuple(fields.get("tokenizer.ggml.scores", list, []))
    merges = tuple(_merge(text) for text in fields.get("tokenizer.ggml.merges", list, []))
    if model == "gpt2" and not merges:
        raise ModelError("GGUF metadata 'tokenizer.ggml.merges' is missing")
    if model == "llama" and not merges and len(scores) != len(tokens):
        raise ModelError(f"GGUF tokenizer: {len(tokens)} tokens but {len(scores)} scores")
    bos_id = fields.get("tokenizer.ggml.bos_token_id", int, None)
    unknown_id = fields.get("tokenizer.ggml.unknown_token_id", int, None)
    ends = [fields.get(f"tokenizer.ggml.{key}_token_id", int, None) for key in ("eos", "eot")]
    for token_id in (bos_id, unknown_id, *ends):
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise ModelError(
                f"GGUF tokenizer: special id {token_id} is not among its {len(tokens)} tokens"
            )
    # Older files carry no flag; llama.cpp adds BOS for these kinds then.
    add_bos = model == "llama" or (model == "gpt2" and SPLIT_KINDS[pre].add_bos)
    return GgufVocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        scores=scores,
        merges=merges,
        bos_id=bos_id,
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        unknown_id=unknown_id,
        add_bos=fields.get("tokenizer.ggml.add_bos_token", bool, add_bos) and bos_id is not None,
        add_eos=fields.get("tokenizer.ggml.add_eos_token", bool, False) and ends[0] is not None,
        add_space_prefix=fields.get("tokenizer.ggml.add_space_prefix", bool, model == "llama"),
        chat_templates=fields.chat_templates(),
    )


def _merge(text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not (left and space and right):
        raise ModelError(f"GGUF tokenizer: {text!r:.80} is not a merge of two tokens")
    return left, right


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """The fast tokenizer that `vocabulary` describes."""
    if vocabulary.model == "gpt2":
        tokenizer = _byte_level(vocabulary)
    else:
        tokenizer = _sentencepiece(vocabulary)
    special_kinds = {TokenKind.CONTROL}
    if vocabulary.model == "llama":
        special_kinds.add(TokenKind.UNKNOWN)  # nothing else marks it there
    kinds = list(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    special = [token for token, kind in kinds if token and kind in special_kinds]
    plain = [token for token, kind in kinds if token and kind == TokenKind.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in plain])
    tokenizer.post_processor = _frame(vocabulary)
    return tokenizer


def _frame(vocabulary: GgufVocabulary) -> TemplateProcessing:
    """BOS before and EOS behind, as the flags say."""
    bos = vocabulary.bos_id if vocabulary.add_bos else None
    eos = vocabulary.eos_ids[0] if vocabulary.add_eos else None
    names = {"bos": bos, "eos": eos}
    used = [(vocabulary.tokens[i], i) for i in names.values() if i is not None]
    before = [vocabulary.tokens[bos]] if bos is not None else []
    behind = [vocabulary.tokens[eos]] if eos is not None else []
    return TemplateProcessing(
        single=[*before, "$A", *behind],
        special_tokens=list(dict.fromkeys(used)),
    )


def _byte_level(vocabulary: GgufVocabulary) -> Tokenizer:
    spelling = byte_spelling()
    alphabet = set(spelling.values())

    def spelled(token: str, kind: int) -> str:
        # Added tokens are stored as raw text and found as raw text; a normal token outside the
        # byte alphabet is a converter's slip.
        if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED) or set(token) <= alphabet:
            return token
        return "".join(spelling[byte] for byte in token.encode())

    vocab = {
        spelled(token, kind): index
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    }
    split = SPLIT_KINDS[vocabulary.pre]
    tokenizer = Tokenizer(
        BPE(
            vocab=vocab,
            merges=_known_merges(vocabulary.merges, vocab),
            ignore_merges=split.whole_pieces,
        )
    )
    if split.compose:
        tokenizer.normalizer = normalizers.NFC()
    if split.digits_apart:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    elif split.pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _known_merges(
    merges: Sequence[tuple[str, str]], vocab: Mapping[str, int]
) -> list[tuple[str, str]]:
    for left, right in merges:
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ModelError(f"GGUF tokenizer: merge of {left!r} and {right!r} leads to no token")
    return list(merges)


def _sentencepiece(vocabulary: GgufVocabulary) -> Tokenizer:
    vocab = {token: index for index, token in enumerate(vocabulary.tokens)}
    merges = list(vocabulary.merges) or merges_from_scores(vocabulary.tokens, vocabulary.scores)
    unknown = vocabulary.unknown_id
    tokenizer = Tokenizer(
        BPE(
            vocab=vocab,
            merges=merges,
            fuse_unk=True,
            byte_fallback=True,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
        )
    )
    scheme = "first" if vocabulary.add_space_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme, split=False
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.add_space_prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def merges_from_scores(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """BPE merges that do what SentencePiece does with scores: of all adjacent pairs whose
    concatenation is a token, the one with the highest score merges first."""
    vocab = {token: index for index, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in dict(zip(tokens, scores, strict=True)).items():
        splits = [
            (token[:cut], token[cut:])
            for cut in range(1, len(token))
            if token[:cut] in vocab and token[cut:] in vocab
        ]
        splits.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(score, len(left), len(right), left, right) for left, right in splits]
    # Stable with reverse=True: equal keys stay in the order found, as transformers has it.
    found.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for _, _, _, left, right in found]
