"""The suite keeps its books right: cases build, oracles agree, the split is fixed, marks, profiles, comparisons."""

import json

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("sklearn")

import jax

import tercet
from benchmarks import nist_models
from benchmarks.problems.singular import PROBLEMS as SINGULAR
from benchmarks.suite import compare, figures, linear, plain, profiles, report, run
from benchmarks.suite.cases import GROUPS, Case, Instance, all_cases, split_of
from benchmarks.suite.contenders import RUNNERS, Task, names_for
from benchmarks.suite.measure import QUICK, run_case, unit, value_at
from benchmarks.suite.paths import Oracle
from tercet.objectives.metered import Meter, Metered

CASES = all_cases()
SMALL = [r for r in linear.generated() if r.data.split("-")[-1] in ("500x10", "1000x20", "800x24", "2000x300", "200x2")]


def test_there_are_enough_cases_of_every_kind():
    assert len(CASES) >= 120
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.group for case in CASES} == set(GROUPS)
    assert sum(case.group == "singular" for case in CASES) >= 15
    recipes = list(linear.generated())
    assert {r.loss for r in recipes} == {*linear.CLASSIFY, *linear.REGRESS}
    assert {r.start for r in recipes} == {"zero", "normal", "far"}
    assert min(r.l2 for r in recipes) == 1e-9
    assert max(r.l2 for r in recipes) == 1e-1


def test_the_split_is_fixed():
    assert split_of("generated/a", "generated") == "seen"
    assert split_of("generated/c", "generated") == "held"
    assert split_of("data/c", "data") == "seen"
    generated = [case for case in CASES if case.group == "generated"]
    assert 0.2 <= np.mean([case.split == "held" for case in generated]) <= 0.45


@pytest.mark.parametrize("recipe", SMALL, ids=lambda r: r.name)
def test_generated_models_build_the_same_each_time_and_have_right_derivatives(recipe):
    instance = linear.make(recipe)
    A, view = instance.objective.A, instance.objective.over(None)
    scales = np.sqrt(np.mean(A.toarray() ** 2 if hasattr(A, "toarray") else A**2, axis=0)) + 1e-3
    x, u = instance.x0 / 30, np.random.default_rng(0).standard_normal(len(scales)) / scales  # u in the columns' units
    h, at = 1e-4, view.at(x)
    ahead, behind = view.at(x + h * u), view.at(x - h * u)
    slope, bend, third = at.gradient() @ u, u @ at.product(2, u), u @ at.product(3, u, u)
    size = abs(slope) + abs(bend) + abs(third)
    assert (ahead.value() - behind.value()) / (2 * h) == pytest.approx(slope, abs=1e-5 * size)
    assert u @ (ahead.gradient() - behind.gradient()) / (2 * h) == pytest.approx(bend, abs=1e-5 * size)
    assert u @ (ahead.product(2, u) - behind.product(2, u)) / (2 * h) == pytest.approx(third, abs=1e-5 * size)
    linear.generated_data.cache_clear()
    again = linear.make(recipe)
    assert value_at(again, again.x0) == value_at(instance, instance.x0)


def test_other_units_are_the_same_function():
    recipe = next(linear.unscaled())
    a, b = linear.make(recipe), linear.make(recipe, 1)
    assert value_at(a, a.x0) == pytest.approx(value_at(b, b.x0), rel=1e-12)
    assert not np.array_equal(a.objective.A, b.objective.A)


@pytest.mark.parametrize("problem", SINGULAR, ids=lambda p: p.name)
def test_singular_functions_have_their_minimum_where_they_say(problem):
    with jax.enable_x64(True):
        assert abs(float(problem.fun(problem.minimizer)) - problem.minimum) <= 1e-15
        assert float(problem.fun(problem.x0)) > 1e-3


@pytest.mark.parametrize("problem", [p for p in SINGULAR if len(p.x0) <= 6], ids=lambda p: p.name)
def test_their_hessian_is_singular_there(problem):
    with jax.enable_x64(True):
        w = np.linalg.eigvalsh(np.asarray(jax.jit(jax.hessian(problem.fun))(problem.minimizer)))
    assert abs(w[0]) <= 1e-12 * max(1.0, w[-1])


@pytest.mark.skipif(not nist_models.folder().exists(), reason="the NIST files are not here")
@pytest.mark.parametrize("name", ["Misra1a", "Nelson", "Hahn1"])
def test_certified_parameters_give_the_certified_sum_of_squares(name):
    regression = nist_models.read(name)
    residuals, _ = regression.compiled()
    assert np.sum(residuals(regression.certified) ** 2) == pytest.approx(regression.rss, rel=1e-8)
    assert regression.digits(regression.certified) == 11.0
    assert regression.digits(regression.certified * (1 + 1e-5)) == pytest.approx(5.0, abs=1e-3)


def quadratic(d=8):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, d))
    model = tercet.LinearModel(A, A @ np.ones(d), "squares")
    return Instance(model, 5 * rng.standard_normal(d), np.zeros(d))


def oracle_of(instance):
    return Oracle(Metered.of(instance.objective, Meter(instance.objective.n)))


@pytest.mark.parametrize("dense", [True, False])
def test_plain_solves_a_quadratic(dense):
    instance, seen = quadratic(), []
    ended = plain.minimize(oracle_of(instance), instance.x0, dense, seen.append)
    assert ended in ("gradient", "rounding")
    np.testing.assert_allclose(seen[-1], 1.0, atol=1e-9)
    assert len(seen) <= 20


@pytest.mark.parametrize("seed", range(5))
def test_its_exact_step_is_the_lowest_of_the_ball(seed):
    rng = np.random.default_rng(seed)
    B, g = rng.standard_normal((6, 6)), rng.standard_normal(6)
    B = B + B.T  # indefinite
    if seed == 4:  # the hard case: g has no part along the lowest eigenvector
        V = np.linalg.eigh(B)[1]
        g = 1e-3 * V[:, -1]
    s, decrease = plain.exact(g, B, 0.7)
    assert np.linalg.norm(s) == pytest.approx(0.7, rel=1e-6)
    assert decrease == pytest.approx(-(g @ s + 0.5 * s @ B @ s), rel=1e-9)
    others = rng.standard_normal((2000, 6))
    others *= 0.7 / np.linalg.norm(others, axis=1, keepdims=True)
    assert decrease >= np.max(-(others @ g + 0.5 * np.einsum("ij,jk,ik->i", others, B, others))) - 1e-9


def test_every_contender_reaches_the_minimum_and_is_counted():
    instance = linear.make(linear.Recipe("gauss-200x2", "logistic", 1e-3, "normal"))
    found = tercet.minimize(instance.objective, instance.x0, tol=1e-11).fun
    for name in names_for(instance):
        path = RUNNERS[name](Task(instance, "generated", 10.0))
        assert value_at(instance, path.x) - found <= 1e-8 * unit(instance, found), name
        assert path.seconds == sorted(path.seconds), name
        assert all(sum(a) <= sum(b) for a, b in zip(path.counts, path.counts[1:], strict=False)), name
        assert path.counts[-1][0] >= 2 * instance.objective.n, name


@pytest.fixture(scope="module")
def whole():
    recipe = linear.Recipe("gauss-200x2", "logistic", 1e-3, "normal")
    makes = {"generated/a": "generated", "generated/c": "generated", "small/x": "small"}
    cases = [Case(name, group, "gauss", lambda: linear.make(recipe)) for name, group in makes.items()]
    results = [run_case(case, QUICK, ("STM", "SCR", "plain", "trust-exact")) for case in cases]
    environment = {"commit": "c", "machine": {"processor": "p"}}
    stored = run.store.plain({"quick": True, "seconds": 1.0, "cases": results, "environment": environment})
    return json.loads(json.dumps(stored))


def test_a_case_is_measured(whole):
    result = whole["cases"][0]
    assert set(result["runs"]) == {"STM", "SCR", "plain", "trust-exact"}
    for name, one in result["runs"].items():
        far, near = one["reached"]["1e-4"], one["reached"]["1e-8"]
        assert far["iterations"] <= near["iterations"], name
        assert near["epochs"] == pytest.approx(sum(near[o] for o in ("value", "gradient", "hessian", "third")))
    assert result["runs"]["STM"]["certified"]
    assert whole["cases"][2]["calls"]["minimize"] > 0


def test_a_run_compared_with_itself_is_even_and_held_cases_are_not_named(whole):
    text = compare.lines(whole, whole, "STM", "STM", "1e-8", 5)
    assert any(line.startswith("held") for line in text)
    assert all("generated/c" not in line for line in text)
    even = next(line for line in text if line.startswith("all")).split()
    assert even[1:] == ["3", "1.000", "1.000", "1.000", "1.000", "0", "0"]


def test_the_page_has_figures_for_both_splits_and_names_no_held_case(whole, tmp_path):
    page = report.render(whole, tmp_path / "runs.quick").read_text()
    assert "generated/a" in page
    assert "generated/c" not in page
    assert (tmp_path / "runs.quick.linear-epochs.png").exists()
    row = next(line for line in page.splitlines() if line.startswith("| STM / plain, epochs"))
    assert [cell.strip().split(", ")[1] for cell in row.split("|")[4:7]] == ["2 cases", "1 cases", "3 cases"]


def test_a_profile_of_known_numbers():
    found = profiles.factors({"a": [1.0, 4.0, np.inf, np.inf], "b": [2.0, 2.0, 3.0, np.nan]})
    np.testing.assert_array_equal(found["a"], [1.0, 2.0, np.inf])
    np.testing.assert_array_equal(found["b"], [2.0, 1.0, 1.0])
    np.testing.assert_allclose(profiles.profile(found["a"], np.array([1.0, 2.0, 99.0])), [1 / 3, 2 / 3, 2 / 3])


def test_figures_leave_out_what_failed_and_say_so():
    def result(name, ours, other):
        runs = {n: {"reached": {"1e-8": v and {"epochs": v, "value": v}}} for n, v in (("STM", ours), ("plain", other))}
        return {"case": name, "group": "data", "split": "seen", "runs": runs}

    found = figures.against([result("a", 2.0, 4.0), result("b", None, 4.0), result("c", 8.0, 4.0)], "plain", "epochs")
    assert found.by_case == {"a": 0.5, "c": 2.0}
    assert found.failed == ("b",)
    assert figures.geometric_mean(found.values) == pytest.approx(1.0)
    assert figures.worst(found, False, 1) == [("c", 2.0)]
