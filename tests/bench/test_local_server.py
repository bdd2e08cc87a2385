"""Starting and stopping a server, with a stand-in for `baton`."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest

from bench.api_client import ApiClient, BenchError
from bench.local_server import free_port, local_server

STAND_IN = f"""#!{sys.executable}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
assert sys.argv[1] == "serve", sys.argv
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if options.get("--model") == "broken":
    sys.exit("model_error: no such model")
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
Path(options["--state-dir"]).mkdir()
HTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "baton"
    script.write_text(STAND_IN)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


@pytest.mark.usefixtures("_stand_in")
async def test_a_server_lives_as_long_as_the_bench() -> None:
    async with local_server() as url, ApiClient(url) as client:
        assert await client.is_ready()
    async with ApiClient(url) as client:
        assert not await client.is_ready()


@pytest.mark.usefixtures("_stand_in")
async def test_a_server_that_ends_says_why() -> None:
    with pytest.raises(BenchError, match=r"ended with 1:\nmodel_error: no such model"):
        async with local_server(["--model", "broken"]):
            pytest.fail("it can't be ready")


def test_a_free_port_is_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))


@pytest.mark.usefixtures("_stand_in")
async def test_a_bench_that_is_ended_leaves_no_server() -> None:
    urls: list[str] = []

    async def bench() -> None:
        async with local_server() as url:
            urls.append(url)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(bench())
    async with ApiClient(urls[0]) as client:
        assert not await client.is_ready()
