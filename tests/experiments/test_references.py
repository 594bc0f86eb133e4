"""The minima that gaps are measured from: certified, told apart, and found whatever the order of the runs."""

import numpy as np
import pytest

import tercet
from tercet.datasets import load
from tercet.experiments import references, runs, traces
from tercet.experiments.methods import plan
from tercet.experiments.runs import Task

NAME = "ill-conditioned:600"
DATA = load(NAME)
PROBLEM = runs.problem_of(DATA, 1e-3)
STARTS = [("N", 0), ("N", 1)]


def end(x, seed=0, success=True, method="STM"):
    x = np.asarray(x, dtype=float)
    key = {"dataset": "d", "l2": 0.0, "start": "N", "seed": seed, "method": method}
    return {"key": key, "fun": None, "success": success, "x": traces.pack(x)}


class Wells:
    """cos(4 z) + z^2/2 over one variable: a minimum in each well, of different depth."""

    def derivatives(self, z, y):
        c, s = np.cos(4 * (z - y)), np.sin(4 * (z - y))
        return c + z * z / 2, -4 * s + z, -16 * c + 1, 64 * s


def wells():
    return tercet.LinearModel(np.ones((4, 1)), np.full(4, 0.2), Wells())


def test_one_minimum_is_found_from_all_starts_and_certified_tightly():
    record = runs.run(Task(NAME, 1e-3, "N", 0, plan("STM"), 100.0), DATA, PROBLEM)
    line = references.find(references.request(NAME, 1e-3, "", STARTS, [record]), PROBLEM)
    (minimum,) = line["minima"]
    assert minimum["f"] <= record["fun"]
    assert minimum["certificate"]["holds"]
    assert minimum["certificate"]["chi1"] <= 1e-10
    assert minimum["found_by"] == ["N seed 0", "N seed 1"]
    assert "One minimum" in line["text"]


def test_different_minima_are_told_apart_and_never_hidden():
    problem = wells()
    found = {seed: tercet.minimize(problem, np.array([x]), seed=0) for seed, x in enumerate([1.0, -0.6, 1.05])}
    assert all(result.success for result in found.values())
    ends = [{**end(result.x, seed), "fun": result.fun} for seed, result in found.items()]
    task = references.request("w", 0.0, "", [("N", 0), ("N", 1), ("N", 2)], ends)
    line = references.find(task, problem)
    assert len(line["minima"]) == 2
    values = [minimum["f"] for minimum in line["minima"]]
    assert values == sorted(values)
    assert "different minima" in line["text"]
    assert {tuple(minimum["found_by"]) for minimum in line["minima"]} == {("N seed 0", "N seed 2"), ("N seed 1",)}
    assert line["minima"][0]["x_digest"] != line["minima"][1]["x_digest"]
    backwards = references.request("w", 0.0, "", [("N", 0), ("N", 1), ("N", 2)], ends[::-1])
    assert references.find(backwards, problem) == line


def test_an_uncertified_end_that_is_lower_opens_a_basin_of_its_own():
    problem = wells()
    high = tercet.minimize(problem, np.array([2.4]))
    low = tercet.minimize(problem, np.array([-0.6]))
    assert low.fun < high.fun
    ends = [
        {**end(high.x), "fun": high.fun},
        {**end(low.x + 1e-4, success=False, method="SGD"), "fun": problem.over(None).at(low.x + 1e-4).value()},
    ]
    line = references.find(references.request("w", 0.0, "", [("N", 0)], ends), problem)
    assert line["minima"][0]["f"] == pytest.approx(low.fun, abs=1e-14)
    assert line["minima"][0]["found_by"] == ["N seed 0 (SGD)"]


def test_no_minimum_is_said_so():
    flat = tercet.LinearModel(np.ones((4, 1)), np.array([0.0, 0.0, 1.0, 1.0]), "logistic")
    assert "No certified minimum" in references.text([], 0.25, 3)
    assert "0.25" in references.text([], 0.25, 3)
    line = references.find(references.request("f", 0.0, "", [("N", 0)], []), flat)
    assert len(line["minima"]) == 1
