"""Progress says what is under way, how fast, and how long it will take."""

from __future__ import annotations

import io

import pytest

from headscope.run import progress
from headscope.run.progress import Amount, Meter, phase


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    return now


def test_lines_tell_rates_and_the_time_left_by_characters(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter(10, shown=True, stream=stream, left=Amount(10, 0, 1000))
    clock[0] = 1.0
    meter.advance(1, 100, 400)  # a long document comes first: more is done than a tenth
    assert stream.getvalue() == ""
    clock[0] = 4.0
    meter.advance(1, 100, 400)
    assert stream.getvalue() == ("2 of 10 documents (20%), 0.5/s, 50 tokens/s, 1 s left\n")


def test_what_is_under_way_counts_until_it_fails(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter(10, shown=True, stream=stream)
    clock[0] = 2.0
    meter.reach("worker", Amount(4, 80, 0))
    assert "4 of 10 documents (40%)" in stream.getvalue()
    meter.forget("worker")
    clock[0] = 10.0
    meter.advance(1)
    assert stream.getvalue().splitlines()[-1].startswith("1 of 10 documents (10%)")


def test_the_rows_of_one_long_document_are_progress(clock: list[float]) -> None:
    book, lines, terminal = Amount(1, 8000, 40_000), io.StringIO(), Terminal()
    for stream in (lines, terminal):
        clock[0] = 0.0
        meter = Meter(1, shown=True, stream=stream, left=Amount(1, 0, 40_000))
        clock[0] = 10.0
        meter.reach("here", book.part(0.25))
        meter.close()
    assert lines.getvalue() == "0 of 1 documents (25%), 200 tokens/s, 30 s left\n"
    assert "0/1" in terminal.getvalue()
    assert "200 tokens/s · 30 s left" in terminal.getvalue()


def test_lines_come_less_and_less_often(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter(10_000, shown=True, stream=stream)
    for second in range(1, 101):
        clock[0] = float(second)
        meter.advance(1)
    assert len(stream.getvalue().splitlines()) == 6  # after 2, 6, 14, 30, 60 and 90 seconds


def test_phases_are_named_at_once() -> None:
    stream, terminal = io.StringIO(), Terminal()
    with phase("reading it", True, stream):
        assert stream.getvalue() == "reading it\n"
    with phase("reading it", None, stream), phase("reading it", False, terminal):
        assert terminal.getvalue() == ""
    assert stream.getvalue() == "reading it\n"
    with phase("reading it", None, terminal):
        pass
    assert "reading it" in terminal.getvalue()


def test_a_terminal_shows_a_bar_with_rates() -> None:
    terminal = Terminal()
    meter = Meter(4, stream=terminal, left=Amount(4, 0, 40))
    meter.advance(2, 30, 20)
    meter.say("a worker died")
    meter.close()
    assert "2/4" in terminal.getvalue()
    assert " tokens/s · 0 s left" in terminal.getvalue()  # within 80 columns
    assert "a worker died" in terminal.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (65, "1 min 5 s"), (7800, "2 h 10 min")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert progress._clock(seconds) == words
