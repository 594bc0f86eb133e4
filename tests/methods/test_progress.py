"""Progress is shown on a terminal when a run takes long, and nowhere else."""

import io

import numpy as np

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


def test_nothing_is_written_where_there_is_no_terminal(capsys):
    pipe = io.StringIO()
    Progress(100, pipe).show(row(60.0))
    assert pipe.getvalue() == ""
    tercet.minimize(tercet.LinearModel(np.eye(3), np.ones(3), l2=0.1))
    assert capsys.readouterr() == ("", "")
