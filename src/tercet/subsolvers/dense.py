"""`Dense`: for d up to a few thousand. B is diagonalized once at a point; every sigma after that is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tercet.checks import positive, whole
from tercet.critical.measures import third_order_measure
from tercet.model import DenseModel, Regularizer, add_third
from tercet.objectives.metered import MeteredPoint
from tercet.records import Forecast, Matrix, Meets, Step, Tensor, Vector
from tercet.subsolvers.base import Ask, Taylor, Workspace, meets_first
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
        positive("Dense", "theta", self.theta)
        positive("Dense", "relative", self.relative)
        whole("Dense", "products", self.products, most=100)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Take B, and T where it is to be formed."""
        if taylor.T is not None and taylor.forms_third:
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
    def B(self) -> Matrix:
        """The Hessian."""
        return self.taylor.B.hessian()

    @cached_property
    def tridiagonal(self) -> Tridiagonal:
        """B = QTQ'."""
        at = self.taylor.B
        return at.view.meter.wait(Tridiagonal.of, self.B) if isinstance(at, MeteredPoint) else Tridiagonal.of(self.B)

    def minimize(self, g: Vector, sigma: float, ask: Ask) -> Vector:
        """The minimizer of g's + 1/2 s'Bs + sigma/p |s|^p within the radius."""
        s, self.shift = self.tridiagonal.minimize(g, sigma, ask.power, ask.radius)
        return s

    def plain_step(self, ask: Ask) -> Vector:
        """The step of the model without T."""
        wanted = (ask.sigma2, ask.power, ask.radius)
        if self.plain is None or self.plain[0] != wanted:
            self.plain = (wanted, self.minimize(self.taylor.g, ask.sigma2, ask), self.shift)
        self.shift = self.plain[2]
        return self.plain[1]

    def solve(self, ask: Ask) -> Step:
        """The second-order step, corrected by T where that is worth its price."""
        g, point = self.taylor.g, self.taylor.T
        s = self.plain_step(ask)
        plain = Step(s, self.forecast(s), None, 1, ask.sigma2)
        if point is None or not ask.buy_third:
            return plain
        for bought in range(1, self.settings.products + 1):
            bend = point.third_square(s)
            s = limited(s, self.minimize(g + 0.5 * bend, ask.sigma3, ask), bought == 1)
        quadratic = self.forecast(s)
        cubic = add_third(quadratic, s, bend)
        # T[s_2]^2 is not T[s]^2: where the corrected step does not even promise a decrease, the plain one is tried.
        return Step(s, quadratic, cubic, 1 + bought, ask.sigma3) if cubic.decrease > 0 else plain

    def meets(self, step: Step, ask: Ask) -> Meets:
        """For the quadratic model as the radius left it; after a correction by T nothing more is bought to check it."""
        if step.cubic:
            return None, None, None
        gradient = step.quadratic.gradient + Regularizer(ask.sigma2, ask.power).gradient(step.s)
        r = length(step.s)
        lowest = ask.sigma2 * r ** (ask.power - 2) - self.tridiagonal.floor  # hess m >= B + sigma |s|^(p-2) I
        return meets_first(gradient, step.s, self.settings.theta), -lowest <= self.settings.theta * r * r, None

    def forecast(self, s: Vector) -> Forecast:
        """g's + 1/2 s'Bs and its gradient."""
        g, Bs = self.taylor.g, self.B @ s
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
        assert self.taylor.T is not None
        return self.taylor.T.third_tensor(np.eye(len(self.taylor.g)))

    def solve(self, ask: Ask) -> Step:
        """A local minimizer of the whole model within the radius, on the branch of s = 0."""
        g, B = self.taylor.g, self.taylor.B.hessian()
        T, sigma = (self.T, ask.sigma3) if ask.buy_third else (None, ask.sigma2)
        model = DenseModel(g, B, T, Regularizer(sigma, ask.power))
        s, inner = minimize_model(model, self.settings.theta, self.settings.relative, ask.radius)
        Bs = B @ s
        quadratic = Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)
        return Step(s, quadratic, None if T is None else add_third(quadratic, s, (T @ s) @ s), inner, sigma)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """Whether chi_{m,i}(s) <= theta |s|^(4-i) for i = 1, 2, 3."""
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


def restrict(T: Tensor, V: Matrix) -> Tensor:
    """T[v_i, v_j, v_k] over the columns of V."""
    return np.einsum("abc,ai,bj,ck->ijk", T, V, V, V, optimize=True)
