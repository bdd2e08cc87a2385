"""Errors in OpenAI's shape."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from core.errors import (
    BugError,
    ClientError,
    NoWorker,
    Overloaded,
    PromptTooLong,
    Unauthorized,
)
from gateway.errors import REQUEST_ID, answer_errors, error_json, error_response


def test_every_class_has_status_type_and_code() -> None:
    for error, status, kind, code in (
        (ClientError("m", "p"), 400, "invalid_request_error", "invalid_request"),
        (PromptTooLong("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (Unauthorized("m"), 401, "invalid_request_error", "invalid_api_key"),
        (Overloaded("m"), 429, "overloaded_error", "overloaded"),
        (NoWorker("m"), 503, "server_error", "no_worker"),
        (BugError("m"), 500, "server_error", "internal_error"),
    ):
        assert error.http_status == status
        told = error_json(error)["error"]
        assert (told["type"], told["code"]) == (kind, code)
    assert error_json(ClientError("m", "p"))["error"]["param"] == "p"


def test_when_to_come_back_is_told_in_whole_seconds() -> None:
    for after_s, header in ((0.0, "1"), (1.0, "1"), (1.2, "2"), (30.0, "30")):
        assert error_response(Overloaded("m", after_s)).headers["Retry-After"] == header
    assert "Retry-After" not in error_response(ClientError("m")).headers


@pytest.mark.parametrize(
    ("raised", "status", "says"),
    [
        (BugError("secret"), 500, "log has the story"),
        (KeyError("secret"), 500, "log has the story"),
        (web.HTTPNotFound(), 404, "nothing at GET /x"),
        (web.HTTPRequestEntityTooLarge(1, 2), 413, "too large"),
        (web.HTTPUnsupportedMediaType(), 415, "Unsupported"),
    ],
)
async def test_whatever_is_raised_becomes_an_answer(
    raised: Exception, status: int, says: str
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        request[REQUEST_ID] = "r"
        raise raised

    response = await answer_errors(make_mocked_request("GET", "/x"), handler)
    assert isinstance(response, web.Response)
    assert response.status == status
    assert response.headers["x-request-id"] == "r"
    assert response.text is not None
    assert "secret" not in response.text
    assert says in json.loads(response.text)["error"]["message"]


async def test_a_redirect_is_no_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/y")

    with pytest.raises(web.HTTPFound):
        await answer_errors(make_mocked_request("GET", "/x"), handler)
