"""AR3 with interpolation updates and pre-rejection, as a rule for sigma and a sub-solver around another.

Cartis, Hauser, Liu, Welzel and Zhu 2025 (arXiv 2501.00404), after Gould, Porcelli and Toint 2012 for second order.
Along a step s, with t(a) = g's a + s'Bs a^2/2 + T[s]^3 a^3/6, a minimizer of the model t(a) + sigma/p |as|^p has

    sigma |s|^p = -t'(a) / a^(p-1).

From a = 0, where sigma is infinite, this falls as a grows, up to the first root of (p-1) t'(a) = a t''(a). Minimizers
up to there are called persistent: they are those that are reached as sigma falls from infinity. Those beyond are
transient: they vanish where sigma is raised, and tell little of f.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from tercet.checks import number, positive
from tercet.control.ray import Ray
from tercet.control.sigma import LARGEST, Control, Evidence
from tercet.model import power_of
from tercet.records import Matrix, Meets, Step, Vector
from tercet.subsolvers import Dense
from tercet.subsolvers.base import Ask, Needs, Subsolver, Taylor, Workspace, needs_of

RAISES = 100  # of sigma, before a step is tried as it is
SMALL = 1e-8  # of |g's|: a regularizer below this much no longer shapes the step


def persistent_until(ray: Ray, power: int) -> float:
    """The first a > 0 at which minimizers along the ray cease to be persistent; 0 where the ray does not go down."""
    if not ray.c1 < 0.0:
        return 0.0
    p = power
    return first_above(0.0, ((p - 1) * ray.c1, (p - 2) * ray.c2, (p - 3) / 2 * ray.c3))


def first_above(low: float, c: tuple[float, ...]) -> float:
    """The first root of c0 + c1 a + c2 a^2 + ... above `low`; inf where there is none."""
    found = roots(c)
    found = found[found > low]
    return float(found.min()) if found.size else inf


def roots(c: tuple[float, ...]) -> Vector:
    """The real roots of c0 + c1 a + c2 a^2 + ..."""
    found = np.roots(np.trim_zeros(np.array(c[::-1]), "f"))
    real: Vector = found[np.abs(found.imag) <= 1e-10 * np.abs(found)].real
    return real


@dataclass(frozen=True)
class Interpolation:
    """sigma by interpolation along the step. With rho the ratio of f's decrease and that of the Taylor polynomial:

    rho > 1: the largest sigma at which the regularizer is `part` of what it was, as far as the persistent minimizer
    goes; a tenth of sigma where that is further than twice the step. rho >= eta2: `shrink` sigma. rho >= eta1: sigma.
    rho >= 0: `grow` sigma. rho < 0: the smallest sigma at whose persistent minimizer the polynomial through f(x + s)
    falls by eta1 of what Taylor's does, but from `grow` to `most` times sigma.

    The defaults are those of the authors.
    """

    start: float = 1.0
    eta1: float = 0.01
    eta2: float = 0.95
    shrink: float = 0.5
    grow: float = 3.0
    most: float = 100.0
    part: float = 0.01
    minimum: float = 1e-8

    def __post_init__(self) -> None:
        positive("Interpolation", "start", self.start, LARGEST)
        positive("Interpolation", "minimum", self.minimum, LARGEST)
        if not 0 < number(self.eta1) < number(self.eta2) < 1:
            raise ValueError(f"Interpolation(eta1={self.eta1!r}, eta2={self.eta2!r}): give 0 < eta1 < eta2 < 1.")
        if not 0 < number(self.shrink) < 1 < number(self.grow) <= number(self.most) < inf:
            given = f"shrink={self.shrink!r}, grow={self.grow!r}, most={self.most!r}"
            raise ValueError(f"Interpolation({given}): give 0 < shrink < 1 < grow <= most.")
        if not 0 < number(self.part) < 1:
            raise ValueError(f"Interpolation(part={self.part!r}): part is a fraction between 0 and 1.")

    def first(self) -> Control:
        """sigma_0."""
        return Control(self.start, self.start)

    def next(self, control: Control, evidence: Evidence) -> Control:
        """By the ratio, from the sigma with which the step was made."""
        sigma, rho = max(control.sigma3, evidence.sigma), evidence.ratio
        if not isfinite(rho):
            factor = self.most
        elif rho < 0.0:
            factor = self.raised(evidence, sigma)
        elif rho < self.eta1:
            factor = self.grow
        elif rho < self.eta2:
            factor = 1.0
        else:
            factor = self.shrink if rho <= 1.0 else self.lowered(evidence, sigma)
        sigma = min(max(factor * sigma, self.minimum), LARGEST)
        return Control(sigma, sigma)

    def raised(self, evidence: Evidence, sigma: float) -> float:
        """By how much sigma grows where f rose: (1 - eta1) t(a) + e a^p = 0 at the step that it should have given."""
        ray, p = evidence.ray(), evidence.power
        e = evidence.change - taylor(ray, 1.0)
        c = [(1 - self.eta1) * ray.c1, (1 - self.eta1) * ray.c2 / 2, (1 - self.eta1) * ray.c3 / 6, 0.0]
        c[p - 1] += e
        found = roots(tuple(c))
        found = found[(found > 0.0) & (found < min(1.0, persistent_until(ray, p)))]
        wanted = sigma_of(ray, float(found.max()), evidence) if found.size else 0.0
        return min(max(wanted / sigma, self.grow), self.most)

    def lowered(self, evidence: Evidence, sigma: float) -> float:
        """By how much sigma falls where f fell by more than Taylor's polynomial: a t'(a) = part t'(1), from a = 1."""
        ray, p = evidence.ray(), evidence.power
        now = ray.c1 + ray.c2 + ray.c3 / 2
        if not -now / p >= SMALL * abs(ray.c1):
            return self.shrink
        a = first_above(1.0, (-self.part * now, ray.c1, ray.c2, ray.c3 / 2))
        if a > min(2.0, persistent_until(ray, p)):
            return 0.1
        return min(max(sigma_of(ray, a, evidence) / sigma, 0.0), 1.0)


def taylor(ray: Ray, a: float) -> float:
    """t(a)."""
    return a * (ray.c1 + a * (ray.c2 / 2 + a * ray.c3 / 6))


def sigma_of(ray: Ray, a: float, evidence: Evidence) -> float:
    """The sigma whose model is stationary at a."""
    slope = ray.c1 + a * (ray.c2 + a * ray.c3 / 2)
    return -slope / max(power_of(a, evidence.power - 1) * power_of(evidence.length, evidence.power), 1e-300)


@dataclass(frozen=True)
class Persistent:
    """Pre-rejection: a step that is a transient minimizer along itself is not tried, and sigma grows by `grow`.

    f is not looked at for it. The steps are those of `subsolver`.
    """

    subsolver: Subsolver = field(default_factory=Dense)
    grow: float = 3.0

    def __post_init__(self) -> None:
        if isinstance(self.subsolver, type) or not hasattr(self.subsolver, "prepare"):
            raise ValueError(f"Persistent(subsolver={self.subsolver!r}): give a sub-solver, such as Dense().")
        if not 1 < number(self.grow) < inf:
            raise ValueError(f"Persistent(grow={self.grow!r}): give a number above 1.")

    def needs(self, traits: Any, sizes: Any) -> Needs:
        """What the other sub-solver needs."""
        return needs_of(self.subsolver, traits, sizes)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Get ready at a point."""
        return PersistentWorkspace(self.subsolver.prepare(taylor), taylor, self.grow)


@dataclass(frozen=True, eq=False)
class PersistentWorkspace:
    """A workspace whose transient steps are solved again."""

    inner: Workspace
    taylor: Taylor
    grow: float

    def solve(self, ask: Ask) -> Step:
        """The first persistent step, with the sigma that gave it."""
        spent = 0
        for _ in range(RAISES):
            step = self.inner.solve(ask)
            spent += step.inner
            if step.cubic is None or not transient(Ray.of(self.taylor.g, step), ask.power):
                break
            ask = replace(ask, sigma2=self.grow * ask.sigma2, sigma3=self.grow * ask.sigma3)
        return replace(step, inner=spent)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """As the other says, of the sigma that gave the step."""
        return self.inner.meets(step, replace(ask, sigma2=step.sigma, sigma3=step.sigma))

    def decreases(self, vectors: Matrix) -> Vector | None:
        """As the other says."""
        return self.inner.decreases(vectors)


def transient(ray: Ray, power: int) -> bool:
    """Whether the step at a = 1 vanishes as sigma grows, by more than an inexact solve explains."""
    return persistent_until(ray, power) < 1.0 - 1e-3
