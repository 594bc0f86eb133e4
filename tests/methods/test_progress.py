"""Progress is shown on a terminal when a run takes long, and nowhere else."""

import io
import sys

import numpy as np
import pytest

import tercet
from tercet.methods.progress import Progress
from tercet.records import Sizes
from tercet.result import Row


class Terminal(io.StringIO):
    def isatty(self):
        return True


def row(seconds):
    return Row(3, 0.5, 1e-3, 1.0, 0.9, True, 0.1, Sizes(10, 10, 10, 10), 1, seconds=seconds)


def test_a_long_run_shows_its_iteration_and_clears_the_line():
    screen = Terminal()
    progress = Progress(100, screen)
    progress.show(row(3.0))
    assert "iteration 3" in screen.getvalue()
    assert "10/100" in screen.getvalue()
    progress.clear()
    assert screen.getvalue().endswith("\r\x1b[2K")


def test_a_short_run_shows_nothing():
    screen = Terminal()
    progress = Progress(100, screen)
    progress.show(row(0.5))
    progress.clear()
    assert screen.getvalue() == ""


def test_no_more_than_one_line_per_pause():
    screen = Terminal()
    progress = Progress(100, screen)
    for seconds in np.linspace(3.0, 3.1, 50):
        progress.show(row(float(seconds)))
    assert screen.getvalue().count("iteration") == 1


def run():
    return tercet.minimize(tercet.LinearModel(np.eye(3), np.ones(3), l2=0.1))


def test_nothing_is_written_where_there_is_no_terminal(capsys, monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert Progress.on_terminal(100) is None
    monkeypatch.setattr(Progress, "show", lambda *arguments: pytest.fail("an iteration was shown"))
    run()
    assert pipe.getvalue() == ""
    monkeypatch.undo()
    run()
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_a_run_shows_its_iterations_and_leaves_the_line_empty(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress.on_terminal(100)
    assert progress.stream is screen
    assert progress.n == 100
    monkeypatch.setattr(Progress, "on_terminal", lambda n: Progress(n, screen, patience=0.0, pause=0.0))
    result = run()
    assert screen.getvalue().count("iteration") == result.nit > 0
    assert screen.getvalue().endswith("\r\x1b[2K")


class StandIn:
    """As programs without a window put in place of standard error."""

    def write(self, text):
        raise AssertionError(f"{text!r} was written")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, StandIn(), closed()], ids=["none", "a stand-in", "closed"])
def test_a_run_without_a_standard_error_to_ask_is_a_run_without_progress(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    assert Progress.on_terminal(100) is None
    assert run().success
