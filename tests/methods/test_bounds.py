"""`minimize(bounds=...)`: against independent solvers, at saddles and degenerate points, for every kind of problem."""

import importlib
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import tercet
from tercet.domain import Box, domain_of
from tercet.methods import checkpoint

INF = np.inf
minimizing = importlib.import_module("tercet.methods.minimize")


class Fenced:
    """A quadratic with derivatives, that may be asked between its bounds only."""

    def __init__(self, B, b, low, high):
        self.B, self.b, self.low, self.high = B, b, np.asarray(low), np.asarray(high)

    def check(self, x):
        assert np.all((x >= self.low) & (x <= self.high)), "asked outside its bounds"

    def fun(self, x):
        self.check(x)
        return float(0.5 * x @ self.B @ x + self.b @ x)

    def grad(self, x):
        self.check(x)
        return self.B @ x + self.b

    def hess(self, x):
        self.check(x)
        return self.B

    def tvp(self, x, u, v):
        self.check(x)
        return np.zeros_like(x)

    @property
    def bounds(self):
        return list(zip(self.low, self.high, strict=True))

    def minimize(self, x0, **options):
        return tercet.minimize(
            self.fun, x0, grad=self.grad, hess=self.hess, tvp=self.tvp, bounds=self.bounds, **options
        )


def random_box(rng, d):
    low = np.where(rng.random(d) < 0.8, rng.normal(size=d) - 0.5, -INF)
    high = np.where(rng.random(d) < 0.6, np.where(np.isfinite(low), low, 0.0) + rng.random(d), INF)
    return low, high


@pytest.mark.parametrize("seed", range(25))
def test_least_squares_in_a_box_as_scipy_solves_them(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 12))
    A = rng.standard_normal((d + int(rng.integers(0, 8)), d)) * 10.0 ** rng.uniform(-2, 2, d)
    b, unit = rng.standard_normal(len(A)), np.linalg.norm(A, axis=0)
    low, high = (end / unit for end in random_box(rng, d))
    fenced = Fenced(A.T @ A, -A.T @ b, low, high)
    own = scipy.optimize.lsq_linear(A, b, (low, high), method="bvls", tol=1e-14)
    r = fenced.minimize(rng.standard_normal(d))
    assert r.success
    assert r.fun + 0.5 * b @ b <= own.cost + 1e-9 * (0.5 * b @ b)
    active = np.flatnonzero(own.active_mask)
    assert set(r.certificate.active) <= set(active) <= {*r.certificate.active, *r.certificate.weak}
    np.testing.assert_allclose(np.array(r.certificate.multipliers)[active], (A.T @ (A @ own.x - b))[active], atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_coefficients_that_are_not_negative_as_nnls_finds_them(seed):
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((30, 12)), rng.standard_normal(30)
    x, _ = scipy.optimize.nnls(A, b)
    model = tercet.LinearModel(A, b, "squares")
    r = tercet.minimize(model, bounds=[(0, None)] * 12)
    assert r.success
    np.testing.assert_allclose(r.x, x, atol=1e-7)
    assert set(r.certificate.active) == set(np.flatnonzero(x == 0.0))


@pytest.mark.parametrize("seed", range(12))
def test_a_quadratic_that_is_not_convex_ends_at_a_local_minimizer(seed):
    """No single step from x along the edges or the free eigenvectors leads lower."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 8))
    B = rng.standard_normal((d, d))
    low, high = -rng.random(d), rng.random(d)
    fenced = Fenced(B + B.T, rng.standard_normal(d) * (seed % 3 > 0), low, high)
    r = fenced.minimize(np.zeros(d))
    assert r.success
    for v in rng.standard_normal((400, d)):
        there = np.clip(r.x + 10.0 ** rng.uniform(-6, -1) * v, low, high)
        assert fenced.fun(there) >= r.fun - 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_the_envelope_theorem_holds_for_the_multipliers(seed):
    rng = np.random.default_rng(100 + seed)
    B = rng.standard_normal((5, 5))
    fenced = Fenced(B @ B.T + np.eye(5), 3 * rng.standard_normal(5), np.full(5, -0.2), np.full(5, 0.2))
    r = fenced.minimize(np.zeros(5))
    assert r.certificate.active
    for j in r.certificate.active:
        end = fenced.low if r.x[j] == fenced.low[j] else fenced.high
        moved = []
        for h in (1e-5, -1e-5):
            shifted = Fenced(fenced.B, fenced.b, fenced.low.copy(), fenced.high.copy())
            (shifted.low if end is fenced.low else shifted.high)[j] += h
            moved.append(shifted.minimize(np.zeros(5)).fun)
        assert (moved[0] - moved[1]) / 2e-5 == pytest.approx(r.certificate.multipliers[j], rel=1e-4)


def test_many_bounds_become_active_in_one_step():
    rng = np.random.default_rng(0)
    d = 200
    fenced = Fenced(np.diag(rng.uniform(1, 3, d)), 5 * rng.standard_normal(d), np.full(d, -1.0), np.full(d, 1.0))
    r = fenced.minimize(np.zeros(d))
    assert r.success
    assert r.nit <= 2
    assert len(r.certificate.active) > 100


def test_a_saddle_on_a_face_is_left():
    """f = y + x^4/4 - x^2/2 over y >= 0: (0, 0) is a saddle of the face y = 0."""
    r = tercet.minimize(lambda x: x[1] + x[0] ** 4 / 4 - x[0] ** 2 / 2, np.zeros(2), bounds=[(None, None), (0, None)])
    assert r.success
    assert abs(r.x[0]) == pytest.approx(1.0)
    assert r.x[1] == 0.0
    assert r.certificate.active == (1,)


def test_curvature_across_an_active_bound_is_not_asked():
    """f = y - 5 y^2 + x^2 over 0 <= y <= 0.1: bends down along y, but rises at first order."""
    r = tercet.minimize(lambda x: x[1] - 5 * x[1] ** 2 + x[0] ** 2, [1.0, 0.02], bounds=[(None, None), (0, 0.1)])
    assert r.success
    assert r.certificate.chi2 == 0.0
    assert r.certificate.strict
    assert r.certificate.multipliers == (0.0, 1.0)


def of_two(fun, x0=(0.0, 0.0), low=(-2.0, 0.0), high=(2.0, 2.0)):
    return tercet.certify(fun, np.array(x0), bounds=list(zip(low, high, strict=True)))


def test_a_weakly_active_bound_is_said():
    found = of_two(lambda x: x[0] ** 2 + x[1] ** 2)
    assert found.holds
    assert (found.active, found.weak) == ((), (1,))
    assert found.strict
    assert "weakly: x[1]" in str(found)


def test_a_weakly_active_bound_with_a_flat_side_is_no_strict_minimizer():
    found = of_two(lambda x: x[0] ** 2 + 0.0 * x[1])
    assert found.holds
    assert found.strict is False
    assert found.involved == (1,)


def test_what_rises_at_fourth_order_only_is_not_called_strict():
    found = of_two(lambda x: x[0] ** 2 + x[1] ** 4)
    assert found.weak == (1,)
    assert found.strict is not True


@pytest.mark.parametrize("power", [2, 3])
def test_a_weakly_active_bound_that_f_falls_from_is_left(power):
    fun = lambda x: x[0] ** 2 - x[1] ** power  # noqa: E731
    found = of_two(fun)
    assert not found.holds
    assert found.way_down[1] > 0.0
    r = tercet.minimize(fun, np.zeros(2), bounds=[(-2, 2), (0, 2)])
    assert r.success
    np.testing.assert_allclose(r.x, [0, 2], atol=1e-7)


@pytest.mark.parametrize("a", [1.0, -1.0])
def test_two_weakly_active_bounds_bend_as_their_cone_does(a):
    """f = a x y over x, y >= 0 at 0: lowest over the cone is 0 for a = 1, -1/2 along (1, 1) for a = -1."""
    found = of_two(lambda x: a * x[0] * x[1], low=(0.0, 0.0))
    assert set(found.weak) == {0, 1}
    assert found.chi2 == pytest.approx(0.0 if a > 0 else 1.0, abs=1e-12)
    assert found.holds == (a > 0)
    assert found.strict is not True


def test_a_flat_valley_between_walls_is_one_of_many():
    r = tercet.minimize(lambda x: (x[0] + x[1] - 1) ** 2, [0.2, 0.3], bounds=[(0, 1), (0, 1)])
    assert r.success
    assert r.certificate.strict is False
    assert np.all((r.x >= 0) & (r.x <= 1))


def test_a_variable_between_equal_bounds_stays():
    r = tercet.minimize(
        lambda x: jnp.sum((x - jnp.arange(3.0)) ** 2), np.ones(3), bounds=[(None, None), (4, 4), (0, 1)]
    )
    assert r.success
    np.testing.assert_allclose(r.x, [0, 4, 1], atol=1e-12)
    assert r.certificate.multipliers == (0.0, 6.0, -2.0)


def test_bounds_that_bound_nothing_change_no_bit():
    fun = lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)  # noqa: E731
    x0 = np.array([-1.2, 1.0, 0.5])
    free, bounded = (tercet.minimize(fun, x0, bounds=b) for b in (None, [(None, INF)] * 3))
    assert np.array_equal(free.x, bounded.x)
    assert free.counts == bounded.counts
    assert free.certificate == bounded.certificate


def test_wide_bounds_change_no_step():
    fun = lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)  # noqa: E731
    x0 = np.array([-1.2, 1.0, 0.5])
    free, bounded = (tercet.minimize(fun, x0, bounds=b) for b in (None, [(-1e3, 1e3)] * 3))
    np.testing.assert_allclose(free.trace["f"], bounded.trace["f"], rtol=1e-9, atol=1e-25)
    assert free.counts == bounded.counts


@pytest.mark.parametrize("given", [{}, {"grad": True}, {"grad": True, "hvp": True}])
def test_differences_do_not_look_outside(given):
    """f = sum (x_j - c_j)^2 + sqrt(x_j), which is not defined below 0, minimized on and beside its bounds."""
    c = np.array([0.5, -1.0, 2.0])

    def inside(x):
        assert np.all((x >= 0) & (x <= 1.0)), x
        return x

    def fun(x):
        return float(np.sum((inside(x) - c) ** 2) + np.sum(np.sqrt(x + 1e-2)))

    calls = {
        "grad": lambda x: 2 * (inside(x) - c) + 0.5 / np.sqrt(x + 1e-2),
        "hvp": lambda x, v: (2 - 0.25 * (inside(x) + 1e-2) ** -1.5) * v,
    }
    r = tercet.minimize(
        fun, [0.5, 0.5, 0.5], bounds=[(0, 1)] * 3, tol=1e-5, check_derivatives=True, **{n: calls[n] for n in given}
    )
    own = scipy.optimize.minimize(fun, [0.5, 0.5, 0.5], bounds=[(0, 1)] * 3, tol=1e-12)
    assert r.success
    assert r.fun <= own.fun + 1e-8
    assert r.x[1] == 0.0
    assert r.x[2] == 1.0


@pytest.mark.parametrize("jac", [True, False])
def test_residuals_as_least_squares_fits_them(jac):
    t = np.linspace(0, 3, 30)
    y = 2.0 * np.exp(-1.3 * t) + 0.5 + 0.05 * np.sin(17 * t)
    low, high = np.array([0.0, 0.2, 0.6]), np.array([1.8, 5.0, 2.0])

    def fun(p):
        assert np.all((p >= low) & (p <= high))
        return p[0] * np.exp(-p[1] * t) + p[2] - y

    def slope(p):
        return np.stack([np.exp(-p[1] * t), -t * p[0] * np.exp(-p[1] * t), np.ones_like(t)], axis=1)

    own = scipy.optimize.least_squares(fun, [1.0, 1.0, 1.0], slope, bounds=(low, high), xtol=1e-14, ftol=1e-14)
    r = tercet.least_squares(fun, [1.0, 1.0, 1.0], slope if jac else None, bounds=(low, high))
    assert r.success
    assert r.cost <= own.cost * (1 + 1e-9)
    np.testing.assert_allclose(r.x, own.x, rtol=1e-5)
    np.testing.assert_array_equal(r.active_mask, own.active_mask)
    fit = tercet.curve_fit(lambda x, a, b, c: a * jnp.exp(-b * x) + c, t, y, bounds=(low, high))
    np.testing.assert_allclose(fit.popt, own.x, rtol=1e-5)
    held = own.active_mask != 0
    assert held.any()
    assert np.array_equal(np.isnan(fit.errors), held)
    assert np.all(np.isfinite(fit.band(t)[0]))


@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR(), tercet.STM(subsolver=tercet.Krylov())])
def test_sums_in_samples(method):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 6))
    y = np.where(rng.random(4000) < 1 / (1 + np.exp(-X @ [1, -1, 0.5, 0, 2, -0.2])), 1.0, 0.0)
    model = tercet.LinearModel(X, y, "logistic", l2=1e-4)
    r = tercet.minimize(model, bounds=[(0, 1)] * 6, method=method)
    full = tercet.minimize(model, bounds=[(0, 1)] * 6, method=tercet.STM(tercet.Full()))
    assert r.success
    assert full.success
    np.testing.assert_allclose(r.x, full.x, atol=1e-6)
    assert r.certificate.active == full.certificate.active
    assert {1, 4} <= set(r.certificate.active)


@pytest.mark.parametrize("policy", [None, tercet.Reduced()], ids=["plain", "reduced"])
@pytest.mark.parametrize("rule", [tercet.Fixed(0.2, 0.2, 0.2), tercet.Growing()], ids=["fixed", "growing"])
def test_samples_that_hold_every_variable_at_a_bound(rule, policy):
    """No variable is left to step in."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    model = tercet.LinearModel(X, (X @ [1, 2, 3.0] > 0).astype(float), "logistic", l2=1e-2)
    r = tercet.minimize(model, bounds=[(0, 0.5)] * 3, method=tercet.STM(rule, policy=policy))
    assert r.success
    np.testing.assert_array_equal(r.x, [0.5, 0.5, 0.5])
    assert r.certificate.active == (0, 1, 2)


def test_a_sum_of_jax_terms_with_structure():
    x = jnp.linspace(0.0, 1.0, 50)
    total = tercet.FiniteSum(lambda p, t: (p["a"] * t + p["b"][0] - 2 * t) ** 2 + 0.1 * p["b"][1] ** 2, (x,))
    r = tercet.minimize(total, {"a": 0.5, "b": np.array([5.0, 1.0])}, bounds=[(0, 1), (0, 3), (0.25, None)])
    assert r.success
    assert float(r.x["a"]) == pytest.approx(1.0)
    assert float(r.x["b"][1]) == 0.25
    assert "x0 was outside its bounds at x[1]" in r.message


def test_a_start_outside_is_moved_with_a_note():
    r = tercet.minimize(lambda x: jnp.sum(x**2), [5.0, -3.0, 1.0], bounds=[(1, 2), (-1, 0), (None, 4)])
    assert "x0 was outside its bounds at x[0], x[1]" in r.message
    np.testing.assert_allclose(r.x, [1, 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([(0, 1)], "1 pairs for 2 variables"),
        ([(0, 1), (2, 1)], r"x\[1\] cross: 2 > 1"),
        ([(0, 1), (np.nan, 1)], r"lower bound of x\[1\] is nan"),
        ([(0, 1), (INF, INF)], r"lower bound of x\[1\] is inf"),
        ([(0, 1), (0, 1, 2)], r"x\[1\] are \(0, 1, 2\)"),
        ([(0, 1), ("a", 1)], r"x\[1\] are \('a', 1\)"),
        (3, "give a pair"),
        (scipy.optimize.Bounds([0, 0, 0], 1), r"lb has shape \(3,\)"),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused_before_any_work(bounds, words):
    def fun(x):
        raise AssertionError("asked")

    with pytest.raises(ValueError, match=words):
        tercet.minimize(fun, [0.0, 0.0], grad=fun, bounds=bounds)


def test_what_knows_no_bounds_says_so():
    model = tercet.LinearModel(np.eye(3), [1.0, 0.0, 1.0], "logistic", l2=0.1)
    for method in (tercet.SGD(), tercet.AcceleratedTensor(), tercet.AcceleratedCubic()):
        with pytest.raises(ValueError, match=f"{type(method).__name__} knows no bounds"):
            tercet.minimize(model, bounds=[(0, 1)] * 3, method=method)
    with pytest.raises(ValueError, match="Subspace"):
        tercet.minimize(model, bounds=[(0, 1)] * 3, method=tercet.STM(subsolver=tercet.Subspace()))
    with pytest.raises(ValueError, match="keeps x in its intervals"):
        tercet.minimize(tercet.Transformed(model, {0: tercet.positive}), np.ones(3), bounds=[(0, 1)] * 3)
    with pytest.raises(ValueError, match=r"x is outside its bounds.*x\[1\]"):
        tercet.certify(model, [0.0, 2.0, 0.0], bounds=[(0, 1)] * 3)


def test_a_run_goes_on_from_a_checkpoint_within_its_bounds(tmp_path):
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((300, 5)), (rng.random(300) < 0.5) * 1.0
    model, bounds = (
        tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3),
        [(0.05, None), (None, 0.3), (-1, 1), (0, 0.01), (0, 0)],
    )
    whole = tercet.minimize(model, np.full(5, 0.2), bounds=bounds)
    path = tmp_path / "run"
    tercet.minimize(model, np.full(5, 0.2), bounds=bounds, max_iterations=1, checkpoint=path)
    r = tercet.resume(path, model, max_iterations=100)
    assert np.array_equal(r.x, whole.x)
    assert r.certificate == whole.certificate
    assert r.certificate.active


def test_a_checkpoint_that_stands_outside_its_bounds_is_refused(tmp_path, monkeypatch):
    model = tercet.LinearModel(np.eye(3), [1.0, 0.0, 1.0], "logistic", l2=0.1)
    path = tmp_path / "run"
    tercet.minimize(model, np.full(3, 0.2), bounds=[(0, 0.3)] * 3, max_iterations=1, checkpoint=path)
    past = checkpoint.read(path)
    past.settings["bounds"] = [[0.0] * 3, [0.25] * 3]
    monkeypatch.setattr(minimizing, "read", lambda _: past)
    with pytest.raises(ValueError, match="x is outside its bounds"):
        tercet.resume(path, model)


@pytest.mark.parametrize("kind", ["hessian", "sandwich"])
def test_what_is_on_a_bound_has_no_standard_error_and_the_others_are_as_if_it_were_known(kind):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((500, 4))
    y = np.where(rng.random(500) < 1 / (1 + np.exp(-X @ [1, -1, 0.5, 0.3])), 1.0, 0.0)
    r = tercet.minimize(tercet.LinearModel(X, y, "logistic"), bounds=[(0, None)] * 4)
    assert r.certificate.active == (1,)
    told = r.infer(kind)
    assert np.array_equal(np.isnan(told.deviations), [False, True, False, False])
    assert "on its bound" in told.why[1]
    without = tercet.minimize(tercet.LinearModel(np.delete(X, 1, axis=1), y, "logistic")).infer(kind)
    np.testing.assert_allclose(np.delete(told.deviations, 1), without.deviations, rtol=1e-6)
    assert "on its bound" in str(r.summary(kind))
    with pytest.raises(ValueError, match="on bounds"):
        tercet.profile(tercet.LinearModel(X, y, "logistic"), r, 0)


def test_the_bootstrap_keeps_the_bounds_of_the_run():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 3))
    model = tercet.LinearModel(X, X @ [1.0, -1.0, 0.5] + rng.standard_normal(80), "squares")
    r = tercet.minimize(model, bounds=[(0, None)] * 3)
    told = r.infer("bootstrap", draws=20)
    assert told.draws.min() >= 0.0
    assert np.array_equal(np.isnan(told.deviations), [False, True, False])
    with pytest.raises(ValueError, match="give them"):
        tercet.infer(model, r, "bootstrap", draws=20)


def test_every_way_to_solve_the_model_keeps_to_the_walls():
    rng = np.random.default_rng(11)
    A, b = rng.standard_normal((20, 8)), rng.standard_normal(20)
    fenced = Fenced(A.T @ A, -A.T @ b, np.full(8, -0.05), np.full(8, 0.05))
    own = scipy.optimize.lsq_linear(A, b, (-0.05, 0.05), tol=1e-14)
    for method in (
        tercet.STM(subsolver=tercet.Krylov()),
        tercet.STM(subsolver=tercet.GradientDescent(step=0.05)),
        tercet.STM(subsolver=tercet.Accelerated(step=0.05)),
        tercet.STM(sigma=tercet.PaperSigma()),
        tercet.SCR(sigma=tercet.SignedEstimate(), units=tercet.Euclidean()),
    ):
        r = fenced.minimize(np.zeros(8), method=method, tol=1e-8)
        assert r.success, method
        assert r.fun + 0.5 * b @ b <= own.cost + 1e-9, method


def test_an_edge_where_f_is_not_finite_does_not_end_the_run():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = tercet.minimize(lambda x: x[0] - jnp.log(x[0]) + (x[1] + 3) ** 2, [5.0, 1.0], bounds=[(0, None), (0, None)])
    assert r.success
    np.testing.assert_allclose(r.x, [1, 0], atol=1e-7)


def test_differences_in_a_narrow_box_are_those_of_the_function():
    box = domain_of("f", [(0.0, 1e-6), (-1.0, INF), (None, 3.0)], 3)
    assert isinstance(box, Box)
    x, g = np.array([5e-7, -1.0, 3.0]), np.array([2.0, -3.0, 0.5])

    def fun(z):
        assert np.array_equal(box.project(z), z)
        return g @ z + 0.5 * float(z @ z)

    for v in (np.array([1.0, 1.0, 1.0]), np.array([0.0, -2.0, 1.0]), np.array([1e-3, 0.0, -4.0])):
        assert box.difference(fun, x, v, 1e-5) == pytest.approx((g + x) @ v, rel=1e-6)
