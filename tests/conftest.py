"""What every test shares; keep it small."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: an example may be slow for reasons of its neighbours. Examples are the same
# in every run, so that the gate's verdict is too.
settings.register_profile(
    "gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gate")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last, and loudly, what a green run on this machine does not prove."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("NOT TESTED ON THIS MACHINE", yellow=True, bold=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} skipped: {reason}", yellow=True, bold=True)
