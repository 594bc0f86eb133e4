"""`Dense`: for d up to a few thousand. B is diagonalized once at a point; every sigma after that is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tercet.criticality import third_order_measure
from tercet.model import DenseModel, Regularizer, add_third
from tercet.records import Forecast, Matrix, Meets, Step, Tensor, Vector
from tercet.subsolvers.base import Regularization, Taylor, Workspace, check_positive, meets_first
from tercet.subsolvers.newton import minimize_model
from tercet.subsolvers.spectral import Tridiagonal
from tercet.vectors import length


@dataclass(frozen=True)
class Dense:
    """Minimize the model with B as a matrix.

    Where T can be formed (a plain function of few variables), the model is minimized to |grad m| <= theta |s|^3 and
    a fraction `relative` of |g| by a trust-region Newton method that cannot jump. Otherwise T enters through
    `products` products: the step of the second-order model, s_2, is corrected to the minimizer of

        (g + 1/2 T[s_2]^2)'s + 1/2 s'Bs + sigma/4 |s|^4,

    Chebyshev's correction, which has third-order convergence at the price of one product.
    """

    theta: float = 100.0
    relative: float = 1e-4
    products: int = 1

    def __post_init__(self) -> None:
        check_positive("Dense", "theta", self.theta)
        check_positive("Dense", "relative", self.relative)
        check_positive("Dense", "products", self.products)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Take B, and T where it is to be formed."""
        if taylor.third is not None and taylor.forms_third:
            return FormedWorkspace(self, taylor)
        return SpectralWorkspace(self, taylor)


@dataclass(eq=False)
class SpectralWorkspace:
    """B in tridiagonal form at one point; the last step without T is remembered, since it is asked for again."""

    settings: Dense
    taylor: Taylor
    shift: float = 0.0
    plain: tuple[tuple[float, int, float], Vector, float] | None = None

    @cached_property
    def tridiagonal(self) -> Tridiagonal:
        """B = QTQ'."""
        return Tridiagonal.of(self.taylor.second.hessian())

    def minimize(self, g: Vector, sigma: float, how: Regularization) -> Vector:
        """The minimizer of g's + 1/2 s'Bs + sigma/p |s|^p within the radius."""
        s, self.shift = self.tridiagonal.minimize(g, sigma, how.power, how.radius)
        return s

    def plain_step(self, how: Regularization) -> Vector:
        """The step of the model without T."""
        wanted = (how.second, how.power, how.radius)
        if self.plain is None or self.plain[0] != wanted:
            self.plain = (wanted, self.minimize(self.taylor.g, how.second, how), self.shift)
        self.shift = self.plain[2]
        return self.plain[1]

    def solve(self, how: Regularization) -> Step:
        """The second-order step, corrected by T where that is worth its price."""
        g, point = self.taylor.g, self.taylor.third
        s = self.plain_step(how)
        plain = Step(s, self.forecast(s), None, 1, how.second)
        if point is None or not how.bends:
            return plain
        for bought in range(1, self.settings.products + 1):
            bend = point.third_square(s)
            s = limited(s, self.minimize(g + 0.5 * bend, how.third, how), bought == 1)
        second = self.forecast(s)
        third = add_third(second, s, bend)
        # T[s_2]^2 is not T[s]^2: where the corrected step does not even promise a decrease, the plain one is tried.
        return Step(s, second, third, 1 + bought, how.third) if third.decrease > 0 else plain

    def meets(self, step: Step, how: Regularization) -> Meets:
        """For the quadratic model as the radius left it; after a correction by T nothing more is bought to check it."""
        if step.third:
            return None, None, None
        gradient = step.second.gradient + Regularizer(how.second, how.power).gradient(step.s)
        r = length(step.s)
        lowest = how.second * r ** (how.power - 2) - self.tridiagonal.floor  # hess m >= B + sigma |s|^(p-2) I
        return meets_first(gradient, step.s, self.settings.theta), -lowest <= self.settings.theta * r * r, None

    def forecast(self, s: Vector) -> Forecast:
        """g's + 1/2 s'Bs and its gradient."""
        g, Bs = self.taylor.g, self.taylor.second.hessian() @ s
        return Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)

    def decreases(self, vectors: Matrix) -> Vector:
        """1/2 v'(B + mu I)^-1 v for each row v."""
        T = self.tridiagonal
        return 0.5 * T.inverse_forms(T.rotate(vectors.T), self.shift)


def limited(before: Vector, after: Vector, first: bool) -> Vector:
    """The corrected step, no further from the uncorrected one than half its length: T[s_2]^2 says nothing beyond."""
    change = after - before
    room, far = 0.5 * length(before), length(change)
    return before + change * (room / far) if first and far > room else after


@dataclass(eq=False)
class FormedWorkspace:
    """B and T as arrays at one point."""

    settings: Dense
    taylor: Taylor

    @cached_property
    def T(self) -> Tensor:
        """The third derivative, formed."""
        assert self.taylor.third is not None
        return self.taylor.third.third_tensor(np.eye(len(self.taylor.g)))

    def solve(self, how: Regularization) -> Step:
        """A local minimizer of the whole model within the radius, on the branch of s = 0."""
        g, B = self.taylor.g, self.taylor.second.hessian()
        T, sigma = (self.T, how.third) if how.bends else (None, how.second)
        model = DenseModel(g, B, T, Regularizer(sigma, how.power))
        s, inner = minimize_model(model, self.settings.theta, self.settings.relative, how.radius)
        Bs = B @ s
        second = Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)
        return Step(s, second, None if T is None else add_third(second, s, (T @ s) @ s), inner, sigma)

    def meets(self, step: Step, how: Regularization) -> Meets:
        """Whether chi_{m,i}(s) <= theta |s|^(4-i) for i = 1, 2, 3."""
        s, theta = step.s, self.settings.theta
        T = self.T if step.third else None
        model = DenseModel(self.taylor.g, self.taylor.second.hessian(), T, Regularizer(step.sigma, how.power))
        r = length(s)
        values, basis = np.linalg.eigh(model.hessian(s))
        kernel = basis[:, np.abs(values) <= max(1e-8, theta * r * r)]
        chi3 = third_order_measure(restrict(model.third_tensor(s), kernel))
        first = meets_first(model.gradient(s), s, theta)
        return first, bool(-values[0] <= theta * r * r), bool(chi3 <= theta * r)

    def decreases(self, vectors: Matrix) -> Vector | None:
        """Not needed: T is formed only for deterministic functions."""
        return None


def restrict(T: Tensor, V: Matrix) -> Tensor:
    """T[v_i, v_j, v_k] over the columns of V."""
    return np.einsum("abc,ai,bj,ck->ijk", T, V, V, V, optimize=True)
