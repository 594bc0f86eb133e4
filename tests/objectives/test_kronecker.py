"""Coordinates in which the Hessian of a model of classes is nearly a multiple of one, and the steps that use them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.critical.tolerances import Tolerances
from tercet.frame import Turned
from tercet.methods.parts import Parts
from tercet.methods.run import Run
from tercet.objectives.kronecker import Kronecker, Pair
from tercet.objectives.metered import Meter

RNG = np.random.default_rng(0)


def data(n=400, p=30, K=8, spread=50.0, seed=0):
    rng = np.random.default_rng(seed)
    X = (
        rng.standard_normal((n, p))
        @ np.diag(np.geomspace(1.0, spread, p))
        @ np.linalg.qr(rng.standard_normal((p, p)))[0]
    )
    Z = X @ rng.standard_normal((p, K)) / np.sqrt(p) / spread * 5
    return X, np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)


def run_of(model):
    return Run.of(model, np.zeros(model.d), 0, Tolerances(relative=1e-8), Meter(n=model.n))


def in_own_coordinates(point, B):
    white = point.white()
    columns = [white.slope(B @ white.lift(e)) for e in np.eye(len(B))]
    return np.array(columns)


@pytest.mark.parametrize("l2", [0.0, 1e-3, 10.0])
@pytest.mark.parametrize("weights", [None, np.linspace(0.2, 1.8, 400)])
def test_where_all_rows_bend_alike_the_hessian_is_a_multiple_of_one(l2, weights):
    X, y = data()
    X[:, 3] = 0.0
    model = tercet.ClassModel(X, y, l2=l2, intercept=True, weights=weights)
    point = model.over(None).at(np.zeros(model.d))
    H = in_own_coordinates(point, point.hessian())
    moved = np.ones(model.d, dtype=bool)
    if l2 == 0.0:
        moved.reshape(7, 31)[:, 3] = False  # f does not depend on it
        np.testing.assert_allclose(H[~moved], 0.0, atol=1e-12)
    np.testing.assert_allclose(H[np.ix_(moved, moved)], np.eye(moved.sum()) / 8, atol=1e-6)


def test_away_from_there_it_is_much_closer_to_one_than_in_units():
    X, y = data()
    model = tercet.ClassModel(X, y, l2=1e-4, intercept=True)
    x = tercet.minimize(model).x.ravel()
    point = model.over(None).at(x)
    B = point.hessian()
    E = 1 / np.sqrt(np.diag(B))
    assert np.linalg.cond(in_own_coordinates(point, B)) < 0.05 * np.linalg.cond(B * np.outer(E, E))


def test_coordinates_go_there_and_back_and_slopes_are_their_adjoint():
    G, S = (M @ M.T for M in (RNG.standard_normal((6, 9)), RNG.standard_normal((3, 4))))
    white = Kronecker.of(S, Pair.of(G, np.array([0.1] * 5 + [0.0]), 4))
    c, s, g = RNG.standard_normal((3, 18))
    np.testing.assert_allclose(white.coordinates(white.lift(c)), c, rtol=1e-9)
    assert g @ white.lift(c) == pytest.approx(white.slope(g) @ c, rel=1e-10)
    frame = Turned(white)
    np.testing.assert_allclose(frame.slope(np.stack([g, s])), np.stack([white.slope(g), white.slope(s)]))
    np.testing.assert_array_equal(frame.move(s, c), s + white.lift(c))


def test_a_variable_by_which_no_row_is_moved_rests_to_the_last_digit():
    X, y = data()
    X[:, 5] = 0.0
    model = tercet.ClassModel(X, y, l2=1e-6, intercept=True)
    result = tercet.minimize(model, method=tercet.STM(subsolver=tercet.Krylov()))
    assert result.success
    np.testing.assert_array_equal(result.x[:, 5], 0.0)


@pytest.mark.parametrize("loss", ["softmax", "brier"])
def test_steps_in_own_coordinates_take_fewer_products_and_end_at_the_same_minimum(loss):
    X, y = data()
    model = tercet.ClassModel(X, y, loss, l2=1e-3, intercept=True)
    own, plain = (
        tercet.minimize(model, method=tercet.STM(subsolver=tercet.Krylov(), units=units))
        for units in (tercet.Natural(), tercet.Euclidean())
    )
    dense = tercet.minimize(model, own.x, method=tercet.STM(subsolver=tercet.Dense()))
    assert own.success
    assert own.fun == pytest.approx(dense.fun, rel=1e-12)
    assert own.counts.hessian < 0.5 * plain.counts.hessian


def test_many_variables_of_a_dense_model_take_products_by_themselves():
    X, y = data(n=1000, p=60, K=12)
    model = tercet.ClassModel(X, y, l2=1e-3, intercept=True)
    few = tercet.ClassModel(X[:, :4], y % 3, l2=1e-3, intercept=True)
    chosen = [Parts.of(tercet.STM(), run_of(each)) for each in (model, few)]
    assert [type(parts.subsolver) for parts in chosen] == [tercet.Krylov, tercet.Dense]
    assert [parts.turns for parts in chosen] == [True, False]
    assert not Parts.of(tercet.STM(units=tercet.Euclidean()), run_of(model)).turns
    assert tercet.minimize(model).success


def test_no_coordinates_where_they_take_longer_than_what_they_save():
    X, y = sp.random_array((50, 2000), density=0.01, rng=RNG, format="csr"), RNG.integers(0, 3, 50)
    model = tercet.ClassModel(X, y, l2=1e-2)
    assert model.over(None).at(np.zeros(model.d)).white() is None
    assert tercet.minimize(model).success


def test_a_run_over_samples_is_the_same_after_it_was_resumed(tmp_path):
    X, y = data(n=20000, p=10, K=4, spread=5.0)
    model, path = tercet.ClassModel(X, y, l2=1e-4, intercept=True), tmp_path / "run.npz"
    method = tercet.STM(subsolver=tercet.Krylov())
    whole = tercet.minimize(model, method=method, seed=3)
    assert whole.success
    assert whole.trace["size_hessian"][0] < model.n
    tercet.minimize(model, method=method, seed=3, max_iterations=4, checkpoint=path)
    np.testing.assert_array_equal(tercet.resume(path, model, max_iterations=1000).x, whole.x)


def test_making_them_is_counted_as_a_product():
    X, y = data()
    model = tercet.ClassModel(X, y, l2=1e-3)
    run = run_of(model)
    run.full.at(run.x0).white()
    assert run.meter.tally == {"value": 0, "gradient": 0, "hessian": model.n, "third": 0}
