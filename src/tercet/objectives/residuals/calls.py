"""Residuals as NumPy callables of the whole vector: r(x), and J(x) or differences of r in its place.

Second and third derivatives of f come from differences of its gradient J'rho'(r) along a direction v:

    hess f v = (g(x + hv) - g(x - hv)) / 2h,   third f[v, v] = (g(x + hv) - 2 g(x) + g(x - hv)) / h^2,

of which the Gauss-Newton part J' diag(h) J v is known exactly; T[u, v] is (T[u+v]^2 - T[u-v]^2) / 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.checks import plain_array
from tercet.domain import EVERYWHERE, Domain
from tercet.objectives.base import Priced, Traits
from tercet.objectives.capabilities import result_of
from tercet.objectives.residuals.linearized import Curve, Linearized, rows_of
from tercet.objectives.residuals.outer import Normal, Outer
from tercet.once import once
from tercet.records import Matrix, Rows, Vector

EPS = float(np.finfo(float).eps)
FORMED = 200
SHORT = 1e-4  # of x, a step along which differences see no second derivative
NEAR = 0.1  # of a step, where residuals are looked at for their second derivative along it


@dataclass(frozen=True, eq=False)
class CallResiduals:
    """f(x) = sum_i rho(r_i(x)) as a sum of one term, which is its own view."""

    d: int
    rows: int  # residuals
    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    loss: Outer
    look: Callable[[], None] = lambda: None  # at the clock, before each call
    domain: Domain = EVERYWHERE  # where they may be called
    n: int = 1
    terms: int = 1

    @property
    def traits(self) -> Traits:
        """What is given, and what is made by differences."""
        made = "second and third derivatives by differences of jac"
        return Traits(
            dense=self.d <= FORMED,
            hessian_cost=2.0 * self.d,
            residuals=self.d <= FORMED,
            provenance=f"residuals as given; {made if self.jac else made.replace('of jac', 'of the residuals')}"
            + ("" if self.jac else ", and their Jacobian, too")
            + ", good to fewer digits",
            blur=10.0 * EPS ** (2 / 3 if self.jac else 7 / 15),  # what g is good to, over the width of its differences
        )

    def clocked(self, look: Callable[[], None]) -> CallResiduals:
        """Differences make many calls, and each of them looks at the clock."""
        return replace(self, look=look)

    def within(self, domain: Domain) -> CallResiduals:
        """Differences call them in the domain only."""
        return replace(self, domain=domain)

    def over(self, rows: Rows | None) -> CallResiduals:
        """There is one term."""
        return self

    def at(self, x: Vector, carry: None = None) -> CallResidualPoint:
        """The residuals at x."""
        return CallResidualPoint(self, x)

    def likelihood(self, x: Vector) -> Normal | None:
        """Of the residuals, as normal errors."""
        return self.loss.likelihood(float(result_of(self.at(x).value())), self.rows, self.d)

    def ask(self, name: str, x: Vector) -> Any:
        """One call of the user's function on a copy, checked for its shape and copied."""
        self.look()
        call: Any = self.fun if name == "fun" else self.jac
        answer = call(x.copy())
        if hasattr(answer, "toarray"):
            answer = answer.toarray()
        try:
            out = np.array(plain_array(answer), dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"{name} returned no array of real numbers ({error})") from error
        wanted = (self.rows,) if name == "fun" else (self.rows, self.d)
        out = out.reshape(wanted) if out.size == 1 and wanted in ((1,), (1, 1)) else out
        if out.shape != wanted:
            raise ValueError(
                f"{name} returned shape {out.shape}, but {wanted} is needed; the residuals keep their number"
            )
        return out


class CallResidualPoint:
    """Residuals at one x. An answer counts what it took: values for r, gradients for J."""

    def __init__(self, objective: CallResiduals, x: Vector):
        self.objective, self.x, self.made = objective, x, Counter[str]()

    def priced(self, result: Any, **count: int) -> Any:
        """A result that counts what is given, and what was made since the last one."""
        spent = self.made + Counter(count)
        self.made = Counter()
        return Priced(result, **spent)

    @once
    def r(self) -> Vector:
        """The residuals."""
        self.made["value"] += 1
        return self.objective.ask("fun", self.x)

    @once
    def J(self) -> Matrix:
        """Their Jacobian."""
        if self.objective.jac is not None:
            self.made["gradient"] += 1
            return self.objective.ask("jac", self.x)
        return self.differences()

    def differences(self) -> Matrix:
        """J by central differences of r, two calls for each variable."""
        o = self.objective
        h = EPS ** (1 / 3) * np.maximum(np.abs(self.x), 1e-3 * max(1.0, float(np.max(np.abs(self.x)))))

        def residuals(z: Vector) -> Vector:
            self.made["value"] += 1
            return o.ask("fun", z)

        def column(j: int) -> Vector:
            up, down = self.x.copy(), self.x.copy()
            up[j], down[j] = up[j] + h[j], down[j] - h[j]
            if np.array_equal(o.domain.project(up), up) and np.array_equal(o.domain.project(down), down):
                return (residuals(up) - residuals(down)) / (up[j] - down[j])
            return o.domain.difference(residuals, self.x, np.eye(1, o.d, j)[0], float(h[j]))

        return np.stack([column(j) for j in range(o.d)], axis=1)

    def value(self) -> Priced[float]:
        """f(x)."""
        return self.priced(float(np.sum(self.objective.loss.value(self.r))))

    @once
    def slope(self) -> Vector:
        """grad f(x) = J'rho'(r)."""
        return self.J.T @ self.objective.loss.weights(self.r)[0]

    def gradient(self) -> Priced[Vector]:
        """grad f(x)."""
        return self.priced(self.slope, gradient=0 if self.objective.jac is not None else 1)

    @once
    def root(self) -> Linearized:
        """By QR of the weighted Jacobian."""
        return Linearized(rows_of(self.r, self.J, np.ones(self.objective.rows), self.objective.loss, 1))

    def linear(self, paid: bool = False) -> Priced[Linearized]:
        """A root of the Gauss-Newton matrix."""
        root = self.root
        if paid:  # with the gradient, before a checkpoint
            self.made = Counter()
        return self.priced(root)

    def curve(self, s: Vector) -> Priced[Curve]:
        """r''[s, s] by one more call, a tenth of s away: 2 (r(x + hs) - r - hJs) / h^2; 0 for a step so short that
        rounding would be most of it."""
        if float(np.max(np.abs(s))) <= SHORT * float(np.max(np.abs(self.x), initial=1e-300)):
            return self.priced(Curve(np.zeros_like(s), 0.0, 0.0))
        t = min(NEAR, self.objective.domain.room(self.x, s))
        if t < SHORT * NEAR:  # a bound is in the way
            return self.priced(Curve(np.zeros_like(s), 0.0, 0.0))
        there = CallResidualPoint(self.objective, self.objective.domain.project(self.x + t * s))
        b = 2.0 * (there.r - self.r - t * (self.J @ s)) / t**2
        self.made += there.made
        slope, h = self.objective.loss.weights(self.r)
        return self.priced(Curve(self.J.T @ (h * b), float(slope @ b), float((h * b) @ b)), third=1)

    @once
    def beside(self) -> Differences:
        """What the gradient says beside x."""
        return Differences(self)

    def product(self, order: int, *vectors: Vector) -> Priced[Vector]:
        """hess f(x) v or third f(x)[u, v]."""
        if order == 2:
            (v,) = vectors
            Bv = self.beside.along(v) if np.any(v) else np.zeros_like(v)
            return self.priced(Bv, hessian=1)
        (u, v), square = vectors, self.beside.square
        bend = square(u) if np.array_equal(u, v) else 0.25 * (square(u + v) - square(u - v))
        return self.priced(bend, third=1)

    def rest(self) -> Priced[Matrix]:
        """The same."""
        return self.priced(self.beside.remainder, hessian=1)

    def hessian(self) -> Priced[Matrix]:
        """hess f(x)."""
        G = self.root.gram
        return self.priced(G + self.beside.remainder, hessian=1)


@dataclass(frozen=True, eq=False)
class Differences:
    """Second and third derivatives of f by differences of its gradient, whose calls the point counts."""

    point: CallResidualPoint

    def width(self, v: Vector, sharp: bool) -> float:
        """h, how many times v away from x differences are taken; `sharp` for first ones, else for second ones."""
        power = (1 / 3 if sharp else 1 / 4) if self.point.objective.jac is not None else 1 / 5
        x = np.abs(self.point.x)
        size = float(np.max(np.abs(v) / np.maximum(x, 1e-3 * max(1.0, float(np.max(x))))))
        return EPS**power / size

    def slope_at(self, x: Vector) -> Vector:
        """grad f at another point, with its price."""
        there = CallResidualPoint(self.point.objective, x)
        slope = there.slope
        self.point.made += there.made
        return slope

    def along(self, v: Vector) -> Vector:
        """hess f v."""
        return self.point.objective.domain.difference(self.slope_at, self.point.x, v, self.width(v, True))

    def square(self, v: Vector) -> Vector:
        """third f(x)[v, v]."""
        if not np.any(v):
            return np.zeros_like(v)
        x, h, room = self.point.x, self.width(v, False), self.point.objective.domain.room
        if min(room(x, v), room(x, -v)) < h:
            return self.square_within(v, h)
        return (self.slope_at(x + h * v) - 2 * self.point.slope + self.slope_at(x - h * v)) / h**2

    def square_within(self, v: Vector, h: float) -> Vector:
        """The same from one side, to which there is room; 0 where there is none: such a step is not corrected."""
        x, domain = self.point.x, self.point.objective.domain
        sign = 1.0 if domain.room(x, v) >= domain.room(x, -v) else -1.0
        t = min(h, 0.5 * domain.room(x, sign * v))
        if t < SHORT * h:
            return np.zeros_like(v)
        near, far = (self.slope_at(domain.project(x + k * sign * t * v)) for k in (1.0, 2.0))
        return (far - 2 * near + self.point.slope) / t**2

    @once
    def remainder(self) -> Matrix:
        """B - root'root, by differences along the variables."""
        d = self.point.objective.d
        B = np.stack([self.along(e) for e in np.eye(d)])
        return 0.5 * (B + B.T) - self.point.root.gram
