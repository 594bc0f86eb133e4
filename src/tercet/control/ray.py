"""f along a step, from what is known of it: its derivatives at x, and its values where it was looked at.

    f(x + ts) - f(x) = c1 t + c2/2 t^2 + c3/6 t^3 + c4 t^4 + c5 t^5

c1 = g's, c2 = s'Bs, c3 = T[s]^3; one value gives c4 (then c5 = 0), a second one both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from tercet.records import Step, Vector

FURTHEST = 3.0  # times as far as f was looked at last: what is fitted says little beyond
NEAREST = 0.1
GAIN = 0.1  # of what f fell: less is not worth another look
STRIDES, HALVINGS = 12, 10  # in search of a root: its first digits are enough

Looks = Sequence[tuple[float, float]]  # t and f(x + ts) - f(x)


@dataclass(frozen=True)
class Ray:
    """The first three derivatives of f along a step."""

    c1: float
    c2: float
    c3: float = 0.0

    @staticmethod
    def of(g: Vector, step: Step) -> Ray:
        """As the Taylor polynomials have it."""
        c1 = float(g @ step.s)
        c3 = 0.0 if step.cubic is None else 6.0 * (step.quadratic.decrease - step.cubic.decrease)
        return Ray(c1, -2.0 * (step.quadratic.decrease + c1), c3)

    def through(self, looks: Looks) -> tuple[float, float]:
        """c4 and c5, from the last one or two looks."""
        rest = [(t, (change - t * (self.c1 + t * (self.c2 / 2 + t * self.c3 / 6))) / t**4) for t, change in looks[-2:]]
        if len(rest) == 1:
            return rest[0][1], 0.0
        (s, a), (t, b) = rest
        c5 = (b - a) / (t - s)
        return a - c5 * s, c5

    def lowest(self, looks: Looks) -> float:
        """The first t > 0 at which f is lowest by what was seen of it, within a tenth and three times the last t."""
        last, (c4, c5) = looks[-1][0], self.through(looks)
        if not (isfinite(c4) and isfinite(c5)):
            return NEAREST * last
        return first_root(self.c1, self.c2, self.c3 / 2, 4 * c4, 5 * c5, NEAREST * last, FURTHEST * last)

    def next(self, looks: Looks) -> float | None:
        """Where to look again; None where f would hardly be lower there than it was seen."""
        last, change = looks[-1]
        if not isfinite(change):
            return NEAREST * last
        t, best = self.lowest(looks), min(change for _, change in looks)
        c4, c5 = self.through(looks)
        there = t * (self.c1 + t * (self.c2 / 2 + t * (self.c3 / 6 + t * (c4 + t * c5))))
        known = any(t == seen for seen, _ in looks)
        return None if known or best - there < GAIN * max(-best, 0.0) else t


def first_root(c0: float, c1: float, c2: float, c3: float, c4: float, low: float, high: float) -> float:
    """The first t between low and high where c0 + c1 t + ... + c4 t^4, the slope of f, turns from below 0 to above;
    low where it is above 0 there already, high where it never is."""

    def slope(t: float) -> float:
        return c0 + t * (c1 + t * (c2 + t * (c3 + t * c4)))

    if not slope(low) < 0.0:
        return low
    before = after = low
    for k in range(1, STRIDES + 1):
        after = low + (high - low) * k / STRIDES
        if slope(after) >= 0.0:
            break
        before = after
    else:
        return high
    for _ in range(HALVINGS):
        middle = 0.5 * (before + after)
        if slope(middle) < 0.0:
            before = middle
        else:
            after = middle
    return 0.5 * (before + after)
