"""Targets from body, headers and class, in that order."""

import pytest

from core.config import default_slo_classes
from core.errors import ClientError
from gateway.openai_models import SloFields
from gateway.slo_fields import slo_of

CLASSES = default_slo_classes()


def fields(**values: object) -> SloFields:
    return SloFields.model_validate(values)


def test_the_class_fills_in() -> None:
    slo = slo_of(None, {}, CLASSES)
    standard = CLASSES["standard"]
    assert (slo.slo_class, slo.ttft_ms) == ("standard", standard.ttft_ms)
    batch = slo_of(fields(**{"class": "batch"}), {}, CLASSES)
    assert batch.deadline_ms == CLASSES["batch"].deadline_ms


def test_the_body_wins_over_headers_and_they_over_the_class() -> None:
    headers = {"x-slo-class": "batch", "x-slo-ttft-ms": "7", "x-slo-tpot-ms": "8"}
    body = fields(**{"class": "interactive", "ttft_ms": 1.0, "deadline_ms": 9.0})
    slo = slo_of(body, headers, CLASSES)
    assert (slo.slo_class, slo.ttft_ms, slo.tpot_ms, slo.deadline_ms) == ("interactive", 1, 8, 9)


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-1", "0"])
def test_a_header_that_is_no_duration(value: str) -> None:
    with pytest.raises(ClientError, match="milliseconds"):
        slo_of(None, {"x-slo-tpot-ms": value}, CLASSES)


def test_an_unknown_class_names_the_known() -> None:
    with pytest.raises(ClientError, match="batch, interactive, standard"):
        slo_of(fields(**{"class": "gold"}), {}, CLASSES)
