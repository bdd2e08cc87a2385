"""Server-sent events: one `data:` line of JSON each."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

# JSON leaves these as they are, but many readers take them for line ends.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def to_json(value: Any) -> str:
    """Compact; characters as they are.

    Raises:
        ValueError: infinities and NaN, which JSON doesn't have.
    """
    return _ENCODER.encode(value)


def event(value: Any) -> bytes:
    text = to_json(value)
    if not text.isascii():
        text = text.translate(_LINE_ENDS)
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"
