"""Losses l(z, y) of a linear model's margin z = a'x, with their first three derivatives in z.

A loss is any object with `derivatives(z, y) -> (l, l', l'', l''')`, elementwise on arrays, and `check(y)`, which
raises ValueError for targets that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import expit

from tercet.checks import number
from tercet.objectives.glm import Gamma, NegativeBinomial, Poisson, SmoothQuantile
from tercet.records import Vector

Four = tuple[Vector, Vector, Vector, Vector]


class Loss(Protocol):
    """A scalar loss of a margin and a target, and its derivatives in the margin.

    A loss that also has `formula(much)` says how it is asked best, on much data or on little (`Formula`).
    """

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """(l, l', l'', l''') at each pair of z and y."""
        ...


@dataclass(frozen=True)
class Formula:
    """How a linear model asks a loss, settled once: one derivative at a time, from margins that may be packed first."""

    part: Callable[[int, Vector, Vector], Vector] | None = None  # l^(order) from packed margins; None: all four at once
    pack: Callable[[Vector, Vector], Vector] | None = None  # what `part` wants to be given in place of z; None: z
    value: Callable[[Vector, Vector], Vector] | None = None  # l alone, where the derivatives come all at once

    @staticmethod
    def of(loss: Any, much: bool) -> Formula:
        """The loss's own, where it has one."""
        return loss.formula(much) if hasattr(loss, "formula") else Formula(value=getattr(loss, "value", None))


def check_binary(name: str, y: Vector) -> None:
    """Targets of a classification loss are 0 and 1."""
    other = np.setdiff1d(y, (0.0, 1.0))
    if other.size:
        raise ValueError(
            f"LinearModel(loss={name!r}): y holds {other[:3].tolist()}, but this loss takes 0 and 1; "
            "map the two labels first, for example y = (y == positive_label)."
        )


@dataclass(frozen=True)
class SigmoidSquares:
    """The paper's loss: l = 1/2 (p - y)^2 with p = 1 / (1 + exp(-z)) and y in {0, 1}. Bounded and non-convex."""

    convex: ClassVar[bool] = False

    def check(self, y: Vector) -> None:
        """y in {0, 1}."""
        check_binary("sigmoid_squares", y)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With v = z for y = 0 and v = -z for y = 1, P = p(v) and Q = p(-v): l = P^2 / 2, P' = PQ, Q' = -PQ, and

        l' = P^2 Q,  l'' = P^2 Q (2Q - P),  l''' = P^2 Q (4Q^2 - 7PQ + P^2)  in v; odd ones change sign for y = 1.
        """
        sign = 1.0 - 2.0 * y
        v = sign * z
        P, Q = expit(v), expit(-v)  # not 1 - P, which loses digits in the tail
        square, both = P * P, P * Q
        base = square * Q
        odd = sign * base
        return 0.5 * square, odd, base * (2.0 * Q - P), odd * (4.0 * Q * Q - 7.0 * both + square)

    def value(self, z: Vector, y: Vector) -> Vector:
        """l alone."""
        P = expit((1.0 - 2.0 * y) * z)
        return 0.5 * P * P

    def formula(self, much: bool) -> Formula:
        """Compiled on much data, where it repays its loading; on little all at once."""
        if not much:
            return Formula(value=self.value)
        from tercet.objectives.kernels import pack_sigmoid_squares, sigmoid_squares

        return Formula(sigmoid_squares, pack_sigmoid_squares)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression: l = log(1 + exp(z)) - y z, y in {0, 1}. Convex."""

    phi: ClassVar[float | None] = 1.0

    def check(self, y: Vector) -> None:
        """y in {0, 1}."""
        check_binary("logistic", y)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """l' = p - y, l'' = p(1-p), l''' = p(1-p)(1-2p)."""
        sign = 1.0 - 2.0 * y
        v = sign * z  # for y = 1 the value is log(1 + exp(-z)), which a difference would lose for large z
        tail = np.exp(-np.abs(v))
        high = 1.0 / (1.0 + tail)
        low = tail * high
        both = high * low
        slope = sign * np.where(v >= 0.0, high, low)
        return np.maximum(v, 0.0) + np.log1p(tail), slope, both, both * np.copysign(high - low, -z)

    def part(self, order: int, z: Vector, y: Vector) -> Vector:
        """l^(order) alone, from exp(-|v|) with v = z for y = 0 and v = -z for y = 1."""
        sign = 1.0 - 2.0 * y
        v = sign * z
        tail = np.exp(-np.abs(v))
        if order == 0:
            return np.maximum(v, 0.0) + np.log1p(tail)
        high = 1.0 / (1.0 + tail)
        low = tail * high
        if order == 1:
            return sign * np.where(v >= 0.0, high, low)
        return high * low if order == 2 else high * low * np.copysign(high - low, -z)

    def formula(self, much: bool) -> Formula:
        """One derivative at a time on much data, all at once on little."""
        return Formula(self.part) if much else Formula(value=partial(self.part, 0))

    def mean(self, z: Vector) -> Vector:
        """p."""
        return expit(z)

    def variance(self, mu: Vector) -> Vector:
        """p (1 - p)."""
        return mu * (1.0 - mu)

    def log_likelihood(self, z: Vector, y: Vector, phi: float) -> Vector:
        """-l."""
        return -self.part(0, z, y)


@dataclass(frozen=True)
class Squares:
    """Least squares: l = 1/2 (z - y)^2."""

    phi: ClassVar[float | None] = None

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """l' = z - y, l'' = 1, l''' = 0."""
        r = z - y
        return 0.5 * r * r, r, np.ones_like(r), np.zeros_like(r)

    def value(self, z: Vector, y: Vector) -> Vector:
        """l alone."""
        r = z - y
        return 0.5 * r * r

    def mean(self, z: Vector) -> Vector:
        """z."""
        return z

    def variance(self, mu: Vector) -> Vector:
        """1."""
        return np.ones_like(mu)

    def log_likelihood(self, z: Vector, y: Vector, phi: float) -> Vector:
        """log of the normal density with variance phi."""
        return -0.5 * np.log(2.0 * np.pi * phi) - 0.5 * (z - y) ** 2 / phi


@dataclass(frozen=True)
class Cauchy:
    """Robust regression: l = c^2/2 log(1 + (r/c)^2), r = z - y. Grows like a logarithm; non-convex beyond |r| = c."""

    convex: ClassVar[bool] = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_scale("Cauchy", self.scale)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With u = r/c and w = 1 / (1 + u^2): l' = c u w, l'' = (1 - u^2) w^2, l''' = 2u(u^2 - 3) w^3 / c."""
        u = (z - y) / self.scale
        w = 1.0 / (1.0 + u * u)
        c = self.scale
        return self.value(z, y), c * u * w, (1 - u * u) * w * w, 2.0 * u * (u * u - 3.0) * w**3 / c

    def value(self, z: Vector, y: Vector) -> Vector:
        """l alone."""
        u = (z - y) / self.scale
        return 0.5 * self.scale * self.scale * np.log1p(u * u)


@dataclass(frozen=True)
class Welsch:
    """Robust regression: l = c^2/2 (1 - exp(-(r/c)^2)), r = z - y. Bounded: an outlier counts at most c^2/2."""

    convex: ClassVar[bool] = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_scale("Welsch", self.scale)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With u = r/c and e = exp(-u^2): l' = c u e, l'' = (1 - 2u^2) e, l''' = 2u(2u^2 - 3) e / c."""
        u = (z - y) / self.scale
        e = np.exp(-u * u)
        c = self.scale
        return self.value(z, y), c * u * e, (1 - 2 * u * u) * e, 2 * u * (2 * u * u - 3) * e / c

    def value(self, z: Vector, y: Vector) -> Vector:
        """l alone."""
        u = (z - y) / self.scale
        return -0.5 * self.scale * self.scale * np.expm1(-u * u)


@dataclass(frozen=True)
class GemanMcClure:
    """Robust regression: l = c^2/2 u^2 / (1 + u^2), u = (z - y)/c. Bounded, with heavier shoulders than Welsch."""

    convex: ClassVar[bool] = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_scale("GemanMcClure", self.scale)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With w = 1 / (1 + u^2): l' = c u w^2, l'' = (1 - 3u^2) w^3, l''' = 12 u (u^2 - 1) w^4 / c."""
        u = (z - y) / self.scale
        w = 1.0 / (1.0 + u * u)
        c = self.scale
        return self.value(z, y), c * u * w * w, (1 - 3 * u * u) * w**3, 12 * u * (u * u - 1) * w**4 / c

    def value(self, z: Vector, y: Vector) -> Vector:
        """l alone."""
        u = (z - y) / self.scale
        return 0.5 * self.scale * self.scale * u * u / (1.0 + u * u)


class JaxLoss:
    """A user's scalar JAX function l(z, y); its derivatives in z by nested forward differentiation."""

    def __init__(self, function: Callable[..., Any]):
        import jax

        self._jax = jax
        self.function = function
        chain = [function]
        for _ in range(3):
            chain.append(jax.grad(chain[-1]))
        self._all = jax.jit(jax.vmap(lambda z, y: tuple(f(z, y) for f in chain)))

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxLoss, (self.function,)  # another process compiles for itself

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """(l, l', l'', l''') by automatic differentiation, in the precision of z."""
        with self._jax.enable_x64(z.dtype == np.float64):
            l0, l1, l2, l3 = (np.asarray(part) for part in self._all(z, y))
        return l0, l1, l2, l3


@dataclass(frozen=True)
class CheckedLoss:
    """A user's loss object, kept from our arrays and its answer from later changes: four float vectors, or an error."""

    own: Any

    def check(self, y: Vector) -> None:
        """What the user's own loss says of the targets."""
        if hasattr(self.own, "check"):
            self.own.check(y)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """The user's (l, l', l'', l'''), copied, in float64 and of the length of z."""
        parts = self.own.derivatives(z.copy(), y.copy())
        if not isinstance(parts, tuple | list) or len(parts) != 4:
            raise ValueError("derivatives(z, y) of the loss must return four arrays: l, l', l'', l'''")
        first, second, third, fourth = (as_vector(part, z.shape) for part in parts)
        return first, second, third, fourth


def as_vector(part: Any, shape: tuple[int, ...]) -> Vector:
    """A copy as float64, or a ValueError."""
    array = np.asarray(part)
    if np.ma.is_masked(part):
        raise ValueError("derivatives(z, y) of the loss gave masked entries; reals are needed")
    if array.shape != shape or array.dtype.kind not in "fiub":
        raise ValueError(
            f"derivatives(z, y) of the loss gave {array.dtype} of shape {array.shape}; {shape} reals are needed"
        )
    return array.astype(np.float64)


LOSSES: dict[str, Callable[..., Loss]] = {
    "sigmoid_squares": SigmoidSquares,
    "logistic": Logistic,
    "squares": Squares,
    "cauchy": Cauchy,
    "welsch": Welsch,
    "geman_mcclure": GemanMcClure,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "gamma": Gamma,
    "smooth_quantile": SmoothQuantile,
}
LOOPED = (SigmoidSquares, Logistic, Squares, Cauchy, Welsch, GemanMcClure)  # known to compiled loops, by their place
SCALED = ("cauchy", "welsch", "geman_mcclure", "smooth_quantile")  # those with a scale


def check_scale(name: str, scale: float) -> None:
    """A robust loss has a positive, finite scale."""
    if not 1e-100 <= number(scale) <= 1e100:  # its square is a number
        raise ValueError(
            f"{name}(scale={scale!r}): scale must be a positive number between 1e-100 and 1e100; "
            "it is the residual where robustness sets in."
        )


def as_loss(loss: Any, scale: float | None) -> Loss:
    """A loss from its name, an object with `derivatives`, or a scalar JAX function."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(
                f"LinearModel(loss={loss!r}): unknown loss; choose one of {', '.join(LOSSES)}, or pass your own."
            )
        if scale is None:
            return LOSSES[loss]()
        if loss not in SCALED:
            raise ValueError(
                f"LinearModel(loss={loss!r}, scale={scale}): only {', '.join(SCALED)} have a scale; leave it out."
            )
        return LOSSES[loss](scale=scale)
    if scale is not None:
        raise ValueError(
            f"LinearModel(scale={scale}): scale goes with a loss given by name; set it on your own loss instead."
        )
    if isinstance(loss, type):
        raise ValueError(f"LinearModel(loss={loss.__name__}): pass an object, {loss.__name__}(), not the class.")
    if hasattr(loss, "derivatives"):
        return loss if type(loss) in LOSSES.values() else CheckedLoss(loss)
    if callable(loss):
        return JaxLoss(loss)
    raise ValueError(
        f"LinearModel(loss={loss!r}): give a name, an object with derivatives(z, y), or a scalar JAX function l(z, y)."
    )
