"""The speed benchmark keeps its books right: crossings, counts, bases of comparison, and the page. No times."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from benchmarks.speed import figures, store, sums, table
from benchmarks.speed.cases import GAPS, Case, dense_data, penalty, sparse_data, start_at
from benchmarks.speed.contenders import Path, Task, peers, run_ours, run_scipy
from benchmarks.speed.measure import model, prepared, run_case
from benchmarks.speed.oracles import Oracle, PlainModel
from benchmarks.speed.paths import crossings, first_crossings, reference, settling
from benchmarks.speed.progress import Progress
from benchmarks.speed.scaling import run_scaling
from benchmarks.speed.summary import Cell, Spread, cells


def tiny_case(name="a9a", loss="sigmoid_squares", **settings):
    more = {"penalties": ("1e-3", "1e-3/n"), "repeats": 2, "longest": 2.0, "shortest": 1.0, "enough": 0.05}
    return Case(name, "tiny", lambda: sparse_data(400, 12, 0.3), 2, 30.0, loss, **{**more, **settings})


@pytest.fixture(scope="module")
def result():
    return store.plain(run_case(tiny_case(), Progress()))


@pytest.fixture(scope="module")
def logistic():
    return store.plain(run_case(tiny_case("logistic", "logistic", starts=("zero",)), Progress()))


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_first_crossing_is_exact_where_values_fall(length):
    values = np.geomspace(1.0, 1e-12, length)
    targets = [0.5, 1e-6, 1e-13]
    found, last = first_crossings(values.__getitem__, length, targets)
    assert found == [next((i for i in range(length) if values[i] <= t), None) for t in targets]
    assert last == values[-1]


def test_long_paths_are_not_evaluated_everywhere():
    asked = []
    values = np.geomspace(1.0, 1e-12, 20_000)
    first_crossings(lambda i: asked.append(i) or values[i], len(values), [1e-4, 1e-10])
    assert len(set(asked)) < 600


def test_settling_is_the_last_time_the_target_was_missed():
    values = [5, 0, 3, 1, 0, 0]
    assert settling(values.__getitem__, 6, 1) == 3
    assert settling(values.__getitem__, 6, -1) is None


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic"])
@pytest.mark.parametrize("data", [dense_data(200, 6), sparse_data(200, 10, 0.3)])
def test_the_plain_oracle_is_the_same_function_as_ours(loss, data):
    problem, plain, _ = model(prepared(data), 1e-2, loss)
    x, v = start_at("normal", problem.d, 0), start_at("normal", problem.d, 1)
    a, b = problem.over(None).at(x), plain.at(x)
    np.testing.assert_allclose(b.value(), a.value(), rtol=1e-13)
    np.testing.assert_allclose(b.gradient(), a.gradient(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(b.hessian(), a.hessian(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(b.product(2, v), a.hessian() @ v, rtol=1e-10, atol=1e-13)


def test_an_oracle_makes_one_point_for_f_g_and_B_at_one_x():
    made = []
    plain = PlainModel(*prepared(sparse_data(50, 5, 0.5)), 1e-2)
    oracle = Oracle(lambda x: made.append(x) or plain.at(x))
    for x in (np.zeros(5), np.zeros(5), np.ones(5)):
        f = oracle.value(x)
        oracle.gradient(x)
        oracle.hessian(x)
    assert len(made) == 2
    assert oracle.tally == {"value": 3, "gradient": 3, "hessian": 3, "third": 0}
    assert oracle.known(np.ones(5)) == f
    assert oracle.known(np.zeros(5)) is None


def test_every_peer_goes_down_and_its_path_says_how():
    problem, plain, _ = model(prepared(sparse_data(300, 10, 0.4)), 1e-3, "sigmoid_squares")
    x0 = start_at("normal", problem.d, 0)
    lowest = reference(problem, [x0, np.zeros(problem.d)])
    task = Task(problem, plain, x0, 0, lowest, 5.0)
    for contender in peers(problem.d):
        path = contender.run(task)
        assert np.array_equal(path.points[0], x0), contender.label
        assert path.seconds == sorted(path.seconds), contender.label
        known = [(x, f) for x, f in zip(path.points, path.values, strict=True) if f is not None]
        assert known, contender.label
        assert all(f == pytest.approx(plain.at(x).value(), rel=1e-12) for x, f in known), contender.label
        assert path.epochs_at(len(path.points) - 1)["all"] > 0, contender.label


def test_a_run_past_its_time_is_capped():
    problem, plain, _ = model(prepared(sparse_data(300, 10, 0.4)), 1e-3, "sigmoid_squares")
    path = run_scipy("L-BFGS-B", False)(Task(problem, plain, np.zeros(10), 0, -np.inf, 0.0))
    assert path.capped
    assert path.ended == "time"


def test_our_path_has_the_counts_of_the_run():
    problem, plain, _ = model(prepared(sparse_data(300, 10, 0.4)), 1e-3, "sigmoid_squares")
    path = run_ours(tercet.STM())(Task(problem, plain, np.zeros(10), 3, -np.inf, 30.0))
    rows = tercet.minimize(problem, np.zeros(10), seed=3, tol=1e-10).trace
    assert len(path.points) == 1 + len(rows)
    assert [path.epochs_at(i + 1)["all"] for i in range(len(rows))] == pytest.approx(rows["epochs"])


def test_a_run_in_another_minimum_is_measured_to_that_one():
    problem, plain, _ = model(prepared(sparse_data(300, 10, 0.4)), 1e-3, "sigmoid_squares")
    path = run_ours(tercet.STM())(Task(problem, plain, np.zeros(10), 0, -np.inf, 30.0))
    true = reference(problem, [np.zeros(10)])
    gaps = [float(gap) for gap in GAPS]
    right = crossings(problem, plain, path, true, gaps)
    other = crossings(problem, plain, path, true - 0.01, gaps)
    assert not right.other_minimum
    assert other.other_minimum
    assert other.at == right.at


def test_all_contenders_are_there_and_reach_what_they_should(result):
    labels = {(run["method"], run["oracle"]) for run in result["runs"]}
    assert {m for m, _ in labels} == {
        "STM", "SCR", "STM full (AR3)", "SCR full (ARC)", "SGD",
        "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact",
    }  # fmt: skip
    assert {o for m, o in labels if m == "trust-exact"} == {"tercet", "scipy"}
    assert result["seeds"] >= result["peer_seeds"] >= 1
    for run in result["runs"]:
        if run["method"] in ("STM", "SCR", "trust-exact"):
            reached = [run["reached"][gap] for gap in GAPS]
            assert all(reached), run["method"]
            times = [r["seconds"][0] for r in reached]
            assert times == sorted(times)
            epochs = reached[-1]["epochs"]
            assert epochs["all"] == pytest.approx(sum(v for k, v in epochs.items() if k != "all"))
            assert len(reached[-1]["seconds"]) == len(run["pass_seconds"])


def test_deterministic_methods_run_once_from_zero(result):
    cell = Cell(result, "1e-3", "zero")
    assert len(cell.of("trust-exact", "tercet")) == 1
    assert len(cell.of("STM")) == result["seeds"]


def test_scikit_learn_minimizes_the_same_function(logistic):
    cell = Cell(logistic, "1e-3", "zero")
    for solver in ("lbfgs", "newton-cg", "newton-cholesky"):
        (run,) = cell.of(f"sklearn {solver}")
        assert run["reached"]["1e-8"], solver


def test_a_spread_counts_runs_that_did_not_arrive_as_infinite():
    assert Spread.of([1.0, 3.0, np.inf]).median == 3.0
    assert Spread.of([1.0, np.inf]).median == np.inf
    assert Spread.of([1.0, 2.0]).median == 1.5
    assert Spread.of([]).count == 0


def made_up(seconds, cap=None):
    reached = {gap: {"seconds": [seconds], "iterations": 1, "epochs": {"all": 5.0}} for gap in GAPS}
    return {"reached": dict.fromkeys(GAPS) if cap else reached, "cap": cap, "pass_seconds": [1.0]}


def made_up_cell(**peers):
    ours = {"method": "STM", "oracle": "tercet", "ours": True, "l2": "1e-6", "start": "zero", **made_up(2.0)}
    others = [
        {"method": name, "oracle": "tercet", "ours": False, "l2": "1e-6", "start": "zero", **run}
        for name, run in peers.items()
    ]
    return Cell({"case": "a9a", "runs": [ours, *others]}, "1e-6", "zero")


def test_the_best_peer_counts_and_a_cap_is_a_bound():
    ratio = made_up_cell(slow=made_up(8.0), fast=made_up(6.0), late=made_up(0.0, cap=20.0)).speedup(("tercet",))
    assert (ratio.value, ratio.bound, ratio.who) == (3.0, False, "fast (tercet)")
    ratio = made_up_cell(late=made_up(0.0, cap=20.0)).speedup(("tercet",))
    assert (ratio.value, ratio.bound) == (10.0, True)
    assert made_up_cell().speedup(("tercet",)) is None


def paired(method, seed, *seconds):
    reached = {
        gap: {"seconds": list(seconds), "iterations": 1, "epochs": {"all": 1.0}} if seconds else None for gap in GAPS
    }
    return {
        "method": method,
        "oracle": "tercet",
        "ours": True,
        "l2": "1e-6",
        "start": "zero",
        "seed": seed,
        "reached": reached,
    }


def test_methods_of_ours_are_compared_in_pairs():
    runs = [paired("STM", 0, 2.0, 20.0, 2.0), paired("SCR", 0, 1.0, 10.0), paired("STM", 1, 3.0), paired("SCR", 1, 1.0)]
    assert Cell({"case": "a9a", "runs": runs}, "1e-6", "zero").against("SCR") == 2.0
    runs += [paired("STM", 2), paired("SCR", 2, 1.0), paired("STM", 3), paired("SCR", 3, 1.0)]
    assert Cell({"case": "a9a", "runs": runs}, "1e-6", "zero").against("SCR") == 3.0  # two that never arrived
    assert Cell({"case": "a9a", "runs": [*runs, paired("full", 0, 4.0)]}, "1e-6", "zero").against("full") == 0.5
    assert np.isnan(Cell({"case": "a9a", "runs": [*runs, paired("full", 0)]}, "1e-6", "zero").against("full"))
    assert np.isnan(Cell({"case": "a9a", "runs": runs}, "1e-6", "zero").against("full"))


def test_figures_are_held_or_not_or_not_measured():
    f = figures.Figure("x", "at most", 2.0, 1.0, 1.5)
    assert (f.holds(f.must), f.holds(f.aim)) == (True, False)
    assert figures.Figure("x", "at least", 2.0, 1.0, np.nan).holds(2.0) is None
    assert all(f.holds(f.must) is None for f in figures.figures({}))


def test_the_page_shows_every_case_and_method(result, logistic, tmp_path):
    scaling = run_scaling(True, Progress(), sizes=(2000, 4000))
    runs = [
        {"data": "a9a", "n": 9, "d": 2, "data_bytes": 1000, "method": "STM", "oracle": "tercet", "extra_bytes": 520}
    ]
    memory = {"case": "memory", "title": "memory", "l2": "1e-6", "runs": runs, "seconds": 1.0}
    startup = {"case": "startup", "title": "startup", "measured": {"import tercet": [0.1, 0.2]}, "seconds": 1.0}
    for one in (result, logistic, scaling, memory, startup):
        store.write(one, False, tmp_path)
        store.write(one, True, tmp_path)
    full, quick = store.read(False, tmp_path), store.read(True, tmp_path)
    assert set(full) == set(quick) == {"a9a", "logistic", "scaling", "memory", "startup"}
    assert json.loads((tmp_path / "a9a.json").read_text())["runs"] == result["runs"]
    page = table.render(full, quick)
    for text in (
        "trust-exact (scipy)",
        "**STM**",
        "sklearn newton-cholesky",
        "import tercet",
        "## Quick run",
        "threads",
    ):
        assert text in page
    values = {f.what: f.value for f in figures.figures(full)}
    assert values["peak memory of STM beyond the data and 10 d x d matrices, of the data"] == pytest.approx(0.2)
    assert np.isfinite(values["time when n doubles, d = 50, each doubling"])
    assert len(cells(full["a9a"])) == 4


@pytest.mark.parametrize("name", sums.EXAMPLES)
def test_a_plain_jax_sum_is_the_same_function_as_ours(name):
    make, _, d = sums.EXAMPLES[name]
    loss, data = make(300)
    x, v = start_at("normal", d, 0), start_at("normal", d, 1)
    a, b = sums.Sum(loss, data, d).over(None).at(x), sums.PlainSum(loss, data).at(x)
    assert a.value() == pytest.approx(b.value(), rel=1e-12)
    np.testing.assert_allclose(a.gradient(), b.gradient(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.product(2, v), b.product(2, v), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(b.hessian() @ v, b.product(2, v), rtol=1e-9, atol=1e-11)


def test_jax_sums_are_run_and_shown(monkeypatch):
    monkeypatch.setattr(sums, "EXAMPLES", {"regression": (sums.skew_normal, 400, 23)})
    monkeypatch.setattr(sums, "QUICK", replace(sums.QUICK, penalties=("regression",)))
    result = store.plain(sums.run_sums(True, Progress()))
    stm = [run for run in result["runs"] if run["method"] == "STM"]
    assert stm
    assert all(run["reached"]["1e-10"] for run in stm)
    page = "\n".join(table.sums_section(result))
    for text in ("| regression | 400 | 23 |", "**STM**", "L-BFGS-B (tercet)", "trust-exact (scipy)"):
        assert text in page


def test_generated_data_is_what_it_says():
    X, y = sparse_data(500, 1000, 0.01)
    assert sp.issparse(X)
    assert X.shape == (500, 1000)
    assert 0.009 < X.nnz / (500 * 1000) <= 0.01
    assert set(y) == {0.0, 1.0}
    assert np.array_equal(sparse_data(500, 1000, 0.01)[1], y)
    assert penalty("1e-3/n", 1000) == 1e-6


def test_a_path_keeps_copies():
    path, x = Path(), np.zeros(2)
    path.add(0.0, x, None)
    x += 1
    assert not path.points[0].any()
