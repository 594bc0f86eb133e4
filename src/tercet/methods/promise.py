"""What an iteration can promise of its samples, where the size rule says so (`tercet.Theory`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from tercet.methods.state import Expansion
from tercet.objectives.counting import CountedPoint
from tercet.objectives.variances import variance
from tercet.records import Meets, Sampling, Sizes, Step, Vector
from tercet.result import Row
from tercet.sampling.theory import Promise, promises

UNKNOWN = (nan, nan, nan)


class WholeThird:
    """A point whose third_square leaves no term out: T is then the mean over the sample that Condition 1 speaks of."""

    def __init__(self, point: CountedPoint):
        self.point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self.point, name)

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s] over all sampled terms."""
        return self.point.third_product(s, s)

    def third_square_price(self, s: Vector) -> int:
        """All sampled terms."""
        return self.point.terms


@dataclass(frozen=True)
class Record:
    """What the trace keeps: which conditions were guaranteed (None: the rule does not say), and their failure."""

    holds: Meets = (None, None, None)
    failure: float = nan


def observe(rule: Any, here: Expansion) -> tuple[float, float, float]:
    """The variances of the drawn terms' gradients, Hessians and third derivatives, for a rule that wants them."""
    if not getattr(rule, "observes", False):
        return UNKNOWN
    first, second, third = (
        variance(point.point, order) for order, point in enumerate((here.first, here.second, here.third), start=1)
    )
    return first, second, third


def promise(
    rule: Any, sizes: Sizes, n: int, d: int, here: Expansion, step: Step, variances: tuple[float, float, float]
) -> Record:
    """The rule's guarantee, less what the iteration did not use: a Hessian that owes nothing to the past, a T."""
    if not promises(rule):
        return Record()
    given: Promise = rule.guarantee(sizes, n, d, variances)
    g, B, T = given.holds
    return Record((g, B and here.second.is_exact(), T and step.third is not None), given.failure)


def summarize(rows: Sequence[Row]) -> Sampling | None:
    """The guarantees of a run from its trace; None where its size rule gives none."""
    told = [row for row in rows if row.guaranteed[0] is not None]
    if not told:
        return None
    g, B, T = (sum(bool(row.guaranteed[i]) for row in told) for i in range(3))
    return Sampling(len(told), g, B, T, float(sum(row.failure for row in told)))
