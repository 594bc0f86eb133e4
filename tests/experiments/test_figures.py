"""PNG, PDF and CSV of the report's figures."""

import csv

import pytest

from tercet.experiments import figures, stored
from tercet.experiments.summary import cost_table
from tests.experiments.stores import BASE, record, small_store, write_store

pytest.importorskip("matplotlib")


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_problem_has_its_figures_as_png_and_pdf(tmp_path):
    paths = figures.write(
        write_store(tmp_path, [record("a9a", 1e-3, "N", s, m) for s in (0, 1) for m in ("STM", "SCR")])
    )
    names = {path.name for path in paths}
    assert names == {"costs.csv", "curves.csv", "verdicts.csv"} | {
        f"{kind}-a9a-l2-0.001.{suffix}" for kind in ("gap", "run") for suffix in ("png", "pdf")
    }
    for path in paths:
        start = path.read_bytes()[:4]
        assert path.suffix == ".csv" or start == {".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix]


def test_the_tables_hold_the_stored_numbers(tmp_path):
    folder = small_store(tmp_path)
    records = stored.read(folder)
    out = tmp_path / "out"
    out.mkdir()
    costs, curves, verdicts = figures.write_tables(records, out)
    problem = records.problems[0]
    table = cost_table(problem, "third")
    wanted = {m: table[m][1].mean for m in problem.methods}
    found = {
        row["method"]: float(row["mean"])
        for row in rows(costs)
        if (row["dataset"], row["cost"], float(row["gap"])) == (problem.dataset, "third", 1e-4)
    }
    assert found == pytest.approx(wanted, rel=0, nan_ok=True)
    assert {row["cost"] for row in rows(curves)} == {"ours", "paper", "paper_derivatives", "seconds", "iteration"}
    assert {row["answer"] for row in rows(verdicts)} <= {"fewer", "more", "same", "neither"}


def test_file_names_are_tame_and_differ():
    class Fake:
        l2 = 1e-3

        def __init__(self, dataset):
            self.dataset = dataset

    found = figures.names([Fake("../../etc/x"), Fake("a b"), Fake("a/b"), Fake("///")])
    assert found == ["etc-x-l2-0.001", "a-b-l2-0.001", "a-b-l2-0.001-2", "data-l2-0.001"]


def test_odd_names_failed_runs_and_holes_are_drawn_without_complaint(tmp_path):
    failed = record("d$a", 1e-3, "N", 0, "$x_{", error="ValueError: no", trace=None, fun=None, certificate=None)
    holes = record("d$a", 1e-3, "N", 0, "STM")
    holes["trace"]["f"][5] = None
    short = record("d$a", 1e-3, "N", 0, "ARC")
    short["trace"] = {"f": [BASE + 1.0], "iteration": [0]}
    odd = record("d$a", 1e-3, "N", 0, "_$hidden$")
    assert len(figures.write(write_store(tmp_path, [failed, holes, short, odd]))) == 7
