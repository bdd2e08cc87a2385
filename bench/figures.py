"""What every bench prints: figures, then the conditions they were measured under.

    figure <name> <value> <unit>
    conditions <key>=<value> …

and as JSON {"bench", "figures": [{"name", "value", "unit", "low", "high"}, …], "conditions"}.
`docs/benchmarks.md` is made from the JSON files.
"""

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TextIO

Condition = str | int | float | Mapping[str, str]

_PACKAGES = ("baton-serve", "torch", "nixl-cu12", "numpy", "tokenizers")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `low` and `high` are its extremes over the repeats."""

    name: str
    value: float
    unit: str
    low: float
    high: float

    @classmethod
    def median_of(cls, name: str, values: Sequence[float], unit: str) -> "Figure":
        """Of one value per repeat.

        Raises:
            ValueError: there are none.
        """
        if not values:
            raise ValueError(f"figure {name} has no values")
        return cls(name, statistics.median(values), unit, min(values), max(values))

    def line(self) -> str:
        return f"figure {self.name} {self.value:.6g} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what the figures were measured; `more` is the bench's own."""

    machine: str
    cores: int
    model: str
    versions: Mapping[str, str]
    repeats: int
    more: Mapping[str, Condition] = field(default_factory=dict)

    @classmethod
    def collect(cls, *, model: str, repeats: int, **more: Condition) -> "Conditions":
        """Of this machine and this installation."""
        return cls(
            machine=machine_name(),
            cores=len(os.sched_getaffinity(0)),
            model=model,
            versions=installed_versions(),
            repeats=repeats,
            more=more,
        )

    def as_mapping(self) -> dict[str, Condition]:
        fields = asdict(self)
        return {**{key: fields[key] for key in fields if key != "more"}, **self.more}

    def line(self) -> str:
        return "conditions " + " ".join(
            f"{key}={_shown(value)}" for key, value in self.as_mapping().items()
        )


def report(
    bench: str,
    figures: Sequence[Figure],
    conditions: Conditions,
    json_file: Path | None = None,
    out: TextIO | None = None,
) -> None:
    """Print the lines, and write the JSON form where a file is named."""
    for line in (*(figure.line() for figure in figures), conditions.line()):
        print(line, file=out or sys.stdout, flush=True)
    if json_file is not None:
        value = {
            "bench": bench,
            "figures": [asdict(figure) for figure in figures],
            "conditions": conditions.as_mapping(),
        }
        json_file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def machine_name() -> str:
    """The processor's name and the operating system."""
    return f"{_processor()}, {platform.system()} {platform.machine()}"


def installed_versions() -> dict[str, str]:
    """Of Python and of the packages that matter to the figures, where they are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: the least value that `percent` per cent of `values` don't exceed.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    rank = -(-len(values) * percent // 100)  # rounded up
    return sorted(values)[max(int(rank), 1) - 1]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model") and value.strip():
            return value.strip()
    return platform.processor() or "unknown processor"


def _shown(value: Condition) -> str:
    if isinstance(value, Mapping):
        value = ",".join(f"{key}:{item}" for key, item in value.items())
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "\t\n') else text
