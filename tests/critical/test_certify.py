"""chi_1, chi_2 and chi_3 of a point, on functions where they are known, and the way down."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tercet.critical.certify import certify
from tercet.critical.tolerances import Tolerances
from tercet.objectives.base import Traits
from tercet.objectives.functions import Function
from tercet.objectives.linear import LinearModel
from tercet.objectives.losses import SigmoidSquares
from tercet.objectives.metered import Meter, Metered
from tercet.records import Counts
from tests.critical.points import SPECTRA, Polynomial, grid_largest, rotated, symmetric


def at(f, x):
    bound = Function(f).bind(np.asarray(x, float))
    return Metered.of(bound.objective, Meter(1)).over(None).at(bound.x0)


TOL = Tolerances(1e-6, 1e-4, 1e-2, zeta=1e-2, order=3)


def certificate(point, tolerances=TOL, dense=True, seed=0):
    return certify(point, 1, tolerances, Traits(dense, provenance="by hand"), seed)


def test_tolerances_follow_the_powers_of_the_paper():
    t = Tolerances.of(1e-6, 3)
    np.testing.assert_allclose([t.eps1, t.eps2, t.eps3], [1e-6, 1e-4, 1e-2], rtol=1e-12)
    np.testing.assert_allclose([Tolerances.of(tol, 3).zeta for tol in (1e-8, 1e-12)], [1e-3, 1e-5], rtol=1e-12)
    assert t.order == 3


def test_a_strict_minimum_is_certified_with_an_empty_near_kernel():
    c, down = certificate(at(lambda x: x[0] ** 2 + 3 * x[1] ** 2, [0.0, 0.0]))
    assert (c.chi1, c.chi2, c.chi3) == (0.0, 0.0, 0.0)
    assert c.holds
    assert c.strict
    assert down is c.way_down is None


def test_chi1_is_the_norm_of_the_gradient():
    c, _ = certificate(at(lambda x: x[0] ** 2 + 3 * x[1] ** 2, [2.0, -0.5]), Tolerances.of(1e-6, 1))
    assert c.chi1 == pytest.approx(5.0, rel=1e-15)
    assert np.isnan(c.chi2)
    assert np.isnan(c.chi3)
    assert not c.holds


def assert_way_down(f, x, c, down, order):
    """It was looked at: f falls by as much as is said."""
    assert not c.holds
    assert c.way_down == tuple(down.s)
    assert c.fall == down.fall > 0.0
    assert down.order == order
    with jax.enable_x64(True):
        assert float(f(x + down.s)) == pytest.approx(float(f(x)) - down.fall, rel=1e-12, abs=1e-300)


def test_at_a_strict_saddle_chi2_is_the_negative_curvature_and_the_way_down_goes_along_it():
    f, x = lambda x: x[0] ** 2 - 1.5 * x[1] ** 2, np.zeros(2)
    c, down = certificate(at(f, x))
    assert c.chi2 == pytest.approx(3.0, rel=1e-14)
    assert c.lowest == -c.chi2
    assert_way_down(f, x, c, down, 2)
    np.testing.assert_allclose(np.abs(down.s) / np.linalg.norm(down.s), [0, 1], atol=1e-14)


def test_at_a_monkey_saddle_chi3_is_the_third_derivative_and_the_way_down_follows_it():
    """x^3 - 3 x y^2 has T[y]^3 = 6 cos(3 a) over unit y."""
    f, x = lambda x: x[0] ** 3 - 3 * x[0] * x[1] ** 2, np.zeros(2)
    c, down = certificate(at(f, x))
    assert (c.chi1, c.chi2) == (0.0, 0.0)
    assert c.chi3 == pytest.approx(6.0, rel=1e-9)
    assert_way_down(f, x, c, down, 3)


@pytest.mark.parametrize("beside", [0.0, 1e-6, -1e-6])
def test_a_fourth_order_saddle_is_refused_by_looks_at_f_though_every_chi_is_small(beside):
    f, x = lambda x: x[0] ** 2 - x[1] ** 4 + x[1] ** 6, np.array([0.0, beside])
    for tolerances in (TOL, Tolerances.half(np.finfo(float).eps, 3)):
        c, down = certificate(at(f, x), tolerances)
        assert c.chi1 <= 1e-6
        assert c.chi2 <= 1e-4
        assert c.chi3 <= 1e-2
        assert_way_down(f, x, c, down, 3 if beside == 0.0 else down.order)


def test_the_fourth_order_minimum_is_certified_because_f_rises_though_its_hessian_vanishes():
    c, down = certificate(at(lambda x: jnp.sum(x**4), [0.0, 0.0, 0.0]))
    assert (c.chi1, c.chi2, c.chi3) == (0.0, 0.0, 0.0)
    assert c.holds
    assert c.rises
    assert c.strict
    assert c.condition == np.inf
    assert down is None
    assert "f looked at along 17 directions" in c.how  # three axes, six between them, and eight mixtures of all


@pytest.mark.parametrize("depth", [4, 5, 6])
def test_a_way_down_between_the_axes_of_the_kernel_is_seen(depth):
    """The product of all x_j is 0 along every axis and between each two of them."""
    f, x = lambda x: (jnp.prod(x) - 1.0) ** 2, np.zeros(depth)
    c, down = certificate(at(f, x), Tolerances.half(np.finfo(float).eps, 3))
    assert_way_down(f, x, c, down, 3)


def test_chi3_looks_only_at_the_near_kernel():
    """A large third derivative along a strongly curved direction does not count; along a flat one it does."""
    f = lambda x: x[0] ** 2 + 100 * x[0] ** 3 + 1e-5 * x[1] ** 2 + x[1] ** 3 / 3  # noqa: E731 - a formula with a name
    c, down = certificate(at(f, [0.0, 0.0]))
    assert c.chi3 == pytest.approx(2.0, rel=1e-10)
    assert_way_down(f, np.zeros(2), c, down, 3)
    np.testing.assert_allclose(np.abs(down.s) / np.linalg.norm(down.s), [0, 1], atol=1e-12)


def test_a_strict_minimum_whose_third_derivative_is_large_is_certified_at_every_tol():
    """Curvature 5e-4 and third derivative 0.06: chi_3 is too much, but f was seen to rise."""
    for tol in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
        c, down = certificate(
            at(lambda x: 2.5e-4 * x[0] ** 2 + 0.01 * x[0] ** 3 + x[0] ** 4, [0.0]), Tolerances.of(tol, 3)
        )
        assert c.holds, tol
        assert down is None
        assert c.rises == (c.chi3 > c.eps3)


def test_chi3_is_told_also_where_chi2_fails_and_both_lead_away():
    f = lambda x: -(x[0] ** 2) + x[1] ** 3  # noqa: E731 - a formula with a name
    c, down = certificate(at(f, [0.0, 0.0]))
    assert c.chi2 == pytest.approx(2.0, rel=1e-14)
    assert c.chi3 == pytest.approx(6.0, rel=1e-9)
    assert_way_down(f, np.zeros(2), c, down, 3)  # several ways at once; the order is the highest of theirs
    assert np.all(down.s != 0.0)


def test_a_bound_that_is_small_enough_settles_chi3():
    """It is still looked whether f is flat there, which a bound does not tell."""
    c, down = certificate(Polynomial([0, 0], np.zeros((2, 2)), bound=1e-3))
    assert c.chi3 == 1e-3
    assert c.holds
    assert down is None
    assert "bounded from above" in c.how
    assert c.strict is False
    assert c.involved == (0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_chi3_over_a_rotated_near_kernel_is_that_of_the_restricted_tensor(seed):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    B = Q @ np.diag([0.0, 1e-4, 0.0, 2.0, 7.0]) @ Q.T
    T = symmetric(rng, 5)
    V = Q[:, :3]
    point = Polynomial(np.zeros(5), (B + B.T) / 2, T)
    c, down = certificate(point)
    assert c.chi3 == pytest.approx(grid_largest(np.einsum("abc,ai,bj,ck->ijk", T, V, V, V)), rel=1e-4)
    np.testing.assert_allclose(V @ (V.T @ down.s), down.s, atol=1e-9 * np.linalg.norm(down.s))
    assert down.order == 3
    assert point.at(down.s).value() == pytest.approx(-down.fall, rel=1e-12)


def test_a_certificate_with_nan_does_not_hold():
    c, _ = certificate(Polynomial([np.nan, 0.0], np.eye(2)), Tolerances.of(1e-6, 1))
    assert not c.holds


@pytest.mark.parametrize("spectrum", ["indefinite", "positive", "one flat direction"])
def test_the_certificate_by_lanczos_is_the_dense_one(spectrum):
    rng = np.random.default_rng(1)
    values = SPECTRA[spectrum]
    point = Polynomial(np.zeros(60), rotated(values), symmetric(rng, 60))
    dense, down = certificate(point)
    sparse, by_lanczos = certificate(point, dense=False)
    assert sparse.chi2 == pytest.approx(dense.chi2, abs=1e-5)
    assert sparse.holds == dense.holds
    assert "Lanczos" in sparse.how
    assert sparse.lowest == pytest.approx(dense.lowest, abs=1e-5)
    if spectrum != "indefinite":  # where chi2 fails, chi3 is not paid for without a Hessian
        assert sparse.chi3 == pytest.approx(dense.chi3, rel=1e-3)
    assert (down is None) == (by_lanczos is None)
    if down is not None:
        assert by_lanczos.order == down.order
        assert point.at(by_lanczos.s).value() == pytest.approx(-by_lanczos.fall, rel=1e-9)


def test_a_near_kernel_larger_than_the_lanczos_space_does_not_hide_a_third_derivative():
    """Ten flat directions, of which two bend: the certificate without a dense Hessian must not pass."""
    d, flat = 60, 10
    T = np.zeros((d, d, d))
    T[0, 0, 0], T[1, 1, 1] = 0.05, 0.05  # five times eps3
    point = Polynomial(np.zeros(d), np.diag(np.concatenate([np.zeros(flat), np.linspace(1, 3, d - flat)])), T)
    assert not certificate(point)[0].holds
    for seed in range(5):
        assert not certificate(point, dense=False, seed=seed)[0].holds


@pytest.mark.parametrize(("bound", "holds"), [(1e-3, True), (np.inf, False), (0.05, False)])
def test_a_near_kernel_too_large_to_be_known_is_certified_by_a_bound_over_all_directions_or_not_at_all(
    bound, holds, monkeypatch
):
    """Beyond a size no Hessian is formed; where the few lowest eigenvalues do not reach zeta, only a bound can tell."""
    monkeypatch.setattr("tercet.critical.measures.FORMED", 50)
    point = Polynomial(np.zeros(60), np.diag(np.concatenate([np.zeros(40), np.ones(20)])), bound=bound)
    point.hessian = None  # may not be asked for
    c, down = certificate(point, dense=False)
    assert c.holds == holds
    assert c.chi2 == pytest.approx(0.0, abs=1e-8)
    assert np.isnan(c.chi3) != holds
    assert down is None


def test_chi_of_a_linear_model_equals_that_of_its_plain_formula():
    rng = np.random.default_rng(5)
    X, y, x = rng.standard_normal((30, 4)), rng.integers(0, 2, 30).astype(float), rng.standard_normal(4)
    model = LinearModel(X, y)
    point = Metered.of(model, Meter(30)).over(None).at(x)
    c, _ = certify(point, 30, Tolerances(1.0, 1.0, 1e-9, 10.0, 3), model.traits)

    def f(v):
        return jnp.mean(0.5 * (1 / (1 + jnp.exp(-X @ v)) - y) ** 2)

    with jax.enable_x64(True):
        B, T = (np.asarray(jax.jit(part)(x)) for part in (jax.hessian(f), jax.jacfwd(jax.hessian(f))))
    assert c.chi1 == pytest.approx(float(np.linalg.norm(point.gradient())), rel=1e-14)
    assert c.chi2 == pytest.approx(max(0.0, -np.linalg.eigvalsh(B)[0]), rel=1e-9, abs=1e-15)
    Y = rng.standard_normal((20000, 4))
    Y /= np.linalg.norm(Y, axis=1)[:, None]
    sampled = np.abs(np.einsum("abc,ia,ib,ic->i", T, Y, Y, Y, optimize=True)).max()
    assert sampled <= c.chi3 * (1 + 1e-9)
    assert c.chi3 <= 1.1 * sampled
    assert c.terms == 30
    assert c.how.startswith("closed-form derivatives; chi2 by a dense eigenvalue problem")


class Unbounded(SigmoidSquares):
    """A loss that does not tell how large its third derivative is."""


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("loss", [SigmoidSquares(), Unbounded()], ids=["proved", "not proved"])
def test_a_certificate_takes_the_derivatives_of_its_order_once(order, loss):
    """A gradient that is known, and from order 2 on f at x and at three points and a gradient beside x for their
    rounding; a Hessian formed once; where nothing is proved T along Newton's step and along the softest direction, and
    one evaluation of the third derivatives where a bound suffices."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((30, 4))
    model, meter = LinearModel(X, (X[:, 0] > 0).astype(float), loss, l2=0.5), Meter(30)
    point = Metered.of(model, meter).over(None).at(np.zeros(4))
    point.gradient()
    c, _ = certify(point, 30, Tolerances(1.0, 1.0, 10.0, 10.0, order), model.traits)
    assert c.holds
    beside = order > 1
    third = 30 if type(loss) is SigmoidSquares else 90
    assert meter.counts() == Counts(120 * beside, 30 + 30 * beside, 30 * beside, third if order > 2 else 0, n=30)
