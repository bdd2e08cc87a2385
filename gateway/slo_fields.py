"""The targets of a request: its body's, else its headers', else its class's."""

from collections.abc import Mapping

from core.config import SloClassConfig
from core.errors import ClientError
from core.slo import Slo
from gateway.openai_models import SloFields

DEFAULT_CLASS = "standard"


def slo_of(
    body: SloFields | None,
    headers: Mapping[str, str],
    classes: Mapping[str, SloClassConfig],
) -> Slo:
    """Raises:
    ClientError: an unknown class, or a figure that is none.
    """
    fields = body or SloFields()
    name = fields.slo_class or headers.get("x-slo-class") or DEFAULT_CLASS
    base = classes.get(name)
    if base is None:
        known = ", ".join(sorted(classes))
        raise ClientError(f"Unknown SLO class '{name}'; known: {known}.", param="slo.class")
    return Slo(
        slo_class=name,
        ttft_ms=_first(fields.ttft_ms, _header_ms(headers, "x-slo-ttft-ms"), base.ttft_ms),
        tpot_ms=_first(fields.tpot_ms, _header_ms(headers, "x-slo-tpot-ms"), base.tpot_ms),
        deadline_ms=_first(fields.deadline_ms, None, base.deadline_ms),
    )


def _first(from_body: float | None, from_header: float | None, from_class: float) -> float:
    for value in (from_body, from_header):
        if value is not None:
            return value
    return from_class


def _header_ms(headers: Mapping[str, str], name: str) -> float | None:
    value = headers.get(name)
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        raise ClientError(
            f"The header {name} must be a number of milliseconds, not '{value:.40}'.", param=name
        ) from None
