"""docs/lifecycles.md, drawn from the tables by `python -m tests.lifecycle_tables`.

`tests/test_docs.py` compares the file with what the code says today.
"""

import importlib
from enum import StrEnum
from pathlib import Path
from typing import Any

from core.lifecycle import Table

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "engine", "kv_transfer", "router", "gateway", "launch")

HEAD = """# Life cycles

Every life cycle in baton is a table, `(state, event) → (state, actions)`. A pair without a row is
an error: it changes nothing and raises with the story so far (`core/lifecycle.py`). Bold states
are ends. An event in *every* state's column is one that can come at any time, so that every state
that is no end must answer it; the table refuses to be made otherwise.

This page is drawn from the code (`python -m tests.lifecycle_tables > docs/lifecycles.md`); a test
fails when the two differ.
"""


def all_tables() -> dict[str, Table[Any, Any, Any]]:
    """Every Table that a `*_lifecycle` module defines, by `module.NAME`."""
    found: dict[str, Table[Any, Any, Any]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*_lifecycle.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for name, value in sorted(vars(importlib.import_module(module)).items()):
                if isinstance(value, Table) and not name.startswith("_"):
                    found[f"{module}.{name}"] = value
    return found


def render(where: str, table: Table[Any, Any, Any]) -> str:
    """One table as Markdown: a line per row, in the order of states and events."""
    everywhere = ", ".join(f"`{event}`" for event in _members(next(iter(table.everywhere)))
                           if event in table.everywhere)  # fmt: skip
    lines = [
        f"## {table.name[0].upper()}{table.name[1:]}",
        "",
        f"`{where}`; begins in `{table.initial}`; in every state: {everywhere}.",
        "",
        "| state | event | then | actions |",
        "| --- | --- | --- | --- |",
    ]
    for state in _members(table.initial):
        for event in _members(next(iter(table.everywhere))):
            row = table.rows.get((state, event))
            if row is not None:
                after = f"**{row[0]}**" if row[0] in table.finals else str(row[0])
                lines.append(f"| {state} | {event} | {after} | {', '.join(row[1])} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    return "\n".join([HEAD, *(render(where, table) for where, table in all_tables().items())])


def _members(one: StrEnum) -> list[StrEnum]:
    """All members of an enum, in their order, given one of them."""
    return list(type(one).__members__.values())


if __name__ == "__main__":
    print(page(), end="")
