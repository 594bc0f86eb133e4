"""What an iteration can promise of its samples, where the size rule says so (`tercet.Theory`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Protocol

from tercet.methods.run import Run
from tercet.methods.state import UNKNOWN, Expansion, Three
from tercet.objectives.metered import MeteredPoint, exact, variance
from tercet.records import Meets, Sampling, Sizes, Step, Vector
from tercet.result import Row
from tercet.sampling.theory import Promise


@dataclass(frozen=True)
class Record:
    """What the trace keeps: which conditions were guaranteed (None: the rule does not say), and their failure."""

    holds: Meets = (None, None, None)
    failure: float = nan
    variances: Three = UNKNOWN


NO_RECORD = Record()


class Guarantee(Protocol):
    """What the samples of an iteration have to be for what the size rule promises of them."""

    @property
    def promises(self) -> bool:
        """Whether anything is promised."""
        ...

    def base(self, point: MeteredPoint) -> MeteredPoint:
        """x over all terms, for B and T where these are not sampled."""
        ...

    def third(self, point: MeteredPoint) -> Any:
        """The point that gives T."""
        ...

    def record(self, run: Run, sizes: Sizes, at: Expansion, step: Step) -> Record:
        """What holds of this iteration, and the variances of the drawn terms, where the rule wants them."""
        ...


@dataclass(frozen=True)
class Nothing:
    """A rule that promises nothing, and asks nothing."""

    promises: bool = False

    def base(self, point: MeteredPoint) -> MeteredPoint:
        """The point as it is."""
        return point

    def third(self, point: MeteredPoint) -> MeteredPoint:
        """The point as it is."""
        return point

    def record(self, run: Run, sizes: Sizes, at: Expansion, step: Step) -> Record:
        """Nothing."""
        return NO_RECORD


@dataclass(frozen=True)
class Promised:
    """A rule with a `guarantee`: B owes nothing to other points, and T leaves no term out."""

    rule: Any
    order: int  # of the method: 2 takes no third derivatives
    promises: bool = True

    def base(self, point: MeteredPoint) -> MeteredPoint:
        """The point without its past."""
        return exact(point)

    def third(self, point: MeteredPoint) -> WholeThird:
        """Over all sampled terms."""
        return WholeThird(point)

    def observe(self, at: Expansion) -> Three:
        """As far as the objective tells."""
        if not getattr(self.rule, "observes", False):
            return UNKNOWN
        return variance(at.slope, 1), variance(at.B, 2), variance(at.T, 3) if self.order >= 3 else nan

    def record(self, run: Run, sizes: Sizes, at: Expansion, step: Step) -> Record:
        """The rule's guarantee, less what the iteration did not use: a Hessian that owes nothing to the past, a T."""
        variances = self.observe(at)
        given: Promise = self.rule.guarantee(sizes, run.n, run.d, variances)
        g, B, T = given.holds
        return Record((g, B and at.B.inexact > 2, T and step.cubic is not None), given.failure, variances)


class WholeThird:
    """A point whose third_square leaves no term out: T is then the mean over the sample that Condition 1 speaks of."""

    def __init__(self, point: MeteredPoint):
        self.third_product, self.third_tensor = point.third_product, point.third_tensor

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s] over all sampled terms."""
        return self.third_product(s, s)


def guarantee_of(rule: Any, order: int) -> Guarantee:
    """What a size rule promises."""
    return Promised(rule, order) if hasattr(rule, "guarantee") else Nothing()


def summarize(rows: Sequence[Row]) -> Sampling | None:
    """The guarantees of a run from its trace; None where its size rule gives none."""
    told = [row for row in rows if row.guaranteed[0] is not None]
    if not told:
        return None
    g, B, T = (sum(bool(row.guaranteed[i]) for row in told) for i in range(3))
    return Sampling(len(told), g, B, T, float(sum(row.failure for row in told)))
