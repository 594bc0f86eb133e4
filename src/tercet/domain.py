"""Where x may be: everywhere, or in a box low <= x <= high.

A box leaves a step the variables that are free at x: those that are not on a bound against which f falls. On these f is
as it is everywhere, to every order; `tercet.face.Face` restricts g, B and T to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from tercet.checks import number
from tercet.face import Face
from tercet.frame import Frame
from tercet.records import Vector
from tercet.vectors import length

V = TypeVar("V", float, Vector)
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Domain(Protocol):
    """A set of x."""

    @property
    def bounded(self) -> bool:
        """Whether there are bounds at all."""
        ...

    def project(self, x: Vector) -> Vector:
        """The nearest point of the set."""
        ...

    def start(self, x0: Vector, better: Callable[[Vector], Vector]) -> Vector:
        """A better start than x0, where the objective tells one that lies in the set for certain."""
        ...

    def chi1(self, x: Vector, g: Vector) -> float:
        """The length of the projected gradient."""
        ...

    def face(self, frame: Frame, x: Vector, g: Vector) -> Frame:
        """The coordinates of a step from x."""
        ...

    def inward(self, x: Vector, v: Vector) -> Vector:
        """The part of a direction that does not leave the set at once."""
        ...

    def room(self, x: Vector, v: Vector) -> float:
        """How many times v one can go from x."""
        ...

    def sides(self, x: Vector) -> Vector:
        """1 where x_j is on its lower bound, -1 on its upper one, else 0."""
        ...

    def beside(self, x: Vector, h: Vector) -> Vector:
        """Steps of about h along the axes, each to a side where there is room."""
        ...

    def difference(self, of: Callable[[Vector], V], x: Vector, v: Vector, h: float) -> V:
        """The derivative of a function along v, from its values at points of the set that are about hv away."""
        ...


@dataclass(frozen=True)
class Everywhere:
    """All x."""

    bounded: bool = False

    def project(self, x: Vector) -> Vector:
        """x."""
        return x

    def start(self, x0: Vector, better: Callable[[Vector], Vector]) -> Vector:
        """Whatever is better."""
        return better(x0)

    def chi1(self, x: Vector, g: Vector) -> float:
        """|g|."""
        return length(g)

    def face(self, frame: Frame, x: Vector, g: Vector) -> Frame:
        """As it is."""
        return frame

    def inward(self, x: Vector, v: Vector) -> Vector:
        """v."""
        return v

    def room(self, x: Vector, v: Vector) -> float:
        """As far as one likes."""
        return np.inf

    def sides(self, x: Vector) -> Vector:
        """Nowhere."""
        return np.zeros(len(x))

    def beside(self, x: Vector, h: Vector) -> Vector:
        """h."""
        return h

    def difference(self, of: Callable[[Vector], V], x: Vector, v: Vector, h: float) -> V:
        """The central one."""
        return (of(x + h * v) - of(x - h * v)) / (2 * h)


EVERYWHERE = Everywhere()


@dataclass(frozen=True, eq=False)
class Box:
    """low <= x <= high, where an end may be infinite; low_j = high_j holds x_j fast."""

    low: Vector
    high: Vector
    bounded: bool = True

    def over(self, some: Any) -> Box:
        """The bounds of some of the variables."""
        return Box(self.low[some], self.high[some])

    def project(self, x: Vector) -> Vector:
        """Each x_j to its nearer bound, if it is beyond one."""
        return np.minimum(np.maximum(x, self.low), self.high)

    def start(self, x0: Vector, better: Callable[[Vector], Vector]) -> Vector:
        """x0: what is better was not looked for in the box."""
        return x0

    def outward(self, x: Vector, v: Vector) -> Mask:
        """Which x_j are on a bound that v_j leads across."""
        return ((x <= self.low) & (v < 0.0)) | ((x >= self.high) & (v > 0.0))

    def held(self, x: Vector, g: Vector) -> Mask:
        """Which x_j stay where they are: f falls only across their bound."""
        return self.outward(x, -g) | (self.low == self.high)

    def chi1(self, x: Vector, g: Vector) -> float:
        """The length of the gradient over the variables that are free; nan or inf where any of it is."""
        return length(np.where(self.held(x, g), 0.0, g)) if np.all(np.isfinite(g)) else length(g)

    def face(self, frame: Frame, x: Vector, g: Vector) -> Frame:
        """The free variables in their coordinates."""
        return Face(frame, np.flatnonzero(~self.held(x, g)), x, self.low, self.high)

    def inward(self, x: Vector, v: Vector) -> Vector:
        """v without what leads across a bound on which x_j is."""
        return np.where(self.outward(x, v), 0.0, v)

    def room(self, x: Vector, v: Vector) -> float:
        """Up to the first bound on the way; a v of 0 leads nowhere."""
        if not np.any(v):
            return 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(v > 0.0, (self.high - x) / v, np.where(v < 0.0, (self.low - x) / v, np.inf))
        return float(max(0.0, np.min(ends, initial=np.inf)))

    def sides(self, x: Vector) -> Vector:
        """On which bound each x_j is; one that is held fast is on none."""
        return (x <= self.low) * 1.0 - (x >= self.high) * 1.0

    def beside(self, x: Vector, h: Vector) -> Vector:
        """h, or -h where there is more room behind, but not beyond a bound."""
        ahead, behind = np.minimum(h, self.high - x), np.minimum(h, x - self.low)
        return np.where(ahead >= behind, ahead, -behind)

    def difference(self, of: Callable[[Vector], V], x: Vector, v: Vector, h: float) -> V:
        """The central one where both points are in the box; else one-sided ones of second order, along the part of v
        that has room ahead and along the part that has room behind, not further than to the bound."""
        if min(self.room(x, v), self.room(x, -v)) >= h:
            return EVERYWHERE.difference(of, x, v, h)
        up, down = np.where(v > 0.0, self.high - x, x - self.low), np.where(v > 0.0, x - self.low, self.high - x)
        here = of(x)
        total: Any = 0.0 * here
        for part, sign in ((np.where(up >= down, v, 0.0), 1.0), (np.where(up >= down, 0.0, v), -1.0)):
            t = sign * min(h, 0.5 * self.room(x, sign * part))
            if t != 0.0 and np.any(part):
                near, far = of(self.project(x + t * part)), of(self.project(x + 2.0 * t * part))
                total = total + (4.0 * near - 3.0 * here - far) / (2.0 * t)
        return total


def domain_of(call: str, bounds: Any, d: int) -> Domain:
    """Bounds in either of SciPy's forms: a pair (low, high) for each of d variables, where None is no bound, or an
    object with `lb` and `ub`. ValueError where they cannot be bounds; all space where none is finite."""
    if bounds is None:
        return EVERYWHERE
    low, high = ends_of(call, bounds, d)
    for name, end, worst in (("lower", low, np.inf), ("upper", high, -np.inf)):
        bad = np.isnan(end) | (end == worst)
        if np.any(bad):
            j = int(np.argmax(bad))
            raise ValueError(f"{call}(bounds=...): the {name} bound of x[{j}] is {end[j]}; give a number, or None.")
    crossed = low > high
    if np.any(crossed):
        j = int(np.argmax(crossed))
        raise ValueError(
            f"{call}(bounds=...): the bounds of x[{j}] cross: {low[j]:.6g} > {high[j]:.6g}; give the lower one first."
        )
    return Box(low, high) if np.any(np.isfinite(low) | np.isfinite(high)) else EVERYWHERE


def ends_of(call: str, bounds: Any, d: int) -> tuple[Vector, Vector]:
    """Lower and upper bounds as vectors of length d."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return broadcast(call, "lb", bounds.lb, d), broadcast(call, "ub", bounds.ub, d)
    try:
        pairs = [tuple(pair) for pair in bounds]
    except TypeError as error:
        raise ValueError(
            f"{call}(bounds={bounds!r}): give a pair (low, high) for each variable, or scipy.optimize.Bounds."
        ) from error
    if len(pairs) != d:
        raise ValueError(f"{call}(bounds=...): {len(pairs)} pairs for {d} variables; give one (low, high) for each.")
    for j, pair in enumerate(pairs):
        if len(pair) != 2 or not all(end is None or isinstance(end, int | float | np.number) for end in pair):
            raise ValueError(f"{call}(bounds=...): the bounds of x[{j}] are {pair!r}; give a pair (low, high).")
    low = [-np.inf if pair[0] is None else number(float(pair[0])) for pair in pairs]
    high = [np.inf if pair[1] is None else number(float(pair[1])) for pair in pairs]
    return np.array(low), np.array(high)


def broadcast(call: str, name: str, end: Any, d: int) -> Vector:
    """One end of all bounds as a vector, from a number or d of them."""
    try:
        return np.array(np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)))
    except (TypeError, ValueError) as error:
        shape = np.shape(end)
        raise ValueError(f"{call}(bounds=...): {name} has shape {shape}; give a number or {d} of them.") from error
