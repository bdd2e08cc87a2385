"""`baton status`: the processes of every deployment that uses a state directory."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from launch.run_slot import DeploymentFile, running_deployments

EXIT_NONE_RUNS = 1
STATE_STYLES = {"ready": "green", "lost": "red", "backing-off": "red", "stopping": "yellow"}


def status(root: Path, as_json: bool, console: Console) -> int:
    """Print them; returns 0 if there is one, else 1.

    With `as_json`: one list of `{"role", "name", "pid", "address", "state"}`, of all deployments.
    """
    deployments = list(running_deployments(root))
    if as_json:
        rows = [asdict(row) for deployment in deployments for row in deployment.processes]
        print(json.dumps(rows, indent=1))
    elif deployments:
        for deployment in deployments:
            _show(deployment, console)
    else:
        console.print(
            f"no deployment runs with the state directory {root} (see --state-dir)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return 0 if deployments else EXIT_NONE_RUNS


def _show(deployment: DeploymentFile, console: Console) -> None:
    title = (
        f"{deployment.url}   {deployment.model}   since {deployment.started_at}   "
        f"run {deployment.run_id}"
    )
    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("role", "name", "pid", "state", "address"):
        table.add_column(column, justify="right" if column == "pid" else "left", no_wrap=True)
    for row in deployment.processes:
        style = STATE_STYLES.get(row.state, "cyan")
        pid = "-" if row.pid is None else str(row.pid)
        table.add_row(row.role, row.name, pid, f"[{style}]{row.state}[/]", escape(row.address))
    console.print(table)
