"""`GaussNewton`: steps from the Jacobian of residuals, by its singular values, and the rest of B where it matters.

With root'root the Gauss-Newton matrix, root = U diag(q) V' and S = B - root'root, the rest:

    Gauss-Newton:  (root'root + mu I) s = -g          Newton:  (root'root + S + mu I) s = -g

In the coordinates of V, root'root is diag(q^2), whose small entries keep all the digits that q has; forming B first
would lose those below eps q_1^2. The second derivative of the residuals along s gives the correction of third order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.checks import number
from tercet.model import Regularizer
from tercet.objectives.base import Traits
from tercet.once import once
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Needs, Taylor, meets_first
from tercet.subsolvers.bases import Basis, Found, Singular, Squared, is_heavy
from tercet.subsolvers.dense import acting, limited
from tercet.subsolvers.spectral import EPS, Tridiagonal, lapack
from tercet.vectors import length

CHEAP = 4.0  # gradients: a Hessian up to this price is always formed
TRIES = 4  # times a step is made shorter before f is looked at
LONGEST = 0.5  # of the step, a correction


@dataclass(frozen=True)
class GaussNewton:
    """Minimize a model of residuals: J by QR and singular values, and its third-order correction.

    All of B is used where it is positive definite and the last step left more than `left` of the gradient unexplained,
    else the Gauss-Newton matrix. With b = r''[s, s], one directional second derivative of the residuals, the step s is
    corrected by

        u = -1/2 (B + mu I)^-1 J'b     and judged by     1/2 |r + J(s + u) + b/2|^2,

    which has every term of third order in s but those with third derivatives of r. A correction of more than `bend` of
    s tells that the valley turns: s is made shorter before f is looked at.
    """

    left: float = 0.0
    bend: float = 0.375

    def __post_init__(self) -> None:
        if not number(self.left) >= 0:  # inf: the rest of B is never formed
            raise ValueError(f"GaussNewton(left={self.left!r}): give a fraction that is at least 0.")
        if not 0 < number(self.bend) < np.inf:
            raise ValueError(f"GaussNewton(bend={self.bend!r}): give a positive number.")

    @staticmethod
    def suited(traits: Traits) -> GaussNewton:
        """Where a Hessian is dear, it is left alone as long as the Gauss-Newton matrix explains the gradient, and where
        it is not worth forming, always."""
        if not traits.dense:
            return GaussNewton(left=np.inf)
        return GaussNewton(left=0.0 if traits.hessian_cost <= CHEAP else 0.1)

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """The Jacobian of residuals."""
        if not traits.residuals:
            raise ValueError("GaussNewton(): this objective does not know its residuals; use tercet.Residuals.")
        return Needs(linear=True)

    def prepare(self, taylor: Taylor) -> RootWorkspace:
        """Nothing before it is asked for."""
        return RootWorkspace(self, taylor)


@dataclass(eq=False)
class Plain:
    """A step of second order: its coordinates, shift, and the way to solve with its matrix."""

    ask: tuple[float, int, float]
    basis: Basis
    c: Vector
    shift: float
    full: bool
    solve: Callable[[Vector], Vector]
    step: Step


@dataclass(eq=False)
class RootWorkspace:
    """The residuals at one point, with the factorizations of their Jacobian that were asked for."""

    settings: GaussNewton
    taylor: Taylor
    last: Plain | None = None

    @once
    def linear(self) -> Any:
        """The residuals as straight lines."""
        return self.taylor.B.residuals.linear()

    @once
    def singular(self) -> Singular:
        """By QR and singular values."""
        return Singular(self.linear, self.taylor.g, whole=self.settings.left < np.inf)

    @once
    def squared(self) -> Squared | None:
        """By the square, where that takes less time worth speaking of."""
        if not is_heavy(self.linear):
            return None
        return Squared.of(self.linear.gram, self.taylor.g, self.taylor.wait)

    @once
    def rest(self) -> Matrix:
        """V'SV."""
        Vt = self.singular.svd[1]
        return Vt @ self.taylor.B.residuals.rest() @ Vt.T

    def gauss_newton(self, ask: Ask) -> tuple[Basis, Found]:
        """The minimizer of the Gauss-Newton model, by the square where that has the digits."""
        found = None if self.squared is None else self.squared.minimize(ask)
        if found is not None and self.squared is not None:
            return self.squared, found
        return self.singular, self.singular.minimize(ask)

    def newton(self, ask: Ask) -> Found | None:
        """The same for all of B; None where that is not positive definite."""
        q, _, slope = self.singular.svd
        K = np.diag(q * q) + self.rest
        size = np.diag(K)
        if not np.all(size > 0.0):
            return None
        E = 1.0 / np.sqrt(size)
        factor, info = lapack().dpotrf(K * np.outer(E, E), lower=1)
        if info:
            return None

        def solve(v: Vector) -> Vector:
            return E * lapack().dpotrs(factor, E * v, lower=1)[0]

        c = -solve(slope)
        if ask.sigma2 == 0.0 and length(c) <= ask.radius:
            return c, 0.0, solve
        T = Tridiagonal.of(K)
        c, mu = T.minimize(slope, ask.sigma2, ask.power, ask.radius)
        return c, mu, lambda v: T.solve(v, mu)

    def plain(self, ask: Ask) -> Plain:
        """The second-order step; the last one is remembered, since it is asked for again."""
        wanted = (ask.sigma2, ask.power, ask.radius)
        if self.last is None or self.last.ask != wanted:
            newton = self.newton(ask) if ask.unexplained > self.settings.left else None
            basis, (c, mu, solve) = self.gauss_newton(ask) if newton is None else (self.singular, newton)
            s, full = basis.outside(c), newton is not None
            step = Step(s, self.forecast(basis, c, full), None, 1, acting(mu, s, ask))
            self.last = Plain(wanted, basis, c, mu, full, solve, step)
        return self.last

    def product(self, s: Vector) -> Vector:
        """Bs, or with the Gauss-Newton matrix in place of B, as in the last step."""
        basis, full = (self.singular, False) if self.last is None else (self.last.basis, self.last.full)
        c = basis.inside(s)
        return basis.outside(basis.times(c) + (self.rest @ c if full else 0.0))

    def forecast(self, basis: Basis, c: Vector, full: bool) -> Forecast:
        """g's + 1/2 s'Bs, or with the Gauss-Newton matrix in place of B, and its gradient."""
        Bc = basis.times(c) + (self.rest @ c if full else 0.0)
        return Forecast(-float(basis.slope @ c + 0.5 * (c @ Bc)), self.taylor.g + basis.outside(Bc))

    def solve(self, ask: Ask) -> Step:
        """The second-order step with its correction; a shorter one, as long as the correction is not small beside it.

        It is small where it is at most `bend` of the step in the units of the step, or by what the model makes of both.
        """
        if self.taylor.T is None or not ask.buy_third:
            return self.plain(ask).step
        most = self.settings.bend
        for left in range(TRIES, -1, -1):
            plain = self.plain(ask)
            curve, c = self.taylor.T.residuals.curve(plain.step.s), plain.c
            u = -0.5 * plain.solve(plain.basis.inside(curve.slope))
            if not (np.isfinite(curve.square) and np.isfinite(u).all() and np.any(c)):
                return plain.step
            of_u, of_c = (v @ (plain.basis.times(v) + plain.shift * v) for v in (u, c))
            times = min(length(u) / length(c), float(np.sqrt(of_u / of_c)))
            if times <= most or left == 0:
                break
            ask = replace(ask, radius=length(c) * max(0.1, 0.8 * most / times))
        return self.corrected(plain, limited(u, LONGEST * length(c)), curve)

    def corrected(self, plain: Plain, u: Vector, curve: Any) -> Step:
        """s + u, with what r + J(s + u) + b/2, b = r''[s, s], promises; the plain step where that is no decrease."""
        basis, c = plain.basis, plain.c + u
        b, straight = basis.inside(curve.slope), basis.times(c)
        bent = 0.5 * (curve.image + float(b @ c)) + 0.125 * curve.square
        gradient = self.taylor.g + basis.outside(straight) + 0.5 * curve.slope
        cubic = Forecast(-float(basis.slope @ c + 0.5 * (c @ straight)) - bent, gradient)
        if not cubic.decrease > 0.0:
            return plain.step
        return Step(basis.outside(c), self.forecast(basis, c, plain.full), cubic, 2, plain.step.sigma)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """For the quadratic model with the sigma that the radius stands for; a correction is not checked."""
        if step.cubic:
            return None, None, None
        gradient = step.quadratic.gradient + Regularizer(step.sigma, ask.power).gradient(step.s)
        return meets_first(gradient, step.s, 100.0), None, None

    def decreases(self, vectors: Matrix) -> Vector | None:
        """1/2 v'(root'root + mu I)^-1 v for each row v."""
        if self.last is not None and isinstance(self.last.basis, Squared):
            inside = self.last.basis.inside(vectors.T)
            return 0.5 * np.einsum("ji,ji->i", inside, self.last.solve(inside))
        q, Vt, _ = self.singular.svd
        mu = max(0.0 if self.last is None else self.last.shift, EPS * float(q[0]) ** 2, 1e-290)
        return 0.5 * np.sum((vectors @ Vt.T) ** 2 / (q * q + mu), axis=1)
