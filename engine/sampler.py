"""Logits to tokens: bias, bans, penalties, logprobs, temperature, truncation, one draw.

Every row is worked on alone and in a fixed order of operations, so a token depends on its row,
its parameters and (seed, choice, position), never on what else is in the batch or on how many
threads there are. The work is done in numpy on the CPU: per row of 49,152 logits it is a tenth of
torch's time for argmax, and sorts in fixed order.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from core.errors import BugError
from core.request import TokenLogprobs
from core.sampling import SamplingParams
from engine.step_plan import Drawn, SampleSpec

_GREEDY_BELOW = 1e-5
"""Temperatures this low are greedy: dividing by them would leave float32's range."""
_BLOCK = 256
"""Weights summed per step of the coarse search in `_pick`."""

Row = NDArray[np.float32]


class Sampler:
    """Draws tokens from rows of `vocab_size` logits. Holds no state between calls."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def sample(self, logits: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Drawn]:
        """One token per row.

        Args:
            logits: [R, vocab_size] float32, on any device; not changed.
            specs: R of them, row by row.

        Raises:
            BugError: the shape is wrong, or a row of the model's logits holds NaN or no finite
                maximum; names the row's attempt. What a request asks for never raises: where its
                bans leave no token, they don't hold, and where its bias and penalties leave the
                range of float32 for every token, neither do they.
        """
        if logits.shape != (len(specs), self._vocab_size) or logits.dtype != torch.float32:
            raise BugError(
                f"sampler: logits of shape {tuple(logits.shape)} and {logits.dtype} for "
                f"{len(specs)} draws from {self._vocab_size} tokens"
            )
        if logits.is_cuda and all(_plain_greedy(spec) for spec in specs):
            return _greedy_on_device(logits, specs)
        rows: NDArray[np.float32] = logits.detach().cpu().numpy()
        with np.errstate(over="ignore"):  # what falls below float32's range is minus infinity
            return [_draw(row, spec) for row, spec in zip(rows, specs, strict=True)]


def uniform(seed: int, choice: int, position: int) -> float:
    """The one random number behind the token at `position` of `choice`, in [0, 1).

    The upper 53 bits of XXH3-64 over the three as little-endian 64-bit integers: the same on
    every worker, in any order of asking.
    """
    digest: int = xxhash.xxh3_64_intdigest(struct.pack("<QQQ", seed, choice, position))
    return (digest >> 11) * 2.0**-53


def _plain_greedy(spec: SampleSpec) -> bool:
    params = spec.params
    return (
        params.temperature < _GREEDY_BELOW
        and not params.uses_history
        and not params.logit_bias
        and params.logprobs is None
        and not spec.banned
    )


def _greedy_on_device(logits: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Drawn]:
    # torch promises the first of equal maxima, and NaN for a row that holds one.
    values, tokens = logits.max(dim=1)
    for spec, value in zip(specs, values.tolist(), strict=True):
        _check_maximum(value, spec)
    return [Drawn(token) for token in tokens.tolist()]


def _check_maximum(value: float, spec: SampleSpec) -> None:
    if not math.isfinite(value):
        raise BugError(
            f"sampler: the largest logit of {spec.attempt}, choice {spec.choice}, "
            f"position {spec.position} is {value}"
        )


def _draw(row: Row, spec: SampleSpec) -> Drawn:
    params = spec.params
    best = int(row.argmax())  # the first of equals; the place of a NaN if there is one
    _check_maximum(float(row[best]), spec)
    if _plain_greedy(spec):
        return Drawn(best)
    row = _drawable(row, spec)
    best = int(row.argmax())
    if params.temperature < _GREEDY_BELOW:
        token = best
    else:
        token = _random(row, params, uniform(params.seed, spec.choice, spec.position))
    if params.logprobs is None:
        return Drawn(token)
    return Drawn(token, _logprobs(row, token, params.logprobs))


def _drawable(row: Row, spec: SampleSpec) -> Row:
    """The adjusted row if it holds a token to draw; else the one without bans, else the model's.

    One request's parameters must not end the step of all others, let alone the worker. The gateway
    refuses what it can foresee (`gateway.sampling_fields`)."""
    for wanted in (spec, replace(spec, banned=())):
        adjusted = _adjusted(row, wanted)
        if adjusted is row or math.isfinite(float(adjusted.max())):
            return adjusted
    return row


def _adjusted(row: Row, spec: SampleSpec) -> Row:
    """The row with bias, bans and penalties applied, in that order; a copy where anything is.
    Ids beyond the vocabulary have no effect: the gateway refuses them."""
    params = spec.params
    if not (params.logit_bias or spec.banned or params.uses_history):
        return row
    row = row.copy()
    size = len(row)
    for token, bias in params.logit_bias:
        if 0 <= token < size:
            row[token] += bias
    row[[token for token in spec.banned if 0 <= token < size]] = -np.inf
    if params.repetition_penalty != 1.0:
        seen = np.unique(np.array([*spec.prompt, *spec.output], dtype=np.int64))
        seen = seen[seen < size]
        values, penalty = row[seen], np.float32(params.repetition_penalty)
        row[seen] = np.where(values > 0, values / penalty, values * penalty)
    if spec.output and (params.presence_penalty or params.frequency_penalty):
        said, counts = np.unique(np.array(spec.output, dtype=np.int64), return_counts=True)
        said, counts = said[said < size], counts[said < size]
        row[said] -= (params.presence_penalty + params.frequency_penalty * counts).astype(
            np.float32
        )
    return row


def _logprobs(row: Row, token: int, top: int) -> TokenLogprobs:
    """Of the token and of the `top` likeliest ones, likeliest first, equals by id."""
    highest = row.max()
    total = float(np.exp(row - highest).sum(dtype=np.float64))
    base = float(highest) + math.log(total)
    ids = _largest(row, top)
    ids = ids[np.argsort(-row[ids], kind="stable")]
    alternatives = [(int(other), float(row[other]) - base) for other in ids]
    return TokenLogprobs(
        logprob=float(row[token]) - base,
        top=tuple(pair for pair in alternatives if math.isfinite(pair[1])),  # no banned ones
    )


def _largest(values: Row, count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest values in rising order; of equals, the first ones."""
    size = len(values)
    if count >= size:
        return np.arange(size)
    if count <= 0:
        return np.arange(0)
    least = np.partition(values, size - count)[size - count]
    candidates = np.flatnonzero(values >= least)
    surplus = len(candidates) - count
    if surplus:
        # Every index above `least` stays; the last of those equal to it go.
        equal = candidates[values[candidates] == least]
        candidates = np.setdiff1d(candidates, equal[len(equal) - surplus :], assume_unique=True)
    return candidates


def _random(row: Row, params: SamplingParams, draw: float) -> int:
    """A token by inverse CDF over the ids in rising order."""
    weights: Row = np.exp((row - row.max()) / np.float32(params.temperature))
    # The likeliest token weighs exactly 1, so min_p is a bound on the weight itself.
    ids: NDArray[np.intp] | None = None
    if params.min_p > 0.0:
        ids = np.flatnonzero(weights >= np.float32(params.min_p))
    if 0 < params.top_k < len(weights):
        ids = _within(ids, weights, params.top_k)
    if params.top_p < 1.0:
        ids = _nucleus(ids, weights, params.top_p)
    if ids is None:
        return _pick(weights, draw)
    return int(ids[_pick(weights[ids], draw)])


def _within(ids: NDArray[np.intp] | None, weights: Row, count: int) -> NDArray[np.intp]:
    """The `count` heaviest of `ids` (None: of all)."""
    return _largest(weights, count) if ids is None else ids[_largest(weights[ids], count)]


def _nucleus(ids: NDArray[np.intp] | None, weights: Row, mass: float) -> NDArray[np.intp]:
    """The fewest heaviest tokens that together hold the share `mass` of the weight (nucleus
    sampling, Holtzman et al. 2020); of equals, the lowest ids."""
    kept = weights if ids is None else weights[ids]
    total = float(kept.sum(dtype=np.float64))
    # All that weigh less than this hold less than 1 - mass together, so none is in the nucleus;
    # mostly few remain to be sorted. A little lower, for the rounding of the sums.
    floor = np.float32((1.0 - mass) * total / len(kept) * 0.999)
    heavy = np.flatnonzero(kept >= floor)
    falling = np.sort(kept[heavy])[::-1]
    sums = np.cumsum(falling, dtype=np.float64)
    count = min(int(np.searchsorted(sums, mass * total)) + 1, len(heavy))
    chosen = heavy[_largest(kept[heavy], count)]
    return chosen if ids is None else ids[chosen]


def _pick(weights: Row, draw: float) -> int:
    """The first index at which the running sum exceeds `draw` of the whole, found in two steps:
    among blocks of weights, then within one."""
    whole = len(weights) - len(weights) % _BLOCK
    sums = weights[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    ends = np.cumsum(np.append(sums, weights[whole:].sum(dtype=np.float64)))
    target = draw * ends[-1]
    block = int(np.searchsorted(ends, target, side="right"))  # exists: draw < 1
    before = ends[block - 1] if block else 0.0
    part = weights[block * _BLOCK : (block + 1) * _BLOCK if block < len(sums) else None]
    inside = np.cumsum(part, dtype=np.float64) + before
    place = int(np.searchsorted(inside, target, side="right"))
    if place == len(part):
        # The block's sum was rounded otherwise: its last token with any weight.
        place = int(np.flatnonzero(part)[-1])
    return block * _BLOCK + place
