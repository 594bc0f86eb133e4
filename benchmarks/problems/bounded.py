"""Test problems between bounds: functions in JAX, all smooth, each with a start and bounds.

Three kinds: functions of Moré, Garbow and Hillstrom with the bounds of D. M. Gay, "A Trust-Region Approach to Linearly
Constrained Optimization" (Numerical Analysis, LNM 1066, 1984), as far as public codes repeat them; the problems of
W. Hock and K. Schittkowski (Lecture Notes in Economics and Mathematical Systems 187, 1981) that have bounds only; and
problems of the kind of CUTEst's, written out here: a pentadiagonal quadratic with the matrix of PENTDI, elastic
torsion, an obstacle, quadratics with random boxes, a chain of Rosenbrock's valleys, and regressions with coefficients
that are not negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.problems import mgh

Vector = np.ndarray[Any, np.dtype[np.float64]]
INF = np.inf


@dataclass(frozen=True, eq=False)
class Bounded:
    """One problem."""

    name: str
    fun: Callable[[Any], Any]
    x0: Vector  # within the bounds
    low: Vector
    high: Vector


def bounded(name: str, fun: Callable[[Any], Any], x0: Any, low: Any, high: Any) -> Bounded:
    """A problem with its start moved between the bounds."""
    start = np.asarray(x0, dtype=np.float64)
    low, high = (np.array(np.broadcast_to(np.asarray(end, dtype=np.float64), start.shape)) for end in (low, high))
    return Bounded(name, fun, np.clip(start, low, high), low, high)


def squares(residual: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """x -> the sum of squared residuals."""
    return lambda x: jnp.sum(residual(x) ** 2)


def of_gay() -> list[Bounded]:
    """Moré, Garbow and Hillstrom between Gay's bounds."""
    chebyquad = [0.04, 0.2, 0.3, 1, 1, 1, 1, 1]
    rows: list[tuple[str, Any, Any, Any, Any]] = [
        ("Rosenbrock", mgh.rosenbrock, (-1.2, 1.0), (-50, 0), (0.5, 100)),
        ("Powell badly scaled", mgh.powell_badly_scaled, (0.0, 1.0), (0, 1), (1, 9)),
        ("Brown badly scaled", mgh.brown_badly_scaled, (1.0, 1.0), (0, 3e-5), (1e6, 100)),
        ("Beale", mgh.beale, (1.0, 1.0), (0.6, 0.5), (10, 100)),
        ("Helical valley", mgh.helical_valley, (-1.0, 0.0, 0.0), (-100, -1, -1), (0.8, 1, 1)),
        ("Gaussian", mgh.gaussian, (0.4, 1.0, 0.0), (0.398, 1, -0.5), (4.2, 2, 0.1)),
        ("Gulf", mgh.gulf, (5.0, 2.5, 0.15), 0, 1e4),
        ("Box three-dimensional", mgh.box_3d, (0.0, 10.0, 20.0), (0, 5, 0), (2, 9.5, 20)),
        ("Wood", mgh.wood, (-3.0, -1.0, -3.0, -1.0), -100, (0, 10, 100, 100)),
        ("Brown and Dennis", mgh.brown_dennis, (25.0, 5.0, -5.0, -1.0), (-10, 0, -100, -20), (100, 15, 0, 0.2)),
        ("Biggs EXP6", mgh.biggs_exp6, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0), (0, 0, 0, 1, 0, 0), (2, 8, 1, 7, 5, 5)),
        ("Watson", mgh.watson, np.zeros(9), (-1e-5, 0, 0, 0, 0, -3, 0, -3, 0), (1e-5, 0.9, 0.1, 1, 1, 0, 4, 0, 2)),
        ("Penalty I", mgh.penalty_1, np.arange(1.0, 11), (0, 1, 0, 0, 0, 1, 0, 0, 0, 1), 100),
        ("Penalty II", mgh.penalty_2, np.full(10, 0.5), (-10, 0.1, 0, 0.05, 0, -10, 0, 0.2, 0, 0), [50] * 9 + [0.5]),
        ("Variably dimensioned", mgh.variably_dimensioned, 1 - np.arange(1, 11) / 10, 0, [*range(10, 91, 10), 0.5]),
        ("Chebyquad", mgh.chebyquad, np.arange(1, 9) / 9, (0, 0, 0.1, 0, 0, 0, 0, 0), chebyquad),
    ]
    return [bounded(f"MGH {name}", squares(residual), *rest) for name, residual, *rest in rows]


def hs_wood(x: Any) -> Any:
    """Colville's function (HS38)."""
    a, b, c, d = x
    first = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
    return first + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1)


def hs25(x: Any) -> Any:
    """Gulf research and development with 99 terms (HS25)."""
    i = jnp.arange(1, 100) / 100.0
    u = 25 + (-50 * jnp.log(i)) ** (2 / 3)
    return jnp.sum((-i + jnp.exp(-((u - x[1]) ** x[2]) / x[0])) ** 2)


def of_hock_and_schittkowski() -> list[Bounded]:
    """Those with bounds only."""
    five = jnp.arange(1.0, 6.0)

    def valley(x: Any) -> Any:
        return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    return [
        bounded("HS1", valley, (-2, 1), (-INF, -1.5), INF),
        bounded("HS2", valley, (-2, 1), (-INF, 1.5), INF),
        bounded("HS3", lambda x: x[1] + 1e-5 * (x[1] - x[0]) ** 2, (10, 1), (-INF, 0), INF),
        bounded("HS4", lambda x: (x[0] + 1) ** 3 / 3 + x[1], (1.125, 0.125), (1, 0), INF),
        bounded(
            "HS5",
            lambda x: jnp.sin(x[0] + x[1]) + (x[0] - x[1]) ** 2 - 1.5 * x[0] + 2.5 * x[1] + 1,
            (0, 0),
            (-1.5, -3),
            (4, 3),
        ),
        bounded("HS25", hs25, (100, 12.5, 3), (0.1, 0, 0), (100, 25.6, 5)),
        bounded("HS38", hs_wood, (-3, -1, -3, -1), -10, 10),
        bounded("HS45", lambda x: 2 - jnp.prod(x) / 120, np.full(5, 2.0), 0, five),
        bounded(
            "HS110",
            lambda x: jnp.sum(jnp.log(x - 2) ** 2 + jnp.log(10 - x) ** 2) - jnp.prod(x) ** 0.2,
            np.full(10, 9.0),
            2.001,
            9.999,
        ),
    ]


def laplacian(k: int) -> Any:
    """Of a k x k grid with zeros around it."""
    one = 2 * np.eye(k) - np.eye(k, k=1) - np.eye(k, k=-1)
    return np.kron(np.eye(k), one) + np.kron(one, np.eye(k))


def quadratic(B: Any, b: Any) -> Callable[[Any], Any]:
    """x'Bx / 2 + b'x."""
    B, b = jnp.asarray(B), jnp.asarray(b)
    return lambda x: 0.5 * x @ (B @ x) + b @ x


def of_grids(k: int = 10) -> list[Bounded]:
    """Elastic torsion of a bar, and a membrane above an obstacle."""
    L, h = laplacian(k), 1.0 / (k + 1)
    grid = np.arange(1, k + 1) * h
    edge = np.minimum(grid, 1 - grid)
    reach = np.minimum.outer(edge, edge).ravel()
    bump = (np.sin(3.2 * grid)[:, None] * np.sin(3.3 * grid)[None, :]).ravel() ** 3
    force = np.full(k * k, -5.0 * h * h)
    return [
        bounded("torsion, c = 5", quadratic(L, force), reach, -reach, reach),
        bounded("torsion, c = 20", quadratic(L, 4 * force), -reach, -reach, reach),
        bounded("obstacle", quadratic(L, -0.2 * force), np.maximum(bump, 1.0), bump, 2000),
    ]


def pentadiagonal(d: int = 50) -> Bounded:
    """The matrix of PENTDI over variables that are not negative."""
    B = 11 * np.eye(d)
    for off, value in ((1, -4.0), (2, 1.0)):
        B += value * (np.eye(d, k=off) + np.eye(d, k=-off))
    return bounded("pentadiagonal", quadratic(B, 3.0 * np.cos(np.arange(d))), np.ones(d), 0, INF)


def box(rng: Any, d: int) -> tuple[Vector, Vector]:
    """A random box, some of whose sides are open."""
    low = np.where(rng.random(d) < 0.8, -rng.random(d), -INF)
    return low, np.where(rng.random(d) < 0.8, rng.random(d), INF)


def random_quadratic(seed: int, d: int, convex: bool) -> Bounded:
    """With eigenvalues from 1e-2 to 1e2; where it is not convex, a third of them negative, and all sides closed."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    values = 10.0 ** rng.uniform(-2, 2, d) * (1.0 if convex else np.where(np.arange(d) < d // 3, -1.0, 1.0))
    low, high = box(rng, d)
    if not convex:
        low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
    kind = "convex" if convex else "not convex"
    return bounded(
        f"quadratic {seed}, {kind}", quadratic((Q * values) @ Q.T, rng.standard_normal(d)), np.zeros(d), low, high
    )


def valleys(seed: int, d: int) -> Bounded:
    """A chain of Rosenbrock's valleys in a random box, from the middle of it."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0.5, d)
    high = low + rng.uniform(0.5, 2.5, d)

    def fun(x: Any) -> Any:
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return bounded(f"Rosenbrock, {d} variables, box {seed}", fun, (low + high) / 2, low, high)


def regressions() -> list[Bounded]:
    """Squares and logistic regression with coefficients that are not negative, half of them 0 in truth."""
    rng = np.random.default_rng(7)
    A = rng.standard_normal((200, 20)) * 10.0 ** rng.uniform(-1, 1, 20)
    truth = np.maximum(rng.standard_normal(20), 0.0) / np.std(A, axis=0)
    z = A @ truth
    y, labels = z + rng.standard_normal(200), np.where(rng.random(200) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    table, signed = jnp.asarray(A), jnp.asarray(labels[:, None] * A)
    return [
        bounded("least squares, x >= 0", lambda x: 0.5 * jnp.sum((table @ x - y) ** 2), np.ones(20), 0, INF),
        bounded(
            "logistic regression, x >= 0",
            lambda x: jnp.mean(jnp.logaddexp(0.0, -(signed @ x))) + 1e-4 * x @ x,
            np.zeros(20),
            0,
            INF,
        ),
    ]


def problems() -> list[Bounded]:
    """All of them."""
    quadratics = [
        random_quadratic(seed, d, convex)
        for seed, (d, convex) in enumerate([(10, True), (40, True), (80, True), (10, False), (40, False), (80, False)])
    ]
    chains = [valleys(seed, d) for seed, d in enumerate((5, 10, 20, 40))]
    return [
        *of_gay(),
        *of_hock_and_schittkowski(),
        *of_grids(),
        pentadiagonal(),
        *quadratics,
        *chains,
        *regressions(),
    ]
