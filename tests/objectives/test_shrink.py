"""A start that is far out is looked at along the ray to 0, over a sample of the rows."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.objectives.counting import Counted, Meter

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
    view, x = problem.over(np.arange(500)), start * np.ones(D)
    values = [view.at(t * x).value() for t in SCALES]
    taken, looks = view.shrink(x)
    assert looks == len(SCALES)
    np.testing.assert_array_equal(taken, SCALES[int(np.argmin(values))] * x)
    assert (taken is x) == (int(np.argmin(values)) == 0)


def test_all_rows_and_a_start_at_zero_are_left_alone():
    problem = tercet.LinearModel(X, Y, l2=1e-3)
    x = 100.0 * np.ones(D)
    assert problem.over(None).shrink(x) == (x, 0)
    zero = np.zeros(D)
    assert problem.over(np.arange(500)).shrink(zero) == (zero, 0)


def test_looks_are_counted_and_what_the_loss_raises_ends_the_run():
    meter = Meter(N)
    problem = tercet.LinearModel(X, Y, l2=1e-3)
    Counted(problem, meter).over(np.arange(500)).settle(np.ones(D))
    assert meter.counts().value == len(SCALES) * 500
    assert meter.counts().gradient == 0

    class Broken:
        def derivatives(self, z, y):
            raise ZeroDivisionError("no loss")

    result = tercet.minimize(tercet.LinearModel(X, Y, Broken()), np.ones(D))
    assert result.status is tercet.Status.FUNCTION_ERROR
    assert "no loss" in result.message


def test_values_that_are_not_finite_are_passed_over():
    class Half:
        """Finite within 10 of 0 only."""

        def derivatives(self, z, y):
            far = np.where(np.abs(z) > 10.0, np.nan, 0.0)
            return 0.5 * (z - y) ** 2 + far, z - y + far, np.ones_like(z), np.zeros_like(z)

    problem = tercet.LinearModel(X, Y, Half(), l2=1e-3)
    taken, _ = problem.over(np.arange(500)).shrink(100.0 * np.ones(D))
    assert np.max(np.abs(X[:500] @ taken)) <= 10.0
    nowhere = tercet.LinearModel(X, np.full(N, np.finfo(float).max), "squares")
    x = np.ones(D)
    with np.errstate(over="ignore"):
        assert nowhere.over(np.arange(500)).shrink(x)[0] is x


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
