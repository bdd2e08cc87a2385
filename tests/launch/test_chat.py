"""The terminal chat against a server that answers as told."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from core.errors import CapacityError, ClientError, PeerError, SetupError, Unauthorized
from launch.chat import ChatSettings, chat, figures, printable
from launch.chat_client import ChatClient, Turn, refusal


def chunk(text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return "data: " + json.dumps({"choices": [choice]}) + "\n\n"


USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n'
DONE = "data: [DONE]\n\n"
GOOD = (chunk("Hel"), chunk("lo"), chunk("", "length"), USAGE, DONE)


class Server:
    """Answers each request with the next script; remembers what it was asked."""

    def __init__(self) -> None:
        self.scripts: list[tuple[str, ...] | tuple[int, str]] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("authorization", ""))
        script = self.scripts.pop(0) if self.scripts else GOOD
        if isinstance(script[0], int):
            return web.Response(status=script[0], text=str(script[1]))
        headers = {"x-baton-prefill": "prefill-0", "x-baton-decode": "decode-1"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in script:
            await response.write(str(piece).encode())
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    it = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", it.answer)
    async with TestServer(app) as running:
        it.url = str(running.make_url("/"))
        yield it


async def talk(server: Server, *lines: str, key: str | None = None) -> tuple[int, str, str]:
    """(exit code, answers, notes) of a piped chat."""
    out, notes = io.StringIO(), io.StringIO()
    source = io.StringIO("".join(f"{line}\n" for line in lines))
    screen = Console(file=notes, width=200)
    settings = ChatSettings(server.url, key, temperature=0.25)
    code = await asyncio.to_thread(chat, settings, source, out, screen)
    return code, out.getvalue(), notes.getvalue()


async def test_turns_from_a_pipe(server: Server) -> None:
    code, answers, notes = await talk(server, "Hi", "", "And you?", "/quit", "never sent", key="k")
    assert (code, answers) == (0, "Hello\nHello\n")
    assert [message["content"] for message in server.asked[1]["messages"]] == [
        "Hi",
        "Hello",
        "And you?",
    ]
    assert server.asked[0]["model"] == "default"
    assert server.asked[0]["temperature"] == 0.25
    assert server.keys == ["Bearer k", "Bearer k"]
    assert notes.count("prefill-0 → decode-1") == 2
    assert "3 tokens" in notes
    assert "TTFT" in notes
    assert "cut at the length limit" in notes


async def test_reset_forgets(server: Server) -> None:
    await talk(server, "Hi", "/reset", "/help", "Again")
    assert [len(asked["messages"]) for asked in server.asked] == [1, 1]


async def test_a_failed_turn_of_a_pipe_ends_with_1(server: Server) -> None:
    server.scripts = [(429, json.dumps({"error": {"message": "too busy"}}))]
    code, answers, notes = await talk(server, "Hi", "more")
    assert (code, answers) == (1, "")
    assert "too busy" in notes
    assert len(server.asked) == 1


async def test_a_wrong_key_and_a_missing_server_are_setup_problems(server: Server) -> None:
    server.scripts = [(401, '{"error": {"message": "wrong key"}}')]
    with pytest.raises(SetupError, match="wrong key"):
        await talk(server, "Hi")
    server.url = "http://127.0.0.1:1"
    with pytest.raises(SetupError, match=r"nothing answers at .* baton serve"):
        await talk(server, "Hi")
    server.url = "http://[nonsense"
    with pytest.raises(SetupError, match="is no URL"):
        await talk(server, "Hi")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ((chunk("Hel"),), "ended early"),
        ((chunk("Hel"), "data: {oops\n\n"), "isn't JSON"),
        ((chunk("Hel"), 'data: {"error": {"message": "worker lost"}}\n\n'), "worker lost"),
        (("data: 3\n\n",), "another shape"),
        (('data: {"choices": [3]}\n\n',), "another shape"),
    ],
)
async def test_a_stream_that_breaks(server: Server, script: tuple[str, ...], message: str) -> None:
    server.scripts = [script]
    async with ChatClient(server.url, None, "default") as client:
        with pytest.raises(PeerError, match=message):
            async for _ in client.stream([{"role": "user", "content": "x"}], Turn()):
                pass


async def test_events_may_be_cut_anywhere(server: Server) -> None:
    server.scripts = [tuple("".join(GOOD))]
    turn = Turn()
    async with ChatClient(server.url, None, "default") as client:
        pieces = [p async for p in client.stream([{"role": "user", "content": "x"}], turn)]
    assert "".join(pieces) == turn.text == "Hello"
    assert (turn.tokens, turn.finish) == (3, "length")


def test_refusals_by_whose_fault() -> None:
    body = '{"error": {"message": "m"}}'
    assert isinstance(refusal(400, body), ClientError)
    assert isinstance(refusal(401, body), Unauthorized)
    assert isinstance(refusal(503, body), CapacityError)
    assert isinstance(refusal(500, "<html>"), PeerError)
    assert "HTTP 500: <html>" in str(refusal(500, "<html>"))


def test_figures() -> None:
    turn = Turn(prefill="local", decode="decode-0", tokens=11, sent_s=0.0)
    turn.first_s, turn.last_s = 0.1, 0.6
    assert figures(turn) == "TTFT 100 ms, TPOT 50.0 ms (20 tokens/s), 11 tokens, decode-0 alone"
    assert figures(Turn()) == ""


def test_a_model_cannot_command_the_terminal() -> None:
    assert printable("a\x1b[31mb\x9bc\r\n\té 👩‍💻") == "a[31mbc\n\té 👩‍💻"
