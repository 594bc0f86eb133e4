"""How far x is from the minimizer that its derivatives speak of, and how many digits of it are right.

    s = -B^-1 g,   u = -1/2 B^-1 T[s, s]          (Newton's step, and the third-order correction of it)

Beside a minimizer where B is positive definite the error of x is -s up to a few |u|. Where |u| is not small beside |s|
Newton's step does not tell: along x^k it is |s| (k - 2) / (2 (k - 1)), a quarter or more, however small s is. The same
is asked of what rounding does to x: curvature that it could undo says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log10, sqrt

import numpy as np

from tercet.critical.looks import EPS, FAR, LOOKED
from tercet.critical.proof import Proof
from tercet.frame import Reach
from tercet.objectives.metered import MeteredPoint
from tercet.once import once
from tercet.records import Matrix, Vector
from tercet.vectors import signs

REGULAR = 0.2  # |u| / |s| up to which Newton's step tells the error
RESOLVED = 64.0  # times eps and d: an eigenvalue of EBE above it is told from 0
ROUNDED = 3.0  # this many standard deviations of the rounding of g are allowed for
COARSEST = 1e-4  # no digits are given away to rounding beyond the first four
NOTHING = 10.0  # an x_j within this many of its errors is not told from 0
DIGITS = 16.0  # more are not claimed
PRODUCTS = 100  # with B, for Newton's step where B is not formed


@dataclass(frozen=True, eq=False)
class Travelled:
    """What a run knows of the way to a point: how far each x_j reached, and how far f fell.

    Where x goes away, a change of f that is nothing beside how far it fell is not looked for.
    """

    reach: Reach
    gained: float = np.nan  # nan: there was no way
    away: bool = False


@dataclass(frozen=True, eq=False)
class Curvature:
    """EBE = V diag(values) V' with E_j = 1/sqrt(|B_jj|): its diagonal is 1, and it knows no units."""

    E: Vector
    values: Vector
    V: Matrix
    resolution: float
    epsilon: float = EPS  # to which B is computed

    @staticmethod
    def of(B: Matrix, E: Vector, epsilon: float, D: Vector) -> Curvature:
        """One eigenvalue problem. A direction along which f bends by no more, over the spans D of x, than B is rounded
        by along the one where it bends most, is as if it did not bend."""
        H = B * E * E[:, None]
        values, V = np.linalg.eigh(0.5 * (H + H.T))
        size, little = float(np.max(np.abs(values))), RESOLVED * epsilon * len(E)
        far = 1.0 / np.max(np.abs(V) * (E / D)[:, None], axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            bends = np.abs(values) * far * far
            values = np.where(bends <= little * float(np.max(D * D * np.abs(np.diag(B)))), 0.0, values)
        return Curvature(E, values, V, little * max(size, np.finfo(float).tiny), epsilon)

    @once
    def seen(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which directions bend up for certain."""
        return self.values > self.resolution

    @once
    def all_seen(self) -> bool:
        """Whether all do."""
        return bool(self.seen.all())

    @once
    def up(self) -> tuple[Matrix, Vector]:
        """Those that do, as columns, with their eigenvalues."""
        return (self.V, self.values) if self.all_seen else (self.V[:, self.seen], self.values[self.seen])

    @property
    def condition(self) -> float:
        """The largest eigenvalue over the smallest, inf where that is not told from 0."""
        return float(self.values[-1] / self.values[0]) if self.all_seen else np.inf

    def falling(self) -> Matrix:
        """The directions that bend down for certain, as columns in x, the strongest first."""
        return self.E[:, None] * self.V[:, self.values < -self.resolution]

    def flat(self) -> Matrix:
        """The directions whose curvature is not told from 0, as columns in x."""
        return self.E[:, None] * self.V[:, np.abs(self.values) <= self.resolution]

    def solve(self, v: Vector) -> Vector:
        """B^-1 v over the directions that bend up."""
        V, values = self.up
        return self.E * (V @ ((V.T @ (self.E * v)) / values))

    def across(self, v: Vector, D: Vector) -> Curvature:
        """Over the directions across v: what solves with it has no part along v, as measured in D."""
        q = self.E * v / D**2
        P = np.eye(len(q)) - np.outer(q, q) / (q @ q)
        values, V = np.linalg.eigh(P @ (self.V * self.values) @ self.V.T @ P)
        return replace(self, values=values, V=V)

    def norm(self, v: Vector) -> float:
        """sqrt(v'Bv) over the directions that bend up."""
        V, values = self.up
        c = V.T @ (v / self.E)
        return sqrt(values @ (c * c))

    def response(self, noise: float) -> Vector:
        """What noise of size noise/E_j in each g_j does to x, most of it along the directions that bend least."""
        V, values = self.up
        return self.E * (V @ (signs(len(values), 0) * noise / values))

    def widths(self, power: int = 1) -> Vector:
        """sqrt of the diagonal of B^-1 (an |e_j| is at most that times sqrt(e'Be)); with power 2 what noise of size
        1/E_j in each g_j does to each x_j."""
        V, values = self.up
        return self.E * np.sqrt((V * V) @ values ** float(-power))


@dataclass(frozen=True, eq=False)
class Errors:
    """The estimated errors at x: of f, of each x_j, and what of that is rounding."""

    s: Vector  # Newton's step
    e: Vector  # s, or what rounding does to x, whichever bends f more beside its curvature
    f: float  # f(x) less its minimum
    x: Vector  # of each x_j
    floor: Vector  # what the rounding of g alone does to each x_j
    regular: bool | None  # Newton's step tells the error; None where no third derivative was asked
    noise: float  # of g, as a length

    def within(self, relative: float, x: Vector, D: Vector) -> bool:
        """Every x_j is within `relative` of its size, or as close as rounding lets it come. One that is not told from 0
        by what rounding does to it is measured by its span."""
        size = sizes(x, np.maximum(np.abs(self.s), self.floor), D)
        return bool(np.all(np.abs(self.s) <= relative * size + np.minimum(self.floor, COARSEST * size)))


def told_from_zero(x: Vector, error: Vector) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which x_j are not 0 for certain; one without an error is what it is, also where that is 0."""
    return (np.abs(x) > NOTHING * np.abs(error)) | (error == 0.0)


def sizes(x: Vector, error: Vector, D: Vector) -> Vector:
    """What an error of x_j is measured against: |x_j|, or its span D_j where it is not told from 0."""
    return np.where(np.abs(x) > NOTHING * np.abs(error), np.abs(x), D)


def errors_of(
    curvature: Curvature,
    g: Vector,
    noise: Vector,
    third: Callable[[Vector], Vector] | Proof | None,
    x: Vector,
    epsilon: float,
) -> Errors:
    """From g, its rounding error at x as it was seen once, and s -> T[s, s], or a proof that bounds what T does."""
    s = -curvature.solve(g)
    spread = ROUNDED * float(np.sqrt(np.mean((curvature.E * noise) ** 2)))
    floor, widths = spread * curvature.widths(2), curvature.widths()
    size = curvature.norm(s)
    ways = [v for v in (s, curvature.response(spread)) if np.any(v)]  # in which x may be wrong
    regular: bool | None
    if isinstance(third, Proof):
        e, beyond, regular = s, 2.0 * third.correction, True
    elif third is None or not ways:
        e, beyond, regular = s, 0.5 * size, None if ways else True
    else:
        corrections = [curvature.norm(-0.5 * curvature.solve(third(v))) for v in ways]
        shares = [u / max(curvature.norm(v), np.finfo(float).tiny) for u, v in zip(corrections, ways, strict=True)]
        e, beyond, regular = ways[int(np.argmax(shares))], 2.0 * max(corrections), max(shares) <= REGULAR
    found = np.abs(s) + beyond * widths + floor + 2 * epsilon * np.abs(x)
    return Errors(s, e, 0.5 * size**2, found, floor, regular, float(np.linalg.norm(noise)))


def spans_of(now: Reach, far: Vector, before: Vector) -> Vector:
    """How far each x_j reaches: an x_j that never left 0, and along which f bends no more, is not without end."""
    if not before.size or np.all(far > 0.0):
        return now.spans
    along_the_way = replace(now, bend=np.maximum(now.bend, before)).spans
    return np.where(far > 0.0, now.spans, np.minimum(now.spans, FAR * along_the_way))


def told_spans(far: Vector, error: Vector, D: Vector) -> Vector:
    """How far each x_j reached, where that is told from its error, and is less than its span D_j; else D_j."""
    return np.where(far > NOTHING * error, np.minimum(far, D), D)


def digits(x: Vector, error: Vector, D: Vector) -> float:
    """How many digits of every x_j are right: -log10 of its error over |x_j|.

    An x_j that is not told from 0 is measured against its span D_j instead.
    """
    worst = float(np.max(error / np.where(np.abs(x) > error, np.abs(x), D), initial=0.0))
    return float(np.clip(-log10(worst), 0.0, DIGITS)) if worst > 0 else DIGITS


def undone(point: MeteredPoint, curvature: Curvature, s: Vector) -> Curvature:
    """The curvature less what Newton's step may undo, |T[s, v, v]| >= v'Bv / 2: along a valley of minimizers f bends
    only because x is beside it. A third-derivative product for each such v, the softest first, and one more."""
    for k in np.flatnonzero(curvature.seen)[:LOOKED]:
        v = curvature.E * curvature.V[:, k]
        if abs(float(s @ point.third_product(v, v))) < 0.5 * float(curvature.values[k]):
            break
        curvature = replace(curvature, resolution=float(curvature.values[k]))
    return curvature


def step_across(there: MeteredPoint, beside: Curvature, v: Vector, D: Vector, noise: float) -> Vector:
    """Newton's step across v at a point beside x, with the Hessian of x; where that leads no further down although f
    slopes visibly, as across a valley that is flat like x^4, with its own."""
    g, f = there.gradient(), there.value()
    s = -beside.solve(g)
    if float(np.abs(g) @ D) <= noise or (np.any(s) and there.view.at(there.x + s).value() < f):
        return s
    B = there.hessian()
    if not np.all(np.isfinite(B)):
        return s
    lengths = Reach(D, D, np.abs(np.diag(B))).lengths(D, EPS**2)
    here = Curvature.of(B, lengths, beside.epsilon, D).across(v, D)
    return -here.solve(g) if here.seen.any() else s


def newton_step(product: Callable[[Vector], Vector], g: Vector) -> tuple[Vector, bool]:
    """-B^-1 g by conjugate gradients, and whether a hundredth of g or less was left; they end where B bends down."""
    s, r = np.zeros_like(g), g.copy()
    p, rr = -r, float(r @ r)
    enough = 1e-4 * rr
    for _ in range(PRODUCTS):
        if rr <= enough:
            return s, True
        Bp = product(p)
        bend = float(p @ Bp)
        if not bend > 0.0:
            return s, False
        s, r = s + (rr / bend) * p, r + (rr / bend) * Bp
        rr, before = float(r @ r), rr
        p = -r + (rr / before) * p
    return s, rr <= enough
