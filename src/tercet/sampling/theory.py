"""`Theory`: sample sizes that guarantee Condition 1 with a stated probability, and what each iteration can promise.

|g - grad f| <= kg eps,   |B - hess f| <= kb eps^(2/3),   |T - third f| <= kt eps^(1/3)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite, isnan, nan
from typing import Any

from tercet.checks import flag, number, positive, probability, three, whole
from tercet.records import Sizes
from tercet.sampling.bernstein import Bernstein, matrix_bernstein, tensor_bernstein, vector_bernstein
from tercet.sampling.bounds import Hoeffding, matrix_tail, tensor_tail, vector_tail
from tercet.sampling.rules import Outlook, count

BOUNDS = ("hoeffding", "bernstein")
Three = tuple[float, float, float]


@dataclass(frozen=True)
class Ranges:
    """How far single terms can lie apart, over all x that the run may visit.

    `gradient`: the largest |grad f_i|; `hessian`: b - a with a I <= hess f_i <= b I; `third`: b - a with
    a <= third f_i[u]^3 <= b over unit u. Parts that all terms share, such as a penalty, may be left out. 0 says that
    the terms do not differ, inf that no bound is known. `rank_one` says that the third derivative of every term is
    c a (x) a (x) a, as in a linear model; its samples are then far smaller.
    """

    gradient: float
    hessian: float
    third: float
    rank_one: bool = False

    def __post_init__(self) -> None:
        for name in ("gradient", "hessian", "third"):
            value = getattr(self, name)
            if not number(value) >= 0:
                raise ValueError(
                    f"Ranges({name}={value!r}): give a number that is at least 0; inf where none is known."
                )
        flag("Ranges", "rank_one", self.rank_one)

    def as_tuple(self) -> Three:
        """The three in their order."""
        return self.gradient, self.hessian, self.third


@dataclass(frozen=True)
class Promise:
    """Which of the three conditions of one iteration are guaranteed, and with what probability one of these fails."""

    holds: tuple[bool, bool, bool]
    failure: float


@lru_cache(maxsize=64)
def tails(n: int, d: int, ranges: Ranges) -> tuple[Hoeffding | None, Hoeffding | None, Hoeffding | None]:
    """The worst-case bounds for g, B and T; None where the terms do not differ or no range is known."""
    g, b, t = (value if value > 0 and isfinite(value) else None for value in ranges.as_tuple())
    return (
        None if g is None else vector_tail(d, g, n),
        None if b is None else matrix_tail(d, N=n, width=b),
        None if t is None else tensor_tail(d, t, n, rank_one=ranges.rank_one),
    )


@lru_cache(maxsize=64)
def empirical(n: int, d: int, ranges: Ranges) -> tuple[Bernstein | None, Bernstein | None, Bernstein | None]:
    """The same from the observed variance."""
    g, b, t = (value if value > 0 and isfinite(value) else None for value in ranges.as_tuple())
    return (
        None if g is None else vector_bernstein(d, g, n),
        None if b is None else matrix_bernstein(d, N=n, width=b),
        None if t is None else tensor_bernstein(d, t, n, rank_one=ranges.rank_one),
    )


@dataclass(frozen=True)
class Theory:
    """Samples without replacement that are large enough for Condition 1; function values over all terms.

    Over up to `iterations` iterations all three conditions hold with probability at least 1 - delta; each condition of
    each iteration may fail with delta / (3 iterations). `ranges` come from `tercet.theory.constants(problem).ranges`.

    bound="hoeffding" knows the ranges only: one size for the whole run, often n on real data. bound="bernstein" uses
    the variance of the terms seen in the last iteration for the next sizes (the first takes a `start` fraction), and
    promises after the draw what the drawn sample's own variance supports; an iteration whose sample turns out too small
    is recorded as not guaranteed. After a rejection that sampling error explains, both go to all terms, where the
    certificate is made.
    """

    eps: float
    delta: float
    ranges: Ranges
    kappa: Three = (0.03, 0.25, 0.5)
    iterations: int = 1000
    bound: str = "hoeffding"
    start: float = 0.1
    nested: bool = field(default=False, init=False)
    replacement: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        positive("Theory", "eps", self.eps)
        probability("Theory", "delta", self.delta)
        whole("Theory", "iterations", self.iterations, most=1e15)
        count("Theory", "start", self.start, 1)
        if not isinstance(self.ranges, Ranges):
            raise ValueError(f"Theory(ranges={self.ranges!r}): give Ranges(gradient, hessian, third).")
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise ValueError(f"Theory(bound={self.bound!r}): choose one of {', '.join(BOUNDS)}.")
        if any(isnan(kappa) for kappa in three(self.kappa)):
            raise ValueError(f"Theory(kappa={self.kappa!r}): give three positive numbers, for g, B and T.")
        for kappa in self.kappa:
            positive("Theory", "kappa", kappa)

    @property
    def tolerances(self) -> Three:
        """kg eps, kb eps^(2/3), kt eps^(1/3)."""
        kg, kb, kt = self.kappa
        return kg * self.eps, kb * self.eps ** (2 / 3), kt * self.eps ** (1 / 3)

    @property
    def share(self) -> float:
        """What one condition of one iteration may fail with."""
        return self.delta / (3 * self.iterations)

    def first(self, n: int, d: int) -> Sizes:
        """The worst-case sizes, or the start fraction where the variance will tell."""
        if self.bound == "bernstein":
            m = count("Theory", "start", self.start, n)
            return Sizes(n, m, m, m)
        pairs = zip(tails(n, d, self.ranges), self.tolerances, strict=True)
        sizes = [self.alone(i, n) if tail is None else tail.size(t, self.share) for i, (tail, t) in enumerate(pairs)]
        return Sizes(n, *sizes)

    def alone(self, part: int, n: int) -> int:
        """The size where there is no bound: one term where all are equal, all terms where no range is known."""
        return 1 if self.ranges.as_tuple()[part] == 0.0 else n

    def next(self, outlook: Outlook) -> Sizes:
        """The same sizes, or those that the observed variances ask for; all terms once noise explains a rejection."""
        n, old = outlook.n, outlook.sizes
        if outlook.noisy or old.gradient >= n:
            return Sizes(n, n, n, n)
        if self.bound == "hoeffding":
            return old
        return Sizes(n, *(self.plan(i, n, outlook.d, v) for i, v in enumerate(outlook.variances)))

    def plan(self, part: int, n: int, d: int, variance: float) -> int:
        """The size for a variance a tenth above the one seen, since the next sample's will differ.

        Where the objective does not tell its variances, the worst case.
        """
        t, worst, seen = self.tolerances[part], tails(n, d, self.ranges)[part], empirical(n, d, self.ranges)[part]
        if worst is None or seen is None:
            return self.alone(part, n)
        return worst.size(t, self.share) if isnan(variance) else seen.size(t, self.share, 1.1 * variance)

    @property
    def observes(self) -> bool:
        """Whether the variances of the drawn terms are wanted."""
        return self.bound == "bernstein"

    def guarantee(self, sizes: Sizes, n: int, d: int, variances: Three = (nan, nan, nan)) -> Promise:
        """What the sizes, and for Bernstein the observed variances, promise of this iteration's g, B and T."""
        parts = (sizes.gradient, sizes.hessian, sizes.third)
        checks = [self.check(i, m, n, d, v) for i, (m, v) in enumerate(zip(parts, variances, strict=True))]
        return Promise((checks[0][0], checks[1][0], checks[2][0]), sum(failure for _, failure in checks))

    def check(self, part: int, m: int, n: int, d: int, variance: float) -> tuple[bool, float]:
        """Whether one condition is guaranteed, and what that adds to the failure.

        Hoeffding knows beforehand, and adds only where it guarantees. Bernstein looks at the drawn sample, so every
        look adds its share, whatever it shows.
        """
        if m >= n or self.ranges.as_tuple()[part] == 0.0:
            return True, 0.0
        t = self.tolerances[part]
        if self.bound == "hoeffding" or isnan(variance):
            tail = tails(n, d, self.ranges)[part]
            failure = 1.0 if tail is None else tail.failure(m, t)
            holds = failure <= self.share * (1 + 1e-9)  # the sizes were chosen to make them equal, up to rounding
            return holds, failure if holds else 0.0
        seen = empirical(n, d, self.ranges)[part]
        if seen is None:
            return False, 0.0
        return seen.accuracy(m, self.share, variance) <= t, self.share


def promises(rule: Any) -> bool:
    """Whether a size rule says what its samples guarantee."""
    return hasattr(rule, "guarantee")
