"""The advice is what the runs say: cheapest where all got there, with those that are as good, and with what is lost."""

import numpy as np
import pytest

from tercet.experiments import choice, markup, stored
from tests.experiments.stores import BASE, record, write_store


def run(method, seconds, epochs, dataset="a", seed=0, last=1e-9, holds=True):
    """A run with a gap of 1, 1e-3 and `last`, that costs so much in all."""
    share, nothing = np.array([0.0, 0.5, 1.0]), [0.0, 0.0, 0.0]
    path = {"iteration": [0, 1, 2], "f": [BASE + gap for gap in (1.0, 1e-3, last)]}
    path |= {"value": (epochs * share).tolist(), "seconds": (seconds * share).tolist()}
    path |= dict.fromkeys(("gradient", "hessian", "third"), nothing)
    return record(dataset, 1e-3, "N", seed, method, trace=path, fun=path["f"][-1], certificate={"holds": holds})


def told(tmp_path, runs):
    records = stored.read(write_store(tmp_path / "store", runs))
    return choice.story(records), records


def test_the_least_seconds_win_and_evaluations_are_told_apart(tmp_path):
    runs = [run("STM", 1.0, 30.0), run("SCR", 1.05, 20.0), run("L-BFGS", 4.0, 90.0), run("SGD", 0.1, 5.0, last=1e-4)]
    found, records = told(tmp_path, runs)
    assert found.lead.startswith(
        "For these data use STM: its run comes within 1e-6 of the minimum, in the least seconds. SCR is as good. "
        "The next, L-BFGS, takes 4.00 times the time. 4 runs of 4 methods on 1 problem"
    )
    assert "SCR is the cheapest; STM takes 1.50 times as many." in found.findings[0]
    assert "For a rough answer, within 0.01: SGD." in found.findings
    assert "Not always within 1e-6: SGD (0 of 1 runs)." in found.findings
    assert choice.rows(records)[0] == ("STM", "1 of 1", "1 of 1", "1.00", "1.50")
    assert choice.rows(records)[-1] == ("SGD", "0 of 1", "1 of 1", "-", "-")
    assert choice.cheapest(records.problems[0]) == ("STM: 1.00", "SCR: 20.0")


def test_a_method_that_fails_on_one_problem_is_not_advised(tmp_path):
    runs = [run("STM", 2.0, 2.0, d) for d in "ab"] + [run("SCR", 1.0, 1.0, "a"), run("SCR", 1.0, 1.0, "b", last=1e-5)]
    found, records = told(tmp_path, runs)
    assert found.lead.startswith("For these data use STM: all of its 2 runs come")
    stm = choice.standings(records)[0]
    assert stm.ratios["seconds"] == (2.0, 1.0)
    assert stm.mean("seconds") == pytest.approx(np.sqrt(2))
    assert stm.shown("seconds") == "1.41 (at most 2.00)"


def test_of_a_tuned_method_the_best_choice_counts(tmp_path):
    runs = [run("SGD batch=0.1 step=1", 9.0, 9.0), run("SGD batch=0.1 step=0.1", 3.0, 3.0), run("STM", 6.0, 6.0)]
    found, records = told(tmp_path, runs)
    assert [s.method for s in choice.standings(records)] == ["SGD", "STM"]
    assert found.lead.startswith("For these data use SGD:")


def test_where_none_gets_there_it_says_so(tmp_path):
    found, _ = told(tmp_path, [run("STM", 1.0, 1.0, last=1e-5), run("SCR", 1.0, 1.0, seed=1, last=1e-5)])
    assert found.lead.startswith("No method came within 1e-6 of the minimum in all of its runs")


def test_ends_that_are_not_certified_are_named(tmp_path):
    found, _ = told(tmp_path, [run("STM", 1.0, 1.0), run("SCR", 2.0, 2.0, holds=False)])
    assert "Not always at a point that is certified as a minimizer: SCR (0 of 1 runs)." in found.findings


def test_the_papers_claim_is_for_the_papers_experiment_only(tmp_path):
    runs = [run("STM", 1.0, 30.0), run("SCR", 1.05, 20.0)]
    mine = stored.read(write_store(tmp_path / "mine", runs))
    papers = stored.read(write_store(tmp_path / "papers", runs, settings={"format": 1, "paper": True}))
    assert "For these data use STM" in markup.summary_html(mine)
    assert "The claim that STM" not in markup.summary_html(mine)
    assert markup.verdicts_html(mine) == ""
    assert "The claim that STM" in markup.summary_html(papers)
    assert "Does STM need fewer oracle calls?" in markup.verdicts_html(papers)


def test_no_runs_give_no_advice(tmp_path):
    found, records = told(tmp_path, [])
    assert found.lead.startswith("0 runs of 0 methods")
    assert choice.rows(records) == []
