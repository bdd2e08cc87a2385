"""How a field's type hint becomes its encoder and decoder.

`codec_of(hint)` composes plain functions: what a record costs at run time is one call per field.
Encoders turn a value into what msgpack packs and refuse what the hint doesn't allow (TypeError or
ValueError: our own bug); decoders take what msgpack unpacked (arrays as tuples) and refuse the
same (MalformedMessage: the peer's).
"""

import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from core.errors import ClientError, MalformedMessage


@dataclass(frozen=True, slots=True)
class Codec:
    """The two directions of one type."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def codec_of(hint: Any) -> Codec:
    """The codec of one type hint.

    Raises:
        TypeError: a type that doesn't travel.
    """
    if isinstance(hint, NewType):
        return codec_of(hint.__supertype__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(hint, arguments)
    if origin is tuple:
        return _tuple_of(arguments)
    if hint in _LEAVES:
        return _LEAVES[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _record(hint)
    raise TypeError(f"{hint!r} doesn't travel between processes")


# ---- leaves ------------------------------------------------------------------------------------


def _wrong(wanted: str, value: Any) -> str:
    return f"{wanted} expected, not {type(value).__name__}"


def _encode_int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(_wrong("int", value))
    return value


def _encode_float(value: Any) -> float:
    # An int is a float to the type checker, so it may stand in a float field: sent as the float.
    if type(value) is int:
        return float(value)
    if not isinstance(value, float):
        raise TypeError(_wrong("float", value))
    if value != value:
        raise ValueError("NaN compares false with everything; it must not travel")
    return float(value)


def _decode_float(value: Any) -> float:
    if type(value) is not float:
        raise MalformedMessage(_wrong("float", value))
    if value != value:
        raise MalformedMessage("NaN")
    return value


def _exactly(kind: type[Any]) -> Codec:
    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(_wrong(kind.__name__, value))
        return value

    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise MalformedMessage(_wrong(kind.__name__, value))
        return value

    return Codec(encode, decode)


_LEAVES: dict[Any, Codec] = {
    int: Codec(_encode_int, _exactly(int).decode),
    float: Codec(_encode_float, _decode_float),
    bool: _exactly(bool),
    str: _exactly(str),
    bytes: _exactly(bytes),
}


def _enum(kind: type[StrEnum]) -> Codec:
    members = {member.value: member for member in kind}

    def encode(value: Any) -> str:
        if type(value) is not kind:
            raise TypeError(_wrong(kind.__name__, value))
        return str(value.value)

    def decode(value: Any) -> StrEnum:
        member = members.get(value) if type(value) is str else None
        if member is None:
            raise MalformedMessage(f"{value!r:.32} is no {kind.__name__}")
        return member

    return Codec(encode, decode)


# ---- compounds ---------------------------------------------------------------------------------


def _optional(hint: Any, arguments: tuple[Any, ...]) -> Codec:
    some = [argument for argument in arguments if argument is not types.NoneType]
    if len(some) != 1 or len(arguments) != 2:
        raise TypeError(f"{hint!r}: of unions only `X | None` travels")
    inner = codec_of(some[0])
    return Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
    )


def _tuple_of(arguments: tuple[Any, ...]) -> Codec:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = codec_of(arguments[0])
        return _INT_RUN if item is _LEAVES[int] else _run(item)
    return _fixed(tuple(codec_of(argument) for argument in arguments))


_ONLY_INTS = frozenset({int})


def _encode_ints(value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or not _ONLY_INTS.issuperset(map(type, value)):
        raise TypeError("tuple of int expected")
    return value


def _decode_ints(value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or not _ONLY_INTS.issuperset(map(type, value)):
        raise MalformedMessage("array of int expected")
    return value


_INT_RUN = Codec(_encode_ints, _decode_ints)
"""Prompts and block lists are long: checked without a call per item, and never copied."""


def _run(inner: Codec) -> Codec:
    def encode(value: Any) -> list[Any]:
        if type(value) is not tuple:
            raise TypeError(_wrong("tuple", value))
        return [inner.encode(item) for item in value]

    def decode(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple:
            raise MalformedMessage(_wrong("array", value))
        return tuple([inner.decode(item) for item in value])

    return Codec(encode, decode)


def _fixed(inner: tuple[Codec, ...]) -> Codec:
    count = len(inner)

    def encode(value: Any) -> list[Any]:
        if type(value) is not tuple or len(value) != count:
            raise TypeError(f"tuple of {count} expected")
        return [codec.encode(item) for codec, item in zip(inner, value, strict=True)]

    def decode(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) != count:
            raise MalformedMessage(f"array of {count} expected")
        return tuple([codec.decode(item) for codec, item in zip(inner, value, strict=True)])

    return Codec(encode, decode)


def _record(cls: type[Any]) -> Codec:
    hints = get_type_hints(cls)
    names = tuple(field.name for field in fields(cls))
    codecs = tuple(codec_of(hints[name]) for name in names)
    encoders = tuple(zip(names, (codec.encode for codec in codecs), strict=True))
    decoders = tuple(zip(names, (codec.decode for codec in codecs), strict=True))
    values_of = _getter(names)

    def encode(record: Any) -> list[Any]:
        if type(record) is not cls:
            raise TypeError(_wrong(cls.__name__, record))
        packed = []
        for (name, encode_field), value in zip(encoders, values_of(record), strict=True):
            try:
                packed.append(encode_field(value))
            except (TypeError, ValueError) as error:
                raise type(error)(f"{cls.__name__}.{name}: {error}") from None
        return packed

    def decode(value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(names):
            raise MalformedMessage(f"{cls.__name__} is an array of {len(names)}")
        known: dict[str, Any] = {}
        for (name, decode_field), item in zip(decoders, value, strict=True):
            try:
                known[name] = decode_field(item)
            except MalformedMessage as error:
                raise MalformedMessage(f"{cls.__name__}.{name}: {error}") from None
        try:
            return cls(**known)
        except ClientError as error:  # the record's own limits (sampling, SLO)
            raise MalformedMessage(f"{cls.__name__}: {error}") from error

    return Codec(encode, decode)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """All fields of a record at once, as a tuple."""
    if len(names) >= 2:
        return attrgetter(*names)
    if names:
        only = attrgetter(names[0])
        return lambda record: (only(record),)
    return lambda _: ()
