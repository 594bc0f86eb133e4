"""Algorithm 1 as a short, plain transcription, against the library: the same points and the same sigma.

Full samples, dense B and T, no tricks. The step is the same in both and is written here: for the second order the
minimizer of g's + 1/2 s'Bs + sigma/3 |s|^3 by an eigen-decomposition and a bisection, for the third order a minimizer
of g's + 1/2 s'Bs + 1/6 T[s]^3 + sigma/4 |s|^4 by a damped Newton method from s = 0. The library gets it as a
sub-solver, the transcription calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

import tercet
from tercet.objectives.linear.start import shrink
from tercet.records import Forecast, Step

GAMMA1, GAMMA3, ETA1, ETA2, MINIMUM = 0.8, 2.0, 0.2, 0.8, 1e-10
ITERATIONS = 25


def minimizer(g: np.ndarray, B: np.ndarray, sigma: float, power: int) -> np.ndarray:
    """(B + mu I) s = -g with mu = sigma |s|^(p-2) >= -lambda_min, by bisection in mu."""
    values, Q = np.linalg.eigh(B)
    c = Q.T @ g

    def length(mu: float) -> float:
        return float(np.linalg.norm(c / (values + mu)))

    low = max(0.0, -values[0])
    high = low + 1.0
    while sigma * length(high) ** (power - 2) > high:
        high = low + 2.0 * (high - low)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if sigma * length(middle) ** (power - 2) > middle else (low, middle)
    return -Q @ (c / (values + high))


def descend(g: np.ndarray, B: np.ndarray, T: np.ndarray, sigma: float) -> np.ndarray:
    """Newton's method on the third-order model from s = 0, its Hessian shifted to be positive, each step halved until
    the model falls."""

    def value(s: np.ndarray) -> float:
        return float(g @ s + 0.5 * s @ B @ s + ((T @ s) @ s) @ s / 6.0 + 0.25 * sigma * (s @ s) ** 2)

    s = np.zeros_like(g)
    for _ in range(200):
        slope = g + B @ s + 0.5 * (T @ s) @ s + sigma * (s @ s) * s
        if np.linalg.norm(slope) <= 1e-13 * np.linalg.norm(g):
            break
        values, Q = np.linalg.eigh(B + T @ s + sigma * ((s @ s) * np.eye(len(s)) + 2.0 * np.outer(s, s)))
        step = -Q @ ((Q.T @ slope) / np.maximum(np.abs(values), 1e-3 * max(1.0, np.max(np.abs(values)))))
        length = 1.0
        while length > 1e-9 and not value(s + length * step) < value(s) + 1e-4 * length * float(slope @ step):
            length *= 0.5
        if length <= 1e-9:  # the values are rounded off, so the gradient has to tell
            s = s + step
            break
        s = s + length * step
    return s


def model_step(g: np.ndarray, B: np.ndarray, T: np.ndarray | None, sigma: float) -> np.ndarray:
    return minimizer(g, B, sigma, 3) if T is None else descend(g, B, T, sigma)


# the transcription ----------------------------------------------------------------------------------------------------


@dataclass
class Walk:
    """The iterates with the start first, and sigma, rho and acceptance of each iteration."""

    points: list[np.ndarray]
    sigma: list[float]
    ratio: list[float]
    accepted: list[bool]


def algorithm_1(f: Any, start: np.ndarray, order: int, sigma: float, tol: float) -> Walk:
    """min f from start; f has value, gradient, hessian and third, a dense tensor."""
    walk, x = Walk([start], [], [], []), start
    for _ in range(ITERATIONS):
        g, B = f.gradient(x), f.hessian(x)
        if np.linalg.norm(g) <= tol:
            break
        T = f.third(x) if order == 3 else None
        s = model_step(g, B, T, sigma)
        phi = g @ s + 0.5 * s @ B @ s + (0.0 if T is None else ((T @ s) @ s) @ s / 6.0)
        if np.max(np.abs(s)) > 3.0 * max(1.0, np.max(np.abs(x))) or -phi > 1e3 * max(1.0, abs(f.value(x))):
            break  # the library does not try a step like that
        rho = (f.value(x) - f.value(x + s)) / -phi
        walk.sigma.append(sigma)
        walk.ratio.append(rho)
        walk.accepted.append(rho >= ETA1)
        if rho >= ETA1:
            x = x + s
        if rho > ETA2:
            sigma = max(MINIMUM, GAMMA1 * sigma)
        elif rho < ETA1:
            sigma = GAMMA3 * sigma
        walk.points.append(x)
    return walk


# the library ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """The same step as a sub-solver of the library."""

    def prepare(self, taylor: Any) -> PlainWorkspace:
        return PlainWorkspace(taylor)


@dataclass(frozen=True, eq=False)
class PlainWorkspace:
    taylor: Any

    def solve(self, ask: Any) -> Step:
        g, B, point = self.taylor.g, self.taylor.B.hessian(), self.taylor.T
        if point is None:
            s = model_step(g, B, None, ask.sigma2)
            return Step(s, self.forecast(s, B), None, 1, ask.sigma2)
        T = point.third_tensor(np.eye(len(g)))
        s = model_step(g, B, T, ask.sigma3)
        quadratic, Tss = self.forecast(s, B), (T @ s) @ s
        cubic = Forecast(quadratic.decrease - float(Tss @ s) / 6.0, quadratic.gradient + 0.5 * Tss)
        return Step(s, quadratic, cubic, 1, ask.sigma3)

    def forecast(self, s: np.ndarray, B: np.ndarray) -> Forecast:
        return Forecast(-float(self.taylor.g @ s + 0.5 * s @ B @ s), self.taylor.g + B @ s)

    def meets(self, step: Step, ask: Any) -> tuple[None, None, None]:
        return None, None, None

    def decreases(self, errors: np.ndarray) -> None:
        return None


def library(problem: Any, start: np.ndarray, order: int, sigma: float, tol: float, **derivatives: Any) -> Walk:
    points = [start]
    kind, worth = (tercet.STM, {"worth": np.inf}) if order == 3 else (tercet.SCR, {})
    result = tercet.minimize(
        problem,
        start,
        method=kind(tercet.Full(), Plain(), tercet.PaperSigma(start=sigma), units=tercet.Euclidean(), **worth),
        tol=tol,
        order=1,
        max_iterations=ITERATIONS,
        callback=lambda info: points.append(np.array(info.x)),
        **derivatives,
    )
    trace = result.trace
    return Walk(points, list(trace["sigma"]), list(trace["ratio"]), [bool(a) for a in trace["accepted"]])


# problems -------------------------------------------------------------------------------------------------------------


class Quartic:
    """g'x + 1/2 x'Bx + 1/6 T[x]^3 + c/4 sum x_i^4 with random coefficients."""

    def __init__(self, seed: int, d: int):
        rng = np.random.default_rng(seed)
        T, B = rng.standard_normal((d, d, d)), rng.standard_normal((d, d))
        self.T = sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6.0
        self.B, self.g, self.c = 0.5 * (B + B.T), rng.standard_normal(d), rng.uniform(0.5, 2.0)
        self.start = rng.standard_normal(d)

    def value(self, x: np.ndarray) -> float:
        return float(self.g @ x + 0.5 * x @ self.B @ x + ((self.T @ x) @ x) @ x / 6.0 + 0.25 * self.c * np.sum(x**4))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.g + self.B @ x + 0.5 * (self.T @ x) @ x + self.c * x**3

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return self.B + self.T @ x + np.diag(3.0 * self.c * x**2)

    def third(self, x: np.ndarray) -> np.ndarray:
        return self.T + diagonal(6.0 * self.c * x)


class Waves:
    """sum a_j sin(w_j'x + b_j) + log cosh(x_i) + 0.05 |x|^2: not convex, and far from a polynomial."""

    def __init__(self, seed: int, d: int):
        rng = np.random.default_rng(seed)
        self.W, self.a, self.b = rng.standard_normal((5, d)), rng.uniform(0.2, 1.0, 5), rng.uniform(0.0, 6.0, 5)
        self.start = 2.0 * rng.standard_normal(d)

    def value(self, x: np.ndarray) -> float:
        bowl = np.sum(np.logaddexp(x, -x)) + 0.05 * x @ x
        return float(self.a @ np.sin(self.W @ x + self.b) + bowl)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.W.T @ (self.a * np.cos(self.W @ x + self.b)) + np.tanh(x) + 0.1 * x

    def hessian(self, x: np.ndarray) -> np.ndarray:
        wave = self.W.T @ (-self.a * np.sin(self.W @ x + self.b) * self.W.T).T
        return wave + np.diag(1.0 - np.tanh(x) ** 2 + 0.1)

    def third(self, x: np.ndarray) -> np.ndarray:
        t = np.tanh(x)
        wave = np.einsum("j,ja,jb,jc->abc", -self.a * np.cos(self.W @ x + self.b), self.W, self.W, self.W)
        return wave + diagonal(-2.0 * t * (1.0 - t * t))


class Regression:
    """(1/n) sum l(a_i'x, y_i) + l2/2 |x|^2, l the sigmoid's squares or the logistic loss, written out densely."""

    def __init__(self, seed: int, d: int, logistic: bool):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2 * d + 2, 40))  # enough rows that every direction is seen by one
        self.A = rng.standard_normal((n, d))
        self.y = (self.A @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
        self.l2, self.logistic = 10.0 ** rng.uniform(-3, -1), logistic
        self.start = 2.0 * rng.standard_normal(d)
        self.model = tercet.LinearModel(self.A, self.y, "logistic" if logistic else "sigmoid_squares", l2=self.l2)
        # Algorithm 1 looks once at f, and begins where it is told to: a linear model comes nearer to 0 if f is lower.
        self.model.traits = replace(self.model.traits, images=False)
        while (nearer := shrink(self.model.rows, self.start)[0]) is not self.start:
            self.start = nearer

    def losses(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        z, y = self.A @ x, self.y
        p = expit(z)
        p1 = p * (1 - p)
        p2 = p1 * (1 - 2 * p)
        if self.logistic:
            return np.logaddexp(0.0, z) - y * z, p - y, p1, p2
        p3 = p1 * (1 - 6 * p1)
        return 0.5 * (p - y) ** 2, (p - y) * p1, p1**2 + (p - y) * p2, 3 * p1 * p2 + (p - y) * p3

    def value(self, x: np.ndarray) -> float:
        return float(np.mean(self.losses(x)[0]) + 0.5 * self.l2 * x @ x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.A.T @ self.losses(x)[1] / len(self.y) + self.l2 * x

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return self.A.T @ (self.losses(x)[2][:, None] * self.A) / len(self.y) + self.l2 * np.eye(len(x))

    def third(self, x: np.ndarray) -> np.ndarray:
        return np.einsum("i,ia,ib,ic->abc", self.losses(x)[3] / len(self.y), self.A, self.A, self.A)


def diagonal(values: np.ndarray) -> np.ndarray:
    d = len(values)
    T = np.zeros((d, d, d))
    T[range(d), range(d), range(d)] = values
    return T


# the comparison -------------------------------------------------------------------------------------------------------

ROUNDING = 1e-9  # relative, of points and values; rounding of a step grows with the condition of B + mu I
TOL = 1e-6  # above where f is rounded off: there the library has rules of its own
COMPARED: list[tuple[int, int]] = []  # iterations compared, of those that the transcription took


def assert_same_walk(f: Any, plain: Walk, ours: Walk) -> int:
    """Iteration by iteration; how many were compared. A rho within rounding of a threshold may fall on either side."""
    for k, rho in enumerate(plain.ratio):
        x = plain.points[k]
        np.testing.assert_allclose(ours.points[k], x, rtol=0, atol=ROUNDING * max(1.0, float(np.max(np.abs(x)))))
        if k >= len(ours.ratio):
            assert np.linalg.norm(f.gradient(ours.points[k])) <= TOL * (1 + 1e-3)  # both are all but done
            return k
        np.testing.assert_allclose(ours.sigma[k], plain.sigma[k], rtol=1e-12)
        # f is known to 1e-15 |f| and its points to ROUNDING, beside a decrease of about |g|^2 over the curvature
        g, curvature = f.gradient(x), 1.0 + float(np.linalg.norm(f.hessian(x), 2)) + plain.sigma[k]
        error = (1e-14 * abs(f.value(x)) + 1e-12 * float(np.linalg.norm(g))) * curvature / float(g @ g)
        np.testing.assert_allclose(ours.ratio[k], rho, rtol=1e-6, atol=error)
        if min(abs(rho - ETA1), abs(rho - ETA2)) <= 1e-9 + error:
            return k
        assert ours.accepted[k] == plain.accepted[k]
    k = len(plain.ratio)
    np.testing.assert_allclose(ours.points[k], plain.points[k], rtol=0, atol=ROUNDING * 10)
    return k


def compare(f: Any, problem: Any, order: int, sigma: float, **derivatives: Any) -> None:
    plain = algorithm_1(f, f.start, order, sigma, TOL)
    assume(len(plain.ratio) > 0)
    ours = library(problem, f.start, order, sigma, TOL, **derivatives)
    compared = assert_same_walk(f, plain, ours)
    COMPARED.append((compared, len(plain.ratio)))
    assert compared >= 1


def tvp(f: Any) -> Any:
    return lambda x, u, v: (f.third(x) @ v) @ u


seeds, sizes, orders = st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([2, 3])
sigmas = st.sampled_from([0.5, 1.0, 4.0])


@given(seeds, sizes, orders, sigmas)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_a_random_quartic(seed, d, order, sigma):
    f = Quartic(seed, d)
    compare(f, f.value, order, sigma, grad=f.gradient, hess=f.hessian, third=f.third)


@given(seeds, sizes, orders, sigmas)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_a_random_function_with_products_of_its_third_derivative(seed, d, order, sigma):
    f = Waves(seed, d)
    compare(f, f.value, order, sigma, grad=f.gradient, hess=f.hessian, tvp=tvp(f))


@given(seeds, sizes, orders, sigmas, st.booleans())
@settings(max_examples=120, deadline=None, derandomize=True)
def test_a_random_linear_model_over_all_rows(seed, d, order, sigma, logistic):
    f = Regression(seed, d, logistic)
    compare(f, f.model, order, sigma)


def test_nearly_every_iteration_was_compared():
    """The examples above end early only at a threshold or where both are done; without them there is nothing to say."""
    if COMPARED:
        compared, taken = np.sum(COMPARED, axis=0)
        assert compared >= 0.9 * taken
