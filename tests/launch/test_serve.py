"""`baton serve` as a process of its own, with fake roles behind it."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.run_slot import DeploymentFile, running_deployments
from tests.launch.support import (
    FAKE_LAUNCHER,
    PATIENCE_S,
    REPOSITORY,
    is_running,
    shared_memory,
    story,
    wait_for,
)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Serve:
    """A launcher process; `output` is everything it printed, once it has ended."""

    def __init__(self, root: Path, *settings: str, behaviour: dict[str, str] | None = None) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        (root / "behaviour.json").write_text(json.dumps(behaviour or {}))
        (root / "story.txt").unlink(missing_ok=True)
        self._log = (root / f"output-{time.monotonic_ns()}").open("w+")
        self.popen = subprocess.Popen(
            [*FAKE_LAUNCHER, str(root), *settings],
            stdout=self._log,
            stderr=self._log,
            cwd=REPOSITORY,
            start_new_session=True,
            preexec_fn=_ignore_interrupts,  # as the shell of a script does for `baton serve &`
        )

    @property
    def output(self) -> str:
        return Path(self._log.name).read_text()

    def deployment(self) -> DeploymentFile | None:
        found = running_deployments(self.root)
        return next((d for d in found if d.processes[0].pid == self.popen.pid), None)

    def until_ready(self) -> DeploymentFile:
        def ready() -> bool:
            assert self.popen.poll() is None, self.output
            return "is ready after" in self.output

        wait_for(ready, "the deployment")
        deployment = self.deployment()
        assert deployment is not None
        return deployment

    def ended(self) -> int:
        return self.popen.wait(PATIENCE_S)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self._log.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state directory for all: the tiny model is prepared once."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def launched(root: Path) -> Iterator[list[Serve]]:
    serves: list[Serve] = []
    yield serves
    for serve in serves:
        serve.close()


def children(deployment: DeploymentFile) -> list[int]:
    return [row.pid for row in deployment.processes[1:] if row.pid]


def test_a_signal_ends_everything_in_order(root: Path, launched: list[Serve]) -> None:
    before = shared_memory()
    serve = Serve(root)
    launched.append(serve)
    deployment = serve.until_ready()
    pids = children(deployment)
    assert len(pids) == 4
    asked_s = time.monotonic()
    serve.popen.terminate()
    assert serve.ended() == 0, serve.output
    assert time.monotonic() - asked_s < 5
    assert not [pid for pid in pids if is_running(pid)]
    assert "stopped" in serve.output
    assert "Traceback" not in serve.output
    assert shared_memory() <= before
    assert list(running_deployments(root)) == []


def test_a_killed_launcher_leaves_no_orphan(root: Path, launched: list[Serve]) -> None:
    serve = Serve(root)
    launched.append(serve)
    pids = children(serve.until_ready())
    serve.popen.kill()
    serve.ended()
    wait_for(lambda: not any(map(is_running, pids)), "the children's end")
    assert list(running_deployments(root)) == [], "a stale file is not believed"


def test_two_deployments_share_a_state_directory(root: Path, launched: list[Serve]) -> None:
    first, second = Serve(root), Serve(root)
    launched += [first, second]
    first.until_ready()
    second.until_ready()
    found = list(running_deployments(root))
    assert len(found) == 2
    assert len({deployment.run_id for deployment in found}) == 2
    assert len({deployment.url for deployment in found}) == 2
    assert (root / "logs-2" / "decode-0.jsonl").exists()
    first.popen.terminate()
    assert first.ended() == 0
    assert [found.url for found in running_deployments(root)] == [second.until_ready().url]
    second.popen.send_signal(signal.SIGHUP)
    assert second.ended() == 0


def test_what_the_operator_must_mend_is_one_line(root: Path, launched: list[Serve]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serves = {
            f"port {port} on 127.0.0.1 is taken by": Serve(root, f"gateway.port={port}"),
            "gateway.api_key: other machines can reach 0.0.0.0": Serve(
                root, "gateway.host=0.0.0.0"
            ),
            "--set gateway.prot: unknown key; did you mean 'gateway.port'?": Serve(
                root, "gateway.prot=1"
            ),
            "random-llama goes up to 8192, not 9999": Serve(root, "model.max_context=9999"),
            "/nowhere": Serve(root, "model.source=/nowhere"),
        }
        setup = Serve(root, behaviour={"prefill-0": "setup-error"})
        launched += [*serves.values(), setup]
        for words, serve in serves.items():
            assert serve.ended() == 2, serve.output
            assert words in serve.output
            assert "Traceback" not in serve.output
            assert len(serve.output.strip().splitlines()) <= 2
        assert setup.ended() == 2
        assert "baton: prefill-0 failed: no model here: mend it" in setup.output
        assert "Traceback" not in setup.output


def test_a_second_interrupt_kills_at_once(root: Path, launched: list[Serve]) -> None:
    serve = Serve(root, behaviour={"gateway": "stubborn", "decode-0": "stubborn"})
    launched.append(serve)
    pids = children(serve.until_ready())
    asked_s = time.monotonic()
    serve.popen.send_signal(signal.SIGINT)
    wait_for(lambda: "press Ctrl-C again" in serve.output, "the first interrupt")
    serve.popen.send_signal(signal.SIGINT)
    assert serve.ended() == 0
    assert time.monotonic() - asked_s < 3
    assert not any(map(is_running, pids))


def test_a_signal_while_it_starts(root: Path, launched: list[Serve]) -> None:
    serve = Serve(root, behaviour={"decode-0": "never-ready"})
    launched.append(serve)
    wait_for(lambda: any(s.startswith("gateway ready") for s in story(root)), "a half-way start")
    wait_for(lambda: serve.deployment() is not None, "the run file")
    deployment = serve.deployment()
    assert deployment is not None
    os.kill(serve.popen.pid, signal.SIGTERM)
    assert serve.ended() == 0
    assert not any(map(is_running, children(deployment)))
