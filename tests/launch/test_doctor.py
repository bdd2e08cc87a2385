import io
import json
import shutil
import socket
import sys
from pathlib import Path

import pytest
from rich.console import Console

from launch import machine_checks
from launch.doctor import checks_of_this_machine, doctor
from launch.machine_checks import Finding, Verdict

OK = Finding("a", Verdict.OK, "fine [x]")
WARN = Finding("b", Verdict.WARNING, "meh", "do this")
BAD = Finding("c", Verdict.ERROR, "broken", "do that")


def shown(*findings: Finding) -> tuple[int, str]:
    out = io.StringIO()
    code = doctor([lambda f=f: f for f in findings], False, Console(file=out, width=100))  # type: ignore[misc]
    return code, out.getvalue()


def test_errors_decide_the_exit_code() -> None:
    assert shown(OK)[0] == 0
    assert shown(OK, WARN)[0] == 0
    assert shown(OK, WARN, BAD)[0] == 1


def test_every_finding_says_how_to_mend_it() -> None:
    _, text = shown(OK, WARN, BAD)
    assert "fine [x]" in text
    assert "→ do this" in text
    assert "→ do that" in text
    assert "1 errors, 1 warnings" in text
    assert "all is well" in shown(OK)[1]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor([lambda: BAD], True, Console(file=io.StringIO())) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"check": "c", "verdict": "error", "found": "broken", "mend": "do that"}
    ]


def test_this_machine_passes(tmp_path: Path) -> None:
    for check in checks_of_this_machine(tmp_path, "127.0.0.1", 0):
        finding = check()
        assert finding.verdict is not Verdict.ERROR, finding
        assert finding.verdict is Verdict.OK or finding.mend


@pytest.fixture
def foreign_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A published package of our kernels' name, as pip would leave it."""
    info = tmp_path / "kernels-0.4.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.4.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("foreign_kernels")
def test_the_foreign_kernels_distribution_is_an_error() -> None:
    finding = machine_checks.foreign_distributions()
    assert finding.verdict is Verdict.ERROR
    assert "'kernels' 0.4.1" in finding.found
    assert finding.mend == "pip uninstall kernels"


def test_a_strange_module_under_our_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = machine_checks.packages(tmp_path)
    assert finding.verdict is Verdict.ERROR
    assert "import core" in finding.found


def test_a_ucx_that_does_not_work() -> None:
    for code, words in (
        ("raise ImportError('no libucp')", "exit code 1: ImportError: no libucp"),
        ("import os; os.abort()", "exit code -6"),
        ("", "exit code 0: it printed nothing"),
    ):
        finding = machine_checks.ucx([sys.executable, "-c", code])
        assert finding.verdict is Verdict.ERROR
        assert words in finding.found
        assert "--transport tcp" in finding.mend


def test_a_ucx_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "PROBE_TIMEOUT_S", 0.2)
    finding = machine_checks.ucx(["sleep", "10"])
    assert finding.found == "no answer within 0.2 s"


def test_the_words_of_ucx() -> None:
    log = (
        "[1:2:0] ucp_context.c:2753 UCX  INFO  Version 1.23.0 (loaded from /x)\n"
        "[1:2:0] ucp_worker.c:1997 UCX  INFO  probe self cfg#0 rma_am(tcp/lo) "
        "am(tcp/lo rc_mlx5/mlx5_0:1 cma/memory) ka(tcp/lo)\n"
    )
    assert machine_checks.describe_ucx(log).startswith(
        "UCX 1.23.0: cma/memory, rc_mlx5/mlx5_0:1, tcp/lo; RDMA devices: "
    )


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert machine_checks.port("127.0.0.1", number, False).verdict is Verdict.WARNING
        assert machine_checks.port("127.0.0.1", number, True).verdict is Verdict.OK


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = machine_checks.state_directory(tmp_path / "file")
    assert finding.verdict is Verdict.ERROR
    assert "--state-dir" in finding.mend
    fresh = tmp_path / "a" / "b"
    assert machine_checks.state_directory(fresh).verdict is not Verdict.ERROR
    assert list(fresh.iterdir()) == []


def test_one_core_little_memory_no_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {3})
    assert "share one core" in machine_checks.cores().mend
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert machine_checks.compiler().verdict is Verdict.WARNING
    monkeypatch.setattr(machine_checks, "MIN_FREE_BYTES", 1 << 60)
    assert machine_checks.memory().verdict is Verdict.WARNING
    assert machine_checks.state_directory(tmp_path).verdict is Verdict.WARNING
    monkeypatch.setattr(machine_checks, "MIN_SHM_BYTES", 1 << 60)
    assert "--shm-size" in machine_checks.shared_memory().mend
    assert machine_checks.shared_memory(tmp_path / "none").verdict is Verdict.WARNING


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "MIN_PYTHON", (99, 0))
    assert machine_checks.python().verdict is Verdict.ERROR


def test_a_gpu_that_torch_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_checks.gpu(tmp_path / "none").found.startswith("none")
    device = tmp_path / "nvidiactl"
    device.touch()
    monkeypatch.setattr(machine_checks, "GPU_PROBE", "print('False None')")
    assert machine_checks.gpu(device).verdict is Verdict.WARNING
    monkeypatch.setattr(machine_checks, "GPU_PROBE", "print('True 12.8')")
    assert machine_checks.gpu(device).found.endswith("CUDA 12.8")
