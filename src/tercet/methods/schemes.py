"""Schemes of acceleration: from which y the next step is taken, and what is remembered of it.

All of them take steps of one kind, from y to y + s with

    |grad f(y + s) + lambda s| <= 1/2 lambda |s|,   lambda = sigma |s|^(p-1),                         (*)

which holds for a step of the model of order p with sigma large enough beside the Lipschitz constant of its highest
derivative, and is checked at every step, so that no constant has to be known and a model may be minimized inexactly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, nan, sqrt
from typing import Any, Protocol

import numpy as np

from tercet.checks import above_one
from tercet.model import power_of
from tercet.objectives.metered import MeteredPoint
from tercet.records import Vector
from tercet.vectors import length

THETA = 0.5  # of (*)


@dataclass(frozen=True, eq=False)
class Momentum:
    """What an accelerated method keeps beside x, in the coordinates of its steps."""

    start: Vector  # where it last began
    pull: Vector  # sum of a_i grad f(x_i) since
    weight: float = 0.0  # A, the sum of the a_i
    guess: float = nan  # the lambda that the next step is expected to have
    steep: float = nan  # |grad f| at `start`
    lowest: float = inf  # the lowest curvature that was seen since
    near: float = inf  # how far the minimizer seems to be, over what was asked
    away: bool = False  # x goes away while f has nothing more to gain

    @staticmethod
    def at(c: Vector) -> Momentum:
        """None yet."""
        return Momentum(c, np.zeros_like(c))

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    def restarts(self, scheme: Scheme, p: int) -> bool:
        """Whether the guaranteed gap is half of what it was at the start, if f is nowhere less curved than was seen:

        |x* - x_0| <= |g_0| / mu,   f(x_0) - min f <= |g_0|^2 / (2 mu).
        """
        if not self.lowest > 0.0:
            return False
        return scheme.bound(self, self.steep / self.lowest, p) <= 0.25 * self.steep**2 / self.lowest


@dataclass(frozen=True, eq=False)
class Landing:
    """Where a step from y ended."""

    c: Vector  # y + s
    s: Vector
    slope: Vector  # grad f(y + s)
    sigma: float
    rate: float  # lambda
    following: float  # the sigma of the next step
    there: MeteredPoint
    inner: int
    decrease: float  # that the model promised
    serves: bool  # (*) holds


class Scheme(Protocol):
    """A way to accelerate steps of order p."""

    def propose(self, momentum: Momentum, c: Vector, sigma: float, p: int) -> tuple[float, Vector]:
        """The weight a of the next step, and the y that it begins at, when the method stands at c."""
        ...

    def absorb(self, momentum: Momentum, a: float, there: Landing, p: int) -> Momentum | None:
        """What is remembered of a step; None where it was too short for the weight it was to have."""
        ...

    def bound(self, momentum: Momentum, distance: float, p: int) -> float:
        """The gap that is guaranteed for a convex f with a minimizer within `distance` of the start."""
        ...


@dataclass(frozen=True)
class Unaccelerated:
    """x+ = x + s: f - min f falls like k^-p."""

    def propose(self, momentum: Momentum, c: Vector, sigma: float, p: int) -> tuple[float, Vector]:
        """From x itself."""
        return 0.0, c

    def absorb(self, momentum: Momentum, a: float, there: Landing, p: int) -> Momentum | None:
        """Nothing."""
        return momentum

    def bound(self, momentum: Momentum, distance: float, p: int) -> float:
        """No statement."""
        return inf


@dataclass(frozen=True)
class EstimateSequence:
    """Nesterov's estimating sequences: f - min f falls like k^-(p+1).

    psi_k(x) = |x - x_0|^(p+1) / (p+1) + sum a_i (f(x_i) + grad f(x_i)'(x - x_i)) has the minimizer v_k, and
    min psi_k >= A_k f(x_k) is kept by

        (A + a) grad f(x+)'(y - x+) >= p/(p+1) gamma^(-1/p) (a |grad f(x+)|)^((p+1)/p),  gamma = 2^(1-p),

    where y = (A x + a v) / (A + a). The weight a is one for which (*) implies that; a step for which it does not
    hold all the same (its sigma had to be raised) is not counted.
    """

    def propose(self, momentum: Momentum, c: Vector, sigma: float, p: int) -> tuple[float, Vector]:
        """a and y."""
        A, n = momentum.weight, length(momentum.pull)
        a = next_weight(A, (p + 1) / p * 2.0 ** ((1 - p) / p) * kappa(p) * sigma ** (-1.0 / p), p)
        v = momentum.start - (momentum.pull * n ** (1.0 / p - 1.0) if n > 0.0 else 0.0)
        return a, (A * c + a * v) / (A + a)

    def absorb(self, momentum: Momentum, a: float, there: Landing, p: int) -> Momentum | None:
        """With a more."""
        A, n = momentum.weight + a, length(there.slope)
        needed = p / (p + 1) * 2.0 ** ((p - 1) / p) * (a * n) ** ((p + 1) / p)
        if not -A * float(there.slope @ there.s) >= needed * (1.0 - 1e-9):
            return None
        return replace(momentum, pull=momentum.pull + a * there.slope, weight=A)

    def bound(self, momentum: Momentum, distance: float, p: int) -> float:
        """|x* - x_0|^(p+1) / ((p+1) A)."""
        return power_of(distance, p + 1) / ((p + 1) * momentum.weight) if momentum.weight > 0.0 else inf


def kappa(p: int) -> float:
    """The smallest grad f(x+)'(y - x+) sigma^(1/p) / |grad f(x+)|^((p+1)/p) that (*) allows:

    min (1 + (1 - theta^2) t^2) / (2 t^((p-1)/p)) over 1/(1+theta) <= t <= 1/(1-theta), t = lambda |s| / |grad f(x+)|
    """
    best = sqrt((p - 1) / ((p + 1) * (1.0 - THETA**2)))  # where the derivative in t is 0
    t = min(max(best, 1.0 / (1.0 + THETA)), 1.0 / (1.0 - THETA))
    return float((1.0 + (1.0 - THETA**2) * t * t) / (2.0 * t ** ((p - 1) / p)))


def next_weight(A: float, k: float, p: int) -> float:
    """a with a^((p+1)/p) <= k (A + a) for which A grows like the power p + 1 of the number of steps:

    (A + a)^(1/(p+1)) = A^(1/(p+1)) + c^(1/(p+1)),   c = k^p / (p+1)^(p+1)
    """
    root = (k / (p + 1)) ** (p / (p + 1)) / (p + 1) ** (1 / (p + 1))
    return power_of(A ** (1.0 / (p + 1)) + root, p + 1) - A


@dataclass(frozen=True)
class NearOptimal:
    """Monteiro and Svaiter's acceleration without a line search (Carmon, Hausler, Jambulapati, Jin and Sidford 2022):
    f - min f falls like k^-((3p+1)/2), which no method of order p surpasses.

    With a guess lambda' of the next lambda, lambda' a^2 = A + a and y = (A x + a v) / (A + a). A step whose lambda is
    not above the guess counts in full, and the next guess is lower by `factor`; else it counts for lambda'/lambda
    of its weight, and the next guess is higher. v moves by -a grad f(x+), and |x* - x_0|^2 / (2 A) bounds the gap.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        above_one("NearOptimal", "factor", self.factor, "the guess never changes")

    def propose(self, momentum: Momentum, c: Vector, sigma: float, p: int) -> tuple[float, Vector]:
        """a and y."""
        A, guess = momentum.weight, momentum.guess
        if A == 0.0 or not isfinite(guess):
            return nan, momentum.start
        a = (1.0 + sqrt(1.0 + 4.0 * guess * A)) / (2.0 * guess)
        return a, (A * c + a * (momentum.start - momentum.pull)) / (A + a)

    def absorb(self, momentum: Momentum, a: float, there: Landing, p: int) -> Momentum | None:
        """With a more, or with what it is worth."""
        if not isfinite(a):  # of the first step the guess is its own lambda
            a, guess = 1.0 / there.rate, there.rate
        else:
            guess = momentum.guess
        worth = min(1.0, guess / there.rate)
        following = guess / self.factor if worth == 1.0 else guess * self.factor
        pull = momentum.pull + worth * a * there.slope
        return replace(momentum, pull=pull, weight=momentum.weight + worth * a, guess=following)

    def bound(self, momentum: Momentum, distance: float, p: int) -> float:
        """|x* - x_0|^2 / (2 A)."""
        return distance**2 / (2.0 * momentum.weight) if momentum.weight > 0.0 else inf
