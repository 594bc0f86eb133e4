"""Many starts: distinct minima, how often each was found, and what becomes of starts that fail."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import tercet
from tercet import Status
from tercet.methods.many import Found, distinct

mpl.use("Agg")

ROOTS = np.array([[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]])


def himmelblau(p):
    return (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2


def gradient(p):
    a, b = p[0] ** 2 + p[1] - 11, p[0] + p[1] ** 2 - 7
    return np.array([4 * p[0] * a + 2 * b, 2 * a + 4 * p[1] * b])


def hessian(p):
    return np.array(
        [[12 * p[0] ** 2 + 4 * p[1] - 42, 4 * (p[0] + p[1])], [4 * (p[0] + p[1]), 12 * p[1] ** 2 + 4 * p[0] - 26]]
    )


GIVEN = {"grad": gradient, "hess": hessian}


@pytest.fixture(scope="module")
def four():
    return tercet.minimize_many(himmelblau, 24, np.zeros(2), spread=3.0, **GIVEN)


def test_the_four_minima_are_found_and_counted(four):
    assert len(four) == 4
    assert sum(minimum.count for minimum in four.minima) == 24
    assert sorted(k for minimum in four.minima for k in minimum.starts) == list(range(24))
    for minimum in four.minima:
        assert np.min(np.linalg.norm(ROOTS - minimum.result.x, axis=1)) < 1e-5
        for k in minimum.starts:
            np.testing.assert_allclose(four.results[k].x, minimum.result.x, atol=1e-5)
    assert four.best.success
    assert four.unseen == sum(minimum.count == 1 for minimum in four.minima) / 24


def test_the_starts_are_x0_and_draws_about_it_and_repeat(four):
    np.testing.assert_array_equal(four.starts[0], np.zeros(2))
    assert np.std(four.starts[1:]) == pytest.approx(3.0, rel=0.3)
    again = tercet.minimize_many(himmelblau, 24, np.zeros(2), spread=3.0, **GIVEN)
    assert str(again) == str(four)


def test_the_lowest_minimum_comes_first_with_its_standard_errors():
    def tilted(p):
        return himmelblau(p) + 0.5 * p[0]

    def tilted_gradient(p):
        return gradient(p) + np.array([0.5, 0.0])

    found = tercet.minimize_many(tilted, list(ROOTS), grad=tilted_gradient, hess=hessian)
    values = [minimum.result.fun for minimum in found.minima]
    assert values == sorted(values)
    assert len(found) == 4
    assert found.best.x[0] < -3
    np.testing.assert_allclose(found.best.covariance(), np.linalg.inv(hessian(found.best.x)), rtol=1e-8)


def test_table_frame_picture_and_text(four):
    pytest.importorskip("pandas")
    table, frame = four.table(), four.frame()
    assert list(frame.columns) == list(table)
    assert sum(table["count"]) == 24
    assert sum(table["share"]) == pytest.approx(1.0)
    ax = four.plot()
    assert [bar.get_height() for bar in ax.patches] == table["count"]
    assert len(str(four).splitlines()) == 6
    assert "24 starts: 24 certified" in str(four)
    assert "<pre>" in four._repr_html_()


def test_structures_are_kept():
    import jax.numpy as jnp

    def function(p):
        return (p["a"] ** 2 - 1) ** 2 + jnp.sum(p["b"] ** 2)

    found = tercet.minimize_many(function, 6, {"a": np.array(0.1), "b": np.zeros(2)}, seed=1)
    assert len(found) == 2
    assert {round(float(minimum.result.x["a"])) for minimum in found.minima} == {1, -1}
    assert set(found.best.standard_errors()) == {"a", "b"}


def test_minimizers_that_are_one_of_many_are_one():
    found = tercet.minimize_many(lambda p: 0.5 * (p[0] - p[1] - 1.0) ** 2, [[1.0, 3.0], [2.0, -5.0], [1.5, 1.0]])
    assert all(result.certificate.kernel for result in found.results)
    assert [minimum.starts for minimum in found.minima] == [(0, 1, 2)]


def test_starts_that_are_not_certified_are_told_apart():
    found = tercet.minimize_many(himmelblau, 3, np.zeros(2), max_iterations=1, **GIVEN)
    assert len(found) == 0
    assert found.ends() == {"MAX_ITERATIONS": 3}
    assert np.isnan(found.unseen)
    assert not found.best.success
    assert found.best.fun == min(result.fun for result in found.results)
    assert found.plot().patches[0].get_height() == 3


def test_a_start_where_the_function_raises_is_an_outcome_unless_all_do():
    def picky(p):
        if p[0] > 100:
            raise RuntimeError("too far")
        return float(himmelblau(p))

    found = tercet.minimize_many(picky, [[0.0, 0.0], [101.0, 0.0]], **GIVEN)
    assert found.results[1] is None
    assert found.errors == {1: "RuntimeError: too far"}
    assert found.ends()["ERROR"] == 1
    with pytest.raises(RuntimeError, match="too far"):
        tercet.minimize_many(picky, [[101.0, 0.0]], **GIVEN)


def test_ctrl_c_keeps_what_is_finished():
    calls = {"n": 0}

    def slow(p):
        calls["n"] += 1
        if calls["n"] == 30:
            raise KeyboardInterrupt
        return float(himmelblau(p))

    found = tercet.minimize_many(slow, 10, np.zeros(2), spread=3.0, **GIVEN)
    ends = found.ends()
    assert ends["INTERRUPTED"] == 1
    assert ends["CERTIFIED"] >= 1
    assert "not run" in found.errors[9]


@pytest.mark.filterwarnings("ignore")
def test_two_processes_find_the_same():
    pytest.importorskip("joblib")
    X = np.random.default_rng(0).standard_normal((60, 2))
    y = (X[:, 0] > 0).astype(float)
    model = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3)
    one, two = (tercet.minimize_many(model, 4, spread=5.0, n_jobs=jobs) for jobs in (1, 2))
    assert str(one) == str(two)
    for a, b in zip(one.results, two.results, strict=True):
        np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_allclose(two.best.covariance(), one.best.covariance())


def test_points_within_their_errors_are_one_and_symmetric_ones_are_two(four):
    result = four.best

    def at(k, x, error):
        certificate = replace(result.certificate, error_x=(error, error))
        return Found(k, replace(result, certificate=certificate), np.array(x))

    near = [at(0, [1.0, 2.0], 1e-3), at(1, [1.005, 2.0], 1e-3), at(2, [1.0, -2.0], 1e-3)]
    assert [minimum.starts for minimum in distinct(near)] == [(0, 1), (2,)]
    assert len(distinct([at(0, [1.0, 2.0], 1e-9), at(1, [1.005, 2.0], 1e-9)])) == 2
    assert distinct([]) == ()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"starts": 0, "x0": np.zeros(2)}, "starts=0"),
        ({"starts": "many"}, "starts='many'"),
        ({"starts": []}, "at least one start"),
        ({"starts": [[0.0, 0.0]], "x0": np.zeros(2)}, "one of the two"),
        ({"starts": 2, "x0": np.zeros(2), "spread": -1.0}, "spread=-1"),
        ({"starts": 2, "x0": np.zeros(2), "n_jobs": 0}, "n_jobs=0"),
        ({"starts": [[0.0, 0.0], [np.nan, 0.0]]}, "finite"),
        ({"starts": 2, "x0": np.zeros(2), "tol": -1.0}, "tol=-1"),
    ],
)
def test_misuse_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        tercet.minimize_many(himmelblau, **options, **GIVEN)


def test_status_is_what_a_run_says(four):
    assert {result.status for result in four.results} == {Status.CERTIFIED}
