"""One run, one record: it says what happened, counts two ways, and is the same for the same seed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import tercet
from tercet.datasets import load
from tercet.experiments import methods, runs, traces
from tercet.experiments.methods import Plan
from tercet.experiments.runs import Task
from tercet.records import ORDERS

NAME, L2 = "ill-conditioned:600", 1e-3
DATA = load(NAME)
PROBLEM = runs.problem_of(DATA, L2)
LABELS = ["STM", "STM-paper", "SCR", "SCR-paper", "AR3", "ARC", "SGD", "L-BFGS", "trust-exact"]


def record_of(label, seed=0, start="N", max_epochs=30.0, **changes):
    plan = methods.plan(label)
    plan = (list(plan.choices()) or [plan])[-1]
    return runs.run(Task(NAME, L2, start, seed, plan, max_epochs, **changes), DATA, PROBLEM)


def total(record, prefix=""):
    return np.sum([record["trace"][prefix + order] for order in ORDERS], axis=0)


def timeless(record):
    """A record without what depends on the clock."""
    return {**record, "seconds": 0, "trace": {**record["trace"], "seconds": 0}}


@pytest.mark.parametrize("label", LABELS)
def test_a_record_has_every_field_and_is_json_without_nan(label):
    record = record_of(label)
    fields = (
        "key n d loss lambda_note family settings counting_note status message success error fun seconds certificate"
    )
    assert set(record) == {*fields.split(), "basin", "trace", "x"}
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    trace = record["trace"]
    assert set(trace) == set(runs.COLUMNS)
    assert len({len(column) for column in trace.values()}) == 1
    assert trace["iteration"][0] == 0
    assert all(trace[order][0] == 0 == trace[f"paper_{order}"][0] for order in ORDERS)
    assert record["error"] is None
    assert record["fun"] <= trace["f"][0]


@pytest.mark.parametrize("label", LABELS)
def test_f_and_chi1_are_over_all_data_at_the_points_of_the_path(label):
    record = record_of(label)
    trace, view = record["trace"], PROBLEM.over(None)
    start = view.at(runs.start_of("N", 0, PROBLEM.d))
    assert trace["f"][0] == start.value()
    assert trace["chi1"][0] == pytest.approx(np.linalg.norm(start.gradient()), rel=1e-5)
    end = view.at(traces.unpack(record["x"]))
    assert record["fun"] == end.value() == trace["f"][-1]
    if record["certificate"]["chi1"] is not None:
        assert record["certificate"]["chi1"] == pytest.approx(np.linalg.norm(end.gradient()), rel=1e-6, abs=1e-15)
    assert trace["chi2"][0] is not None
    assert trace["chi2"][-1] is not None


@pytest.mark.parametrize("label", LABELS)
def test_counts_grow_and_the_papers_are_never_above_ours(label):
    record = record_of(label)
    for prefix in ("", "paper_"):
        for order in ORDERS:
            assert np.all(np.diff(record["trace"][prefix + order]) >= 0)
    for order in ORDERS:
        ours, paper = (np.array(record["trace"][prefix + order]) for prefix in ("", "paper_"))
        assert np.all(paper <= ours + 1e-9)
    if label in ("SGD", "L-BFGS", "trust-exact"):
        assert np.allclose(total(record), total(record, "paper_"))


def test_counts_are_those_of_minimize():
    record = record_of("STM", max_epochs=100.0)
    result = tercet.minimize(PROBLEM, runs.start_of("N", 0, PROBLEM.d), seed=0, tol=runs.TOL)
    assert total(record)[-1] == pytest.approx(result.counts.epochs, rel=1e-8)
    assert record["fun"] == result.fun


def test_by_the_papers_counting_a_sample_counts_once_however_many_inner_steps_use_it():
    record = record_of("STM-paper", max_epochs=20.0)
    trace = record["trace"]
    step = np.diff(np.array(trace["iteration"]))
    for order in ("gradient", "hessian", "third"):
        each = np.diff(trace[f"paper_{order}"])[step == 1]
        np.testing.assert_allclose(each, 0.05, atol=1e-9)  # 30 of 600 rows
    assert np.diff(trace["third"])[0] > 0.05 * 2  # ours counts each of the inner products


@pytest.mark.parametrize("label", LABELS)
def test_the_same_seed_gives_the_same_run_but_for_the_clock(label):
    assert timeless(record_of(label)) == timeless(record_of(label))
    if label in ("STM-paper", "SCR-paper", "SGD"):
        assert record_of(label, start="0")["x"] != record_of(label, start="0", seed=1)["x"]


def test_starts_are_zero_or_multiples_of_one_draw():
    assert np.all(runs.start_of("0", 3, 5) == 0)
    one = runs.start_of("N", 3, 5)
    np.testing.assert_allclose(runs.start_of("3N", 3, 5), 3 * one)
    assert not np.allclose(one, runs.start_of("N", 4, 5))


@pytest.mark.parametrize("label", ["STM-paper", "SGD", "L-BFGS"])
def test_the_budget_ends_a_run_by_the_papers_counting(label):
    record = record_of(label, max_epochs=3.0)
    assert record["status"] == "MAX_EPOCHS"
    assert 3.0 - 1.2 <= total(record, "paper_")[-1] <= 3.0 + 2.5
    assert not record["success"]


@pytest.mark.parametrize("label", ["SGD", "L-BFGS"])
def test_the_clock_ends_a_run(label):
    record = record_of(label, max_epochs=1e9, max_seconds=0.05)
    assert record["status"] in ("MAX_SECONDS", "CERTIFIED")
    assert record["seconds"] < 2.0


def test_a_long_path_is_thinned_and_keeps_its_ends():
    plan = Plan("SGD", "SGD", {"batch": 2, "step": 0.1})
    record = runs.run(Task(NAME, L2, "N", 0, plan, 10.0), DATA, PROBLEM)
    iteration = np.array(record["trace"]["iteration"])
    assert 200 <= len(iteration) <= 400
    assert iteration[0] == 0
    assert iteration[-1] == 3000
    assert np.all(np.diff(iteration) > 0)
    assert np.sum(iteration < 100) > 50  # log-uniform: the beginning is dense


def test_diverging_runs_are_records_with_null():
    data = load("degenerate:256")
    problem = runs.problem_of(data, 0.0)
    plan = Plan("SGD", "SGD", {"batch": 0.1, "step": 100.0})
    record = runs.run(Task("degenerate:256", 0.0, "3N", 0, plan, 20.0), data, problem)
    json.dumps(record, allow_nan=False)
    assert record["status"] == "NOT_FINITE"
    assert record["trace"]["f"][-1] is None or record["trace"]["f"][-1] > 1e10


class Broken:
    """A method that fails in its third iteration."""

    order = 1

    def kernel(self, run):
        plain = tercet.SGD(batch=0.1, step=0.1).kernel(run)

        def step(run, state):
            if state.memory.iteration == 2:
                raise ZeroDivisionError("on purpose")
            return plain.step(run, state)

        return SimpleNamespace(begin=plain.begin, resume=plain.resume, step=step)


def test_a_method_that_raises_is_a_record_with_its_error(monkeypatch):
    entry = methods.Entry("own", "", Broken)
    monkeypatch.setitem(methods.CATALOGUE, "broken", entry)
    record = runs.run(Task(NAME, L2, "N", 0, Plan("broken", "broken"), 30.0), DATA, PROBLEM)
    assert record["status"] == "ERROR"
    assert record["error"] == "ZeroDivisionError: on purpose"
    assert not record["success"]
    assert record["trace"]["iteration"] == [0, 1, 2]


def test_settings_that_do_not_fit_are_a_record_with_its_error():
    record = runs.run(Task(NAME, L2, "N", 0, Plan("x", "SGD", {"step": -1.0}), 30.0), DATA, PROBLEM)
    assert record["error"].startswith("ValueError")
    assert record["trace"]["iteration"] == [0]


def gradient_descent(fun, x0, args, jac=None, callback=None, rate=1.0, **rest):
    """A user's own method, as scipy.optimize.minimize takes it."""
    from scipy.optimize import OptimizeResult

    x = x0
    for _ in range(10):
        x = x - rate * jac(x)
        print("noise on standard output")
        callback(x)
    return OptimizeResult(x=x, fun=fun(x), success=True, message="done")


def test_a_function_that_scipy_can_call_is_counted_as_the_others(capsys):
    use = f"{__name__}:gradient_descent"
    method = methods.SciPyMethod(gradient_descent, {"rate": 0.5}, hessian=True)
    plan = Plan("mine", use, {"rate": 0.5}, kind="scipy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "make", lambda plan: method)
        record = runs.run(Task(NAME, L2, "N", 0, plan, 30.0), DATA, PROBLEM)
    assert record["error"] is None
    assert record["family"] == "own"
    assert record["trace"]["gradient"][:11] == list(range(11))
    assert record["fun"] < record["trace"]["f"][0]
    assert capsys.readouterr().out == ""


def test_a_task_survives_the_way_to_a_worker():
    task = Task(NAME, L2, "N", 3, methods.plan("SGD"), 30.0, 2.0, "logistic", "note")
    assert Task.from_json(json.loads(json.dumps(task.as_json()))) == task


def test_x_is_packed_bit_for_bit():
    x = np.array([1 / 3, -1e-300, 0.0, 7e200])
    assert np.array_equal(traces.unpack(traces.pack(x)), x)


def test_infinite_settings_and_long_errors_are_still_json():
    plan = Plan("x", "SGD", {"step": float("inf"), "batch": "z" * 5000})
    record = runs.run(Task(NAME, L2, "N", 0, plan, 30.0), DATA, PROBLEM)
    json.dumps(record, allow_nan=False)
    assert record["error"] is not None
    assert len(record["error"]) <= 503
