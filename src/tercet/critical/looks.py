"""f itself, looked at along directions of which its derivatives leave doubt.

A look goes out from x along v in tenfold steps, from what the tolerance resolves to the size of x, until f differs from
f(x) by more than rounding. Beyond third order no derivative is asked: f rises, falls, or is flat as far as can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.domain import EVERYWHERE, Domain
from tercet.records import Matrix, Vector
from tercet.vectors import shares

Across = Callable[[Vector], Callable[[Vector], Vector]]  # along v, from a point, Newton's step across v
EPS = float(np.finfo(float).eps)
VISIBLE = 16.0  # a change of f by this many times its rounding error is seen
BESIDE = (0.625, 0.75)  # eps to these powers, beside x: so far away rounding is another one, but f the same parabola
STRIDE = 10.0
EDGE = 8  # halvings, in search of the edge of the domain of f
CLOSER = 60  # strides inward at the most
NEAR = 1e-4  # spans of x: where f bends down for certain, so far out it is seen
FAR = 1e3  # spans of x: as far as one looks
FARTHEST = 1.0 / EPS**0.5  # also where the third derivative is small: half of the digits of what f is made of are left
VALLEY = 0.5  # f rises by less than this share of what it does straight ahead where a valley bends away
SETTLED = 1e-3  # of f: where a step across a valley gains less, it ended on the floor
BENT = 0.3  # of the way along a valley: further aside it is not followed
ACROSS = 30  # such steps at the most; across a valley that is flat like x^4 each is a third of the way
AROUND = 12  # steps around x, in search of where f rises least
TURN = 0.5  # of a radian, the first of them
NARROW = 0.01  # the last
LOOKED = 8  # along at most this many directions of a near-kernel f is looked at
PAIRED = 4  # up to so many directions of a near-kernel, f is looked at between them too
MIXED = 8  # from three on, also along so many random combinations of all of them
SAME = 1e-6  # a direction this little beside the span of others lies in it


def sides_of(x: Vector, epsilon: float, size: Vector) -> list[tuple[Vector, Vector]]:
    """Pairs of points to both sides of x, so close that the second difference of f is its rounding, and so far that
    it is seen also where the last digits of an x_j are lost beside a larger one, as in (x_0 + x_1) - x_0."""
    some = shares(len(x), len(BESIDE))
    steps = [size * epsilon**power * share for power, share in zip(BESIDE, some, strict=True)]
    return [(x - step, x + step) for step in steps]


@dataclass(frozen=True, eq=False)
class WayDown:
    """f(x + s) < f(x): a step that was looked at, and the order of the derivative that pointed there."""

    s: Vector
    fall: float
    order: int


@dataclass(frozen=True, eq=False)
class Side:
    """f along x + t v for t > 0: at the first t where it differs visibly (inf: nowhere), and the lowest seen."""

    t: float
    rise: float  # f(x + t v) - f(x) there: above 0 it rises first; 0 where it is flat
    lowest: float = np.inf  # the t of the lowest value below f(x)
    fall: float = 0.0
    wall: bool = False  # a bound ended the look before f differed


@dataclass(frozen=True, eq=False)
class Sight:
    """f around x: its value there and what counts as a visible change of it."""

    value: Callable[[Vector], float]
    x: Vector
    f: float
    rounding: float  # of f
    spans: Vector  # how far each x_j reaches
    limit: float = np.inf  # f may rise by this much within what x may be wrong
    slope: Vector | None = None  # what of the gradient Newton's step leaves: it bends f nowhere, so f should fall
    epsilon: float = EPS  # of the precision in which f is computed
    grain: float = 0.0  # how much f would feel of the whole of an x_j, if nothing canceled
    domain: Domain = EVERYWHERE  # where one can look
    gradient: Callable[[Vector], Vector] | None = None  # of f

    @property
    def noise(self) -> float:
        """Changes of f that are not larger are not seen."""
        return VISIBLE * self.rounding

    def change(self, s: Vector) -> float:
        """f(x + s) - f(x); inf outside the domain of f."""
        after = self.value(self.x + s)
        return after - self.f if np.isfinite(after) else np.inf

    def side(self, v: Vector, first: float, last: float) -> Side:
        """Look along v from t = first to t = last; where f falls, on to where it falls no more.

        Where f rises by more than the limit already at the first look, that was too far out, and the next is closer.
        A bound ends the look, and so does the edge of the domain of f; a bound that is nearer than the first look
        hides all.
        """
        room = self.domain.room(self.x, v)
        if room < first:
            return Side(0.0, np.inf, wall=True)
        wall, last = room <= last, min(last, room)
        t, seen, lowest, fall = first, np.inf, np.inf, 0.0
        change = self.change(t * v)
        for _ in range(CLOSER):
            if change <= max(self.limit, self.noise):
                break
            t /= STRIDE
            change = self.change(t * v)
        while True:
            if seen < np.inf and -change <= fall:
                return Side(seen, -fall, lowest, fall)
            if self.seen(t * v, change, t):
                if change > 0.0:
                    return Side(t, change)
                seen, lowest, fall = min(seen, t), t, -change
            if t >= last:
                return Side(np.inf, 0.0, wall=wall) if seen == np.inf else Side(seen, -fall, lowest, fall)
            inside, t = t, min(STRIDE * t, last)
            change = self.change(t * v)
            for _ in range(EDGE):  # f may be infinite far out although it rises nowhere
                if change < np.inf:
                    break
                last, wall = 0.5 * (inside + t), True
                t, change = last, self.change(last * v)
            else:
                return Side(np.inf, 0.0, wall=True) if seen == np.inf else Side(seen, -fall, lowest, fall)

    def seen(self, s: Vector, change: float, t: float) -> bool:
        """Whether f(x + s) differs from f(x) by more than rounding does, at x and there, where it may do more: what f
        is made of may be large far out, and cancel. Rounding there is seen in second differences of f."""
        if not abs(change) > self.noise + VISIBLE * self.epsilon * t * self.grain or change == np.inf:
            return change == np.inf
        there, size = self.x + s, np.maximum(np.abs(self.x + s), t * self.spans)
        for left, right in sides_of(there, self.epsilon, size):
            off = 0.5 * abs(self.change(left - self.x) + self.change(right - self.x) - 2.0 * change)
            if not abs(change) > VISIBLE * off:
                return False
        return True

    def contradicts(self, v: Vector, sides: list[Side]) -> bool:
        """Whether f rises to both sides although its gradient says that it falls to one of them, and by more than it
        rises: at a jump, at an edge of its domain, or where the gradient is wrong."""
        if self.slope is None or any(side.t == np.inf for side in sides):
            return False
        rise = max((side.rise for side in sides if np.isfinite(side.rise)), default=0.0)
        return abs(float(self.slope @ v)) * min(side.t for side in sides) > max(rise, self.noise)

    def across(
        self, s: Vector, t: float, rise: float, correct: Callable[[Vector], Vector]
    ) -> tuple[Vector, float, bool]:
        """The floor of a valley beside x + s, where f is higher than f(x) by `rise`: the step there, how much higher f
        is there, and whether that is the floor for certain."""
        for _ in range(ACROSS):
            step = correct(self.x + s)
            change = self.change(s + step)
            if not rise - change > SETTLED * abs(rise):
                here = bool(np.max(np.abs(step) / self.spans) <= SETTLED * t)
                return s, rise, here or self.promise(s, step) <= SETTLED * abs(rise)
            s, rise = s + step, change
        return s, rise, False

    def promise(self, s: Vector, step: Vector) -> float:
        """What Newton's step from x + s promises of f: nothing on a floor that is itself flat, however long it is."""
        return np.inf if self.gradient is None else 0.5 * abs(float(self.gradient(self.x + s) @ step))

    def along(self, v: Vector, side: Side, last: float, correct: Callable[[Vector], Vector]) -> Valley:
        """Follow the valley that leaves x along v and bends away from it, as far as it can be followed."""
        t, s, change, lowest = side.t, side.t * v, side.rise, Valley(side.t * v)
        if not self.change(s + correct(self.x + s)) <= max(self.noise, VALLEY * change):
            return replace(lowest, rises=True)
        rises = True  # at every look so far, and visibly: then there is no valley, however far aside the floor is
        while np.isfinite(change):
            floor, change, settled = self.across(s, t, change, correct)
            aside, differs = floor - t * v, self.seen(floor, change, t)
            rises = rises and differs and change > 0.0
            if rises and settled:
                return replace(lowest, rises=True)
            if t > side.t if rises else np.max(np.abs(aside) / self.spans) > BENT * t:
                break
            if not rises and differs:
                if not -change > lowest.fall:
                    return replace(lowest, rises=settled and change > 0.0)
                lowest = Valley(floor, -change)
            if t >= last:
                break
            t, s = STRIDE * t, STRIDE * t * v + (0.0 if rises else STRIDE**2) * aside
            change = self.change(s)
        return lowest

    def gentlest(self, looks: list[Look]) -> Vector | None:
        """The direction between some that were looked along where f rises least, by steps around x on an ellipsoid."""
        flattest = max(looks, key=lambda look: look.t)
        U = independent([look.doubt.v / self.spans for look in looks])
        if len(U) < 2 or self.gradient is None:
            return None
        to_x = flattest.t * np.stack(U) * self.spans
        y = np.stack(U) @ (flattest.doubt.v / self.spans)
        y, turn = y / np.linalg.norm(y), TURN
        rise = self.change(y @ to_x)
        for _ in range(AROUND):
            slope = to_x @ self.gradient(self.x + y @ to_x)
            slope = slope - (slope @ y) * y
            size = float(np.linalg.norm(slope))
            if not 0.0 < size < np.inf or turn < NARROW:
                break
            z = y - turn * slope / size
            z = z / np.linalg.norm(z)
            change = self.change(z @ to_x)
            y, rise, turn = (z, change, turn) if change < rise else (y, rise, 0.3 * turn)
        return y @ to_x


@dataclass(frozen=True, eq=False)
class Valley:
    """What was seen along the floor of a valley that bends: the step to its lowest point, how far f falls to there, and
    whether f was seen to rise."""

    s: Vector
    fall: float = 0.0
    rises: bool = False


@dataclass(frozen=True, eq=False)
class Doubt:
    """A direction along which derivatives do not tell whether f rises, scaled to the size of x.

    `order` is that of the derivative that points there; `flat` says that f does not bend up along it for certain,
    `resolved` that it does, and that the error of x along it is known from there.
    """

    v: Vector
    order: int
    flat: bool = False
    resolved: bool = False


@dataclass(frozen=True, eq=False)
class Seen:
    """What looks along some directions told."""

    way_down: WayDown | None = None
    free: tuple[Vector, ...] = ()  # along these f is flat to both sides, or follows a valley: no minimizer is alone
    ray: Vector | None = None  # along this f is flat, as far as it can be seen, on one side only
    within: Vector | None = None  # how far each x_j may be off along the others: f was seen to rise there
    contradicted: bool = False  # f was seen to rise where its gradient says that it falls


def directions(kernel: Matrix) -> list[Doubt]:
    """Along the axes of a near-kernel, where it is small between each two of them, and along some mixtures of all."""
    k = kernel.shape[1]
    axes = kernel / np.linalg.norm(kernel, axis=0)
    doubts = [Doubt(v, 3, flat=True) for v in axes.T[:LOOKED]]
    pairs = [(i, j) for i in range(k) for j in range(i)] if k <= PAIRED else []
    between = [axes[:, i] + sign * axes[:, j] for i, j in pairs for sign in (1.0, -1.0)]
    mixed = list((axes @ np.random.default_rng(k).standard_normal((k, MIXED))).T) if k > 2 else []
    return doubts + [Doubt(v, 3, flat=True) for v in between + mixed]


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen along one direction, to both sides."""

    doubt: Doubt
    way_down: WayDown | None = None
    free: Vector | None = None
    ray: Vector | None = None
    t: float = 0.0  # f was seen to rise to both sides within t times the direction; 0: it was not
    contradicted: bool = False

    @staticmethod
    def along(sight: Sight, doubt: Doubt, first: float, last: float, across: Across) -> Look:
        """Straight ahead, and where f is not known to bend up, also along a valley that bends away from there."""
        ways = [sight.domain.inward(sight.x, sign * doubt.v) for sign in (1.0, -1.0)]
        sides = [(way, sight.side(way, min(first, last), last)) for way in ways]
        way, deepest = max(sides, key=lambda each: each[1].fall)
        if deepest.fall > 0.0:
            return Look(doubt, WayDown(deepest.lowest * way, deepest.fall, doubt.order))
        contradicted = sight.contradicts(doubt.v, [side for _, side in sides])
        flat = [(way, side) for way, side in sides if side.t == np.inf]
        if len(flat) == 2:
            return Look(doubt, free=doubt.v, contradicted=contradicted)
        if flat and any(side.wall for _, side in sides):  # up to a bound, or from one
            return Look(doubt, free=flat[0][0], contradicted=contradicted)
        if flat:
            return Look(doubt, ray=flat[0][0], contradicted=contradicted)
        if doubt.flat:
            correct = across(doubt.v)
            valleys = [sight.along(way, side, last, correct) for way, side in sides]
            lowest = max(valleys, key=lambda each: each.fall)
            if lowest.fall > 0.0:
                return Look(doubt, WayDown(lowest.s, lowest.fall, doubt.order))
            if not any(valley.rises for valley in valleys):
                return Look(doubt, free=doubt.v, contradicted=contradicted)
        return Look(doubt, t=max(side.t for _, side in sides), contradicted=contradicted)


def look_along(
    sight: Sight,
    doubts: list[Doubt],
    first: float,
    reach: Callable[[Vector], float],
    across: Across,
) -> Seen:
    """Look along each direction to both sides; between those that are flat, also where f rises least around x."""

    def look(doubt: Doubt) -> Look:
        begin = first if doubt.order > 1 else min(first, NEAR)
        return Look.along(sight, doubt, begin, min(max(FAR, reach(doubt.v)), FARTHEST), across)

    looks = [look(doubt) for doubt in doubts]
    rising = [each for each in looks if each.doubt.flat and 0.0 < each.t < np.inf]
    if len(rising) > 1 and not any(each.way_down for each in looks):
        between = sight.gentlest(rising)
        looks += [] if between is None else [look(Doubt(between / np.max(np.abs(between) / sight.spans), 3, flat=True))]
    free = [each.free for each in looks if each.free is not None]
    risen = [each for each in looks if 0.0 < each.t < np.inf and not each.doubt.resolved]
    within = [each.t * np.abs(beside(each.doubt.v, free, sight.spans)) for each in risen]
    rays = [each.ray for each in looks if each.ray is not None]
    return Seen(
        together(sight, [each.way_down for each in looks if each.way_down is not None]),
        independent(free),
        rays[-1] if rays else None,
        np.max(within, axis=0) if within else np.zeros_like(sight.x),
        any(each.contradicted for each in looks),
    )


def together(sight: Sight, falls: list[WayDown]) -> WayDown | None:
    """The deepest of several ways down, or all of them at once where that is deeper."""
    if not falls:
        return None
    deepest = max(falls, key=lambda way: way.fall)
    if len(falls) == 1:
        return deepest
    s = np.sum([way.s for way in falls], axis=0)
    fall = -sight.change(s)
    return WayDown(s, fall, deepest.order) if fall > deepest.fall else deepest


def beside(v: Vector, free: list[Vector], D: Vector) -> Vector:
    """What v, measured in the spans D, has beside the directions in which f is flat: among many minimizers none is
    the right one, and how far off x is along those directions is not asked. Where they span everything, f, which rose
    along v, is not flat over all that they span, and v counts whole."""
    Q = independent([each / D for each in free])
    if len(Q) in (0, len(v)):
        return v
    u, basis = v / D, np.stack(Q)
    return D * (u - basis.T @ (basis @ u))


def independent(directions: list[Vector]) -> tuple[Vector, ...]:
    """An orthonormal basis of what the directions span."""
    if not directions:
        return ()
    rows = np.stack([v / np.linalg.norm(v) for v in directions])
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    return tuple(basis[values > SAME * values[0]])


def told_by(seen: Seen, D: Vector, E: Vector) -> dict[str, Any]:
    """What looks at f told; an x_j takes part where a twentieth of it lies in the span of the directions in which f is
    flat, in its spans D, or in lengths E along which each alone bends f by as much: what cancels is of one size."""
    told: dict[str, Any] = {}
    if seen.free:
        bases = [np.stack(independent([v / unit for v in seen.free])) for unit in (D, E)]
        involved = np.flatnonzero(np.any([np.linalg.norm(Q, axis=0) > 0.05 for Q in bases], axis=0))
        told["involved"] = tuple(int(j) for j in involved)
        told["kernel"] = tuple(tuple((v / np.linalg.norm(v)).tolist()) for v in seen.free)
    if seen.way_down is not None:
        told |= {"way_down": tuple(seen.way_down.s.tolist()), "fall": seen.way_down.fall}
    if seen.ray is not None:
        told["ray"] = tuple((seen.ray / np.linalg.norm(seen.ray)).tolist())
    return told
