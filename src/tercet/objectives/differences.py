"""Derivatives by differences of those that the user gave, at any x, and how many calls they took."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from tercet.domain import Domain
from tercet.objectives.base import Priced
from tercet.objectives.lengths import CENTRAL, EPS, SAME, Units, by_slopes, by_values
from tercet.records import ORDERS, Flags, Matrix, Tensor, Vector
from tercet.vectors import signs

SHORTEST = EPS**0.5  # of |x_j|: shorter steps lose the digits of what they are
WIDER = 10.0  # columns of a Hessian are compared with a difference over lengths so many times theirs
OFF = 1e-3  # of a row of a Hessian: where it misses by more, some length may be no good
LOPSIDED = 1e-4  # of the bends along two x_j, how far their two entries may differ
UNALIKE = 1e-6  # of the strongest bend over the sizes of x: a weaker one may be measured over no good length
FORWARD = 100.0  # times its error, which a gradient of forward differences has to be


class Asked(Protocol):
    """A function with the derivatives that the user gave."""

    @property
    def d(self) -> int:
        """The number of variables."""
        ...

    @property
    def domain(self) -> Domain:
        """Where it may be called."""
        ...

    @property
    def units(self) -> Vector:
        """Of the variables."""
        ...

    @property
    def told(self) -> Units | None:
        """The same, where anything told them."""
        ...

    def has(self, *names: str) -> bool:
        """Whether the user gave one of these derivatives."""
        ...

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call."""
        ...


class Differences:
    """Central differences, and where a gradient is only to lead on, forward ones."""

    def __init__(self, objective: Asked):
        self.objective, self.made = objective, dict.fromkeys(ORDERS, 0)
        self.found: Vector | None = None  # sizes that f told, where others told nothing
        self.sure = objective.told is not None and objective.told.sure

    def sizes(self, x: Vector) -> Vector:
        """What lengths along the axes are measured in: |x_j|, or the unit of x_j where that is longer; or as found."""
        return np.maximum(self.objective.units, np.abs(x)) if self.found is None else self.found

    def find(self, x: Vector, j: int, length: float) -> None:
        """A difference along x_j over this length tells."""
        self.found = self.sizes(x).copy()
        self.found[j] = length / CENTRAL

    def reach(self, x: Vector, v: Vector) -> float:
        """How many times v one can go until some x_j has moved by its size; 0 where v leads nowhere."""
        far = float(np.max(np.abs(v) / self.sizes(x)))
        return 1.0 / far if far > 0.0 else 0.0

    def priced(self, result: Any, order: str, count: int = 1) -> Any:
        """A result that counts so many of its order, and what was made since the last one; as it is, where it counts
        one and no more."""
        if count == 1 and not any(self.made.values()):
            return result
        spent, self.made = self.made, dict.fromkeys(ORDERS, 0)
        spent[order] += count
        return Priced(result, **spent)

    def gradient(self, x: Vector) -> Vector:
        """grad f: as given, or by differences of f."""
        o = self.objective
        if o.has("grad"):
            return o.ask("grad", x, shape=(o.d,))
        h = CENTRAL * self.sizes(x)
        return np.array([o.domain.difference(self.value, x, e, float(t)) for e, t in zip(np.eye(o.d), h, strict=True)])

    def value(self, x: Vector) -> float:
        """f, counted."""
        self.made["value"] += 1
        return float(self.objective.ask("fun", x, shape=()))

    def forward(self, x: Vector, f: float, bend: Vector) -> Vector:
        """grad f by differences to one side, f(x) and about how f bends along the axes being known: d values."""
        h = self.objective.domain.beside(x, forward_steps(self.sizes(x)))
        there = [x + t * e for t, e in zip(h, np.eye(len(x)), strict=True)]
        rise = np.array([0.0 if t == 0.0 else self.value(z) - f for t, z in zip(h, there, strict=True)])
        return np.divide(rise, h, out=np.zeros_like(h), where=h != 0.0) - 0.5 * h * bend

    def bends(self, x: Vector, f: float, begins: bool) -> tuple[Vector, Vector]:
        """grad f, and how f bends along each axis, from the same values; units that are none are told on the way. They
        may be too long where a run begins; where it ends f may be 0, and does not tell how it is rounded."""
        pairs = []
        for j, e in enumerate(np.eye(len(x))):
            h = CENTRAL * float(self.sizes(x)[j])
            t, pair = by_values(partial(self.both, x, e), f, h, SHORTEST * abs(float(x[j])) if begins else h)
            pairs.append(pair)
            if t != h:
                self.find(x, j, t)
        h, (up, down) = CENTRAL * self.sizes(x), np.array(pairs).T
        return (up - down) / (2 * h), (up + down - 2 * f) / (h * h)

    @property
    def told(self) -> Units | None:
        """The units of the variables, as far as they are known."""
        if self.found is None and not self.sure:
            return self.objective.told
        return Units(self.objective.units if self.found is None else self.found, self.sure)

    def both(self, x: Vector, e: Vector, t: float) -> tuple[float, float]:
        """f(x + te) and f(x - te)."""
        return self.value(x + t * e), self.value(x - t * e)

    def hessian(self, x: Vector, f: float) -> Matrix:
        """hess f from d (d + 1) values beside f(x), or from products where these lead out of the domain."""
        o, h = self.objective, EPS**0.25 * self.sizes(x)
        if not room_for(o.domain, x, h):
            return self.products(x)
        E = np.diag(h)
        up, down = np.array([self.value(x + e) for e in E]), np.array([self.value(x - e) for e in E])
        H = np.diag(up + down - 2 * f)
        sides = up + down
        for i in range(o.d):
            for j in range(i):
                both = self.value(x + E[i] + E[j]) + self.value(x - E[i] - E[j])
                H[i, j] = H[j, i] = 0.5 * (both - sides[i] - sides[j]) + f
        return H / np.outer(h, h)

    def counted(self, order: str, of: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        """A function whose calls count."""

        def call(z: Vector) -> Any:
            self.made[order] += 1
            return of(z)

        return call

    def product(self, x: Vector, v: Vector) -> Vector:
        """hess f v: as given, or by differences of the gradient (of f, where that is all there is)."""
        o = self.objective
        if o.has("hvp"):
            return o.ask("hvp", x, v, shape=(o.d,))
        if o.has("hess"):
            self.made["hessian"] += 1
            return o.ask("hess", x, shape=(o.d, o.d)) @ v
        # A gradient that is itself a difference carries an error near EPS^(2/3), so the step is the wider one.
        h = (CENTRAL if o.has("grad") else EPS ** (1 / 5)) * self.reach(x, v)
        if h == 0.0:
            return np.zeros(o.d)
        gradient = self.counted("gradient", self.gradient) if o.has("grad") else self.gradient
        return o.domain.difference(gradient, x, v, h)

    def third(self, x: Vector, u: Vector, v: Vector) -> Vector:
        """third f[u, v]: the difference of Hessian products along u."""
        o = self.objective
        h = (CENTRAL if o.has("hess", "hvp") else EPS ** (1 / 5)) * self.reach(x, u)
        if h == 0.0:
            return np.zeros(o.d)

        def product(z: Vector) -> Vector:
            return self.product(z, v)

        return o.domain.difference(self.counted("hessian", product) if o.has("hvp") else product, x, u, h)

    def products(self, x: Vector) -> Matrix:
        """hess f from d products, over other lengths where these tell nothing."""
        d, o = self.objective.d, self.objective
        self.made["hessian"] += d - 1 if o.has("hvp") else 0  # one of d products is counted already
        B = np.stack([self.product(x, e) for e in np.eye(d)])
        if self.sure or o.has("hvp") or not o.has("grad") or o.domain.bounded:
            return B
        self.sure = True
        for j in np.flatnonzero(self.unsure(x, B)):
            before = self.sizes(x)[j]
            self.search(x, int(j))
            if self.sizes(x)[j] != before:
                B[j] = self.product(x, np.eye(1, d, int(j))[0])
        return B

    def search(self, x: Vector, j: int) -> float:
        """How f bends along x_j, over a length over which the gradient tells it; nan where there is none."""
        e, h = np.eye(1, len(x), j)[0], CENTRAL * float(self.sizes(x)[j])
        t, bend = by_slopes(lambda t: float(self.along(x, t * e)[j] / t), h)
        if t != h:
            self.find(x, j, t)
        return bend

    def along(self, x: Vector, s: Vector) -> Vector:
        """Half of what the gradient changes by from x - s to x + s."""
        gradient = self.counted("gradient", self.gradient)
        return 0.5 * (gradient(x + s) - gradient(x - s))

    def unsure(self, x: Vector, B: Matrix) -> Flags:
        """Whose differences may be over no good length: B, whose rows these differences are, misses what the gradient
        changes by further out, or an entry is not the one across the diagonal. Where f is like a power of x it does so
        at every length alike, and none is better. Without a sign of it nothing is evaluated."""
        h, bends = CENTRAL * self.sizes(x), np.sqrt(np.abs(np.diag(B)))
        w = h * signs(len(x), 0)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            skew: Flags = np.asarray((np.abs(B - B.T) > LOPSIDED * np.outer(bends, bends)).any(axis=0))
            if not skew.any() and np.min(bends * h) > np.sqrt(UNALIKE) * np.max(bends * h):
                return skew
            wide, here = self.along(x, WIDER * w) / WIDER, w @ B
            off = ~(np.abs(wide - here) <= OFF * (h @ np.abs(B)))
            if off.any():
                off &= ~(np.abs(wide * (self.along(x, w / WIDER) * WIDER) / here**2 - 1.0) <= SAME)
            return off | skew

    def square(self, x: Vector, g: Vector, u: Vector) -> tuple[Vector, Vector | None]:
        """third f[u, u], the second difference of the gradient, which is g at x, along u; and the first one, which is
        hess f u over longer differences than a Hessian is made of, where there is room for them."""
        o = self.objective
        h = EPS ** (1 / 4 if o.has("grad") else 1 / 6) * self.reach(x, u)
        if h == 0.0 or min(o.domain.room(x, u), o.domain.room(x, -u)) < h:
            return self.third(x, u, u), None
        gradient = self.counted("gradient", self.gradient) if o.has("grad") else self.gradient
        up, down = gradient(x + h * u), gradient(x - h * u)
        return (up + down - 2 * g) / (h * h), (up - down) / (2 * h)

    @property
    def shorter(self) -> float:
        """What a Hessian of differences misses, by T h^2 / 6 of fourth order, over what these longer ones do."""
        return EPS ** (2 / 3 - 1 / 2 if self.objective.has("grad") else 1 / 2 - 1 / 3)

    def tensor(self, x: Vector, V: Matrix) -> Tensor:
        """third f over the columns of V by differences of Hessians, two for each; products would take two a pair."""
        o = self.objective
        hessian = self.counted("hessian", lambda z: o.ask("hess", z, shape=(o.d, o.d)))
        T = np.stack([V.T @ o.domain.difference(hessian, x, v, CENTRAL * self.reach(x, v)) @ V for v in V.T])
        return (T + T.transpose(0, 2, 1)) / 2


def forward_steps(sizes: Vector) -> Vector:
    """How far forward differences go along each axis."""
    return EPS**0.5 * sizes


def leads(sizes: Vector, f: float, g: Vector, bend: Vector) -> bool:
    """Whether a gradient of about g is far above the error e of forward differences: truncation, of which a good part
    is known and taken off, and the rounding of f. Both are measured by what they make of f over a step,

        sum g_j^2 / b_j > FORWARD^2 sum e_j^2 / b_j,     b_j = |B_jj|,

    so that one axis along which f bends strongly is not overlooked beside others, whatever their units.
    """
    h, b = forward_steps(sizes), np.abs(bend)
    b = np.maximum(b, EPS * float(b.max()) or 1.0)
    e = h * b + 2 * EPS * abs(f) / h
    return float(g @ (g / b)) > FORWARD * FORWARD * float(e @ (e / b))


def room_for(domain: Domain, x: Vector, h: Vector) -> bool:
    """Whether steps of h along any two axes stay in the domain, forward and backward."""
    return all(np.array_equal(domain.project(x + sign * h), x + sign * h) for sign in (1.0, -1.0))
