import os
import select

from hypothesis import given, strategies as st

from launch.report import (
    MAX_TEXT_CHARS,
    NoticeLine,
    ReportPipe,
    StateLine,
    decode_line,
    encode_line,
    one_line,
)
from launch.supervision import ReportedState

LINES = st.builds(
    StateLine, st.sampled_from(ReportedState), st.text(), st.text(max_size=50), st.booleans()
) | st.builds(NoticeLine, st.sampled_from(["warning", "error"]), st.text())


@given(LINES)
def test_a_line_is_one_atomic_write_and_means_the_same(line: StateLine | NoticeLine) -> None:
    data = encode_line(line)
    assert data.count(b"\n") == 1
    assert len(data) < select.PIPE_BUF
    read = decode_line(data)
    assert type(read) is type(line)
    if isinstance(line, StateLine) and isinstance(read, StateLine):
        assert (read.state, read.setup) == (line.state, line.setup)
        assert read.detail == one_line(line.detail).encode("utf-8", "replace").decode()


@given(st.binary())
def test_anything_else_is_no_report(data: bytes) -> None:
    assert decode_line(data) is None


def test_the_longest_line_fits() -> None:
    worst = "\x01" * (10 * MAX_TEXT_CHARS)
    assert len(encode_line(StateLine(ReportedState.FAILED, worst, "\x01" * 50))) < select.PIPE_BUF
    assert len(encode_line(NoticeLine("warning", "𝔘" * 9_999))) < select.PIPE_BUF


def test_a_full_pipe_and_a_closed_one_do_no_harm() -> None:
    reading, writing = os.pipe()
    pipe = ReportPipe(writing)
    for _ in range(10_000):
        pipe.notice("warning", "x" * 500)
    os.read(reading, 1 << 20)
    pipe.state(StateLine(ReportedState.READY))
    assert decode_line(os.read(reading, 1 << 20).splitlines()[-1]) == StateLine(ReportedState.READY)
    os.close(reading)
    pipe.state(StateLine(ReportedState.READY))
    os.close(writing)
