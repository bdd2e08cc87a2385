"""pydantic's findings about the configuration, in words an operator can act on."""

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from core.config import Config
from core.yaml_tree import Path, dotted

SECRET_KEYS = frozenset({"api_key"})
"""Values that no message may repeat."""

_WANTED: Mapping[str, str] = {
    "greater_than_equal": "must be ≥ {ge}",
    "greater_than": "must be > {gt}",
    "less_than_equal": "must be ≤ {le}",
    "less_than": "must be < {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text (in quotes where it looks like something else)",
    "string_pattern_mismatch": "must look like {pattern}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "model_type": "must be a mapping of keys",
    "model_attributes_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "tuple_type": "must be a list",
    "too_short": "must have at least {min_length} item",
}


def describe(problem: ErrorDetails) -> str:
    """What is wrong, without its place: `must be ≥ 0, not -1`."""
    path: Path = tuple(problem["loc"])
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{_suggestion(path)}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context.get("error", problem["msg"]))
    wanted = _WANTED.get(kind)
    text = wanted.format_map(context) if wanted else problem["msg"]
    if kind == "too_short" or (path and path[-1] in SECRET_KEYS):
        return text
    text += f", not {_shown(problem['input'])}"
    if kind in ("literal_error", "enum") and isinstance(problem["input"], str):
        choices = (
            str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
        )
        text += _did_you_mean(difflib.get_close_matches(problem["input"], choices, n=1))
    return text


def section_of_message(path: Path, message: str) -> tuple[Path, str]:
    """Our own validators of the whole tree begin with the section they blame: `pools: ...`."""
    section, colon, rest = message.partition(": ")
    if not path and colon and section in Config.model_fields:
        return (section,), rest
    return path, message


def _suggestion(path: Path) -> str:
    """The nearest key of the same section, or the same key where it belongs."""
    wrong = str(path[-1])
    here = _section_at(path[:-1])
    siblings = list(here.model_fields) if here else []
    near = difflib.get_close_matches(wrong, siblings, n=1, cutoff=0.6)
    if near:
        return _did_you_mean([dotted((*path[:-1], near[0]))])
    elsewhere = [
        f"{section}.{wrong}"
        for section, info in Config.model_fields.items()
        if (model := _model_in(info.annotation)) and section != "pools"
        if wrong in model.model_fields
    ]
    if elsewhere:
        return _did_you_mean(elsewhere[:1])
    return f"; known here: {', '.join(siblings)}" if siblings else ""


def _did_you_mean(near: list[str]) -> str:
    return f"; did you mean '{near[0]}'?" if near else ""


def _section_at(path: Path) -> type[BaseModel] | None:
    """The model class that describes the mapping at `path`."""
    here: type[BaseModel] = Config
    for part in path:
        if isinstance(part, int) or part not in here.model_fields:
            continue  # an item of a list or a named entry: its model is already `here`
        inner = _model_in(here.model_fields[part].annotation)
        if inner is None:
            return None
        here = inner
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section inside `Section | None`, `tuple[Section, ...]`, `dict[str, Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)


def _shown(value: Any) -> str:
    text = {None: "null", True: "true", False: "false"}.get(value) if _is_plain(value) else None
    text = text or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool)
