"""How strongly a step is regularized: sigma from the paper's factors, or from data that is already paid for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Protocol

import numpy as np

from tercet.checks import number, positive, three
from tercet.control.ray import Ray
from tercet.model import power_of

LARGEST = 1e100  # of a sigma to begin with
SMALLEST = 1e-100  # sigma after many steps without a miss


@dataclass(frozen=True)
class Control:
    """sigma for the model without T and with it, and a bound on |s|."""

    sigma2: float
    sigma3: float
    radius: float = np.inf


@dataclass(frozen=True)
class Miss:
    """How a Taylor polynomial phi missed f at the trial point: f+ - phi(s), and (grad f+ - grad phi)'s where known."""

    value: float
    slope: float = np.nan

    def estimate(self, length: float, power: int) -> float:
        """The signed sigma that would have made the model exact: p (f+ - phi)/|s|^p, or the same from the gradients."""
        scale = power_of(length, power)
        if scale == 0.0:
            return 0.0
        by_value, by_slope = power * self.value / scale, self.slope / scale
        return max(by_value if isfinite(by_value) else 0.0, by_slope if isfinite(by_slope) else 0.0, 0.0)


def level() -> Ray:
    """No derivatives are known along a step."""
    return Ray(0.0, 0.0)


@dataclass(frozen=True)
class Evidence:
    """What one judged step tells: its ratio, its length, and how the polynomials of order 2 and 3 missed."""

    ratio: float
    accepted: bool
    length: float
    power: int
    quadratic: Miss
    cubic: Miss | None  # None where T was not bought
    best: float = 0.5  # the fraction of the step at which f is lowest, by what was seen of it
    ray: Callable[[], Ray] = level  # the derivatives along the step
    change: float = np.nan  # f(x + s) - f(x)
    sigma: float = 0.0  # with which the step was made


Begin = Callable[[Control, float, Callable[[], float]], Control]


def as_it_is(control: Control, x: float, cauchy: Callable[[], float]) -> Control:
    """The `begin` of a rule that has none."""
    return control


class SigmaRule(Protocol):
    """How sigma and the radius follow the evidence.

    One that also has `begin(control, x, cauchy)` is asked before each step with |x| and a function that gives the
    length of the step of steepest descent, both in the units of the step.
    """

    @property
    def eta1(self) -> float:
        """A step is accepted when ratio >= eta1."""
        ...

    def first(self) -> Control:
        """Before any evidence."""
        ...

    def next(self, control: Control, evidence: Evidence) -> Control:
        """After a judged step."""
        ...


@dataclass(frozen=True)
class TrustRegion:
    """No sigma, and a bound on |s| that follows what f was seen to do; the default.

    A bound that is reached acts like a sigma: s minimizes the model with sigma = mu / |s|^(p-2), mu the multiplier of
    |s| <= radius, and the trace shows that sigma. Where f fell by the ratio rho of what was promised, the radius is
    4 rho times the last step, at least half of it and at most `grow` times. After a rejection it ends where f is
    lowest along the step, by the fourth-order polynomial that its derivatives at x and its value at x + s tell. The
    first is as if a good step as long as the larger of |x| and the step of steepest descent had gone before.
    """

    eta1: float = 0.1
    grow: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < number(self.eta1) < 1:
            raise ValueError(f"TrustRegion(eta1={self.eta1!r}): give 0 < eta1 < 1.")
        if not 1 < number(self.grow) < inf:
            raise ValueError(f"TrustRegion(grow={self.grow!r}): give a number above 1.")

    def first(self) -> Control:
        """No bound before x and g are known."""
        return Control(0.0, 0.0)

    def begin(self, control: Control, x: float, cauchy: Callable[[], float]) -> Control:
        """With the first radius, from |x| and the length of the step of steepest descent."""
        if isfinite(control.radius):
            return control
        return replace(control, radius=self.grow * max(x, cauchy(), SMALLEST))

    def next(self, control: Control, evidence: Evidence) -> Control:
        """The radius after a judged step."""
        size = evidence.length
        if not isfinite(evidence.ratio):
            return replace(control, radius=0.1 * size)
        if not evidence.accepted:
            return replace(control, radius=min(max(evidence.best, 0.1), 0.5) * min(size, control.radius))
        return replace(control, radius=min(max(4.0 * evidence.ratio, 0.5), self.grow) * size)


@dataclass(frozen=True)
class PaperSigma:
    """The paper's rule with its factors gamma = (0.8, 1.2, 2) and eta = (0.2, 0.8).

    ratio > eta2: sigma falls to max(minimum, gamma1 sigma); eta1 <= ratio <= eta2: sigma stays (the paper allows
    [sigma, gamma2 sigma]); ratio < eta1: sigma grows to gamma3 sigma (the paper allows [gamma2, gamma3] sigma).
    """

    start: float = 1.0
    gamma: tuple[float, float, float] = (0.8, 1.2, 2.0)
    eta1: float = 0.2
    eta2: float = 0.8
    minimum: float = 1e-10

    def __post_init__(self) -> None:
        low, mid, high = three(self.gamma)
        if not (0 < low < 1 < mid <= high < inf):
            raise ValueError(f"PaperSigma(gamma={self.gamma!r}): give 0 < gamma1 < 1 < gamma2 <= gamma3.")
        if not 0 < number(self.eta1) < number(self.eta2) < 1:
            raise ValueError(f"PaperSigma(eta1={self.eta1!r}, eta2={self.eta2!r}): give 0 < eta1 < eta2 < 1.")
        positive("PaperSigma", "start", self.start, LARGEST)
        positive("PaperSigma", "minimum", self.minimum, LARGEST)

    def first(self) -> Control:
        """sigma_0."""
        return Control(self.start, self.start)

    def next(self, control: Control, evidence: Evidence) -> Control:
        """gamma1 sigma, sigma or gamma3 sigma."""
        sigma = control.sigma3
        if evidence.ratio > self.eta2:
            sigma = max(self.minimum, self.gamma[0] * sigma)
        elif not evidence.ratio >= self.eta1:
            sigma = self.gamma[2] * sigma
        return Control(sigma, sigma)


@dataclass(frozen=True)
class SignedEstimate:
    """sigma from how the last polynomial missed, and a radius beside it.

    After an accepted step sigma is the signed estimate max(p (f+ - phi)/|s|^p, (grad f+ - grad phi)'s/|s|^p, 0), but
    not below `shrink` sigma. After a rejection it is at least `grow` sigma and at most `leap` sigma. A radius keeps the
    next step within twice the last good one (or `memory` times the old radius, if that is more), since an estimate
    along one direction says little about another.
    """

    start: float = 0.01
    eta1: float = 0.1
    shrink: float = 0.03
    grow: float = 3.0
    leap: float = 100.0
    memory: float = 0.7

    def __post_init__(self) -> None:
        positive("SignedEstimate", "start", self.start, LARGEST)
        if not 0 < number(self.eta1) < 1:
            raise ValueError(f"SignedEstimate(eta1={self.eta1!r}): give 0 < eta1 < 1.")
        if not (0 < number(self.shrink) < 1 < number(self.grow) <= number(self.leap) < inf):
            given = f"shrink={self.shrink!r}, grow={self.grow!r}, leap={self.leap!r}"
            raise ValueError(f"SignedEstimate({given}): give 0 < shrink < 1 < grow <= leap.")
        if not 0 <= number(self.memory) <= 1:
            raise ValueError(f"SignedEstimate(memory={self.memory!r}): memory is a fraction between 0 and 1.")

    def first(self) -> Control:
        """sigma_0, any length."""
        return Control(self.start, self.start)

    def next(self, control: Control, evidence: Evidence) -> Control:
        """Both sigmas and the radius after a judged step."""
        return Control(
            self.update(control.sigma2, evidence.quadratic, evidence),
            control.sigma3 if evidence.cubic is None else self.update(control.sigma3, evidence.cubic, evidence),
            self.radius(control.radius, evidence),
        )

    def update(self, sigma: float, miss: Miss, evidence: Evidence) -> float:
        """One sigma, from how its polynomial missed."""
        estimate = miss.estimate(evidence.length, evidence.power)
        if evidence.accepted:
            return max(estimate, self.shrink * sigma, SMALLEST)
        if not np.isfinite(miss.value):
            return 10.0 * self.grow * sigma
        return max(self.grow * sigma, min(estimate, self.leap * sigma))

    def radius(self, radius: float, evidence: Evidence) -> float:
        """Twice the step after a good one, half of it after a bad one."""
        if not np.isfinite(evidence.ratio):
            return 0.1 * evidence.length
        if not evidence.accepted or evidence.ratio < 0.25:
            return 0.5 * evidence.length
        if evidence.ratio > 0.75:
            return max(2.0 * evidence.length, self.memory * radius if np.isfinite(radius) else 0.0)
        return evidence.length
