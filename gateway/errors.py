"""Errors as HTTP answers in OpenAI's shape: the one place where the two meet."""

import logging
import math
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from core.errors import (
    BatonError,
    BodyTooLarge,
    BugError,
    CapacityError,
    ClientError,
    NotFound,
    Overloaded,
)
from gateway.sse import to_json

REQUEST_ID = web.RequestKey("request_id", str)
"""Set as soon as there is one, so that errors tell it too."""

_log = logging.getLogger(__name__)


def error_json(error: BatonError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`. Our own faults are told in the log only."""
    message = error.message
    if isinstance(error, BugError):
        message = "Internal error. The server's log has the story."
    return {
        "error": {
            "message": message,
            "type": _type_of(error),
            "param": error.param if isinstance(error, ClientError) else None,
            "code": error.code,
        }
    }


def _type_of(error: BatonError) -> str:
    if isinstance(error, ClientError):
        return "invalid_request_error"
    return "overloaded_error" if isinstance(error, Overloaded) else "server_error"


def error_response(error: BatonError) -> web.Response:
    headers = {}
    if isinstance(error, CapacityError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(
        status=error.http_status,
        text=to_json(error_json(error)),
        content_type="application/json",
        headers=headers,
    )


class _HttpRefusal(ClientError):
    """What the HTTP library itself refuses, under its own status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = status


def _from_library(error: web.HTTPException, request: web.Request) -> BatonError:
    match error.status:
        case 404:
            return NotFound(f"There is nothing at {request.method} {request.path}.")
        case 405:
            return _HttpRefusal(405, f"{request.method} is not allowed at {request.path}.")
        case 413:
            return BodyTooLarge("The body of the request is too large.")
    return _HttpRefusal(error.status, error.reason)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: whatever is raised below becomes an answer."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = error_response(_from_library(error, request))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except BatonError as error:
        if isinstance(error, BugError):
            _log.error("%s %s: %s", request.method, request.path, error, exc_info=error)
        response = error_response(error)
    except Exception as error:  # noqa: BLE001  # the outermost loop of a request
        _log.exception("%s %s", request.method, request.path)
        response = error_response(BugError(f"{type(error).__name__}: {error}"))
    if REQUEST_ID in request:
        response.headers["x-request-id"] = request[REQUEST_ID]
    return response
