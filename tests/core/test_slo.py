import pytest
from hypothesis import given, strategies as st

from core.errors import ClientError
from core.slo import DEFAULT_DEADLINE_MS, Slo

FIELDS = ("ttft_ms", "tpot_ms", "deadline_ms")


def test_the_defaults_are_the_standard_class() -> None:
    assert Slo().slo_class == "standard"
    assert Slo().deadline_ms == DEFAULT_DEADLINE_MS == 600_000.0


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0.0, -1.0, 1e9, float("inf"), float("nan")])
def test_targets_are_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(ClientError, match=f"slo.{name}") as caught:
        Slo(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == f"slo.{name}"


@given(st.sampled_from(FIELDS), st.floats(1e-3, 1e9, exclude_max=True))
def test_any_sensible_target_is_taken(name: str, value: float) -> None:
    assert getattr(Slo(**{name: value}), name) == value  # type: ignore[arg-type]
