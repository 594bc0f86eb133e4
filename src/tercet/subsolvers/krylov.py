"""`Krylov`: matrix-free, for large d. One growing basis serves every shift, every sigma and the correction by T."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tercet.model import Regularizer, add_third
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Regularization, Taylor, Workspace, check_positive, meets_first
from tercet.subsolvers.dense import limited
from tercet.subsolvers.spectral import regularized_step


@dataclass(frozen=True)
class Krylov:
    """Minimize the model over a Krylov space of B, enlarged until the residual is below `relative` |g| or theta |s|^3.

    Each new basis vector costs one product with B. T enters through one product, as in `Dense`: the same basis is
    enlarged for the corrected right-hand side.
    """

    theta: float = 100.0
    relative: float = 0.1
    vectors: int = 200

    def __post_init__(self) -> None:
        for name in ("theta", "relative", "vectors"):
            check_positive("Krylov", name, getattr(self, name))

    def prepare(self, taylor: Taylor) -> Workspace:
        """Begin with an empty basis."""
        return KrylovWorkspace(self, taylor)


@dataclass(eq=False)
class KrylovWorkspace:
    """An orthonormal basis V with BV, kept across sigma retries."""

    settings: Krylov
    taylor: Taylor
    V: list[Vector] = field(default_factory=list)
    BV: list[Vector] = field(default_factory=list)

    def extend(self, v: Vector) -> bool:
        """Add the part of v that the basis lacks; False when it lacks none."""
        length = float(np.linalg.norm(v))
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            for u in self.V:
                v = v - (u @ v) * u
        rest = float(np.linalg.norm(v))
        if rest <= 1e-12 * length or len(self.V) >= min(self.settings.vectors, len(v)):
            return False
        self.V.append(v / rest)
        self.BV.append(self.taylor.second.hessian_product(self.V[-1]))
        return True

    def minimize(self, g: Vector, sigma: float, how: Regularization) -> tuple[Vector, Vector, int]:
        """The minimizer of g's + 1/2 s'Bs + sigma/p |s|^p over a space large enough for the residual asked; also Bs."""
        target = self.settings.relative * float(np.linalg.norm(g)) * min(1.0, float(np.sqrt(np.linalg.norm(g))))
        grown = 1 if self.extend(g) else 0
        while True:
            V, BV = np.stack(self.V, axis=1), np.stack(self.BV, axis=1)
            H = V.T @ BV
            values, Q = np.linalg.eigh((H + H.T) / 2)
            inner, shift = regularized_step(values, Q.T @ (V.T @ g), sigma, how.power, how.radius)
            z = Q @ inner
            s, Bs = V @ z, BV @ z
            residual = g + Bs + shift * s
            small = min(target, self.settings.theta * float(np.linalg.norm(s)) ** 3)
            if np.linalg.norm(residual) <= max(small, 1e-14 * float(np.linalg.norm(g))) or not self.extend(residual):
                return s, Bs, grown
            grown += 1

    def solve(self, how: Regularization) -> Step:
        """The second-order step, corrected by T where that is worth its price."""
        g, point = self.taylor.g, self.taylor.third
        if not np.any(g):
            zero = Forecast(0.0, g)
            return Step(np.zeros_like(g), zero, None, 0, how.second)
        s, Bs, grown = self.minimize(g, how.second, how)
        bend = None
        if point is not None and how.price > 0 and point.third_square_price(s) <= how.price * point.terms:
            bend = point.third_square(s)
            after, _, more = self.minimize(g + 0.5 * bend, how.third, how)
            s, grown = limited(s, after, True), grown + more
            V, BV = np.stack(self.V, axis=1), np.stack(self.BV, axis=1)
            Bs = BV @ (V.T @ s)
        second = Forecast(-float(g @ s + 0.5 * (s @ Bs)), g + Bs)
        if bend is None:
            return Step(s, second, None, grown, how.second)
        return Step(s, second, add_third(second, s, bend), grown, how.third)

    def meets(self, step: Step, how: Regularization) -> Meets:
        """The first condition for the quadratic model; the others would take products."""
        if step.third:
            return None, None, None
        gradient = step.second.gradient + Regularizer(how.second, how.power).gradient(step.s)
        return meets_first(gradient, step.s, self.settings.theta), None, None

    def blur(self, errors: Matrix) -> float | None:
        """None: B is not factored."""
        return None
