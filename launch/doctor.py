"""`baton doctor`: checks the machine and says how to mend what it finds."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape

from launch import machine_checks
from launch.machine_checks import Finding, Verdict
from launch.run_slot import running_deployments

EXIT_ERRORS = 1
MARKS = {
    Verdict.OK: "[green]✓[/]",
    Verdict.WARNING: "[yellow]![/]",
    Verdict.ERROR: "[red]✗[/]",
}

Check = Callable[[], Finding]


def checks_of_this_machine(root: Path, host: str, port: int) -> tuple[Check, ...]:
    """All checks, in the order they are shown."""

    def check_port() -> Finding:
        ports = {urlsplit(deployment.url).port for deployment in running_deployments(root)}
        return machine_checks.port(host, port, held_by_baton=port in ports)

    return (
        machine_checks.system,
        machine_checks.python,
        machine_checks.packages,
        machine_checks.foreign_distributions,
        machine_checks.cores,
        machine_checks.memory,
        machine_checks.shared_memory,
        machine_checks.open_files,
        lambda: machine_checks.state_directory(root),
        check_port,
        machine_checks.demo_model,
        machine_checks.compiler,
        machine_checks.gpu,
        machine_checks.ucx,
    )


def doctor(checks: Sequence[Check], as_json: bool, console: Console) -> int:
    """Run the checks and print what they find; returns 1 if anything is an error, else 0.

    With `as_json`: a list of `{"check", "verdict", "found", "mend"}`.
    """
    findings = []
    for check in checks:
        finding = check()
        findings.append(finding)
        if not as_json:
            _show(finding, console)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _sum_up(findings, console)
    failed = any(finding.verdict is Verdict.ERROR for finding in findings)
    return EXIT_ERRORS if failed else 0


def _show(finding: Finding, console: Console) -> None:
    line = f"{MARKS[finding.verdict]} {escape(finding.check):<17} {escape(finding.found)}"
    console.print(line, highlight=False, soft_wrap=True)
    if finding.mend:
        console.print(f"  {'':<17} → {escape(finding.mend)}", highlight=False, soft_wrap=True)


def _sum_up(findings: Sequence[Finding], console: Console) -> None:
    counts = {verdict: sum(f.verdict is verdict for f in findings) for verdict in Verdict}
    if counts[Verdict.ERROR] or counts[Verdict.WARNING]:
        text = f"{counts[Verdict.ERROR]} errors, {counts[Verdict.WARNING]} warnings"
    else:
        text = "all is well"
    console.print(text, style="bold", highlight=False)
