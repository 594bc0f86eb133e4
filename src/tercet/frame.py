"""The coordinates in which a step is taken and measured: s = E c, with the unit E_j of each x_j.

    g'c = (E g)'c,   c'(EBE)c,   T[Ec, Ec, Ec]

A sub-solver sees g, B and T in these coordinates and knows nothing of the units. What a run has seen of each x_j is its
`Reach`, from which `Natural` reads how long a long step is (docs/decisions/012): multiply f by a number, or measure an
x_j in other units, and steps stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from tercet.once import once
from tercet.records import Flags, Matrix, Tensor, Vector

FAINT = float(np.sqrt(np.finfo(float).eps))  # a variable along which f bends less, beside the most, counts as this
ROUNDED = 64.0 * float(np.finfo(float).eps)  # what rounding makes of 1
TINY = float(np.finfo(float).tiny)
NEVER_LESS = 1e-4  # of a length along which f changes as much as it does along the others


class Frame(Protocol):
    """Coordinates at a point."""

    def lift(self, c: Vector) -> Vector:
        """The step s of coordinates c."""
        ...

    def coordinates(self, s: Vector) -> Vector:
        """The coordinates c of a step s."""
        ...

    def slope(self, g: Vector) -> Vector:
        """A gradient, or the rows of several, in these coordinates."""
        ...

    def point(self, point: Any) -> Any:
        """A point whose Hessian and third derivative are in these coordinates."""
        ...

    def move(self, x: Vector, c: Vector) -> Vector:
        """x + s."""
        ...

    def left(self, x: Vector, slope: Vector) -> Vector:
        """What of a slope at x, in these coordinates, a step could follow."""
        ...

    @property
    def walls(self) -> tuple[Vector, Vector] | None:
        """How far down and up each coordinate may go; None: there are no bounds."""
        ...

    @property
    def whole(self) -> Frame:
        """The coordinates of all variables, held or not."""
        ...


@dataclass(frozen=True)
class Same:
    """x itself."""

    def lift(self, c: Vector) -> Vector:
        """c."""
        return c

    def coordinates(self, s: Vector) -> Vector:
        """s."""
        return s

    def slope(self, g: Vector) -> Vector:
        """g."""
        return g

    def point(self, point: Any) -> Any:
        """The point as it is."""
        return point

    def move(self, x: Vector, c: Vector) -> Vector:
        """x + c."""
        return x + c

    def left(self, x: Vector, slope: Vector) -> Vector:
        """All of it."""
        return slope

    @property
    def walls(self) -> None:
        """None."""
        return None

    @property
    def whole(self) -> Same:
        """These."""
        return self


@dataclass(frozen=True, eq=False)
class Scaled:
    """Each x_j in its own unit; those that rest are not moved, as if f did not depend on them."""

    E: Vector
    resting: Flags | None = None

    def lift(self, c: Vector) -> Vector:
        """E c."""
        return self.E * c

    def coordinates(self, s: Vector) -> Vector:
        """s / E."""
        return s / self.E

    def slope(self, g: Vector) -> Vector:
        """E g."""
        return self.moving * g

    def point(self, point: Any) -> ScaledPoint:
        """The point seen through the units."""
        return ScaledPoint(point, self.moving)

    @property
    def moving(self) -> Vector:
        """E, and 0 for the x_j that rest."""
        return self.E if self.resting is None else np.where(self.resting, 0.0, self.E)

    def move(self, x: Vector, c: Vector) -> Vector:
        """x + E c."""
        return x + self.E * c

    def left(self, x: Vector, slope: Vector) -> Vector:
        """All of it."""
        return slope

    @property
    def walls(self) -> None:
        """None."""
        return None

    @property
    def whole(self) -> Scaled:
        """These."""
        return self


@dataclass(frozen=True, eq=False)
class ScaledPoint:
    """The Hessian and the third derivative of a point in coordinates c with s = E c."""

    point: Any
    E: Vector

    def hessian(self) -> Matrix:
        """EBE."""
        H = self.point.hessian() * self.E
        return np.multiply(H, self.E[:, None], out=H)

    @property
    def residuals(self) -> ScaledResiduals:
        """Those of the point, where it has them."""
        return ScaledResiduals(self.point.residuals, self.E)

    def hessian_product(self, v: Vector) -> Vector:
        """EBEv."""
        return self.E * self.point.hessian_product(self.E * v)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """E T[Eu, Ev]."""
        return self.E * self.point.third_product(self.E * u, self.E * v)

    def third_square(self, c: Vector) -> Vector:
        """E T[Ec, Ec]."""
        return self.E * self.point.third_square(self.E * c)

    def third_tensor(self, V: Matrix) -> Tensor:
        """T over the columns of EV."""
        return self.point.third_tensor(self.E[:, None] * V)


@dataclass(frozen=True, eq=False)
class Turned:
    """Coordinates of the objective's own, in which its Hessian is nearly a multiple of one (`Whitens`)."""

    white: Any

    def lift(self, c: Vector) -> Vector:
        """s."""
        return np.asarray(self.white.lift(c))

    def coordinates(self, s: Vector) -> Vector:
        """c."""
        return np.asarray(self.white.coordinates(s))

    def slope(self, g: Vector) -> Vector:
        """A gradient, or the rows of several."""
        return np.asarray(self.white.slope(g)) if g.ndim == 1 else np.stack([self.white.slope(row) for row in g])

    def point(self, point: Any) -> TurnedPoint:
        """The point seen in these coordinates."""
        return TurnedPoint(point, self)

    def move(self, x: Vector, c: Vector) -> Vector:
        """x + s."""
        return x + self.lift(c)

    def left(self, x: Vector, slope: Vector) -> Vector:
        """All of it."""
        return slope

    @property
    def walls(self) -> None:
        """None."""
        return None

    @property
    def whole(self) -> Turned:
        """These."""
        return self


@dataclass(frozen=True, eq=False)
class TurnedPoint:
    """Products with the Hessian and the third derivative of a point, in coordinates of the objective's own."""

    point: Any
    frame: Turned

    def hessian_product(self, v: Vector) -> Vector:
        """B's, of the step s of coordinates v."""
        return self.frame.slope(self.point.hessian_product(self.frame.lift(v)))

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """T[s, t]."""
        return self.frame.slope(self.point.third_product(self.frame.lift(u), self.frame.lift(v)))

    def third_square(self, c: Vector) -> Vector:
        """T[s, s]."""
        return self.frame.slope(self.point.third_square(self.frame.lift(c)))


@dataclass(frozen=True, eq=False)
class ScaledResiduals:
    """What a point knows of its residuals, in coordinates c with s = E c."""

    residuals: Any
    E: Vector

    def linear(self) -> Any:
        """Their root in these coordinates."""
        return self.residuals.linear().scaled(self.E)

    def curve(self, c: Vector) -> Any:
        """Their second derivative along Ec."""
        return self.residuals.curve(self.E * c).scaled(self.E)

    def rest(self) -> Matrix:
        """What EBE has beyond root'root."""
        return self.residuals.rest() * np.outer(self.E, self.E)


@dataclass(frozen=True, eq=False)
class Reach:
    """What was seen of each x_j along a run: how large it was, how far it came, and how strongly f bent along it."""

    size: Vector  # |x_j|
    moved: Vector  # |x_j - x0_j|
    bend: Vector = field(default_factory=lambda: np.zeros(0))  # |B_jj|; empty where no Hessian was formed

    @staticmethod
    def of(x0: Vector) -> Reach:
        """At the start."""
        return Reach(np.abs(x0), np.zeros_like(x0))

    def at(self, x: Vector, x0: Vector, bend: Vector) -> Reach:
        """With another point; an empty `bend` stands for a Hessian that was not formed."""
        strongest = np.abs(bend) if bend.size else self.bend
        if bend.size and self.bend.size:
            strongest = np.maximum(strongest, self.bend)
        return Reach(np.maximum(self.size, np.abs(x)), np.maximum(self.moved, np.abs(x - x0)), strongest)

    @once
    def spans(self) -> Vector:
        """D_j, how far x_j reaches: the larger of |x_j| and |x_j - x0_j|.

        Where it never left 0, a length along which f changes as much as it does along the others; no span is below
        a small fraction of that.
        """
        D = np.maximum(self.size, self.moved)
        if self.bend.size:
            with np.errstate(over="ignore", invalid="ignore"):
                bends = D * D * self.bend
            if bends.min() > NEVER_LESS * bends.max():  # every span is far above that fraction
                return D
        typical = float(np.max(D, initial=0.0)) or 1.0
        if not self.bend.size:
            return np.where(D > 0, D, typical)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            most = float(np.max(D * D * self.bend)) or float(np.max(self.bend))
            alike = np.sqrt(most / self.bend)
        alike = np.where(np.isfinite(alike) & (alike > 0), alike, typical)
        return np.where(D > 0, np.maximum(D, NEVER_LESS * alike), alike)

    def lengths(self, D: Vector, faint: float = FAINT) -> Vector:
        """1 / sqrt(b_j), over which f bends by one; b_j is at least a small fraction of what D tells of the others."""
        with np.errstate(over="ignore", divide="ignore"):
            squares = D * D
            most = float((squares * self.bend).max(initial=0.0))
            least = np.maximum(faint * most / squares, TINY)
        return 1.0 / np.sqrt(np.maximum(self.bend, least)) if 0.0 < most < np.inf else D


def at_rest(frame: Frame, reach: Reach, bend: Vector, g: Vector, f: float) -> Frame:
    """The frame in which the x_j rest on which f does not depend as far as its rounding tells.

    Over its span D_j both the slope |g_j| D_j is within rounding of f and |B_jj| D_j^2 within that of the others': a
    step along x_j would be one from rounding to rounding, as long as |g_j / B_jj| happens to be. An x_j that began at 0
    and hardly left it, where f is often even, tells no span: the longest of all is taken. One that began beside 0 tells
    little; so what that step promises, g_j^2 / |B_jj|, or the slope over a small fraction of the longest span has to be
    within rounding of f too.
    """
    D, rounded = np.maximum(reach.size, reach.moved), ROUNDED * abs(f)
    longest = float(D.max()) or 1.0
    if not D.min() > NEVER_LESS * longest:
        D = np.where((reach.size > reach.moved) | (NEVER_LESS * longest < D), D, longest)
    with np.errstate(over="ignore", invalid="ignore"):
        bends = np.abs(bend) * D * D
        resting = bends <= ROUNDED * len(g) * bends.max()
        if not resting.any():
            return frame
        slope, least = np.abs(g), np.maximum(D, FAINT * longest)
        resting &= (slope * D <= rounded) & ((g * g <= rounded * np.abs(bend)) | (slope * least <= rounded))
    return Scaled(frame.E, resting) if isinstance(frame, Scaled) and resting.any() else frame


SAME = Same()


class Units(Protocol):
    """In which units steps are measured."""

    @property
    def turns(self) -> bool:
        """Whether the objective's own coordinates at a point are asked for."""
        ...

    def frame(self, reach: Reach, scales: Vector | None, white: Any = None) -> Frame:
        """The coordinates of the next step; `scales` is what the objective itself knows of its units, `white` are its
        own coordinates at the point, where it has them and they were asked for."""
        ...


@dataclass(frozen=True)
class Natural:
    """The unit of x_j is the geometric mean of two lengths that both know its units: how far x_j reaches, D_j, and over
    how far f bends by one,

        E_j = sqrt(D_j / sqrt(b_j)),   b_j the largest |B_jj| along the run.

    A linear model knows more: a step of one unit changes the margin by one where a_ij is not 0, E_j = 1 / rms a_ij.
    Where no Hessian is formed and nothing else is known, all x_j have the same unit. Steps that are made of products
    alone take the coordinates of the objective, where it has any, in which they need few (docs/decisions/021).
    """

    turns: ClassVar[bool] = True

    def frame(self, reach: Reach, scales: Vector | None, white: Any = None) -> Frame:
        """E, or the objective's own."""
        if white is not None:
            return Turned(white)
        if scales is not None:
            return Scaled(scales)
        if not reach.bend.size:
            return SAME
        D = reach.spans
        return Scaled(np.sqrt(D * reach.lengths(D)))


@dataclass(frozen=True)
class AsGiven:
    """x as given, up to units so different that nobody means them: for sums that know no scales of their own.

        E_j = (e_j / e)^+-1 beyond a factor of `believed`, else 1;   e_j as `Natural` reads it, e the median of them

    Where x was given in units that suit, |s| is what it was; whatever they are, what is left of them is bounded.
    """

    believed: float = 1e3
    turns: ClassVar[bool] = True

    def frame(self, reach: Reach, scales: Vector | None, white: Any = None) -> Frame:
        """E, or the objective's own."""
        if white is not None:
            return Turned(white)
        if not reach.bend.size:
            return SAME
        L = np.log(np.sqrt(reach.spans * reach.lengths(reach.spans)))
        L = L - np.median(L)
        return Scaled(np.exp(np.sign(L) * np.maximum(np.abs(L) - np.log(self.believed), 0.0)))


@dataclass(frozen=True)
class Euclidean:
    """|s| as the paper has it, in the units of x as given."""

    turns: ClassVar[bool] = False

    def frame(self, reach: Reach, scales: Vector | None, white: Any = None) -> Frame:
        """x itself."""
        return SAME
