import json
from pathlib import Path

import pytest

from bench import router


def test_it_reports_how_long_decisions_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "router.json"
    router.main(["--workers", "8", "--decisions", "60", "--repeats", "2", "--json", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == [
        "decision_p50_us_8",
        "decision_p99_us_8",
        "decision_p99_wall_us_8",
    ]
    assert lines[-1].startswith("conditions ")
    written = json.loads(file.read_text())
    assert written["bench"] == "router"
    assert all(0 < f["low"] <= f["value"] <= f["high"] for f in written["figures"])


def test_refusals_are_no_decisions() -> None:
    with pytest.raises(SystemExit, match="3 of 3 requests were refused"):
        router.measure(0, 3, 1)
