"""`Dense`: for d up to a few thousand. B is factored once at a point; every sigma after that is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.checks import flag, positive
from tercet.critical.measures import third_order_measure
from tercet.model import Bend, DenseModel, Regularizer, add_third, power_of
from tercet.objectives.base import Traits
from tercet.once import once
from tercet.records import Forecast, Matrix, Meets, Step, Tensor, Vector
from tercet.subsolvers.base import Ask, Needs, Taylor, Workspace, meets_first
from tercet.subsolvers.newton import minimize_model
from tercet.subsolvers.spectral import Cholesky, Tridiagonal
from tercet.vectors import length


@dataclass(frozen=True)
class Dense:
    """Minimize the model with B as a matrix.

    Where T can be formed (a plain function of few variables), the model is minimized to |grad m| <= theta |s|^3 and
    a fraction `relative` of |g| by a trust-region Newton method that cannot jump, and where no sigma holds it, within
    the radius in which its cubic term does not outweigh the others. T is formed if `whole`, for d (d + 1) / 2 products;
    else one product T[s_2]^2 along the second-order step s_2 stands for it (`Bend`), and a model that bends down along
    its step is held by the least sigma with which it would not. Otherwise T enters by that product, too: the step s_2
    of the second-order model, (B + mu I) s_2 = -g, is corrected by

        u = -1/2 (B + mu I)^-1 T[s_2]^2,

    Chebyshev's correction, which has third-order convergence and costs no factorization.
    """

    theta: float = 100.0
    relative: float = 1e-4
    whole: bool = True

    def __post_init__(self) -> None:
        positive("Dense", "theta", self.theta)
        positive("Dense", "relative", self.relative)
        flag("Dense", "whole", self.whole)

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """B as a matrix, whatever that takes."""
        return Needs(forms_hessian=True)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Take B, and T where it is to be formed."""
        if taylor.T is not None and taylor.forms_third:
            return FormedWorkspace(self, taylor)
        return SpectralWorkspace.of(self, taylor)


@dataclass(eq=False)
class SpectralWorkspace:
    """B factored at one point: where it is definite, and nothing holds Newton's step, a Cholesky factor serves, else
    the tridiagonal form. The last step without T is remembered, since it is asked for again."""

    settings: Dense
    taylor: Taylor
    B: Matrix
    root: Cholesky | None  # None where B is not definite
    shift: float = 0.0
    plain: tuple[tuple[float, int, float], Step, float] | None = None

    @staticmethod
    def of(settings: Dense, taylor: Taylor) -> SpectralWorkspace:
        """One Cholesky factorization."""
        B = taylor.B.hessian()
        return SpectralWorkspace(settings, taylor, B, taylor.wait(Cholesky.of, B))

    @once
    def tridiagonal(self) -> Tridiagonal:
        """B = QTQ'."""
        return self.taylor.wait(Tridiagonal.of, self.B)

    def plain_step(self, ask: Ask) -> Step:
        """The minimizer of g's + 1/2 s'Bs + sigma/p |s|^p within the radius."""
        wanted = (ask.sigma2, ask.power, ask.radius)
        if self.plain is None or self.plain[0] != wanted:
            s, shift = self.minimize(*wanted)
            self.plain = wanted, Step(s, self.forecast(s), None, 1, acting(shift, s, ask)), shift
        self.shift = self.plain[2]
        return self.plain[1]

    def minimize(self, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
        """That step, and its shift mu."""
        if sigma == 0.0 and self.root is not None:
            s = -self.root.solve(self.taylor.g)
            if length(s) <= radius:
                return s, 0.0
        return self.tridiagonal.minimize(self.taylor.g, sigma, power, radius)

    def inverse(self, columns: Matrix) -> Matrix:
        """(B + mu I)^-1 v for a vector or columns v, mu the shift of the last step."""
        if self.shift == 0.0 and self.root is not None:
            return self.root.solve(columns)
        return self.tridiagonal.solve(columns, self.shift)

    def solve(self, ask: Ask) -> Step:
        """The second-order step, corrected by T where that may be bought."""
        point, plain = self.taylor.T, self.plain_step(ask)
        if point is None or not ask.buy_third:
            return plain
        bend = point.third_square(plain.s)
        s = plain.s + limited(-0.5 * self.inverse(bend), 0.5 * length(plain.s))
        quadratic = self.forecast(s)
        cubic = add_third(quadratic, s, bend)
        # T[s_2]^2 is not T[s]^2: where the corrected step does not even promise a decrease, the plain one is tried.
        return Step(s, quadratic, cubic, 2, plain.sigma) if cubic.decrease > 0 else plain

    def meets(self, step: Step, ask: Ask) -> Meets:
        """For the quadratic model with the sigma that the radius stands for; a correction is not checked."""
        if step.cubic:
            return None, None, None
        gradient = step.quadratic.gradient + Regularizer(step.sigma, ask.power).gradient(step.s)
        r = length(step.s)
        floor = self.tridiagonal.floor if self.root is None else 0.0
        lowest = step.sigma * power_of(r, ask.power - 2) - floor  # hess m >= B + sigma |s|^(p-2) I
        return meets_first(gradient, step.s, self.settings.theta), -lowest <= self.settings.theta * r * r, None

    def forecast(self, s: Vector) -> Forecast:
        """g's + 1/2 s'Bs and its gradient."""
        g, Bs = self.taylor.g, self.B @ s
        return Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)

    def decreases(self, vectors: Matrix) -> Vector:
        """1/2 v'(B + mu I)^-1 v for each row v."""
        return 0.5 * np.einsum("ij,ji->i", vectors, self.inverse(vectors.T))


def acting(shift: float, s: Vector, ask: Ask) -> float:
    """The sigma with which s minimizes the model: that of the radius where it binds, mu / |s|^(p-2)."""
    return max(ask.sigma2, shift / max(power_of(length(s), ask.power - 2), 1e-300)) if shift > 0.0 else ask.sigma2


def limited(u: Vector, most: float) -> Vector:
    """A correction, no longer than half the step that it corrects: T[s_2]^2 says nothing beyond."""
    size = length(u)
    return u * (most / size) if size > most else u


@dataclass(eq=False)
class FormedWorkspace:
    """B as an array at one point, and T, or what one product tells of it along the first step that was asked for."""

    settings: Dense
    taylor: Taylor
    bend: Bend | None = None

    @once
    def T(self) -> Tensor:
        """The third derivative, formed."""
        assert self.taylor.T is not None
        return self.taylor.T.third_tensor(np.eye(len(self.taylor.g)))

    def third(self, ask: Ask) -> Tensor | Bend:
        """T as it enters the model."""
        if self.settings.whole:
            return self.T
        if self.bend is None:
            assert self.taylor.T is not None
            g, B = self.taylor.g, self.taylor.B.hessian()
            step, _ = Tridiagonal.of(B).minimize(g, ask.sigma2, ask.power, ask.radius)
            p = step / max(length(step), 1e-300)
            self.bend = Bend(p, self.taylor.T.third_square(p))
        return self.bend

    def solve(self, ask: Ask) -> Step:
        """A local minimizer of the whole model within the radius, on the branch of s = 0."""
        g, B = self.taylor.g, self.taylor.B.hessian()
        T, sigma = (self.third(ask), ask.sigma3) if ask.buy_third else (None, ask.sigma2)
        radius = ask.radius
        while True:
            model = DenseModel(g, B, T, Regularizer(sigma, ask.power))
            s, inner = minimize_model(model, self.settings.theta, self.settings.relative, radius)
            Bs = B @ s
            quadratic = Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)
            if T is None:
                return Step(s, quadratic, None, inner, sigma)
            cubic = add_third(quadratic, s, (T @ s) @ s)
            bends, rest = abs(cubic.decrease - quadratic.decrease), max(abs(float(g @ s)), 0.5 * abs(float(s @ Bs)))
            needed = 0.0 if self.settings.whole or sigma > 0.0 else holding(s, Bs, quadratic, cubic)
            if needed == 0.0 and (sigma > 0.0 or not bends > rest):  # else nothing but the radius holds the cubic term
                return Step(s, quadratic, cubic, inner, sigma)
            sigma, radius = (needed, radius) if needed > 0.0 else (sigma, 0.5 * length(s))

    def meets(self, step: Step, ask: Ask) -> Meets:
        """Whether chi_{m,i}(s) <= theta |s|^(4-i) for i = 1, 2, 3; not checked of a model without all of T."""
        if step.cubic and not self.settings.whole:
            return None, None, None
        s, theta = step.s, self.settings.theta
        T = self.T if step.cubic else None
        model = DenseModel(self.taylor.g, self.taylor.B.hessian(), T, Regularizer(step.sigma, ask.power))
        r = length(s)
        values, basis = np.linalg.eigh(model.hessian(s))
        kernel = basis[:, np.abs(values) <= max(1e-8, theta * r * r)]
        chi3 = third_order_measure(restrict(model.third_tensor(s), kernel))
        first = meets_first(model.gradient(s), s, theta)
        return first, bool(-values[0] <= theta * r * r), bool(chi3 <= theta * r)

    def decreases(self, vectors: Matrix) -> Vector | None:
        """Not needed: T is formed only for deterministic functions."""
        return None


def holding(s: Vector, Bs: Vector, quadratic: Forecast, cubic: Forecast) -> float:
    """Where the cubic model bends down at s along s: the least sigma with which the model bends down nowhere along it,

        c_2 + c_3 t + 3 sigma |s|^4 t^2 >= 0 for all t,   c_2 = s'Bs > 0,   c_3 = T[s]^3;

    a quartic with a minimum of fourth order is hit exactly. 0 where the model needs none, or f itself bends down at x.
    """
    c2, c3 = float(s @ Bs), 6.0 * (quadratic.decrease - cubic.decrease)
    most = 12.0 * c2 * power_of(length(s), 4)
    return c3 * c3 / most if c2 > 0.0 and c2 + c3 < 0.0 and 0.0 < most < np.inf and c3 * c3 < np.inf else 0.0


def restrict(T: Tensor, V: Matrix) -> Tensor:
    """T[v_i, v_j, v_k] over the columns of V."""
    return np.einsum("abc,ai,bj,ck->ijk", T, V, V, V, optimize=True)
