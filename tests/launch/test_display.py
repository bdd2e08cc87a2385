import io

from rich.console import Console

from core.ids import Incarnation, ProcessId, WorkerName
from launch.child_lifecycle import ChildState
from launch.display import LiveDisplay, ModelProgress, PlainDisplay, open_display
from launch.supervision import ChildView, StopGroup


def view(name: str, state: ChildState, detail: str = "") -> ChildView:
    process = ProcessId(WorkerName(name), Incarnation(1))
    return ChildView(name, StopGroup.WORKER, state, process, detail, "")


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=100, color_system=None), out


def test_a_pipe_gets_a_line_for_each_change() -> None:
    screen, out = console(terminal=False)
    with open_display(screen) as display:
        assert isinstance(display, PlainDisplay)
        for detail in ("10 %", "20 %"):
            display.update([view("decode-0", ChildState.LOADING, detail)])
        display.update([view("decode-0", ChildState.READY)])
        display.notice("warning", "careful [red]")
        display.say("x" * 200)
    assert out.getvalue().splitlines() == [
        "decode-0     loading      10 %",
        "decode-0     ready",
        "warning: careful [red]",
        "x" * 200,
    ]


def test_a_terminal_sees_a_line_per_process() -> None:
    screen, out = console(terminal=True)
    with open_display(screen) as display:
        assert isinstance(display, LiveDisplay)
        display.update([view("decode-0", ChildState.LOADING, "weights [40 %]")])
        display.notice("error", "it broke [/]")
        display.update([view("decode-0", ChildState.READY)])
        display.settle()
        display.say("curl " + "x" * 200)
    shown = out.getvalue()
    assert "error: it broke [/]" in shown
    assert "✓  decode-0  ready" in shown
    assert "curl " + "x" * 200 in shown


def test_the_progress_of_a_model() -> None:
    for terminal in (True, False):
        screen, out = console(terminal)
        with ModelProgress(screen) as progress:
            progress("reading", 0, 0)
            for done in range(100):
                progress("converting", done, 100)
        assert "converting" in out.getvalue()
        if not terminal:
            assert out.getvalue() == "model: reading\nmodel: converting\n"


def test_nothing_is_shown_when_nothing_was_prepared() -> None:
    screen, out = console(terminal=True)
    with ModelProgress(screen):
        pass
    assert out.getvalue() == ""
