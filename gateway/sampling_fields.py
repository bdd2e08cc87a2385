"""A body's sampling fields as `SamplingParams`, with the API's defaults."""

import secrets
from collections.abc import Mapping

from core.errors import ClientError
from core.sampling import MAX_CHOICES, MAX_TOP_LOGPROBS, SamplingParams
from gateway.openai_models import ChatBody, CompletionBody, GenerationBody

SEED_MASK = (1 << 64) - 1


def sampling_of(
    body: GenerationBody, *, max_tokens: int, vocab: int, eos_token_ids: tuple[int, ...]
) -> SamplingParams:
    """Raises:
    ClientError: a value out of its range, a token id beyond the vocabulary, or no token left to
        begin the answer with.
    """
    choices = 1 if body.n is None else body.n
    if not 1 <= choices <= MAX_CHOICES:
        raise ClientError(f"n must be in [1, {MAX_CHOICES}], not {choices}.", param="n")
    if (body.min_tokens or 0) > max_tokens:
        raise ClientError(
            f"min_tokens ({body.min_tokens}) is greater than max_tokens ({max_tokens}).",
            param="min_tokens",
        )
    params = SamplingParams(
        temperature=_given(body.temperature, 1.0),
        # -1 is how some servers spell "off".
        top_k=0 if body.top_k in (None, -1) else body.top_k or 0,
        top_p=_given(body.top_p, 1.0),
        min_p=_given(body.min_p, 0.0),
        seed=secrets.randbits(64) if body.seed is None else body.seed & SEED_MASK,
        repetition_penalty=_given(body.repetition_penalty, 1.0),
        presence_penalty=_given(body.presence_penalty, 0.0),
        frequency_penalty=_given(body.frequency_penalty, 0.0),
        logit_bias=_logit_bias(body.logit_bias or {}, vocab),
        stop_token_ids=_stop_token_ids(body.stop_token_ids or [], vocab),
        min_tokens=body.min_tokens or 0,
        max_tokens=max_tokens,
        ignore_eos=bool(body.ignore_eos),
        logprobs=_top_logprobs(body),
        choices=choices,
    )
    _require_a_first_token(params, vocab, eos_token_ids)
    return params


def _require_a_first_token(
    params: SamplingParams, vocab: int, eos_token_ids: tuple[int, ...]
) -> None:
    """Below min_tokens, workers ban what would end the answer (`engine.finish.banned_tokens`)."""
    ends = set(params.stop_token_ids) | set(() if params.ignore_eos else eos_token_ids)
    if params.min_tokens and len([token for token in ends if token < vocab]) >= vocab:
        raise ClientError(
            f"min_tokens ({params.min_tokens}) bans the tokens that would end the answer, and "
            f"with these stop_token_ids that is all {vocab} of them.",
            param="stop_token_ids",
        )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _top_logprobs(body: GenerationBody) -> int | None:
    if isinstance(body, ChatBody):
        return (body.top_logprobs or 0) if body.logprobs else None
    if not isinstance(body, CompletionBody) or body.logprobs is None:
        return None
    if not 0 <= body.logprobs <= MAX_TOP_LOGPROBS:
        raise ClientError(
            f"logprobs must be in [0, {MAX_TOP_LOGPROBS}], not {body.logprobs}.", param="logprobs"
        )
    return body.logprobs


def _logit_bias(bias: Mapping[str, float], vocab: int) -> tuple[tuple[int, float], ...]:
    by_token: dict[int, float] = {}
    for name, value in bias.items():
        # isdecimal() alone takes digits of all scripts; int() would take "1_0" and " 1 ".
        token = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else vocab
        if token >= vocab:
            raise ClientError(
                f"logit_bias: '{name:.40}' is no token id below {vocab}.", param="logit_bias"
            )
        by_token[token] = value
    return tuple(sorted(by_token.items()))


def _stop_token_ids(tokens: list[int], vocab: int) -> tuple[int, ...]:
    for token in tokens:
        if not 0 <= token < vocab:
            raise ClientError(
                f"stop_token_ids: {token} is no token id below {vocab}.", param="stop_token_ids"
            )
    return tuple(dict.fromkeys(tokens))
