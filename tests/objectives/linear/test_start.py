"""A start that is far out is looked at along the ray to 0, and brought to rest where the rows do not look."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.start import shrink, unseen_to_rest
from tercet.objectives.metered import Meter, Metered
from tests.objectives.linear import models

N, D = 3000, 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = (X @ np.ones(D) + RNG.standard_normal(N) > 0).astype(float)
SCALES = (1, 1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024, 1 / 4096, 0)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("start", [-300.0, -3.0, 0.7, 300.0])
@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic"])
def test_the_lowest_of_eight_points_on_the_ray_is_taken(loss, start, sparse):
    problem = tercet.LinearModel(sp.csr_array(X) if sparse else X, Y, loss, l2=1e-3)
    view, x = problem.over(np.arange(160)), start * np.ones(D)
    values = [view.at(t * x).value() for t in SCALES]
    taken, looked = shrink(view, x)
    assert looked == len(SCALES) * 160
    np.testing.assert_array_equal(taken, SCALES[int(np.argmin(values))] * x)
    assert (taken is x) == (int(np.argmin(values)) == 0)


@pytest.mark.parametrize(("m", "few"), [(150, 150), (500, 200), (1600, 200), (N, N // 8)])
def test_some_of_many_rows_tell_the_way_back(m, few):
    """All of up to 200, else 200 or an eighth of them, taken evenly."""
    problem, x = tercet.LinearModel(X, Y, l2=1e-3), 100.0 * np.ones(D)
    view = problem.over(np.arange(m) if m < N else None)
    taken, looked = shrink(view, x)
    assert looked == len(SCALES) * few
    some = problem.over(np.linspace(0, m - 1, few).astype(int))
    np.testing.assert_array_equal(taken, SCALES[int(np.argmin([some.at(t * x).value() for t in SCALES]))] * x)
    assert view.at(taken).value() < view.at(x).value()


def test_a_start_at_zero_is_left_alone():
    zero = np.zeros(D)
    assert shrink(tercet.LinearModel(X, Y, l2=1e-3).over(np.arange(500)), zero) == (zero, 0)


def test_looks_are_counted_and_what_the_loss_raises_at_x0_comes_to_the_caller():
    meter = Meter(N)
    problem = tercet.LinearModel(X, Y, l2=1e-3)
    Metered.of(problem, meter).over(np.arange(500)).start(np.ones(D))
    assert meter.counts().value == len(SCALES) * 200
    assert meter.counts().gradient == 0

    class Broken:
        def derivatives(self, z, y):
            raise ZeroDivisionError("no loss")

    with pytest.raises(ZeroDivisionError, match="no loss"):
        tercet.minimize(tercet.LinearModel(X, Y, Broken()), np.ones(D))


def test_values_that_are_not_finite_are_passed_over():
    class Half:
        """Finite within 10 of 0 only."""

        def derivatives(self, z, y):
            far = np.where(np.abs(z) > 10.0, np.nan, 0.0)
            return 0.5 * (z - y) ** 2 + far, z - y + far, np.ones_like(z), np.zeros_like(z)

    problem = tercet.LinearModel(X, Y, Half(), l2=1e-3)
    taken, _ = shrink(problem.over(np.arange(160)), 100.0 * np.ones(D))
    assert np.max(np.abs(X[:160] @ taken)) <= 10.0
    nowhere = tercet.LinearModel(X, np.full(N, np.finfo(float).max), "squares")
    x = np.ones(D)
    with np.errstate(over="ignore"):
        assert shrink(nowhere.over(np.arange(500)), x)[0] is x


@pytest.mark.parametrize("seed", range(3))
def test_from_a_saturated_start_in_badly_scaled_columns_the_minimum_is_reached(seed):
    """Where every sigmoid is flat and all derivatives vanish, and in whatever units the columns are."""
    units = 10.0 ** np.arange(-1, D - 1)
    problem = tercet.LinearModel(X * units, Y, l2=1e-9)
    x0 = np.random.default_rng(seed).standard_normal(D)
    near = tercet.minimize(problem, tol=1e-9)
    far = tercet.minimize(problem, x0, tol=1e-9)
    assert near.success
    assert far.success
    assert far.fun == pytest.approx(near.fun, rel=1e-8)


# directions that no row sees ----------------------------------------------------------------------------------------


def low_rank(rng, m, d, rank, sparse):
    A = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d))
    return sp.csr_array(A) if sparse else A


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rank", [2, 4])
def test_rest_keeps_the_margins_and_minimizes_the_penalty(sparse, intercept, rank):
    rng = np.random.default_rng(13)
    A = low_rank(rng, 30, 6, rank, sparse)
    model = LinearModel(A, rng.integers(0, 2, 30), l2=0.7, intercept=intercept)
    x = 5 * rng.standard_normal(model.d)
    for rows in (None, np.array([2, 5])):
        view = model.over(rows)
        settled = unseen_to_rest(view, x)
        dense = (model.A.toarray() if sparse else model.A)[slice(None) if rows is None else rows]
        np.testing.assert_allclose(dense @ settled, dense @ x, rtol=1e-9, atol=1e-9)
        assert view.penalty.value(settled) < view.penalty.value(x)
        # The best is the minimizer of |mask * x'|^2 over x' = x + N t, N a basis of the kernel of A.
        _, values, Vt = np.linalg.svd(dense)
        N = Vt[np.count_nonzero(values > 1e-9 * values[0]) :].T
        mask = view.penalty.mask
        t = np.linalg.lstsq(mask[:, None] * N, -mask * x, rcond=None)[0]
        np.testing.assert_allclose(view.penalty.value(settled), view.penalty.value(x + N @ t), rtol=1e-9)
        slopes = mask > 0
        np.testing.assert_allclose(settled[slopes], (x + N @ t)[slopes], rtol=1e-8, atol=1e-9)


def test_there_is_no_rest_where_all_directions_are_seen_or_nothing_is_penalized():
    model, _ = models.build(l2=0.1)
    x = np.random.default_rng(14).standard_normal(models.D)
    np.testing.assert_allclose(unseen_to_rest(model.over(None), x), x, rtol=1e-14)
    rows = np.array([0, 1])
    np.testing.assert_array_equal(unseen_to_rest(models.build(l2=0.0)[0].over(rows), x), x)
    np.testing.assert_array_equal(unseen_to_rest(models.build(l2=0.1, alpha=0.1)[0].over(rows), x), x)


def test_rest_leaves_an_intercept_alone_that_the_rows_see():
    X = np.zeros((4, 3))
    X[:, 0] = [1, 2, 3, 4]
    model = LinearModel(X, [0, 1, 0, 1], l2=1.0, intercept=True)
    settled = unseen_to_rest(model.over(None), np.array([2.0, 3.0, 4.0, 100.0]))
    np.testing.assert_allclose(settled, [2, 0, 0, 100], atol=1e-10)


def test_rest_keeps_the_margins_of_a_badly_scaled_column():
    """A column in small units is seen by the rows all the same: its coefficient must survive."""
    X = np.array([[1.0, 0.0], [1.0, 1e-7], [2.0, -1e-7]])
    view = LinearModel(X, [0, 1, 0], l2=1e-3).over(None)
    x = np.array([0.5, 2e7])
    np.testing.assert_allclose(X @ unseen_to_rest(view, x), X @ x, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_rest_of_many_variables_clears_the_columns_without_entries(sparse, monkeypatch):
    monkeypatch.setattr("tercet.objectives.linear.model.DENSE_LIMIT", 3)
    X = np.zeros((4, 5))
    X[:, [0, 3]] = [[1, 2], [3, 4], [5, 6], [7, 9]]
    model = LinearModel(sp.csr_array(X) if sparse else X, [0, 1, 0, 1], l2=1.0, intercept=True)
    settled = unseen_to_rest(model.over(None), np.array([1.0, 2, 3, 4, 5, 6]))
    np.testing.assert_array_equal(settled, [1, 0, 0, 4, 0, 6])


def test_a_start_is_looked_at_along_the_ray_and_then_brought_to_rest():
    X = np.zeros((200, 3))
    X[:, :2] = np.random.default_rng(22).standard_normal((200, 2))
    view = LinearModel(X, (X[:, 0] > 0).astype(float), l2=1e-3).over(np.arange(50))
    x = np.array([300.0, 100.0, 700.0])
    nearer, looked = shrink(view, x)
    found = view.start(x)
    assert 0.0 < nearer[2] < x[2]
    np.testing.assert_allclose(found.result, [*nearer[:2], 0.0], atol=1e-9)
    assert (found.value, found.gradient, found.hessian, found.third) == (looked, 0, 0, 0)


def test_over_all_rows_the_directions_that_they_do_not_see_are_left_to_the_first_step():
    meter, X = Meter(4), np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    view, x = Metered.of(LinearModel(X, [0, 1, 0, 1], l2=1e-9), meter).over(None), np.array([0.02, 5.0])
    t = view.start(x) / x
    assert t[0] == t[1]
    assert t[0] in SCALES
    assert meter.counts() == tercet.Counts(value=4 * len(SCALES), n=4)
