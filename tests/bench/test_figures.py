"""The benches' common language."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bench.figures import Conditions, Figure, percentile, report

CONDITIONS = Conditions(
    machine="a machine", cores=2, model="m", versions={"python": "3"}, repeats=3, more={"x": 0.5}
)


def test_a_figure_is_the_median_with_its_extremes() -> None:
    figure = Figure.median_of("ttft_ms", [3.0, 1.0, 2.5], "ms")
    assert figure == Figure("ttft_ms", 2.5, "ms", 1.0, 3.0)
    assert figure.line() == "figure ttft_ms 2.5 ms"
    with pytest.raises(ValueError, match="ttft_ms"):
        Figure.median_of("ttft_ms", [], "ms")


def test_lines_and_json_say_the_same(tmp_path: Path) -> None:
    out = io.StringIO()
    figures = [Figure("a", 1234567.0, "bytes", 1.0, 2e6), Figure("b", 0.1, "s", 0.1, 0.1)]
    report("smoke", figures, CONDITIONS, tmp_path / "smoke.json", out)
    assert out.getvalue().splitlines() == [
        "figure a 1.23457e+06 bytes",
        "figure b 0.1 s",
        'conditions machine="a machine" cores=2 model=m versions=python:3 repeats=3 x=0.5',
    ]
    value = json.loads((tmp_path / "smoke.json").read_text())
    assert value.keys() == {"bench", "figures", "conditions"}
    assert value["figures"][0] == {
        "name": "a",
        "value": 1234567.0,
        "unit": "bytes",
        "low": 1.0,
        "high": 2e6,
    }
    assert value["conditions"]["x"] == 0.5
    assert value["conditions"]["versions"] == {"python": "3"}


def test_conditions_are_collected_here() -> None:
    conditions = Conditions.collect(model="m", repeats=1, steal_percent=0.0)
    assert conditions.cores >= 1
    assert conditions.machine
    assert {"python", "torch"} <= conditions.versions.keys()
    assert conditions.as_mapping()["steal_percent"] == 0.0


@given(st.lists(st.integers(0, 99), min_size=1), st.integers(1, 100))
def test_percentile_is_the_least_value_that_covers(values: list[int], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_a_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 99)
