"""`GaussNewton`: steps from the Jacobian of residuals, by its singular values, and the rest of B where it matters.

With root'root the Gauss-Newton matrix, root = U diag(q) V' and S = B - root'root, the rest:

    Gauss-Newton:  (root'root + mu I) s = -g          Newton:  (root'root + S + mu I) s = -g

In the coordinates of V, root'root is diag(q^2), whose small entries keep all the digits that q has; forming B first
would lose those below eps q_1^2. The second derivative of the residuals along s gives the correction of third order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.checks import number
from tercet.model import Regularizer
from tercet.objectives.base import Traits
from tercet.once import once
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Needs, Taylor, meets_first
from tercet.subsolvers.dense import acting, limited
from tercet.subsolvers.spectral import EPS, Tridiagonal, lapack, secular
from tercet.vectors import length

CHEAP = 4.0  # gradients: a Hessian up to this price is always formed
TRIES = 4  # times a step is made shorter before f is looked at
LONGEST = 0.5  # of the step, a correction
SAME = 1e-6  # of its terms: root'image is the gradient, and not that of other examples


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
        if not number(self.left) >= 0:
            raise ValueError(f"GaussNewton(left={self.left!r}): give a fraction that is at least 0.")
        if not 0 < number(self.bend) < np.inf:
            raise ValueError(f"GaussNewton(bend={self.bend!r}): give a positive number.")

    @staticmethod
    def suited(traits: Traits) -> GaussNewton:
        """Where a Hessian is dear, it is left alone as long as the Gauss-Newton matrix explains the gradient."""
        return GaussNewton(left=0.0 if traits.hessian_cost <= CHEAP else 0.1)

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """The Jacobian of residuals."""
        if not traits.residuals:
            raise ValueError("GaussNewton(): this objective does not know its residuals; use tercet.Residuals.")
        return Needs(linear=True)

    def prepare(self, taylor: Taylor) -> RootWorkspace:
        """Nothing before it is asked for."""
        return RootWorkspace(self, taylor)


@dataclass(frozen=True, eq=False)
class Squares:
    """diag(q^2) as a matrix for `secular`."""

    values: Vector
    floor: float = 0.0

    @property
    def bound(self) -> float:
        """The largest."""
        return float(self.values[0])

    def solver(self, rise: float) -> Any:
        """v -> v / (q^2 + rise)."""
        return lambda v: v / (self.values + rise)


@dataclass(eq=False)
class Plain:
    """A step of second order: its coordinates, shift, and the way to solve with its matrix."""

    ask: tuple[float, int, float]
    c: Vector
    shift: float
    full: bool
    solve: Any
    step: Step


@dataclass(eq=False)
class RootWorkspace:
    """The residuals at one point, in the coordinates of the singular vectors of their Jacobian."""

    settings: GaussNewton
    taylor: Taylor
    last: Plain | None = None

    @once
    def svd(self) -> tuple[Vector, Matrix, Vector]:
        """q with zeros where there are fewer rows than variables, V, and V'g."""
        linear = self.taylor.B.linear()
        root, image, d = linear.root, linear.image, len(self.taylor.g)
        U, q, Vt = np.linalg.svd(root, full_matrices=root.shape[0] < d)
        own = np.linalg.norm(root.T @ image - self.taylor.g) <= SAME * np.linalg.norm(np.abs(root.T) @ np.abs(image))
        values = np.zeros(d)
        values[: len(q)] = q
        slope = Vt @ self.taylor.g
        if own:
            slope = np.zeros(d)
            slope[: len(q)] = q * (U[:, : len(q)].T @ image)
        return values, Vt.T, slope

    @once
    def rest(self) -> Matrix:
        """V'SV."""
        V = self.svd[1]
        return V.T @ self.taylor.B.rest() @ V

    def gauss_newton(self, ask: Ask) -> tuple[Vector, float, Any]:
        """The minimizer of the Gauss-Newton model, its shift, and v -> (diag(q^2) + mu)^-1 v."""
        q, _, slope = self.svd
        seen = q > EPS * len(q) * q[0]
        T = Squares(q * q)
        if not slope.any():
            return np.zeros_like(q), 0.0, lambda v: np.where(seen, v, 0.0) / np.where(seen, q * q, 1.0)
        c = np.where(seen, -slope / np.where(seen, q * q, 1.0), 0.0)
        if ask.sigma2 == 0.0 and length(c) <= ask.radius:
            return c, 0.0, lambda v: np.where(seen, v / np.where(seen, q * q, 1.0), 0.0)
        c, mu = secular(T, slope, 0.0, ask.sigma2, ask.power, ask.radius)  # type: ignore[arg-type]
        return c, mu, T.solver(mu)

    def newton(self, ask: Ask) -> tuple[Vector, float, Any] | None:
        """The same for all of B; None where that is not positive definite."""
        q, _, slope = self.svd
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
            found = self.newton(ask) if ask.unexplained > self.settings.left else None
            full = found is not None
            c, mu, solve = found or self.gauss_newton(ask)
            s = self.svd[1] @ c
            step = Step(s, self.forecast(c, full), None, 1, acting(mu, s, ask))
            self.last = Plain(wanted, c, mu, full, solve, step)
        return self.last

    def product(self, s: Vector) -> Vector:
        """Bs, or with the Gauss-Newton matrix in place of B, as in the last step."""
        q, V, _ = self.svd
        c = V.T @ s
        return V @ (q * q * c + (self.rest @ c if self.last is not None and self.last.full else 0.0))

    def forecast(self, c: Vector, full: bool) -> Forecast:
        """g's + 1/2 s'Bs, or with the Gauss-Newton matrix in place of B, and its gradient."""
        q, V, slope = self.svd
        Bc = q * q * c + (self.rest @ c if full else 0.0)
        return Forecast(-float(slope @ c + 0.5 * (c @ Bc)), V @ (slope + Bc))

    def solve(self, ask: Ask) -> Step:
        """The second-order step with its correction; a shorter one, as long as the correction is not small beside it.

        It is small where it is at most `bend` of the step in the units of the step, or by what the model makes of both.
        """
        if self.taylor.T is None or not ask.buy_third:
            return self.plain(ask).step
        most = self.settings.bend
        for left in range(TRIES, -1, -1):
            plain = self.plain(ask)
            curve = self.taylor.T.curve(plain.step.s)
            u = -0.5 * plain.solve(self.svd[1].T @ curve.slope)
            if not (np.isfinite(curve.square) and np.isfinite(u).all() and np.any(plain.c)):
                return plain.step
            w = self.svd[0] ** 2 + plain.shift
            times = min(length(u) / length(plain.c), float(np.sqrt((u * u) @ w / ((plain.c * plain.c) @ w))))
            if times <= most or left == 0:
                break
            ask = replace(ask, radius=length(plain.c) * max(0.1, 0.8 * most / times))
        return self.corrected(plain, limited(u, LONGEST * length(plain.c)), curve)

    def corrected(self, plain: Plain, u: Vector, curve: Any) -> Step:
        """s + u, with what r + J(s + u) + b/2, b = r''[s, s], promises; the plain step where that is no decrease."""
        q, V, slope = self.svd
        c, b = plain.c + u, V.T @ curve.slope
        straight = q * q * c
        bent = 0.5 * (curve.image + float(b @ c)) + 0.125 * curve.square
        cubic = Forecast(-float(slope @ c + 0.5 * (c @ straight)) - bent, V @ (slope + straight + 0.5 * b))
        if not cubic.decrease > 0.0:
            return plain.step
        return Step(V @ c, self.forecast(c, plain.full), cubic, 2, plain.step.sigma)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """For the quadratic model with the sigma that the radius stands for; a correction is not checked."""
        if step.cubic:
            return None, None, None
        gradient = step.quadratic.gradient + Regularizer(step.sigma, ask.power).gradient(step.s)
        return meets_first(gradient, step.s, 100.0), None, None

    def decreases(self, vectors: Matrix) -> Vector | None:
        """1/2 v'(root'root + mu I)^-1 v for each row v."""
        q, V, _ = self.svd
        mu = max(0.0 if self.last is None else self.last.shift, EPS * float(q[0]) ** 2, 1e-290)
        return 0.5 * np.sum((vectors @ V) ** 2 / (q * q + mu), axis=1)
