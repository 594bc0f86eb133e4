"""The sub-solvers on random and on hard models: singular and vanishing B, no slope along the most negative curvature,
gradients and sigmas of 1e-12 and 1e12."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.model import DenseModel, Regularizer
from tercet.subsolvers import Accelerated, Dense, GradientDescent, Krylov
from tercet.subsolvers.base import Ask, Taylor
from tercet.subsolvers.spectral import Tridiagonal, regularized_step

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Cubic:
    """g's + 1/2 s'Bs + 1/6 T[s]^3 as a point of one term."""

    g: np.ndarray
    B: np.ndarray
    T: np.ndarray
    terms: int = 1

    def gradient(self):
        return self.g

    def hessian(self):
        return self.B.copy()

    def hessian_product(self, v):
        return self.B @ v

    def third_product(self, u, v):
        return self.T @ v @ u

    def third_square(self, s):
        return self.third_product(s, s)

    def third_tensor(self, V):
        return np.einsum("abc,ai,bj,ck->ijk", self.T, V, V, V)


KINDS = ("random", "positive", "singular", "zero", "negative", "hard", "nearly hard", "double", "stiff", "rank one")


def make(seed, kind, d, size, bend=1.0):
    """A model in a random basis; `size` is |g|."""
    rng = np.random.default_rng(seed)
    values = {
        "random": rng.standard_normal(d),
        "positive": rng.uniform(0.1, 3.0, d),
        "singular": np.where(np.arange(d) == 0, 0.0, rng.uniform(0.1, 3.0, d)),
        "zero": np.zeros(d),
        "negative": -rng.uniform(0.1, 3.0, d),
        "hard": np.where(np.arange(d) == 0, -2.0, rng.uniform(-1.0, 3.0, d)),
        "nearly hard": np.where(np.arange(d) == 0, -2.0, rng.uniform(-1.0, 3.0, d)),
        "double": np.where(np.arange(d) <= 1, -2.0, rng.uniform(0.0, 3.0, d)),
        "stiff": 10.0 ** rng.uniform(-8, 8, d) * rng.choice([-1.0, 1.0], d),
        "rank one": np.where(np.arange(d) == 0, 1.0, 0.0),
    }[kind]
    c = rng.standard_normal(d)
    if kind in ("hard", "double") and d > 1:
        c[values == -2.0] = 0.0
    if kind == "nearly hard" and d > 1:
        c[0] *= 1e-12
    if not np.any(c):
        c[-1] = 1.0
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    if kind in ("hard", "double", "singular", "rank one") and seed % 2:
        Q = np.eye(d)  # so that zeros are exact
    B = Q @ (values[:, None] * Q.T)
    T = rng.standard_normal((d, d, d))
    T = sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6
    return Cubic(size * Q @ c / np.linalg.norm(c), (B + B.T) / 2, bend * T)


def model_of(point, sigma, power, third):
    return DenseModel(point.g, point.B, point.T if third else None, Regularizer(sigma, power))


def rounding(point, s, sigma, power, third):
    """What rounding may do to m(s): a few units of the largest of its terms."""
    r = float(np.linalg.norm(s))
    cubic = float(np.linalg.norm(point.T)) * r**3 if third else 0.0
    terms = np.linalg.norm(point.g) * r + np.linalg.norm(point.B, 2) * r * r + cubic + sigma * r**power
    return 64 * EPS * float(terms)


def slope_rounding(point, s, sigma, power, third):
    """What rounding may do to grad m(s)."""
    r = float(np.linalg.norm(s))
    cubic = float(np.linalg.norm(point.T)) * r**2 if third else 0.0
    return 64 * EPS * float(np.linalg.norm(point.g) + np.linalg.norm(point.B, 2) * r + cubic + sigma * r ** (power - 1))


def cauchy_value(model):
    """The least value along -g up to the first minimizer there, by a fine search in the logarithm of the length."""
    norm = float(np.linalg.norm(model.g))
    u = -model.g / norm
    b = float(u @ model.B @ u)
    t = 0.0 if model.T is None else float(u @ (model.T @ u) @ u)
    sigma, p = model.regularizer.sigma, model.regularizer.power
    lengths = np.logspace(-30, 30, 60001)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = -norm + b * lengths + t / 2 * lengths**2 + sigma * lengths ** (p - 1)
    first = lengths[np.argmax(slopes > 0)] / 1.0024  # the last of the grid where the model still falls
    return min(0.0, model.value(first * u))


# name: the sub-solver, and whether T is formed
SOLVERS = {
    "dense, formed": (Dense(), True),
    "dense, spectral": (Dense(), False),
    "krylov": (Krylov(), False),
    "krylov, tight": (Krylov(relative=1e-10), False),
    "gradient descent": (GradientDescent(), False),
    "accelerated": (Accelerated(step=0.3), False),
}
DESCENTS = ("gradient descent", "accelerated")
ITSELF = ("dense, formed", *DESCENTS)  # T enters the model of the step itself, not by a correction

seeds, kinds, dims = st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 6)
sigmas = st.sampled_from([1e-12, 1e-6, 1e-2, 1.0, 1e2, 1e6, 1e12])
gradients = st.sampled_from([1e-12, 1e-6, 1e-2, 1.0, 1e2, 1e6, 1e12])
powers, radii = st.sampled_from([3, 4]), st.sampled_from([np.inf, np.inf, 1.0, 1e-6])


def solved(name, point, ask, order):
    solver, forms = SOLVERS[name]
    workspace = solver.prepare(Taylor(point.g, point, point if order == 3 else None, forms))
    return workspace, workspace.solve(ask)


@pytest.mark.parametrize("name", SOLVERS)
@given(seeds, kinds, dims, gradients, sigmas, powers, radii)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_second_order_step_is_finite_within_the_radius_and_lowers_the_model(
    name, seed, kind, d, size, sigma, power, radius
):
    point, ask = make(seed, kind, d, size), Ask(sigma, sigma, power, radius)
    _, step = solved(name, point, ask, 2)
    assert np.all(np.isfinite(step.s))
    assert np.isfinite(step.forecast.decrease)
    assert np.linalg.norm(step.s) <= radius * (1 + 1e-9)
    model = model_of(point, sigma, power, False)
    assert model.value(step.s) <= rounding(point, step.s, sigma, power, False)
    assert np.any(step.s) or name in DESCENTS


@pytest.mark.parametrize("name", SOLVERS)
@given(seeds, kinds, dims, gradients, sigmas, radii)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_third_order_step_is_finite_within_the_radius_and_lowers_the_model_it_is_a_step_of(
    name, seed, kind, d, size, sigma, radius
):
    """A step that T corrects may be longer than the radius by half of what it was without."""
    point, ask = make(seed, kind, d, size), Ask(sigma, sigma, 4, radius)
    workspace, step = solved(name, point, ask, 3)
    assert np.all(np.isfinite(step.s))
    assert np.isfinite(step.forecast.decrease)
    beyond = 0.0 if name in ITSELF else 0.5 * np.linalg.norm(workspace.solve(replace(ask, buy_third=False)).s)
    assert np.linalg.norm(step.s) <= (radius + beyond) * (1 + 1e-9)
    if name in ITSELF:
        value = model_of(point, step.sigma, 4, step.cubic is not None).value(step.s)
        assert value <= rounding(point, step.s, step.sigma, 4, True)


@pytest.mark.parametrize("name", SOLVERS)
@given(seeds, kinds, dims, gradients, sigmas, powers, st.sampled_from([2, 3]), radii)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_conditions_are_claimed_only_where_they_hold(name, seed, kind, d, size, sigma, power, order, radius):
    """chi_{m,1} = |grad m| <= theta |s|^3 and chi_{m,2} = -lambda_min(hess m) <= theta |s|^2, recomputed."""
    point = make(seed, kind, d, size)
    ask = Ask(sigma, sigma, 4 if order == 3 else power, radius)
    workspace, step = solved(name, point, ask, order)
    first, second, _ = workspace.meets(step, ask)
    third = step.cubic is not None
    model, r, theta = model_of(point, step.sigma, ask.power, third), np.linalg.norm(step.s), SOLVERS[name][0].theta
    slack = slope_rounding(point, step.s, step.sigma, ask.power, third)
    if first:
        assert np.linalg.norm(model.gradient(step.s)) <= theta * r**3 * (1 + 1e-9) + slack
    if second:
        scale = np.linalg.norm(point.B, 2) + step.sigma * r ** (ask.power - 2) + np.linalg.norm(point.T) * r
        assert -np.linalg.eigvalsh(model.hessian(step.s))[0] <= theta * r**2 * (1 + 1e-9) + 1e-12 * scale


@pytest.mark.parametrize("name", [n for n in SOLVERS if n not in DESCENTS])
@given(seeds, kinds, dims, gradients, sigmas, powers)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_second_order_decrease_is_at_least_that_of_the_cauchy_point(name, seed, kind, d, size, sigma, power):
    point, ask = make(seed, kind, d, size), Ask(sigma, sigma, power)
    _, step = solved(name, point, ask, 2)
    model = model_of(point, sigma, power, False)
    cauchy = cauchy_value(model)
    assert model.value(step.s) <= cauchy * (1 - 1e-9) + rounding(point, step.s, sigma, power, False)


@given(seeds, kinds, dims, gradients, st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_within_a_radius_the_krylov_step_falls_at_least_to_the_cauchy_point(seed, kind, d, size, radius):
    """Also where the model bends down and the step is a cautious one; it never leaves the radius."""
    point = make(seed, kind, d, size)
    _, step = solved("krylov", point, Ask(0.0, 0.0, 4, radius), 2)
    norm = np.linalg.norm(point.g)
    curvature = point.g @ point.B @ point.g
    t = min(radius / norm, norm**2 / curvature if curvature > 0 else np.inf)
    cauchy = -t * norm**2 + 0.5 * t * t * curvature
    found = point.g @ step.s + 0.5 * step.s @ point.B @ step.s
    assert np.linalg.norm(step.s) <= radius * (1 + 1e-9)
    assert found <= cauchy * (1 - 1e-9) + rounding(point, step.s, 0.0, 4, False)


@given(seeds, kinds, dims, gradients, sigmas)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_third_order_decrease_of_the_formed_model_is_at_least_that_of_the_cauchy_point(seed, kind, d, size, sigma):
    """Along -g up to the first minimizer of the model."""
    point, ask = make(seed, kind, d, size), Ask(sigma, sigma, 4)
    _, step = solved("dense, formed", point, ask, 3)
    model = model_of(point, sigma, 4, True)
    assert model.value(step.s) <= cauchy_value(model) * (1 - 1e-3) + rounding(point, step.s, sigma, 4, True)


@pytest.mark.parametrize("solver", [GradientDescent, Accelerated])
@given(seeds, st.sampled_from(["random", "positive", "singular", "zero", "negative", "rank one"]), dims, powers)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_descent_that_goes_on_reaches_the_decrease_of_the_cauchy_point(solver, seed, kind, d, power):
    """With |g|, |B| and sigma near one, as its step size assumes, and a theta that does not end it at once: by default
    |grad m| <= |s|^3 is all that it promises, and that holds at points well above the Cauchy point's value."""
    point, ask = make(seed, kind, d, 1.0), Ask(1.0, 1.0, power)
    descent = solver(step=0.3, theta=1e-6, iterations=500)
    step = descent.prepare(Taylor(point.g, point, None, False)).solve(ask)
    model = model_of(point, 1.0, power, False)
    assert model.value(step.s) <= (1 - 1e-6) * cauchy_value(model)


@pytest.mark.parametrize("name", SOLVERS)
@given(seeds, kinds, dims, sigmas, powers)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_without_gradient_the_step_does_not_raise_the_model(name, seed, kind, d, sigma, power):
    point, ask = make(seed, kind, d, 0.0), Ask(sigma, sigma, power)
    _, step = solved(name, point, ask, 2)
    assert np.all(np.isfinite(step.s))
    model = model_of(point, sigma, power, False)
    assert model.value(step.s) <= rounding(point, step.s, sigma, power, False)


# against a fine search ------------------------------------------------------------------------------------------------


def directions(d):
    """All directions in one variable, a fine grid of them in two, and points spread over the sphere in three."""
    if d == 1:
        return np.array([[1.0], [-1.0]])
    if d == 2:
        angles = np.linspace(0.0, 2 * np.pi, 1441)
        return np.column_stack([np.cos(angles), np.sin(angles)])
    k = np.arange(4000)
    z, angle = 1 - (2 * k + 1) / 4000, np.pi * (3 - 5**0.5) * k
    return np.column_stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z])


def search(g, B, sigma, power):
    """The least value over the rays of `directions`, along each of which the minimum is found by bisection.

    Along u the slope sigma t^(p-1) + b t + a with a = g'u < 0 or b = u'Bu < 0 has one root that is a minimizer.
    """
    _, Q = np.linalg.eigh(B)
    U = np.vstack([directions(len(g)), Q.T, -Q.T, -g[None, :] / np.linalg.norm(g)])
    a, b = U @ g, np.einsum("ia,ab,ib->i", U, B, U)
    low = np.zeros(len(a))
    high = 2 * ((np.abs(b) / sigma) ** (1 / (power - 2)) + (np.abs(a) / sigma) ** (1 / (power - 1)))
    for _ in range(120):
        middle = 0.5 * (low + high)
        rising = sigma * middle ** (power - 1) + b * middle + a > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return min(0.0, float(np.min(a * low + b / 2 * low**2 + sigma / power * low**power)))


@given(seeds, kinds, st.integers(1, 3), gradients, sigmas, powers)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_spectral_step_is_no_worse_than_a_fine_search(seed, kind, d, size, sigma, power):
    point = make(seed, kind, d, size)
    least = search(point.g, point.B, sigma, power)
    for name in ("dense, spectral", "krylov, tight"):
        if name != "dense, spectral" and kind in ("hard", "nearly hard", "double"):
            continue  # a Krylov space of g does not hold the eigenvector that g lacks
        _, step = solved(name, point, Ask(sigma, sigma, power), 2)
        found = model_of(point, sigma, power, False).value(step.s)
        assert found <= least * (1 - 1e-9) + rounding(point, step.s, sigma, power, False)


@given(seeds, kinds, st.integers(1, 3), gradients, sigmas, powers, st.sampled_from([np.inf, 1.0, 1e-6, 1e6]))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_step_solves_its_equation_at_any_scale(seed, kind, d, size, sigma, power, radius):
    """(B + mu I) s = -g with mu >= -lambda_min, mu = sigma |s|^(p-2) inside the radius and no less on it."""
    point = make(seed, kind, d, size)
    values, Q = np.linalg.eigh(point.B)
    c = Q.T @ point.g
    T = Tridiagonal.of(point.B)
    s, mu = regularized_step(T, T.rotate(point.g), sigma, power, radius)
    s = Q.T @ T.rotate(s, back=True)
    r, own = float(np.linalg.norm(s)), sigma * float(np.linalg.norm(s)) ** (power - 2)
    scale = max(float(np.max(np.abs(values))), mu)
    assert r <= radius * (1 + 1e-9)
    assert values[0] + mu >= -1e-12 * scale
    np.testing.assert_allclose((values + mu) * s, -c, rtol=0, atol=1e-9 * size + 1e-12 * scale * r)
    if r < radius * (1 - 1e-6):
        np.testing.assert_allclose(mu, own, rtol=1e-6, atol=1e-12 * scale)
    else:
        assert mu >= own * (1 - 1e-6)
