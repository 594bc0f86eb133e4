"""Losses of generalized linear models, and a smooth quantile loss, with their first three derivatives in z = a'x.

Those of counts and of positive targets have the log link, mu = exp(z), and are half the unit deviance: what the
negative log-likelihood has above its lowest value, which mu = y attains. So l is at least 0, is 0 for a perfect fit and
keeps its digits there; what depends on y alone is left out, and `log_likelihood` has it again.

A loss that is a likelihood also says, for `tercet.inference`: `mean(z)`, the expected target; `variance(mu)`, its
variance but for a factor phi; `phi`, which is 1 or, where it has to be estimated, None; `log_likelihood(z, y, phi)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit, gammaln, xlogy

from tercet.checks import number, probability
from tercet.records import Vector

if TYPE_CHECKING:
    from tercet.objectives.losses import Formula

Four = tuple[Vector, Vector, Vector, Vector]


def check_at_least(name: str, y: Vector, positive: bool) -> None:
    """Targets that are at least 0, or above it."""
    wrong = y[y <= 0.0] if positive else y[y < 0.0]
    if wrong.size:
        least = "positive targets" if positive else "targets that are at least 0"
        raise ValueError(
            f"LinearModel(loss={name!r}): y holds {wrong[:3].tolist()}, but this loss takes {least}; "
            "drop those rows, or choose another loss."
        )


def one_at_a_time(loss: Any, much: bool) -> Formula:
    """How such a loss is asked: one derivative at a time on much data, all at once on little."""
    from tercet.objectives.losses import Formula

    return Formula(loss.part) if much else Formula()


def from_parts(part: Callable[[int, Vector, Vector], Vector], z: Vector, y: Vector) -> Four:
    """(l, l', l'', l''')."""
    return part(0, z, y), part(1, z, y), part(2, z, y), part(3, z, y)


def nonzero(y: Vector) -> Vector:
    """y, and 1 for y = 0, whose terms have a formula of their own."""
    return np.where(y > 0.0, y, 1.0)


@dataclass(frozen=True)
class Poisson:
    """Poisson regression of counts: l = mu - y - y log(mu / y), mu = exp(z), y >= 0. Convex; var y = mu."""

    phi: ClassVar[float | None] = 1.0

    def check(self, y: Vector) -> None:
        """y >= 0."""
        check_at_least("poisson", y, positive=False)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With u = z - log y: l = y (exp(u) - 1 - u), or mu for y = 0; l' = mu - y, l'' = l''' = mu."""
        with np.errstate(over="ignore"):
            mu = np.exp(z)
        return self.part(0, z, y), mu - y, mu, mu

    def part(self, order: int, z: Vector, y: Vector) -> Vector:
        """l^(order) alone."""
        with np.errstate(over="ignore"):
            if order > 0:
                mu = np.exp(z)
                return mu - y if order == 1 else mu
            some = nonzero(y)
            u = z - np.log(some)
            return np.where(y > 0.0, some * (np.expm1(u) - u), np.exp(z))

    def formula(self, much: bool) -> Formula:
        """One derivative at a time on much data."""
        return one_at_a_time(self, much)

    def mean(self, z: Vector) -> Vector:
        """exp(z)."""
        return np.exp(z)

    def variance(self, mu: Vector) -> Vector:
        """mu."""
        return mu

    def log_likelihood(self, z: Vector, y: Vector, phi: float) -> Vector:
        """y z - exp(z) - log y!."""
        return xlogy(y, y) - y - gammaln(y + 1.0) - self.part(0, z, y)


@dataclass(frozen=True)
class NegativeBinomial:
    """Negative binomial regression of counts that spread more than Poisson's: var y = mu + dispersion mu^2, y >= 0.

        l = (y + r) log((r + mu) / (r + y)) - y log(mu / y),   mu = exp(z),   r = 1 / dispersion

    The dispersion is taken as known. Convex in z.
    """

    dispersion: float = 1.0
    phi: ClassVar[float | None] = 1.0

    def __post_init__(self) -> None:
        if not 1e-10 <= number(self.dispersion) <= 1e10:
            raise ValueError(
                f"NegativeBinomial(dispersion={self.dispersion!r}): dispersion must be a number between 1e-10 and "
                "1e10; var y = mu + dispersion mu^2. For 0 take the loss 'poisson'."
            )

    @property
    def r(self) -> float:
        """1 / dispersion."""
        return 1.0 / self.dispersion

    def check(self, y: Vector) -> None:
        """y >= 0."""
        check_at_least("negative_binomial", y, positive=False)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With p = mu / (r + mu), q = 1 - p: l' = (y + r) p - y, l'' = (y + r) p q, l''' = (y + r) p q (q - p)."""
        return from_parts(self.part, z, y)

    def part(self, order: int, z: Vector, y: Vector) -> Vector:
        """l^(order) alone."""
        r = self.r
        v = z - np.log(r)
        if order == 0:
            return np.where(y > 0.0, self.above_zero(z, nonzero(y)), r * np.logaddexp(0.0, v))
        p, q = expit(v), expit(-v)
        if order == 1:
            return r * p - y * q
        return (y + r) * p * q * (1.0 if order == 2 else q - p)

    def above_zero(self, z: Vector, y: Vector) -> Vector:
        """l for y > 0, with u = log(mu / y), in the one of two ways whose terms are smaller:

        (y + r) log(1 + y/(r + y) (exp(u) - 1)) - y u  =  (y + r) log(1 + r/(r + y) (exp(-u) - 1)) + r u
        """
        r, far = self.r, 30.0
        u = z - np.log(y)
        first = (y + r) * np.log1p(y / (r + y) * np.expm1(np.minimum(u, far))) - y * u
        second = (y + r) * np.log1p(r / (r + y) * np.expm1(-np.maximum(u, -far))) + r * u
        return np.where(np.where(y > r, u < -far, u < far), first, second)

    def formula(self, much: bool) -> Formula:
        """One derivative at a time on much data."""
        return one_at_a_time(self, much)

    def mean(self, z: Vector) -> Vector:
        """exp(z)."""
        return np.exp(z)

    def variance(self, mu: Vector) -> Vector:
        """mu + dispersion mu^2."""
        return mu + self.dispersion * mu * mu

    def log_likelihood(self, z: Vector, y: Vector, phi: float) -> Vector:
        """log of Gamma(y + r) / (Gamma(r) y!) q^r p^y."""
        r = self.r
        best = xlogy(y, y / (r + y)) + r * np.log(r / (r + y))
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) + best - self.part(0, z, y)


@dataclass(frozen=True)
class Gamma:
    """Gamma regression of positive targets: l = y / mu - 1 - log(y / mu), mu = exp(z), y > 0; var y = phi mu^2.

    The factor phi does not change the minimizer, and is estimated where it is needed. Convex in z.
    """

    phi: ClassVar[float | None] = None

    def check(self, y: Vector) -> None:
        """y > 0."""
        check_at_least("gamma", y, positive=True)

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With t = y / mu: l' = 1 - t, l'' = t, l''' = -t."""
        return from_parts(self.part, z, y)

    def part(self, order: int, z: Vector, y: Vector) -> Vector:
        """l^(order) alone."""
        u = np.log(y) - z
        with np.errstate(over="ignore"):
            if order < 2:
                return np.expm1(u) - u if order == 0 else -np.expm1(u)
            return np.exp(u) if order == 2 else -np.exp(u)

    def formula(self, much: bool) -> Formula:
        """One derivative at a time on much data."""
        return one_at_a_time(self, much)

    def mean(self, z: Vector) -> Vector:
        """exp(z)."""
        return np.exp(z)

    def variance(self, mu: Vector) -> Vector:
        """mu^2."""
        return mu * mu

    def log_likelihood(self, z: Vector, y: Vector, phi: float) -> Vector:
        """log of the density with shape 1/phi and mean mu."""
        k = 1.0 / phi
        return k * np.log(k) - k - np.log(y) - gammaln(k) - k * self.part(0, z, y)


@dataclass(frozen=True)
class SmoothQuantile:
    """Regression to a quantile q, with the kink of the pinball loss rounded off over a width c (`scale`):

        l = c (log(1 + exp(u)) - q u),   u = (z - y) / c

    For c to 0 this is the pinball loss; for any c its minimizer is the quantile of targets to which logistic noise of
    scale c was added. Convex. Not a likelihood.
    """

    quantile: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        probability("SmoothQuantile", "quantile", self.quantile)
        if not 1e-100 <= number(self.scale) <= 1e100:
            raise ValueError(
                f"SmoothQuantile(scale={self.scale!r}): scale must be a positive number between 1e-100 and 1e100; "
                "it is the width over which the kink is rounded off."
            )

    def derivatives(self, z: Vector, y: Vector) -> Four:
        """With p = 1 / (1 + exp(-u)): l' = p - q, l'' = p (1 - p) / c, l''' = p (1 - p) (1 - 2p) / c^2."""
        return from_parts(self.part, z, y)

    def part(self, order: int, z: Vector, y: Vector) -> Vector:
        """l^(order) alone."""
        c, q = self.scale, self.quantile
        u = (z - y) / c
        if order == 0:  # neither difference cancels: c log(1 + exp(-|u|)) + (1 - q) u or -q u
            return c * np.log1p(np.exp(-np.abs(u))) + np.where(u > 0.0, (1.0 - q) * (z - y), -q * (z - y))
        high, low = expit(u), expit(-u)
        if order == 1:
            return high - q
        return high * low / c if order == 2 else high * low * (low - high) / c**2

    def formula(self, much: bool) -> Formula:
        """One derivative at a time on much data."""
        return one_at_a_time(self, much)
