"""How many terms each part of the model is averaged over: `Full`, `Fixed`, `Growing`, `Adaptive`, `Progressive`.

A rule is a frozen set of numbers with three things: `nested` (one shuffled order of the terms, of which every sample
is a beginning and which also serves for the function values) or independent draws; `replacement` for the latter; and
the sizes of the first and of the next iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, nan
from numbers import Integral
from typing import Protocol

from tercet.checks import above_one, flag, number, positive, three
from tercet.records import Sizes

NEVER_FULL = "the sample never becomes full"
MISSED = 0.25  # of the gradient: B over a sample that leaves more goes over to a larger one
MULTIPLE = 20.0  # terms for each variable, of which a first sample tells the way


@dataclass(frozen=True)
class Outlook:
    """What a rule may look at before it says the next sizes."""

    n: int
    d: int
    iteration: int
    sizes: Sizes
    step: float  # |s| of the last accepted step; nan before the first
    noise_share: float  # the decrease that sampling error can pretend, over the decrease that the model predicts
    noisy: bool  # the last step was rejected, and sampling error explains that
    spreads: tuple[float, float, float] = (1.0, 1.0, 1.0)  # typical deviation of one term's g, B, T from the mean
    variances: tuple[float, float, float] = (nan, nan, nan)  # of the drawn terms' g, B, T, for rules that observe them
    missed: float = 0.0  # what the last quadratic over these samples left of the gradient; inf: the step was rejected
    cost: float = 2.0  # how long the Hessian of a term takes, in its gradients
    scattered: float = 0.2  # samples of a larger share of the terms take as long as all of them


class SizeRule(Protocol):
    """Sizes of the samples along a run.

    One that also has `suited(fewest, d)` gives the rule for d variables and terms of which a sample of fewer saves no
    time (`Traits.fewest`).
    """

    @property
    def nested(self) -> bool:
        """Samples are beginnings of one shuffled order and serve for f, g, B and T alike."""
        ...

    @property
    def replacement(self) -> bool:
        """Independent samples are drawn with replacement."""
        ...

    def first(self, n: int, d: int) -> Sizes:
        """The sizes of the first iteration."""
        ...

    def next(self, outlook: Outlook) -> Sizes:
        """The sizes of the next one."""
        ...


@dataclass(frozen=True)
class Full:
    """All terms, always: the deterministic methods AR3 and ARC."""

    nested: bool = True
    replacement: bool = False

    def __post_init__(self) -> None:
        check_draws(self)

    def first(self, n: int, d: int) -> Sizes:
        """n for every part."""
        return Sizes(n, n, n, n)

    def next(self, outlook: Outlook) -> Sizes:
        """n for every part."""
        return outlook.sizes


def check_draws(rule: SizeRule) -> None:
    """Whether samples are nested, and drawn with replacement, is True or False."""
    for name in ("nested", "replacement"):
        flag(type(rule).__name__, name, getattr(rule, name))


def count(call: str, name: str, size: float, n: int) -> int:
    """A size given as a fraction (a float up to 1) or as a count (an int) of n terms."""
    whole = isinstance(size, Integral)
    if not number(size) > 0 or (not whole and size > 1):
        raise ValueError(f"{call}({name}={size!r}): give a fraction in (0, 1] or a positive whole number of terms.")
    return min(n, int(size) if whole else max(1, ceil(size * n)))


@dataclass(frozen=True)
class Fixed:
    """Independent samples of fixed size, as in the paper (5 % each); function values over all terms.

    Sizes are fractions (floats up to 1.0) or counts (ints). When a rejection is explained by sampling error, nothing
    grows: the run ends with the status that says so.
    """

    gradient: float = 0.05
    hessian: float = 0.05
    third: float = 0.05
    replacement: bool = False
    nested: bool = False

    def __post_init__(self) -> None:
        for name in ("gradient", "hessian", "third"):
            count("Fixed", name, getattr(self, name), 1)
        check_draws(self)

    def first(self, n: int, d: int) -> Sizes:
        """The same at every iteration."""
        sizes = (count("Fixed", name, getattr(self, name), n) for name in ("gradient", "hessian", "third"))
        return Sizes(n, *sizes)

    def next(self, outlook: Outlook) -> Sizes:
        """The same at every iteration."""
        return outlook.sizes


@dataclass(frozen=True)
class Growing:
    """Independent samples that grow by `factor` at each iteration from a `start` fraction, until they are full."""

    start: float = 0.05
    factor: float = 1.2
    replacement: bool = False
    nested: bool = False

    def __post_init__(self) -> None:
        count("Growing", "start", self.start, 1)
        above_one("Growing", "factor", self.factor, NEVER_FULL)
        check_draws(self)

    def first(self, n: int, d: int) -> Sizes:
        """The start fraction for g, B and T; values over all terms."""
        m = count("Growing", "start", self.start, n)
        return Sizes(n, m, m, m)

    def next(self, outlook: Outlook) -> Sizes:
        """The old sizes times the factor, twice that after a rejection that noise explains."""
        factor = self.factor * (2.0 if outlook.noisy else 1.0)
        return scale(outlook.sizes, factor, outlook.n)


@dataclass(frozen=True)
class Adaptive:
    """Sizes that follow the step: Condition 1 with eps replaced by |s|^3 for g, |s|^2 for B and |s| for T.

    With the typical deviation D_i of one term's derivative from the mean, the sample error is D_i / sqrt(m), and the
    condition D / sqrt(m) <= kappa |s|^(4-i) gives m = (D / (kappa |s|^(4-i)))^2. The last step stands in for the
    current one, which the paper leaves open.
    """

    start: float = 0.05
    kappa: tuple[float, float, float] = (0.25, 0.25, 0.5)
    most: float = 3.0  # no sample grows by more than this factor at once
    replacement: bool = False
    nested: bool = False

    def __post_init__(self) -> None:
        count("Adaptive", "start", self.start, 1)
        if not all(0 < k < inf for k in three(self.kappa)):
            raise ValueError(f"Adaptive(kappa={self.kappa!r}): give three positive finite numbers, for g, B and T.")
        above_one("Adaptive", "most", self.most, NEVER_FULL)
        check_draws(self)

    def first(self, n: int, d: int) -> Sizes:
        """The start fraction for g, B and T; values over all terms."""
        m = count("Adaptive", "start", self.start, n)
        return Sizes(n, m, m, m)

    def next(self, outlook: Outlook) -> Sizes:
        """What the last step asks for, within `most` of the old sizes; a noisy rejection asks for the most."""
        if outlook.noisy:
            return scale(outlook.sizes, self.most, outlook.n)
        if not outlook.step > 0:
            return outlook.sizes
        old = (outlook.sizes.gradient, outlook.sizes.hessian, outlook.sizes.third)
        asked = [
            # at 1e30 terms any sample is full; the bound keeps tiny steps from overflowing
            min(spread / max(kappa * outlook.step**power, 1e-300), 1e15) ** 2
            for spread, kappa, power in zip(outlook.spreads, self.kappa, (3, 2, 1), strict=True)
        ]
        new = [ceil(min(outlook.n, max(a, m), self.most * m)) for a, m in zip(asked, old, strict=True)]
        # With a full gradient the last phase has begun, which is one of full data.
        return Sizes(outlook.n, *(new if new[0] < outlook.n else [outlook.n] * 3))


@dataclass(frozen=True)
class Progressive:
    """Nested samples for f, g, B and T together, starting at `multiple` d terms, or at more where they are light; the
    default.

    A sample is solved with its own function values until the decrease that the model still predicts is below the one
    that sampling error alone can pretend,

        1/2 tr((B + mu I)^-1 C),  C the covariance of the sampled gradient,

    which the sampled terms give for free. Then the sample grows by `factor`, and in the end it is all data. Samples
    above a fifth of the data (on a device: above what is copied there), which serve for an iteration or two, are passed
    over, because scattered rows have to be collected first, which takes nearly as long as all rows in their order.

    When g is taken over all terms, B and T stay on the last sample, or on a tenth of the terms, if that is at least
    `lag` d, B for as long as it leaves less than a quarter of the gradient unexplained: their error, of the order
    sqrt(d/m), costs less in convergence than derivatives over all terms in time. The dearer Hessians are, the
    smaller that sample may be: (2/cost)^2 `lag` d, where they take as long as `cost` gradients.
    """

    multiple: float | None = None  # None: 20, or more where terms are light
    factor: float = 3.0
    lag: float = 400.0
    nested: bool = True
    replacement: bool = False

    def __post_init__(self) -> None:
        for name in ("multiple", "lag"):
            if getattr(self, name) is not None:
                positive("Progressive", name, getattr(self, name))
        above_one("Progressive", "factor", self.factor, NEVER_FULL)
        check_draws(self)

    def suited(self, fewest: float, d: int) -> Progressive:
        """To terms of which a sample of fewer saves no time: it begins with as many, where nothing else was asked."""
        return self if self.multiple is not None else replace(self, multiple=max(MULTIPLE, fewest / d))

    def first(self, n: int, d: int) -> Sizes:
        """multiple * d terms, or all of them where that is most of the data anyway."""
        return self.settle(ceil(min(n, (self.multiple or MULTIPLE) * d)), n)

    def next(self, outlook: Outlook) -> Sizes:
        """The same sample while it still teaches, else the next larger one."""
        m, n = outlook.sizes.hessian, outlook.n
        if outlook.sizes.value >= n:
            return self.follow(outlook) if outlook.missed > MISSED else outlook.sizes
        if not (outlook.noisy or outlook.noise_share >= 1.0):
            return outlook.sizes
        grown = self.settle(ceil(min(n, self.factor * m)), n, 1.0 / outlook.scattered)
        behind = min(m, n // 10)
        lags = grown.value == n and self.lag * outlook.d * (2.0 / outlook.cost) ** 2 <= behind
        return replace(grown, hessian=behind, third=behind) if lags else grown

    def follow(self, outlook: Outlook) -> Sizes:
        """The next larger sample for B and T; once B is over all terms, T stays where it is."""
        sizes, n = outlook.sizes, outlook.n
        m = self.settle(ceil(min(n, self.factor * sizes.hessian)), n, max(1.0, 20.0 / outlook.cost)).hessian
        return replace(sizes, hessian=m, third=sizes.third if m == n else m)

    def settle(self, m: int, n: int, near: float = 5.0) -> Sizes:
        """m terms, or all of them where less than the factor `near` is missing."""
        m = n if near * m >= n else max(m, 2)
        return Sizes(m, m, m, m)


def scale(sizes: Sizes, factor: float, n: int) -> Sizes:
    """g, B and T samples larger by a factor, at most n."""
    grown = {name: ceil(min(n, factor * getattr(sizes, name))) for name in ("gradient", "hessian", "third")}
    return replace(sizes, **grown)
