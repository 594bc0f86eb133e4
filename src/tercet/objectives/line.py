"""f along a direction, where an objective knows it from one product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tercet.objectives.metered import Carry, MeteredPoint
from tercet.records import Vector


@dataclass(frozen=True, eq=False)
class Line:
    """f over x + ts, for an objective that carries along s what it takes."""

    point: MeteredPoint  # at x
    s: Vector
    ahead: Any  # the engine's

    def at(self, t: float) -> tuple[MeteredPoint, float]:
        """The point x + ts, and f there."""
        here = self.point
        there = MeteredPoint(here.view, here.x + t * self.s, Carry(None, self.ahead.at(t)))
        return there, there.value()


def along(point: MeteredPoint, s: Vector) -> Line:
    """f along s, where the objective knows it from one product (`Traits.images`), which evaluates no term."""
    assert point.able.line is not None
    return Line(point, s, point.ask("value", point.able.line, s, price=0))
