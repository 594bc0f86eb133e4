"""The path of a run: processor seconds, counts and points, kept while its clock stands still."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.objectives.metered import DeadlineError, Metered, MeteredPoint
from tercet.records import ORDERS

FEW = 5000  # with more variables only those points are kept at which f is not known
STALLED = 40  # iterations within rounding of the lowest value after which a run has nothing more to tell


@dataclass(eq=False)
class Clock:
    """Processor seconds of this process since the begin, less those while it was stopped."""

    begin: float = field(default_factory=time.process_time)
    stopped: float = 0.0

    def read(self) -> float:
        """Seconds so far."""
        return time.process_time() - self.begin - self.stopped


@dataclass(eq=False)
class Path:
    """What a run left behind, one entry for each iterate, x0 first."""

    clock: Clock
    seconds: list[float] = field(default_factory=list)
    counts: list[tuple[int, ...]] = field(default_factory=list)  # evaluations of terms by order
    values: list[float | None] = field(default_factory=list)  # f over all data where the run knew it
    points: dict[int, np.ndarray] = field(default_factory=dict)
    full: list[bool] = field(default_factory=list)  # whether the iteration looked at all data
    total: float = np.nan
    counts_at_end: tuple[int, ...] = ()
    ended: str = ""
    capped: bool = False
    certified: bool | None = None
    x: np.ndarray | None = None  # where it ended

    def add(self, seconds: float, x: np.ndarray, counts: tuple[int, ...], value: float | None, full: bool) -> None:
        """One more iterate."""
        if self.x is not None and value is None and np.array_equal(x, self.x):
            value = self.values[-1]
            if len(self.values) - 1 in self.points:
                self.points[len(self.values)] = self.points[len(self.values) - 1]
        elif value is None or len(x) <= FEW:
            self.points[len(self.values)] = x.copy()
        self.x = x.copy()
        for column, entry in zip(
            (self.seconds, self.counts, self.values, self.full), (seconds, counts, value, full), strict=True
        ):
            column.append(entry)

    @property
    def stands_still(self) -> bool:
        """No value of the last iterates is lower than the one before them."""
        if len(self.values) <= STALLED:
            return False
        late = [v for v in self.values[-STALLED:] if v is not None]
        before = self.values[-STALLED - 1]
        return len(late) == STALLED and before is not None and min(late) >= before


@dataclass(eq=False)
class Oracle:
    """f, g, B and Bv of an objective for methods that call functions of x; counted by the same meter as ours.

    What is known at the last x is not computed again. With `together`, f and g come in one round where the engine has
    a way to do that.
    """

    metered: Metered
    together: bool = False
    deadline: float = np.inf  # of `time.process_time`
    point: MeteredPoint | None = None
    view: Any = None

    def here(self, x: np.ndarray) -> MeteredPoint:
        """The point at x, the same object while x stays; DeadlineError when the time is up."""
        if time.process_time() > self.deadline:
            raise DeadlineError
        if self.point is None or not np.array_equal(x, self.point.x):
            if self.view is None:
                self.view = self.metered.over(None)
            x = np.array(x, dtype=float)
            self.point = self.view.first_at(x) if self.together else self.view.at(x)
        return self.point

    def value(self, x: np.ndarray) -> float:
        """f(x)."""
        return self.here(x).value()

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """grad f(x)."""
        return self.here(x).gradient()

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """hess f(x), dense."""
        return self.here(x).hessian()

    def hessian_product(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """hess f(x) v."""
        return self.here(x).hessian_product(v)

    def known(self, x: np.ndarray) -> float | None:
        """f(x) if it was asked for last."""
        return self.point.known.value if self.point is not None and np.array_equal(x, self.point.x) else None


def tally(meter: Any) -> tuple[int, ...]:
    """The counts so far, by order."""
    return tuple(meter.tally[order] for order in ORDERS)
