"""What the operator sees while a deployment starts and runs."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.spinner import Spinner
from rich.table import Table

from launch.child_lifecycle import ChildState
from launch.supervision import ChildView

STYLES = {
    ChildState.READY: "green",
    ChildState.LOST: "red",
    ChildState.BACKING_OFF: "red",
    ChildState.STOPPING: "yellow",
    ChildState.ENDED: "dim",
}
NOTICE_STYLES = {"warning": "yellow", "error": "red", "critical": "red"}


class Display(Protocol):
    """A context manager around a deployment's life."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def update(self, views: Sequence[ChildView]) -> None: ...
    def notice(self, level: str, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def settle(self) -> None:
        """Everything is ready: stop showing every step."""
        ...


def open_display(console: Console) -> Display:
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class PlainDisplay:
    """For logs and pipes: a line for each change of a state, and nothing that moves."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, ChildState] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def update(self, views: Sequence[ChildView]) -> None:
        for view in views:
            if self._shown.get(view.name) is not view.state:
                self._shown[view.name] = view.state
                # While all ends, the detail is of the time before, or plain "exit code 0".
                ends = view.state in (ChildState.STOPPING, ChildState.ENDED)
                detail = "" if ends else view.detail
                self.say(f"{view.name:<12} {view.state:<12} {detail}".rstrip())

    def notice(self, level: str, text: str) -> None:
        self.say(f"{level}: {text}")

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def settle(self) -> None:
        return None


class LiveDisplay:
    """For a terminal: one moving line per process until all are ready; then, only what is loud."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._views: Sequence[ChildView] = ()
        self._since_s: dict[str, tuple[ChildState, float]] = {}
        self._spinner = Spinner("dots")
        self._live: Live | None = Live(
            console=console, get_renderable=self._table, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_live()

    def update(self, views: Sequence[ChildView]) -> None:
        now_s = time.monotonic()
        for view in views:
            if self._since_s.get(view.name, (None, 0.0))[0] is not view.state:
                self._since_s[view.name] = (view.state, now_s)
        self._views = views

    def notice(self, level: str, text: str) -> None:
        style = NOTICE_STYLES.get(level, "")
        self._console.print(f"[{style}]{level}:[/] {escape(text)}" if style else escape(text))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def settle(self) -> None:
        self._stop_live()
        self._console.print(self._table())

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        now_s = time.monotonic()
        for view in self._views:
            style = STYLES.get(view.state, "cyan")
            mark: RenderableType = (
                f"[{style}]{'✓' if view.state is ChildState.READY else '·'}[/]"
                if view.state in STYLES
                else self._spinner
            )
            waited_s = now_s - self._since_s[view.name][1]
            waited = f"[dim]{waited_s:.0f} s[/]" if view.state not in STYLES else ""
            table.add_row(mark, view.name, f"[{style}]{view.state}[/]", escape(view.detail), waited)
        return Group(table)


class ModelProgress:
    """The progress bar of `prepare_model`; in a pipe, a line per step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._step = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` units of `step`; total 0: not known."""
        if not self._console.is_terminal:
            if step != self._step:
                self._console.print(f"model: {step}", markup=False, highlight=False)
            self._step = step
            return
        if self._bar is None:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(step)
        self._bar.update(
            self._bar.task_ids[0], description=step, completed=done, total=total or None
        )
