"""Sizes in bytes as people write them: `1GiB`, `512 MB`, `4096`."""

import re

_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes meant by `text`; fractions are rounded down to whole bytes.

    Raises:
        ValueError: not a size. A bare `G` is refused: half of the world reads it as 10⁹, the
            other half as 2³⁰.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"must be a size such as 1GiB, 512MB or a number of bytes, not {text!r}")
    number, unit = found.group(1), found.group(2).lower()
    if unit in ("k", "m", "g", "t"):
        letter = unit.upper()
        raise ValueError(f"{text!r} is ambiguous: write {number}{letter}iB or {number}{letter}B")
    if unit not in _UNITS:
        raise ValueError(f"{found.group(2)!r} is no unit of size; use KiB, MiB, GiB, KB, MB or GB")
    if "." in number:
        return int(float(number) * _UNITS[unit])
    return int(number) * _UNITS[unit]


def format_size(size_bytes: int) -> str:
    """The size in the largest binary unit that keeps it at or above one: `1.5 GiB`."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes} B"
