"""Bytes of a request body into a checked model, or an error in a person's words."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from core.errors import ClientError

BodyModel = TypeVar("BodyModel", bound=BaseModel)

_TYPE_WORDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def parse_body(model: type[BodyModel], data: bytes) -> BodyModel:
    """Raises:
    ClientError: not JSON, or not this model; `param` names the first offending field.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        raise _told(first) from None


def _told(error: Any) -> ClientError:
    kind, message, context = error["type"], error["msg"], error.get("ctx", {})
    if kind == "json_invalid":
        reason = context.get("error", message)
        return ClientError(f"The body of the request is not valid JSON: {reason}")
    if kind == "unsupported":
        return ClientError(f"{message}.", param=context["param"])
    place = ".".join(str(part) for part in error["loc"])
    if not place:
        return ClientError("The body of the request must be a JSON object.")
    if kind == "missing":
        return ClientError(f"Missing required parameter: '{place}'.", param=place)
    if kind in _TYPE_WORDS:
        got = _json_type(error["input"])
        words = _TYPE_WORDS[kind]
        return ClientError(
            f"Invalid type for '{place}': expected {words}, but got {got}.", param=place
        )
    return ClientError(f"Invalid value for '{place}': {message}.", param=place)


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"
