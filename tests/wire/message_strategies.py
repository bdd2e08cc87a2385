"""Hypothesis strategies for every message, built from the dataclasses' type hints."""

import types
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from core.ids import Incarnation, ProcessId, WorkerName
from core.sampling import SamplingParams
from core.slo import Slo
from wire.messages import MESSAGES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-(1 << 63), (1 << 64) - 1)

_SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0.0, 100.0),
    "top_k": st.integers(0, 1 << 30),
    "top_p": st.floats(1e-9, 1.0),
    "min_p": st.floats(0.0, 1.0),
    "seed": st.integers(0, (1 << 64) - 1),
    "repetition_penalty": st.floats(1e-3, 1e3),
    "presence_penalty": st.floats(-2.0, 2.0),
    "frequency_penalty": st.floats(-2.0, 2.0),
    "logit_bias": st.lists(st.tuples(st.integers(0, 1 << 20), st.floats(-100.0, 100.0))).map(tuple),
    "min_tokens": st.integers(0, 1 << 30),
    "max_tokens": st.integers(1, 1 << 30),
    "logprobs": st.none() | st.integers(0, 20),
    "choices": st.integers(1, 64),
}
_TARGET_MS = st.floats(0.0, 1e9, exclude_min=True, exclude_max=True)
_NARROW: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    SamplingParams: _SAMPLING,
    Slo: {"ttft_ms": _TARGET_MS, "tpot_ms": _TARGET_MS, "deadline_ms": _TARGET_MS},
}
"""Records that check their own values."""


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one type hint."""
    if isinstance(hint, NewType):
        return values_of(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin is tuple:
        return st.tuples(*[values_of(argument) for argument in arguments])
    if is_dataclass(hint) and isinstance(hint, type):
        return records_of(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    leaves: dict[Any, st.SearchStrategy[Any]] = {
        types.NoneType: st.none(),
        int: INTS,
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: TEXT,
        bytes: st.binary(max_size=32),
    }
    return leaves[hint]


def records_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    narrow = _NARROW.get(cls, {})
    by_name = {
        field.name: narrow[field.name] if field.name in narrow else values_of(hints[field.name])
        for field in fields(cls)
    }
    return st.fixed_dictionaries(by_name).map(lambda known: cls(**known))


SENDERS = st.builds(ProcessId, TEXT.map(WorkerName), INTS.map(Incarnation))
ANY_MESSAGE = st.one_of([records_of(cls) for cls in MESSAGES.values()])
