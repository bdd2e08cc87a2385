import dataclasses
import re

import pytest

from core import environment
from core.environment import Environment, child_environment, read_environment


def test_reads_only_batons_variables() -> None:
    found = read_environment({"BATON_MODEL": "m.gguf", "MODEL": "other", "BATON_PORT": ""})
    assert found == Environment(model="m.gguf")


def test_every_field_has_its_variable_and_is_documented() -> None:
    documented = set(re.findall(r"BATON_[A-Z_]+", environment.__doc__ or ""))
    names = {f"BATON_{field.name.upper()}" for field in dataclasses.fields(Environment)}
    assert documented == names
    assert len(names) <= 10
    for field in dataclasses.fields(Environment):
        variable = f"BATON_{field.name.upper()}"
        assert getattr(read_environment({variable: "x"}), field.name) == "x"


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_environment({}).model = "x"  # type: ignore[misc]


def test_children_inherit_all_but_batons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_API_KEY", "secret")
    monkeypatch.setenv("SOME_LIBRARY_PATH", "/somewhere")
    monkeypatch.setenv("UCX_LOG_LEVEL", "info")
    quiet = {"UCX_LOG_LEVEL": "error", "UCX_LOG_FILE": "stderr"}
    variables = child_environment({"OMP_NUM_THREADS": "3"}, unless_set=quiet)
    assert (variables["UCX_LOG_LEVEL"], variables["UCX_LOG_FILE"]) == ("info", "stderr")
    assert "BATON_API_KEY" not in variables
    assert variables["SOME_LIBRARY_PATH"] == "/somewhere"
    assert variables["OMP_NUM_THREADS"] == "3"
