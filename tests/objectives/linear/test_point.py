"""Linear models at a point: every derivative against automatic differentiation of the plain formula."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.model import COMPILED
from tercet.objectives.linear.point import STRAIGHT
from tercet.objectives.losses import Formula
from tercet.objectives.metered import engine_of
from tercet.objectives.tables import Picked
from tests.objectives.linear.models import LOSSES, D, N, build, data, hessian_price, metered, plain, third_price


def assert_derivatives(point, plain_at, x, rng, rtol=1e-11, atol=1e-13):
    """Value, gradient, Hessian and third derivative of a point, formed and as products, against JAX."""
    d = len(x)
    value, g, B, T = plain_at(x)
    u, v = rng.standard_normal((2, d))
    V = rng.standard_normal((d, 3))
    np.testing.assert_allclose(point.value(), value, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.gradient(), g, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.hessian_product(v), B @ v, rtol=rtol, atol=atol)  # its own, and of the formed one
    np.testing.assert_allclose(point.hessian(), B, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.hessian_product(v), B @ v, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.third_product(u, v), T @ v @ u, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_product(u, u), T @ u @ u, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_tensor(np.eye(d)), T, rtol=1e-10, atol=1e-12)
    expected = np.einsum("abc,ai,bj,ck->ijk", T, V, V, V)
    np.testing.assert_allclose(point.third_tensor(V), expected, rtol=1e-10, atol=1e-11)


# derivatives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("weighted", "intercept", "l2", "alpha"), [(False, False, 0, 0), (True, True, 0.3, 0.2)])
def test_derivatives_equal_automatic_differentiation(loss, sparse, weighted, intercept, l2, alpha):
    model, given = build(loss, sparse=sparse, weighted=weighted, intercept=intercept, l2=l2, alpha=alpha)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(model.d)
    assert_derivatives(metered(model).over(None).at(x), plain(loss, *given, l2, alpha, intercept), x, rng)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sample_with_repeats_is_the_mean_over_its_list(sparse):
    model, given = build(sparse=sparse, weighted=True, intercept=True, l2=0.1, alpha=0.4)
    rng = np.random.default_rng(2)
    rows = np.array([3, 3, 3, 0, 46, 17, 17, 9])
    x = rng.standard_normal(model.d)
    point = metered(model).over(rows).at(x)
    assert point.terms == 8
    assert_derivatives(point, plain("sigmoid_squares", *given, 0.1, 0.4, True, rows), x, rng)


def test_the_whole_is_the_mean_of_single_rows():
    model, _ = build(weighted=True, l2=0.2)
    x = np.random.default_rng(3).standard_normal(D)
    singles = [model.over(np.array([i])).at(x) for i in range(N)]
    whole = model.over(None).at(x)
    np.testing.assert_allclose(np.mean([p.value() for p in singles]), whole.value(), rtol=1e-13)
    np.testing.assert_allclose(np.mean([p.gradient() for p in singles], axis=0), whole.gradient(), atol=1e-14)
    np.testing.assert_allclose(np.mean([p.hessian() for p in singles], axis=0), whole.hessian(), atol=1e-14)


# third derivatives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_third_square_with_nothing_left_out_is_the_third_product(sparse, monkeypatch):
    monkeypatch.setattr("tercet.objectives.linear.point.STRAIGHT", 0.0)
    model, _ = build(sparse=sparse, weighted=True, alpha=0.2)
    view, rng = metered(model).over(None), np.random.default_rng(8)
    s = rng.standard_normal(D)
    here = view.at(rng.standard_normal(D))
    np.testing.assert_allclose(here.third_square(s), here.third_product(s, s), rtol=1e-13, atol=1e-15)
    used = np.count_nonzero((engine_of(here).margins.coefficients(3) != 0) & (view.engine.table.times(s) != 0))
    assert third_price(here, s) == used


@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 10.0])
def test_third_square_is_within_the_bound_of_the_rows_left_out(length):
    """Rows with 1/2 |l''' a's| <= straight |l''| are left out: each misses at most 2 straight |l'' a's| |a|."""
    model, (X, _, _) = build(n=80, weighted=True, alpha=0.2)
    view, rng = metered(model).over(None), np.random.default_rng(9)
    here, s = view.at(rng.standard_normal(D)), rng.standard_normal(D)
    s *= length / np.linalg.norm(s)
    c2, c3, As = engine_of(here).margins.coefficients(2), engine_of(here).margins.coefficients(3), X @ s
    out = 0.5 * np.abs(c3 * As) <= STRAIGHT * np.abs(c2)
    assert third_price(here, s) == 80 - out.sum()
    missing = np.abs(here.third_square(s) - here.third_product(s, s))
    bound = np.abs(X).T @ np.where(out, 2 * STRAIGHT * np.abs(c2 * As), 0.0) / 80
    assert np.all(missing <= bound + 1e-15)
    expected = X.T @ np.where(out, 0.0, c3 * As**2) / 80 + view.engine.penalty.third(here.x) * s * s
    np.testing.assert_allclose(here.third_square(s), expected, rtol=1e-12, atol=1e-15)


def test_third_square_notices_another_step_at_the_same_point():
    model, _ = build()
    here, rng = model.over(None).at(np.ones(D)), np.random.default_rng(10)
    for s in rng.standard_normal((3, D)):
        found, fresh = here.third_square(s), model.over(None).at(np.ones(D)).third_square(s)
        np.testing.assert_array_equal(found.result, fresh.result)
        assert found.third == fresh.third


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, "sparse sigmoid_squares"])
def test_second_and_third_coefficients_asked_together_are_those_asked_alone(loss, weighted):
    model, _ = build(loss.split()[-1], sparse=loss.startswith("sparse"), weighted=weighted)
    margins = model.over(None).at(np.random.default_rng(19).standard_normal(D)).margins
    for piece in (slice(None), slice(3, 20)):
        second, third = margins.pair(piece)
        np.testing.assert_array_equal(second, margins.coefficients(2)[piece])
        np.testing.assert_array_equal(third, margins.coefficients(3)[piece])


# the sampling error of the gradient ---------------------------------------------------------------------------------


def assert_covariance(squares, expected, power):
    """The mean of many estimates is the covariance they estimate, within its own standard error."""
    mean, error = squares.mean(axis=0), squares.std(axis=0) / np.sqrt(len(squares))
    assert np.all(np.abs(mean - expected) <= 4.5 * error)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.all(4.5 * error <= power * scale), "too few draws to tell"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [20, 64])
def test_errors_estimate_the_covariance_of_the_sampled_gradient(sparse, m):
    """The groups are the same for every sample of m rows; rows in random order make them random for the data."""
    model, (X, y, weights) = build(sparse=sparse, weighted=True, l2=0.5, n=200, d=3)
    rng = np.random.default_rng(12)
    x = rng.standard_normal(3)
    every = X * model.over(None).at(x).margins.coefficients(1)[:, None]
    expected = np.cov(every.T, bias=True) / m  # of the mean of m independent draws
    squares, gradients = [], []
    for _ in range(1500):
        order = rng.permutation(200)
        shuffled = LinearModel(model.A[order], y[order], l2=0.5, weights=weights[order])
        here = metered(shuffled).over(rng.integers(0, 200, m)).at(x)
        e = here.errors()
        squares.append(e.T @ e)
        gradients.append(here.gradient())
    assert_covariance(np.array(squares), expected, power=0.1)
    away = np.array(gradients) - model.over(None).at(x).gradient()
    assert_covariance(away[:, :, None] * away[:, None, :], expected, power=0.25)


def test_errors_of_a_single_row_are_its_gradient_and_of_equal_rows_vanish():
    model, _ = build()
    here = metered(model).over(np.array([3])).at(np.ones(D))
    assert here.errors().shape == (1, D)
    own = here.gradient() - model.rows.penalty.gradient(here.x)  # the penalty is no matter of sampling
    np.testing.assert_allclose(here.errors()[0], own, rtol=1e-13)
    same = metered(model).over(np.full(40, 3)).at(np.ones(D)).errors()
    np.testing.assert_allclose(same, 0.0, atol=1e-16)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [2, 15, 16, 48])
def test_errors_come_from_up_to_16_groups_of_equal_size(sparse, m):
    model, (X, _, _) = build(sparse=sparse, weighted=True, l2=0.5, n=200, d=3)
    rng = np.random.default_rng(17)
    x, picked = rng.standard_normal(3), Picked.of(rng.permutation(200)[:m])
    every = (X * model.over(None).at(x).margins.coefficients(1)[:, None])[picked.rows]
    K = min(16, m)
    means = np.array([every[picked.labels == k].mean(axis=0) for k in range(K)])
    errors = metered(model).over(picked.rows).at(x).errors()
    np.testing.assert_allclose(errors, (means - means.mean(axis=0)) / np.sqrt(K * (K - 1)), rtol=1e-10, atol=1e-15)


# pieces and compiled twins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy", "own"])
@pytest.mark.parametrize("compiled", [False, True])
def test_many_pieces_give_what_one_gives(sparse, loss, compiled, monkeypatch):
    """All that a point computes, over all rows and over a sample, with the rows cut into pieces of 64 and uncut."""

    class Own:
        """A loss that gives all its derivatives together."""

        def derivatives(self, z, y):
            t = np.tanh(z - y)
            u = 1 - t * t
            return 0.5 * t * t, t * u, u * (1 - 3 * t * t), u * (12 * t**3 - 8 * t)

    def looks(view):
        near = view.at(x)
        near.hessian()
        here = view.at(x + 0.3 * s, near.carry)
        yield from (here.value(), here.gradient(), here.errors(), float(hessian_price(here)))
        yield from (here.hessian(), engine_of(here).product(2, s), here.third_product(s, x))
        yield from (float(third_price(here, s)), here.third_square(s), here.third_tensor(np.eye(D)))

    X, y, rng = data(n=500)
    x, s, weights = rng.standard_normal(D), rng.standard_normal(D), rng.random(500)
    rows, scale = rng.permutation(500)[:300], 1.7 if loss == "cauchy" else None
    monkeypatch.setattr("tercet.objectives.linear.model.COMPILED", 1 if compiled else 10_000)
    found = []
    for piece in (64, 1 << 15):
        monkeypatch.setattr("tercet.objectives.sparse.PIECE", piece)
        monkeypatch.setattr("tercet.objectives.tables.BLOCK", 8 * D * piece)
        A = sp.csr_array(X) if sparse else X
        own = metered(LinearModel(A, y, Own() if loss == "own" else loss, scale=scale, weights=weights))
        views = (own.over(None), own.over(rows))
        assert [len(view.engine.table.pieces) for view in views] == ([8, 5] if piece == 64 else [1, 1])
        found.append([look for view in views for look in looks(view)])
    for cut, uncut in zip(*found, strict=True):
        np.testing.assert_allclose(cut, uncut, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic", "cauchy"])
def test_a_model_with_many_rows_is_the_same_compiled_or_not(loss):
    rng, many = np.random.default_rng(3), COMPILED
    X, y, x = rng.standard_normal((many, 3)), rng.integers(0, 2, many), rng.standard_normal(3)
    view = LinearModel(X, y, loss, l2=0.1).over(None)
    assert view.compiled
    assert not LinearModel(X[:-1], y[:-1], loss).over(None).compiled
    assert LinearModel(sp.csr_array(X[:5]), y[:5], loss).over(None).compiled
    one, other = view.at(x), replace(view, compiled=False, formula=Formula.of(view.loss, False)).at(x)
    np.testing.assert_allclose(one.value(), other.value(), rtol=1e-13)
    np.testing.assert_allclose(one.gradient(), other.gradient(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.hessian(), other.hessian(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.product(3, x, x), other.product(3, x, x), rtol=1e-11, atol=1e-14)
    found, expected = one.third_square(x), other.third_square(x)
    np.testing.assert_allclose(found.result, expected.result, rtol=1e-11, atol=1e-14)
    assert found.third == expected.third
