"""chi_1, chi_2, chi_3 and escape directions, on functions where they are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tercet
from tercet import criticality
from tercet.criticality import (
    LANCZOS_VECTORS,
    Escape,
    Tolerances,
    certify,
    kernel_measure,
    largest_cubic,
    lowest_eigenpairs,
    third_order_measure,
)
from tercet.objectives.functions import Function
from tercet.objectives.linear import LinearModel


class Polynomial:
    """g's + 1/2 s'Bs + 1/6 T[s]^3 at s = 0, as a point."""

    terms = 1

    def __init__(self, g, B, T=None, bound=np.inf):
        self.g, self.B = np.asarray(g, float), np.asarray(B, float)
        self.T = np.zeros((len(self.g),) * 3) if T is None else T
        self.bound, self.products = bound, 0

    def gradient(self):
        return self.g

    def hessian(self):
        return self.B

    def hessian_product(self, v):
        self.products += 1
        return self.B @ v

    def third_product(self, u, v):
        return self.T @ v @ u

    def third_tensor(self, V):
        return np.einsum("abc,ai,bj,ck->ijk", self.T, V, V, V)

    def third_bound(self, V, tight=False):
        return self.bound

    def value(self, s):
        return self.g @ s + s @ self.B @ s / 2 + np.einsum("abc,a,b,c", self.T, s, s, s) / 6


def symmetric(rng, k):
    T = rng.standard_normal((k, k, k))
    return sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6


def grid_largest(T):
    """max |T[y]^3| over a grid of unit vectors in 2 or 3 dimensions; the error is quadratic in the spacing."""
    if T.shape[0] == 2:
        a = np.linspace(0, np.pi, 20001)
        Y = np.stack([np.cos(a), np.sin(a)])
    else:
        a, b = np.meshgrid(np.linspace(0, np.pi, 601), np.linspace(0, np.pi, 601))
        Y = np.stack([np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)]).reshape(3, -1)
    return np.abs(np.einsum("abc,ai,bi,ci->i", T, Y, Y, Y, optimize=True)).max()


def at(f, x):
    bound = Function(f).bind(np.asarray(x, float))
    return bound.objective.over(None).at(bound.x0)


TOL = Tolerances(1e-6, 1e-4, 1e-2, zeta=1e-2, order=3)


def certificate(point, tolerances=TOL, dense=True):
    return certify(point, 1, tolerances, dense, "by hand")


# the measures --------------------------------------------------------------------------------------------------------


def test_tolerances_follow_the_powers_of_the_paper():
    t = Tolerances.of(1e-6, 3)
    np.testing.assert_allclose([t.eps1, t.eps2, t.eps3], [1e-6, 1e-4, 1e-2], rtol=1e-12)
    np.testing.assert_allclose([Tolerances.of(tol, 3).zeta for tol in (1e-8, 1e-12)], [1e-3, 1e-5], rtol=1e-12)
    assert t.order == 3


def test_a_strict_minimum_is_certified_with_an_empty_near_kernel():
    c, escape = certificate(at(lambda x: x[0] ** 2 + 3 * x[1] ** 2, [0.0, 0.0]))
    assert (c.chi1, c.chi2, c.chi3) == (0.0, 0.0, 0.0)
    assert c.holds
    assert escape is None


def test_chi1_is_the_norm_of_the_gradient():
    c, _ = certificate(at(lambda x: x[0] ** 2 + 3 * x[1] ** 2, [2.0, -0.5]), Tolerances.of(1e-6, 1))
    assert c.chi1 == pytest.approx(5.0, rel=1e-15)
    assert np.isnan(c.chi2)
    assert np.isnan(c.chi3)
    assert not c.holds


def test_at_a_strict_saddle_chi2_is_the_negative_curvature_and_the_escape_goes_along_it():
    point = at(lambda x: x[0] ** 2 - 1.5 * x[1] ** 2, [0.0, 0.0])
    c, escape = certificate(point)
    assert c.chi2 == pytest.approx(3.0, rel=1e-14)
    assert not c.holds
    assert escape.order == 2
    assert escape.curvature == pytest.approx(-3.0, rel=1e-14)
    np.testing.assert_allclose(np.abs(escape.y), [0, 1], atol=1e-14)


def test_at_a_monkey_saddle_chi3_is_the_third_derivative_and_the_escape_goes_down():
    """x^3 - 3 x y^2 has T[y]^3 = 6 cos(3 a) over unit y."""
    f = lambda x: x[0] ** 3 - 3 * x[0] * x[1] ** 2  # noqa: E731 - a formula with a name
    c, escape = certificate(at(f, [0.0, 0.0]))
    assert (c.chi1, c.chi2) == (0.0, 0.0)
    assert c.chi3 == pytest.approx(6.0, rel=1e-9)
    assert not c.holds
    assert escape.order == 3
    assert f(1e-3 * escape.y) == pytest.approx(-1e-9, rel=1e-8)


def test_the_fourth_order_minimum_is_certified_though_its_hessian_vanishes():
    c, escape = certificate(at(lambda x: jnp.sum(x**4), [0.0, 0.0, 0.0]))
    assert (c.chi1, c.chi2, c.chi3) == (0.0, 0.0, 0.0)
    assert c.holds
    assert escape is None


def test_chi3_looks_only_at_the_near_kernel():
    """A large third derivative along a strongly curved direction does not count; along a flat one it does."""
    f = lambda x: x[0] ** 2 + 100 * x[0] ** 3 + 1e-5 * x[1] ** 2 + x[1] ** 3 / 3  # noqa: E731 - a formula with a name
    c, escape = certificate(at(f, [0.0, 0.0]))
    assert c.chi3 == pytest.approx(2.0, rel=1e-10)
    np.testing.assert_allclose(np.abs(escape.y), [0, 1], atol=1e-12)


def test_chi3_is_not_looked_at_where_chi2_already_fails():
    c, escape = certificate(at(lambda x: -(x[0] ** 2) + x[1] ** 3, [0.0, 0.0]))
    assert np.isnan(c.chi3)
    assert not c.holds
    assert escape.order == 2


def test_a_bound_that_is_small_enough_settles_chi3():
    point = Polynomial([0, 0], np.zeros((2, 2)), bound=1e-3)
    c, escape = certificate(point)
    assert c.chi3 == 1e-3
    assert c.holds
    assert escape is None
    assert "bounded from above" in c.how


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_largest_cubic_is_that_of_a_dense_grid(k, seed):
    T = symmetric(np.random.default_rng(seed), k)
    value, y = largest_cubic(lambda y: (T @ y) @ y, k, starts=32, seed=0)
    least = grid_largest(T)
    assert np.linalg.norm(y) == pytest.approx(1.0, rel=1e-12)
    assert abs(np.einsum("abc,a,b,c", T, y, y, y)) == pytest.approx(value, rel=1e-8)
    assert value >= least * (1 - 1e-9)
    assert value <= least * (1 + 1e-4)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_measure_of_a_formed_tensor_is_never_too_large_and_close_to_the_grid(k, seed):
    T = symmetric(np.random.default_rng(seed), k)
    least = grid_largest(T)
    assert least * (1 - 1e-3) <= third_order_measure(T) <= least * (1 + 1e-4)


def test_the_measure_of_nothing_is_zero():
    assert third_order_measure(np.zeros((0, 0, 0))) == 0.0
    assert third_order_measure(np.zeros((3, 3, 3))) == 0.0


@pytest.mark.parametrize("k", [3, 12])
def test_a_rank_one_tensor_has_the_cube_of_its_vector(k):
    """max |(a'y)^3| = |a|^3; 12 directions take the path of products."""
    a = np.random.default_rng(0).standard_normal(k)
    point = Polynomial(np.zeros(k), np.zeros((k, k)), np.einsum("a,b,c->abc", a, a, a))
    value, y, how = kernel_measure(point, np.eye(k), 0.0, 0)
    assert value == pytest.approx(np.linalg.norm(a) ** 3, rel=1e-8)
    np.testing.assert_allclose(np.abs(y), np.abs(a) / np.linalg.norm(a), atol=1e-4)
    assert ("power iteration" in how) == (k == 12)


@pytest.mark.parametrize("seed", range(6))
def test_chi3_over_a_rotated_near_kernel_is_that_of_the_restricted_tensor(seed):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    B = Q @ np.diag([0.0, 1e-4, 0.0, 2.0, 7.0]) @ Q.T
    T = symmetric(rng, 5)
    V = Q[:, :3]
    c, escape = certificate(Polynomial(np.zeros(5), (B + B.T) / 2, T))
    assert c.chi3 == pytest.approx(grid_largest(np.einsum("abc,ai,bj,ck->ijk", T, V, V, V)), rel=1e-4)
    np.testing.assert_allclose(V @ (V.T @ escape.y), escape.y, atol=1e-9)
    assert escape.cubic == pytest.approx(-c.chi3, rel=1e-7)


def test_a_certificate_with_nan_does_not_hold():
    c, _ = certificate(Polynomial([np.nan, 0.0], np.eye(2)), Tolerances.of(1e-6, 1))
    assert not c.holds


# escape directions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("order", [2, 3])
def test_an_escape_goes_down_by_what_its_fall_says(seed, order):
    rng = np.random.default_rng(seed)
    values = np.array([-0.5, 0.3, 2.0]) if order == 2 else np.array([0.0, 1e-4, 2.0])
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    B = Q @ np.diag(values) @ Q.T
    point = Polynomial(1e-8 * rng.standard_normal(3), (B + B.T) / 2, symmetric(rng, 3))
    _, escape = certificate(point)
    assert escape.order == order
    assert np.linalg.norm(escape.y) == pytest.approx(1.0, rel=1e-12)
    y = escape.y
    np.testing.assert_allclose(
        [escape.slope, escape.curvature, escape.cubic],
        [point.g @ y, y @ B @ y, np.einsum("abc,a,b,c", point.T, y, y, y)],
        rtol=1e-10,
        atol=1e-14,
    )
    t = escape.length(1.0)
    assert t > 0
    assert point.value(t * y) < 0
    assert escape.fall(t) == pytest.approx(-point.value(t * y), rel=1e-9)
    if order == 2:
        assert escape.slope <= 0 or escape.cubic <= 0


def test_at_a_saddle_with_a_slope_the_escape_goes_with_the_slope():
    for slope in (0.01, -0.01):
        _, escape = certificate(Polynomial([slope, 0.0], np.diag([-1.0, 1.0])))
        assert escape.slope == pytest.approx(-0.01)


@pytest.mark.parametrize("seed", range(20))
def test_the_length_minimizes_the_model_along_the_escape(seed):
    rng = np.random.default_rng(seed)
    slope, curvature, cubic = rng.standard_normal(3) * [1e-2, 1, 3]
    sigma = 10 ** rng.uniform(-1, 1)
    escape = Escape(np.ones(1), slope, curvature, cubic, 2)
    t = np.linspace(0, 100, 200001)
    m = slope * t + curvature / 2 * t**2 + cubic / 6 * t**3 + sigma / 4 * t**4
    length = escape.length(sigma)
    found = -escape.fall(length) + sigma / 4 * length**4
    # No grid point is lower; and the best grid point is as low up to its spacing h: m'' h^2 / 8.
    bend = abs(curvature) + abs(cubic) * (length + 1) + 3 * sigma * (length + 1) ** 2
    assert found <= m.min() + 1e-12
    assert m.min() <= found + bend * (t[1] - t[0]) ** 2 / 8


def test_the_length_is_zero_where_nothing_is_below():
    assert Escape(np.ones(1), 1.0, 1.0, 0.0, 2).length(1.0) == 0.0
    assert Escape(np.ones(1), 0.0, 0.0, 0.0, 3).length(1.0) == 0.0


@pytest.mark.parametrize("cubic", [-4.1e-3, 0.2])
def test_a_sigma_that_hides_the_fall_behind_a_little_curvature_is_made_smaller(cubic):
    escape = Escape(np.ones(1), 0.0, 4.6e-5, -abs(cubic), 3)
    limit = cubic**2 / (18 * 4.6e-5)
    assert escape.length(1.001 * limit) == 0.0 < escape.length(0.999 * limit)
    assert escape.length(escape.most(100 * limit)) > 0.0
    assert escape.most(1e-9 * limit) == 1e-9 * limit
    assert Escape(np.ones(1), 0.0, -1.0, 0.1, 2).most(3.0) == 3.0


def test_a_run_that_began_behind_a_little_curvature_leaves_it():
    """f = c/2 t^2 - k/6 t^3 + t^4/4: at 0 the curvature is within tolerance, the third derivative is not."""
    result = tercet.minimize(
        lambda x: 2.3e-5 * x[0] ** 2 - 0.0205 * x[0] ** 3 + 0.25 * x[0] ** 4,
        np.zeros(1),
        grad=lambda x: np.array([4.6e-5 * x[0] - 0.0615 * x[0] ** 2 + x[0] ** 3]),
        hess=lambda x: np.array([[4.6e-5 - 0.123 * x[0] + 3 * x[0] ** 2]]),
        third=lambda x: np.array([[[-0.123 + 6 * x[0]]]]),
    )
    assert result.success
    assert result.fun < 0.0


# Lanczos --------------------------------------------------------------------------------------------------------------


def rotated(values, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    B = Q @ np.diag(values) @ Q.T
    return (B + B.T) / 2


SPECTRA = {
    "indefinite": np.concatenate([[-2.0, -1.0], np.linspace(0.1, 5, 58)]),
    "positive": np.linspace(0.5, 5, 60),
    "one flat direction": np.concatenate([[0.0], np.linspace(0.5, 5, 59)]),
    "stiff": np.concatenate([[-0.5, 0.1], np.logspace(0, 3, 58)]),
    "weakly negative under a wide spectrum": np.concatenate([[-0.01], np.linspace(0.0, 10, 119)]),
    "all equal": np.full(40, 2.0),
    "zero": np.zeros(40),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_lanczos_finds_the_lowest_eigenvalue_of_the_dense_problem(spectrum):
    values = SPECTRA[spectrum]
    point = Polynomial(np.zeros(len(values)), rotated(values))
    found, vectors = lowest_eigenpairs(point, len(values), False, 1e-3, 0)
    assert len(found) >= LANCZOS_VECTORS
    assert len(found) == len(values) or found[-1] > 1e-3  # nothing at or below zeta is left out
    assert found[0] == pytest.approx(values.min(), abs=2e-5 * np.abs(values).max() + 1e-12)
    v = vectors[:, 0]
    assert np.linalg.norm(v) == pytest.approx(1.0, rel=1e-6)
    assert np.all(np.diff(found) >= 0)
    np.testing.assert_allclose(v @ point.B @ v, found[0], atol=1e-6 * np.abs(values).max() + 1e-12)


@pytest.mark.parametrize("spectrum", ["indefinite", "positive", "one flat direction"])
def test_the_certificate_by_lanczos_is_the_dense_one(spectrum):
    rng = np.random.default_rng(1)
    values = SPECTRA[spectrum]
    point = Polynomial(np.zeros(60), rotated(values), symmetric(rng, 60))
    dense, escape = certificate(point)
    sparse, by_lanczos = certificate(point, dense=False)
    assert sparse.chi2 == pytest.approx(dense.chi2, abs=1e-5)
    assert sparse.holds == dense.holds
    assert "Lanczos" in sparse.how
    np.testing.assert_equal(np.isnan(sparse.chi3), np.isnan(dense.chi3))
    if not np.isnan(dense.chi3):
        assert sparse.chi3 == pytest.approx(dense.chi3, rel=1e-3)
    assert (escape is None) == (by_lanczos is None)
    if escape is not None:
        np.testing.assert_allclose(by_lanczos.y, escape.y, atol=1e-3)


def test_a_near_kernel_larger_than_the_lanczos_space_does_not_hide_a_third_derivative():
    """Ten flat directions, of which two bend: the certificate without a dense Hessian must not pass."""
    d, flat = 60, 10
    T = np.zeros((d, d, d))
    T[0, 0, 0], T[1, 1, 1] = 0.05, 0.05  # five times eps3
    point = Polynomial(np.zeros(d), np.diag(np.concatenate([np.zeros(flat), np.linspace(1, 3, d - flat)])), T)
    assert not certificate(point)[0].holds
    for seed in range(5):
        assert not certify(point, 1, TOL, False, "by hand", seed)[0].holds


@pytest.mark.parametrize(("bound", "holds"), [(1e-3, True), (np.inf, False), (0.05, False)])
def test_a_near_kernel_too_large_to_be_known_is_certified_by_a_bound_over_all_directions_or_not_at_all(
    bound, holds, monkeypatch
):
    """Beyond a size no Hessian is formed; where the few lowest eigenvalues do not reach zeta, only a bound can tell."""
    monkeypatch.setattr(criticality, "FORMED", 50)
    point = Polynomial(np.zeros(60), np.diag(np.concatenate([np.zeros(40), np.ones(20)])), bound=bound)
    point.hessian = None  # may not be asked for
    c, escape = certify(point, 1, TOL, False, "by hand")
    assert c.holds == holds
    assert c.chi2 == pytest.approx(0.0, abs=1e-8)
    assert np.isnan(c.chi3) != holds
    assert escape is None


def test_few_variables_take_products_instead_of_lanczos():
    point = Polynomial(np.zeros(5), rotated(np.arange(5.0) - 1))
    values, _ = lowest_eigenpairs(point, 5, False, 1e-3, 0)
    np.testing.assert_allclose(values, np.arange(5.0) - 1, atol=1e-13)
    assert point.products == 5


def test_chi_of_a_linear_model_equals_that_of_its_plain_formula():
    rng = np.random.default_rng(5)
    X, y, x = rng.standard_normal((30, 4)), rng.integers(0, 2, 30).astype(float), rng.standard_normal(4)
    point = LinearModel(X, y).over(None).at(x)
    c, _ = certify(point, 30, Tolerances(1.0, 1.0, 1e-9, 10.0, 3), True, "closed form")

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
