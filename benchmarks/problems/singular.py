"""Functions whose Hessian is singular at their minimizers; the minimum is 0.

Newton's method contracts by 2/3 or so at such a minimum. Each function is a traceable f(x) of a flat vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Function = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Singular:
    """A function of minimum 0, one of its minimizers, which is singular, and a start."""

    name: str
    fun: Function
    x0: np.ndarray
    minimizer: np.ndarray
    minimum: float = 0.0


def _draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def quartic_regression(n: int, d: int, power: int, seed: int) -> Singular:
    """mean (a_i'x - y_i)^power with y = A x*: the first power - 1 derivatives vanish at x*."""
    A, truth = _draw(seed, n, d), _draw(seed + 1, d)
    y = A @ truth
    start = truth + 2 * _draw(seed + 2, d)
    return Singular(f"power{power}-regression-{n}x{d}", lambda x: jnp.mean((A @ x - y) ** power), start, truth)


def partly_quartic(d: int, seed: int) -> Singular:
    """Quadratic in the first half of rotated coordinates, quartic in the second."""
    Q, _ = np.linalg.qr(_draw(seed, d, d))
    half = d // 2

    def fun(x: Any) -> Any:
        z = Q @ x
        return 0.5 * jnp.sum(z[:half] ** 2) + jnp.sum(z[half:] ** 4)

    return Singular(f"half-quartic-{d}", fun, 2 * _draw(seed + 1, d), np.zeros(d))


def powell(copies: int) -> Singular:
    """Powell's singular function, several times: rank 2 of 4 in each."""

    def fun(x: Any) -> Any:
        a, b, c, d = x.reshape(copies, 4).T
        return jnp.sum((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)

    return Singular(f"powell-singular-{4 * copies}", fun, np.tile([3.0, -1.0, 0.0, 1.0], copies), np.zeros(4 * copies))


def factorization(m: int, rank: int, width: int, seed: int, symmetric: bool) -> Singular:
    """|U V' - M|^2 / 4 with more columns than the rank of M: flat along rotations, quartic in superfluous columns."""
    L = _draw(seed, m, rank)
    R = L if symmetric else _draw(seed + 1, m, rank)
    M = L @ R.T

    def fun(x: Any) -> Any:
        U = x[: m * width].reshape(m, width)
        V = U if symmetric else x[m * width :].reshape(m, width)
        return jnp.sum((U @ V.T - M) ** 2) / 4

    padded = [np.pad(F, ((0, 0), (0, width - rank))).ravel() for F in ((L,) if symmetric else (L, R))]
    truth = np.concatenate(padded)
    kind = "symmetric" if symmetric else "two-sided"
    return Singular(f"factorization-{kind}-{m}-rank{rank}-width{width}", fun, _draw(seed + 2, len(truth)), truth)


def deep_linear(layers: int, width: int, rank: int, seed: int) -> Singular:
    """|W_L ... W_1 - M|^2 / 2 for M of low rank: the product leaves freedom, and the zero singular values vanish."""
    M = _draw(seed, width, rank) @ _draw(seed + 1, rank, width) / width

    def fun(x: Any) -> Any:
        product = jnp.eye(width)
        for W in x.reshape(layers, width, width):
            product = W @ product
        return 0.5 * jnp.sum((product - M) ** 2)

    start = np.tile(np.eye(width).ravel(), layers) + 0.3 * _draw(seed + 2, layers * width * width)
    # The low rank in two layers and identities elsewhere: singular also beyond the freedom of a factorization.
    P = np.linalg.svd(M)[0][:, :rank]
    truth = np.concatenate([(P @ P.T).ravel(), *[np.eye(width).ravel()] * (layers - 2), M.ravel()][::-1])
    return Singular(f"deep-linear-{layers}x{width}-rank{rank}", fun, start, truth)


def teacher(units: int, student: int, inputs: int, seed: int) -> Singular:
    """mean (sum_k v_k tanh(w_k'a) - teacher)^2 / 2 where the student has more units than the teacher."""
    A = _draw(seed, 60, inputs)
    y = np.tanh(A @ _draw(seed + 1, inputs, units)) @ _draw(seed + 2, units)

    def fun(x: Any) -> Any:
        W, v = x[: student * inputs].reshape(student, inputs), x[student * inputs :]
        return 0.5 * jnp.mean((jnp.tanh(A @ W.T) @ v - y) ** 2)

    W, v, more = _draw(seed + 1, inputs, units).T.ravel(), _draw(seed + 2, units), student - units
    # The teacher, with copies of its first unit that have no weight.
    truth = np.concatenate([W, np.tile(W[:inputs], more), v, np.zeros(more)])
    start = truth + 0.3 * _draw(seed + 3, student * (inputs + 1))
    return Singular(f"network-{student}-of-{units}-units-{inputs}", fun, start, truth)


def mixture() -> Singular:
    """Kullback-Leibler distance of a mixture of two unit normals from one normal, on a grid: more parts than needed."""
    grid = np.linspace(-8.0, 8.0, 161)
    weights = np.exp(-0.5 * grid**2) / np.sum(np.exp(-0.5 * grid**2))

    def fun(x: Any) -> Any:
        first = jax.nn.log_sigmoid(x[2]) - 0.5 * (grid - x[0]) ** 2
        second = jax.nn.log_sigmoid(-x[2]) - 0.5 * (grid - x[1]) ** 2
        return jnp.sum(weights * (-0.5 * grid**2 - jnp.logaddexp(first, second)))

    return Singular("mixture-2-of-1", fun, np.array([1.5, -1.0, 0.4]), np.array([0.0, 0.0, 0.4]))


def mixture_moments() -> Singular:
    """Four moments of two parts fitted to those of one: means coalesce at the minimum."""

    def fun(x: Any) -> Any:
        p, a, b = jax.nn.sigmoid(x[0]), x[1], x[2]
        return sum((p * a**k + (1 - p) * b**k) ** 2 for k in (1, 2, 3, 4))

    return Singular("mixture-moments", fun, np.array([0.5, 1.2, -0.8]), np.array([0.5, 0.0, 0.0]))


def double_root(d: int, seed: int) -> Singular:
    """sum (x_j^2 + c (x_j - x_{j+1}))^2: a chain whose equations have a double root at 0."""

    def fun(x: Any) -> Any:
        return jnp.sum((x**2 + 0.5 * (x - jnp.roll(x, 1))) ** 2)

    return Singular(f"double-root-{d}", fun, 1.0 + 0.3 * _draw(seed, d), np.zeros(d))


def sixth_power(d: int, seed: int) -> Singular:
    """sum_j j (x_j - 1)^6 in rotated coordinates."""
    Q, _ = np.linalg.qr(_draw(seed, d, d))
    weights = np.arange(1.0, d + 1)
    start, truth = 2 * _draw(seed + 1, d), Q.T @ np.ones(d)
    return Singular(f"sixth-power-{d}", lambda x: jnp.sum(weights * (Q @ x - 1.0) ** 6), start, truth)


def shadow(d: int, seed: int) -> Singular:
    """|u - v|^2 / 2 + |u|^4 / 4: quadratic across u = v and quartic along it."""

    def fun(x: Any) -> Any:
        u, v = x[:d], x[d:]
        return 0.5 * jnp.sum((u - v) ** 2) + 0.25 * jnp.sum(u * u) ** 2

    return Singular(f"shadow-quartic-{2 * d}", fun, 1.5 * _draw(seed, 2 * d), np.zeros(2 * d))


def phase_retrieval(n: int, d: int, seed: int) -> Singular:
    """mean (a_i'x)^4 / 4: phase retrieval of the zero signal."""
    A = _draw(seed, n, d)
    return Singular(f"zero-phase-{n}x{d}", lambda x: jnp.mean((A @ x) ** 4) / 4, _draw(seed + 1, d), np.zeros(d))


PROBLEMS: tuple[Singular, ...] = (
    quartic_regression(50, 5, 4, 1),
    quartic_regression(200, 20, 4, 2),
    quartic_regression(40, 4, 6, 3),
    partly_quartic(8, 4),
    powell(1),
    powell(5),
    factorization(6, 2, 4, 5, True),
    factorization(8, 1, 3, 6, True),
    factorization(5, 2, 3, 7, False),
    deep_linear(3, 3, 1, 8),
    deep_linear(4, 2, 1, 9),
    teacher(1, 2, 2, 10),
    teacher(2, 4, 3, 11),
    mixture(),
    mixture_moments(),
    double_root(6, 14),
    sixth_power(5, 15),
    shadow(4, 16),
    phase_retrieval(100, 10, 17),
)
