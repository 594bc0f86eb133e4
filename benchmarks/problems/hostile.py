"""Functions made to deceive, each with its truth: where its minimizers are, or that there is none.

All are written for JAX. `Hostile.good` says whether a point is a minimizer as far as the function lets it be known, and
`digits` how many of its digits are right where that makes sense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

WAYS = ("values", "jac", "jac+hess", "JAX")
Fun = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Hostile:
    """A function, a start and the truth."""

    family: str
    name: str
    fun: Fun
    x0: np.ndarray
    minimizer: np.ndarray | None = None  # where it is one point
    lowest: float = np.inf  # f at x is no higher at minimizers, where they are many
    close: float = 1e-4  # of a minimizer is a point that is as close, beside its size or that of the start
    ways: tuple[str, ...] = WAYS
    wrong: dict[str, Callable[[np.ndarray, Any], Any]] = field(default_factory=dict)  # (x, right) -> what is given

    def away(self, x: np.ndarray) -> float:
        """The largest error of an x_j over its size."""
        assert self.minimizer is not None
        size = np.where(self.minimizer == 0.0, np.maximum(np.abs(self.x0), 1e-300), np.abs(self.minimizer))
        return float(np.max(np.abs(x - self.minimizer) / size))

    def good(self, x: np.ndarray, f: float) -> bool:
        """Whether x is a minimizer."""
        if self.minimizer is not None:
            return self.away(x) <= self.close
        return bool(f <= self.lowest)

    def digits(self, x: np.ndarray) -> float:
        """Of x that are right; nan where minimizers are many, or none."""
        if self.minimizer is None:
            return np.nan
        worst = self.away(x)
        return 16.0 if worst == 0.0 else min(16.0, -float(np.log10(worst)))


def at(*x: float) -> np.ndarray:
    """A point."""
    return np.array(x, dtype=float)


def jumps() -> Iterator[Hostile]:
    """Of f, and of its second derivative at the minimizer."""
    for k, x0 in enumerate((3.0, -2.0, 0.3)):
        up = lambda x: jnp.where(x[0] > 0.0, x[0], 1.0 + x[0] ** 2)  # noqa: E731 - its infimum is no minimum
        yield Hostile("jumps", f"infimum {k}", up, at(x0))
        both = lambda x: jnp.where(x[0] > 0.0, x[0] ** 2, 10.0 * x[0] ** 2) + (x[1] - 1.0) ** 2  # noqa: E731 - a formula
        yield Hostile("jumps", f"of curvature {k}", both, at(x0, 2.0), at(0.0, 1.0))
        yield Hostile("jumps", f"x |x| {k}", lambda x: x[0] * jnp.abs(x[0]) + x[1] ** 2, at(x0, 2.0))
        step = lambda x: (x[0] - 1.0) ** 2 + jnp.where(x[0] < 2.0, 0.0, 1.0)  # noqa: E731 - a formula
        yield Hostile("jumps", f"on the way {k}", step, at(x0), at(1.0))


def kinks() -> Iterator[Hostile]:
    """Functions that are not smooth at their minimizer."""
    for k, x0 in enumerate(((3.0, -2.0), (0.7, 0.1), (-40.0, 9.0))):
        x0 = at(*x0)
        yield Hostile("kinks", f"|x| {k}", lambda x: jnp.abs(x[0]) + (x[1] - 1.0) ** 2, x0, at(0.0, 1.0))
        yield Hostile("kinks", f"max {k}", lambda x: jnp.maximum(x[0], -2.0 * x[0]) + x[1] ** 2, x0, at(0.0, 0.0))
        root = lambda x: jnp.sqrt(jnp.abs(x[0] - 1.0)) + (x[1] - x[0]) ** 2  # noqa: E731 - a formula
        yield Hostile("kinks", f"root {k}", root, x0, at(1.0, 1.0))


def plateaus() -> Iterator[Hostile]:
    """exp(-1/x^2): flat to all orders at its minimizer."""
    for unit in (1e-6, 1.0, 1e6):
        for x0 in (0.3, 1.0, 3.0):
            flat = lambda x, u=unit: jnp.exp(-1.0 / (x[0] / u) ** 2)  # noqa: E731 - a formula
            yield Hostile("plateaus", f"alone {unit:g} {x0}", flat, at(unit * x0), at(0.0), close=1.0)
        both = lambda x, u=unit: jnp.exp(-1.0 / (x[0] / u) ** 2) + (x[1] - 1.0) ** 2  # noqa: E731 - a formula
        yield Hostile("plateaus", f"beside {unit:g}", both, at(unit, 3.0), at(0.0, 1.0), close=1.0)


def saddles() -> Iterator[Hostile]:
    """Of fourth and sixth order, rotated, and where a valley bends down; minimizers are lower."""
    c, s = np.cos(0.3), np.sin(0.3)
    for order, lowest in ((4, -4 / 27), (6, -27 / 256)):
        for k, (a, b) in enumerate(((0.0, 0.0), (1.0, 0.0), (1.0, 1e-6), (0.5, 1e-3), (0.0, -0.03))):

            def fun(x: Any, p: int = order) -> Any:
                u, v = c * x[0] + s * x[1], c * x[1] - s * x[0]
                return u**2 - v**p + v ** (p + 2)

            x0 = at(c * a - s * b, s * a + c * b)
            yield Hostile("saddles", f"order {order}, {k}", fun, x0, lowest=lowest + 1e-6)
    for k, x0 in enumerate((at(0.0, 0.0), at(1e-3, 0.0), at(0.3, 0.5))):
        peano = lambda x: (x[1] - x[0] ** 2) * (x[1] - 3.0 * x[0] ** 2) + x[0] ** 6 + x[1] ** 4  # noqa: E731 - a formula
        yield Hostile("saddles", f"Peano {k}", peano, x0, lowest=-1e-3)


def valleys() -> Iterator[Hostile]:
    """Narrow ones that bend."""
    for strength in (1e2, 1e4, 1e6):
        rosen = lambda x, w=strength: w * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2  # noqa: E731 - a formula
        for k, x0 in enumerate((at(-1.2, 1.0), at(0.0, 0.0))):
            yield Hostile("valleys", f"Rosenbrock {strength:g} {k}", rosen, x0, at(1.0, 1.0))
        turn = lambda x, w=strength: w * (jnp.hypot(x[0], x[1]) - 1.0) ** 2 + (x[0] - 1.0) ** 2  # noqa: E731 - a formula
        yield Hostile("valleys", f"circle {strength:g}", turn, at(-0.9, 0.5), at(1.0, 0.0))


def without_end() -> Iterator[Hostile]:
    """Unbounded, or with an infimum at infinity."""
    shapes: dict[str, Fun] = {
        "-x^2": lambda x: -(x[0] ** 2) + x[1] ** 2,
        "x^3": lambda x: x[0] ** 3 + x[1] ** 2,
        "x - y^2": lambda x: x[0] - x[1] ** 2,
        "-exp": lambda x: -jnp.exp(0.1 * x[0]) + x[1] ** 2,
        "exp(-x)": lambda x: jnp.exp(-x[0]) + (x[1] - 1.0) ** 2,
        "1 / (1 + x^2)": lambda x: 1.0 + 1.0 / (1.0 + x[0] ** 2) + (x[1] - 1.0) ** 2,
        "softplus": lambda x: jnp.logaddexp(0.0, -x[0]) + jnp.logaddexp(0.0, -x[0] - x[1]),
        "arctan": lambda x: -jnp.arctan(x[0]) + x[1] ** 2,
        "-log": lambda x: -jnp.log(1.0 + x[0] ** 2) + x[1] ** 2,
    }
    for name, fun in shapes.items():
        for k, x0 in enumerate((at(0.5, 0.3), at(-1.0, 20.0))):
            yield Hostile("without end", f"{name} {k}", fun, x0)


def noise() -> Iterator[Hostile]:
    """Of f alone, relative to it; a minimizer is what lies within its reach."""
    for size in (1e-12, 1e-9, 1e-6):
        for k in range(3):
            rng = np.random.default_rng(k)
            d = 2 + k
            L, m = rng.standard_normal((d, d)) + 2.0 * np.eye(d), rng.standard_normal(d)

            def fun(x: Any, L: Any = L, m: Any = m, size: float = size) -> Any:
                t = L @ (x - m)
                smooth = 1.0 + t @ t + 0.3 * jnp.sum(t**4)
                return smooth * (1.0 + size * jnp.sin(1e9 * jnp.sum(x) + 1e7 * x[0]))

            x0 = m + rng.standard_normal(d)
            yield Hostile("noise", f"{size:g} {k}", fun, x0, m, close=max(1e-4, 30 * size**0.5), ways=("values",))
            right = lambda x, g, L=L, m=m: L.T @ (2.0 * (t := L @ (x - m)) + 1.2 * t**3)  # noqa: E731 - a formula
            yield Hostile("noise", f"{size:g} {k} of f", fun, x0, m, ways=("jac",), wrong={"grad": right})


def wrong() -> Iterator[Hostile]:
    """Derivatives that are not those of f."""
    rng = np.random.default_rng(1)
    L, m = rng.standard_normal((3, 3)) + 2.0 * np.eye(3), at(1.0, -2.0, 0.5)

    def fun(x: Any) -> Any:
        t = L @ (x - m)
        return jnp.sum(jnp.exp(t) - t)

    scale = L.T @ L
    bad: dict[str, dict[str, Callable[[np.ndarray, Any], Any]]] = {
        "g shifted by 1e-4": {"grad": lambda x, g: g + 1e-4 * at(1.0, 2.0, -1.0)},
        "g shifted by 1e-2": {"grad": lambda x, g: g + 1e-2 * at(1.0, 2.0, -1.0)},
        "a factor in g": {"grad": lambda x, g: g * at(1.0, 2.0, 1.0)},
        "a sign in g": {"grad": lambda x, g: g * at(1.0, -1.0, 1.0)},
        "g of another f": {"grad": lambda x, g: scale @ (x - m - 0.01)},
        "an x_j left out": {"grad": lambda x, g: g * at(1.0, 0.0, 1.0)},
        "H of one tenth": {"hess": lambda x, H: 0.1 * H},
        "H 0": {"hess": lambda x, H: 0.0 * H},
        "H of another sign": {"hess": lambda x, H: -H},
    }
    for name, given in bad.items():
        ways = ("jac", "jac+hess") if "grad" in given else ("jac+hess",)
        for k, x0 in enumerate((at(0.0, 0.0, 0.0), m + 1.0)):
            yield Hostile("wrong derivatives", f"{name} {k}", fun, x0, m, 1e-3, ways=ways, wrong=given)


def units() -> Iterator[Hostile]:
    """Parameters and f in units up to 1e12 apart."""
    for k in range(5):
        rng = np.random.default_rng(10 + k)
        d = int(rng.integers(2, 5))
        L, w, m = rng.standard_normal((d, d)) + 2.0 * np.eye(d), 10.0 ** rng.uniform(-2, 2, d), rng.standard_normal(d)
        unit, scale = 10.0 ** rng.integers(-6, 7, d), 10.0 ** rng.integers(-12, 13)

        def fun(x: Any, L: Any = L, w: Any = w, m: Any = m, unit: Any = unit, scale: float = float(scale)) -> Any:
            t = L @ (x / unit - m)
            return scale * jnp.sum(w * (t**2 + 0.5 * t**3 + t**4))

        yield Hostile("units", f"{k}", fun, unit * (m + rng.standard_normal(d)), unit * m)


def edges() -> Iterator[Hostile]:
    """Where f is not a number beyond, and its minimizer inside, at the edge or nowhere."""
    for k, x0 in enumerate((0.2, 5.0, 1e3)):
        yield Hostile("edges", f"x - log x {k}", lambda x: x[0] - jnp.log(x[0]), at(x0), at(1.0))
        yield Hostile("edges", f"x log x {k}", lambda x: x[0] * jnp.log(x[0]), at(x0), at(float(np.exp(-1.0))))
        yield Hostile("edges", f"root {k}", lambda x: jnp.sqrt(x[0]), at(x0), at(0.0), close=1e-8)
        yield Hostile("edges", f"log {k}", lambda x: jnp.log(x[0]), at(x0))
        cut = lambda x: jnp.where(x[0] >= 0.5, x[0] + x[1] ** 2, jnp.nan)  # noqa: E731 - a formula
        yield Hostile("edges", f"cut {k}", cut, at(x0 + 0.5, 1.0), at(0.5, 0.0), close=1e-6)


def overflow() -> Iterator[Hostile]:
    """Numbers that end."""
    for k, x0 in enumerate((3.0, 300.0, 700.0)):
        yield Hostile("overflow", f"cosh {k}", lambda x: jnp.cosh(x[0] - 1.0), at(x0), at(1.0))
        yield Hostile("overflow", f"x^8 {k}", lambda x: x[0] ** 8 + (x[1] - 1.0) ** 2, at(x0, x0), at(0.0, 1.0))
    for power in (140, -140, 290, -290):
        tall = lambda x, p=power: 10.0**p * ((x[0] - 1.0) ** 2 + (x[1] + 2.0) ** 2)  # noqa: E731 - a formula
        yield Hostile("overflow", f"1e{power}", tall, at(3.0, 1.0), at(1.0, -2.0))


def conditions() -> Iterator[Hostile]:
    """Quadratics of condition up to 1e14."""
    for power in (8, 11, 14):
        for k in range(3):
            rng = np.random.default_rng(k)
            Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
            root, m = 10.0 ** (-np.linspace(0, power / 2, 4)), rng.integers(1, 9, 4).astype(float)
            A = root[:, None] * Q.T
            bowl = lambda x, A=A, m=m: jnp.sum((A @ (x - m)) ** 2)  # noqa: E731 - a formula
            yield Hostile("conditions", f"1e{power} {k}", bowl, m + rng.standard_normal(4), m, close=np.inf)


def many() -> Iterator[Hostile]:
    """Minimizers that are not alone: terms that merge, gauges, columns too many."""
    t = np.linspace(0.0, 1.15, 24)
    y = 0.0951 * np.exp(-t) + 0.8607 * np.exp(-3 * t) + 1.5576 * np.exp(-5 * t)

    def terms(b: Any, k: int) -> Any:
        shape = sum(b[2 * i] * jnp.exp(-b[2 * i + 1] * t) for i in range(k))
        return jnp.sum((shape - y) ** 2)

    merged = at(0.5, 3.0, 0.5, 3.0, 1.5, 5.0)
    yield Hostile("many", "merged 3", lambda b: terms(b, 3), merged, lowest=1e-10)
    yield Hostile("many", "merged 4", lambda b: terms(b, 4), np.append(merged, at(0.1, 1.0)), lowest=1e-10)
    for power in (2, 4):
        for k, x0 in enumerate((at(2.0, 0.1), at(-1.0, -3.0), at(30.0, 0.03))):
            gauge = lambda x, p=power: (x[0] * x[1] - 1.0) ** p  # noqa: E731 - a formula
            yield Hostile("many", f"(xy - 1)^{power} {k}", gauge, x0, lowest=1e-12)
    for k in range(4):
        rng = np.random.default_rng(k)
        A = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
        yield Hostile("many", f"rank 2 of 4, {k}", lambda x, A=A: jnp.sum((A @ x) ** 2), at(1.0, 2.0, 3.0, 4.0),
                      lowest=1e-12)  # fmt: skip


def heights() -> Iterator[Hostile]:
    """Minima of 0, and minima that are nothing beside f."""
    w = at(1e-3, 1.0, 1e3)
    for power in (2, 4, 6):
        bowl = lambda x, p=power: jnp.sum(w * x**p)  # noqa: E731 - a formula
        yield Hostile("heights", f"0, x^{power}", bowl, at(1.0, -2.0, 3.0), at(0.0, 0.0, 0.0), close=0.1)
        yield Hostile("heights", f"0, x^{power} from 1e6", bowl, at(1e6, -2e6, 3e6), at(0.0, 0.0, 0.0), close=0.1)
    for high in (1e6, 1e10, -1e13):
        tall = lambda x, h=high: h + jnp.sum((x - at(1.0, 2.0)) ** 2) + jnp.sum((x - at(1.0, 2.0)) ** 4)  # noqa: E731 - a formula
        yield Hostile("heights", f"{high:g}", tall, at(3.0, -1.0), at(1.0, 2.0), close=1.0)


FAMILIES = (
    jumps, kinks, plateaus, saddles, valleys, without_end, noise, wrong, units, edges, overflow, conditions, many,
    heights,
)  # fmt: skip
