"""A sample that is corrected at an anchor: f_S - P_S + P, with the Taylor polynomials at the anchor, and its points."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, cast

import numpy as np

from tercet.methods.saved import need, vector
from tercet.objectives.base import group_errors
from tercet.objectives.metered import GROUPS, NOTHING, Carry, Known, Metered, MeteredPoint, MeteredView
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector


@dataclass(frozen=True, eq=False)
class Sample:
    """Some of the terms, also dealt to groups, whose spread tells how far their mean strays."""

    objective: Metered
    rows: Rows

    @once
    def view(self) -> MeteredView:
        """All of them."""
        return self.objective.over(self.rows)

    @once
    def groups(self) -> list[MeteredView]:
        """As `group_errors` wants them."""
        return [self.objective.over(self.rows[k::GROUPS]) for k in range(min(GROUPS, len(self.rows)))]

    def slopes(self, x: Vector) -> Matrix:
        """The sum of gradients over each group."""
        return np.stack([each.terms * gradient_over(each.at(x)) for each in self.groups])

    def bends(self, x: Vector) -> Tensor:
        """The sum of Hessians over each group."""
        return np.stack([each.terms * each.at(x).hessian() for each in self.groups])


def gradient_over(point: MeteredPoint) -> Vector:
    """The gradient without its error."""
    return cast(Vector, point.ask("gradient", point.able.gradient))


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where all terms were looked at: the gradient there, and B and T where these are formed.

    With it goes what the sample that is drawn next tells there: the sums over its groups of gradients and Hessians, and
    its T.
    """

    x: Vector
    g: Vector
    B: Matrix | None = None
    T: Tensor | None = None
    slopes: Matrix | None = None
    bends: Tensor | None = None
    third: Tensor | None = None

    def of_sample(self, sample: Sample, slopes: bool = True) -> Anchor:
        """With what this sample tells; without its gradients where only its B and T are wanted."""
        a = self.x
        return replace(
            self,
            slopes=sample.slopes(a) if slopes else None,
            bends=None if self.B is None else sample.bends(a),
            third=None if self.T is None else sample.view.at(a).third_tensor(np.eye(len(a))),
        )

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def of(arrays: Any, d: int) -> Anchor | None:
        """From a checkpoint; ValueError where it cannot be one."""
        if arrays is None:
            return None
        need(set(arrays) == {each.name for each in fields(Anchor)}, "its anchor has other parts")
        k = len(arrays["slopes"]) if np.ndim(arrays["slopes"]) == 2 else 1
        shapes = {"x": (d,), "g": (d,), "B": (d, d), "T": (d, d, d), "slopes": (k, d), "bends": (k, d, d)}
        for name, shape in (shapes | {"third": (d, d, d)}).items():
            if arrays[name] is not None or name in ("x", "g"):
                vector(f"the {name} of its anchor", arrays[name], *shape)
        return Anchor(**arrays)


@dataclass(frozen=True, eq=False)
class Kept:
    """What goes from one iteration to the next: the anchor, if there is one, and the level of f over the sample."""

    anchor: Anchor | None = None
    level: float = 0.0

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"anchor": None if self.anchor is None else self.anchor.arrays(), "level": self.level}

    @staticmethod
    def of(arrays: Any, d: int) -> Kept:
        """From a checkpoint; ValueError where it cannot be one."""
        if arrays is None:
            return Kept()
        need(
            set(arrays) == {"anchor", "level"} and isfinite(arrays["level"]), "what it knows of its anchor is no record"
        )
        return Kept(Anchor.of(arrays["anchor"], d), float(arrays["level"]))


@dataclass(frozen=True, eq=False)
class ReducedView:
    """F: a sample, with its Taylor polynomial at the anchor replaced by that of f; the sample alone without one."""

    sample: Sample
    anchor: Anchor | None
    level: float = 0.0  # of F, which is known up to a constant

    @property
    def terms(self) -> int:
        """The number of sampled terms."""
        return self.sample.view.terms

    @property
    def rows(self) -> Rows:
        """The sampled terms."""
        return self.sample.rows

    @property
    def seed(self) -> Carry:
        """Nothing is handed on."""
        return NOTHING

    def at(self, x: Vector, given: Carry = NOTHING) -> ReducedPoint:
        """F at x."""
        return ReducedPoint(self, x)

    def counted(self, metered: Metered) -> ReducedView:
        """The same, counted by another meter."""
        return replace(self, sample=Sample(metered, self.rows))

    @once
    def swapped(self) -> tuple[Vector | None, Matrix | None, Tensor | None]:
        """The coefficients of P - P_S."""
        a, m = self.anchor, self.terms
        if a is None:
            return None, None, None
        return (
            None if a.slopes is None else a.g - np.sum(a.slopes, axis=0) / m,
            None if a.B is None or a.bends is None else a.B - np.sum(a.bends, axis=0) / m,
            None if a.T is None or a.third is None else a.T - a.third,
        )


class ReducedPoint:
    """F at x, as a point. A product with T is over the sample: one with all terms would cost what that saves."""

    def __init__(self, view: ReducedView, x: Vector):
        self.view, self.x, self.terms = view, x, view.terms
        self.here = view.sample.view.at(x)
        self.able, self.known, self.given = self.here.able, Known(), NOTHING
        self.borrowed, self.inexact, self.carry = None, 4, NOTHING
        self.third_product, self.third_square = self.here.third_product, self.here.third_square

    @once
    def away(self) -> Vector:
        """e = x - a."""
        assert self.view.anchor is not None
        return self.x - self.view.anchor.x

    def value(self) -> float:
        """f_S + c'e + 1/2 e'Ce + 1/6 D[e]^3, with c, C, D of P - P_S."""
        if self.known.value is None:
            c, C, D = self.view.swapped
            f = self.here.value() + self.view.level
            f += 0.0 if c is None else float(c @ self.away)
            f += 0.0 if C is None else 0.5 * float(self.away @ C @ self.away)
            self.known.value = f + (0.0 if D is None else float(self.away @ D @ self.away @ self.away) / 6.0)
        return self.known.value

    @once
    def slopes(self) -> Matrix:
        """The sums of the sampled gradients over groups."""
        return self.view.sample.slopes(self.x)

    def gradient(self) -> Vector:
        """g_S + c + Ce + 1/2 D[e, e]."""
        if self.known.gradient is None:
            c, C, D = self.view.swapped
            g = np.sum(self.slopes, axis=0) / self.terms
            g = g if c is None else g + c
            g = g if C is None else g + C @ self.away
            self.known.gradient = g if D is None else g + 0.5 * (D @ self.away @ self.away)
        return self.known.gradient

    def errors(self) -> Matrix:
        """Of that gradient, from the same groups of terms at x and at the anchor."""
        anchor, sums = self.view.anchor, self.slopes
        if anchor is not None and anchor.slopes is not None:
            sums = sums - anchor.slopes
            sums = sums if anchor.bends is None else sums - anchor.bends @ self.away
        return group_errors(sums, self.terms)

    def hessian(self) -> Matrix:
        """B_S + C + D[e]."""
        if self.known.hessian is None:
            _, C, D = self.view.swapped
            B = self.here.hessian()
            B = B if C is None else B + C
            self.known.hessian = B if D is None else B + D @ self.away
        return self.known.hessian

    def hessian_product(self, v: Vector) -> Vector:
        """The same, times v."""
        formed = self.known.hessian is not None or self.view.swapped[1] is not None
        return self.hessian() @ v if formed else self.here.hessian_product(v)

    def third_tensor(self, V: Matrix) -> Tensor:
        """T_S + D over the columns of V."""
        T, D = self.here.third_tensor(V), self.view.swapped[2]
        return T if D is None else T + cast(Tensor, np.einsum("abc,ai,bj,ck->ijk", D, V, V, V, optimize=True))
