"""The certificate of a point between bounds: that of f over the critical cone, and a multiplier for each bound.

    active    x_j on a bound from which f rises for certain: |g_j| is more than what x may be wrong by makes of it
    weak      x_j on a bound, and g_j is not told from 0: a direction may lead away from it, but only to one side
    free      all others

Along an active x_j f rises at first order, whatever its curvature; so second and third order are asked over the others,
and f is looked at there within the bounds. The multipliers are g_j of what is active: by so much min f changes where
that bound is moved by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from tercet.critical.certify import certify
from tercet.critical.errors import DIGITS, Travelled
from tercet.critical.looks import WayDown
from tercet.critical.tolerances import Tolerances
from tercet.domain import Box, Domain
from tercet.face import FacePoint, embed
from tercet.frame import Reach
from tercet.objectives.base import Traits
from tercet.objectives.capabilities import Abilities
from tercet.objectives.metered import Known, MeteredPoint
from tercet.records import Certificate, Matrix, Rows, Vector
from tercet.vectors import signs

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def certify_in(
    domain: Domain,
    point: MeteredPoint,
    n: int,
    tolerances: Tolerances,
    traits: Traits,
    seed: int = 0,
    way: Travelled | None = None,
    brief: bool = False,
) -> tuple[Certificate, WayDown | None]:
    """The certificate of a point of the domain, and a way down where one is seen; see `certify`."""
    if not isinstance(domain, Box):
        return certify(point, n, tolerances, traits, seed, way, brief)
    way = way or Travelled(Reach.of(point.x))
    g = point.gradient()
    held = domain.held(point.x, g)
    if brief or not np.all(np.isfinite(g)) or (tolerances.order == 1 and not tolerances.relative):
        active, weak = held, np.zeros_like(held)
    else:
        active, weak = told_apart(domain, point, held, tolerances, way.reach, traits)
    cone = Cone(domain, point, np.flatnonzero(~active), np.where(weak & held, g, 0.0))
    if not len(cone.some):
        found, down = corner(point, n, tolerances, traits, brief), None
    else:
        way = replace(way, reach=over(way.reach, cone.some))
        inner: Any = ConePoint.of(cone, point)
        found, down = certify(inner, n, tolerances, traits, seed, way, brief, domain.over(cone.some))
    return cone.lifted(found, g, weak), None if down is None else replace(down, s=cone.step(down.s))


def told_apart(
    box: Box, point: MeteredPoint, held: Mask, t: Tolerances, reach: Reach, traits: Traits
) -> tuple[Mask, Mask]:
    """Which of the x_j that are held are so for certain, and which are on a bound with a g_j that is not told from 0.

    What x may be wrong by, `relative` of its spans, changes g_j by up to |B| times that; where B is not formed, one
    product with B stands in. With a `tol` all that is not above eps_1 counts as 0.
    """
    g, fixed = point.gradient(), box.low == box.high
    on_bound = ((point.x <= box.low) | (point.x >= box.high)) & ~fixed
    if not np.any(on_bound):
        return held, on_bound
    if t.relative:
        bend = np.diag(point.hessian()) if traits.dense else np.zeros(0)
        D = t.relative * reach.at(point.x, point.x, bend).spans
        unsure = np.abs(point.hessian()) @ D if traits.dense else np.abs(point.hessian_product(D * signs(len(D), 0)))
    else:
        unsure = np.full(len(g), t.eps1)
    told = np.abs(g) > unsure
    return held & (fixed | told), on_bound & ~told


def over(reach: Reach, some: Rows) -> Reach:
    """What was seen of some of the variables."""
    return Reach(reach.size[some], reach.moved[some], reach.bend[some] if reach.bend.size else reach.bend)


def corner(point: MeteredPoint, n: int, t: Tolerances, traits: Traits, brief: bool) -> Certificate:
    """Of a point where every x_j is on a bound from which f rises."""
    return Certificate(
        0.0, 0.0, 0.0, t.eps1, t.eps2, t.eps3, t.zeta, t.order, point.terms, n, traits.provenance, relative=t.relative,
        converged=not brief, rises=True, strict=True, error_f=0.0, digits=DIGITS,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cone:
    """The variables that are not active at a point of a box; the others stay where they are."""

    box: Box
    point: MeteredPoint  # at x
    some: Rows
    slack: Vector  # g_j of those that are weakly active, which counts as 0

    @property
    def d(self) -> int:
        """The number of all variables."""
        return len(self.point.x)

    def x(self, part: Vector) -> Vector:
        """All variables, within the box."""
        x = self.point.x.copy()
        x[self.some] = part
        return self.box.project(x)

    def step(self, s: Vector) -> Vector:
        """A step of all variables that stays in the box."""
        return self.box.project(self.point.x + embed(s, self.some, self.d)) - self.point.x

    def direction(self, v: tuple[float, ...]) -> tuple[float, ...]:
        """Of all variables."""
        return tuple(embed(np.array(v), self.some, self.d).tolist())

    def lifted(self, found: Certificate, g: Vector, weak: Mask) -> Certificate:
        """The certificate in all variables, with the multipliers."""
        active = np.ones(self.d, dtype=bool)
        active[self.some] = False
        strict = found.strict
        if np.any(weak) and not isfinite(found.condition):  # over a cone looks along some directions do not tell
            strict = None if strict else strict
        on = f"{np.count_nonzero(active)} active and {np.count_nonzero(weak)} weakly active bounds"
        return replace(
            found,
            strict=strict,
            how=f"{found.how}; {on}, over the critical cone of {len(self.some)} variables",
            error_x=tuple(embed(np.array(found.error_x), self.some, self.d).tolist()) if found.error_x else (),
            kernel=tuple(self.direction(v) for v in found.kernel),
            involved=tuple(int(self.some[j]) for j in found.involved),
            way_down=None if found.way_down is None else tuple(self.step(np.array(found.way_down)).tolist()),
            ray=None if found.ray is None else self.direction(found.ray),
            multipliers=tuple(np.where(active, g, 0.0).tolist()),
            active=tuple(np.flatnonzero(active).tolist()),
            weak=tuple(np.flatnonzero(weak).tolist()),
        )


@dataclass(frozen=True, eq=False)
class ConeView:
    """f over the variables of a cone."""

    cone: Cone

    def at(self, x: Vector) -> ConePoint:
        """At other values of these; beyond a bound, where rounding leads, at the bound."""
        return ConePoint.of(self.cone, self.cone.point.view.at(self.cone.x(x)))

    def first_at(self, x: Vector) -> ConePoint:
        """The same, with f and its gradient at once."""
        return ConePoint.of(self.cone, self.cone.point.view.first_at(self.cone.x(x)))


@dataclass(frozen=True, eq=False)
class ConePoint:
    """A metered point over the variables of a cone, as `certify` sees it."""

    cone: Cone
    of_all: MeteredPoint
    face: FacePoint

    @staticmethod
    def of(cone: Cone, point: MeteredPoint) -> ConePoint:
        """A point of all variables."""
        return ConePoint(cone, point, FacePoint(point, cone.some, cone.d))

    @property
    def x(self) -> Vector:
        """Of these variables."""
        return self.of_all.x[self.cone.some]

    @property
    def view(self) -> ConeView:
        """For other points."""
        return ConeView(self.cone)

    @property
    def terms(self) -> int:
        """As all."""
        return self.of_all.terms

    @property
    def known(self) -> Known:
        """As all."""
        return self.of_all.known

    @property
    def able(self) -> Abilities:
        """As all, but that nothing is proved between bounds: a stationary point that is found may lie beyond one."""
        return replace(self.of_all.able, limits=None)

    def value(self) -> float:
        """f(x)."""
        return self.of_all.value()

    def gradient(self) -> Vector:
        """Over these variables, less what counts as 0."""
        return (self.of_all.gradient() - self.cone.slack)[self.cone.some]

    def hessian(self) -> Matrix:
        """Over these variables, and so below."""
        return self.face.hessian()

    def hessian_product(self, v: Vector) -> Vector:
        """Bv."""
        return self.face.hessian_product(v)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """T[u, v]."""
        return self.face.third_product(u, v)

    @property
    def differenced(self) -> Any:
        """Of the differences that derivatives are made of."""
        whole = self.of_all.differenced
        return None if whole is None else ConeDifferences(self, whole)

    def third_tensor(self, V: Matrix) -> Any:
        """T over the columns of V."""
        return self.face.third_tensor(V)

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on T over the span of V."""
        return self.face.third_bound(V, tight)


@dataclass(frozen=True, eq=False)
class ConeDifferences:
    """What is known of the differences that made the derivatives of a point, over the variables of a cone."""

    point: ConePoint
    whole: Any

    @property
    def strides(self) -> Vector:
        """Of those that made the gradient."""
        strides: Vector = self.whole.strides
        return strides[self.point.cone.some] if strides.size else strides

    def drift(self, v: Vector) -> Vector:
        """By how much Bv may be off."""
        drift: Vector = self.whole.drift(self.point.face.whole(v))
        return drift[self.point.cone.some]
