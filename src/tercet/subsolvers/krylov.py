"""`Krylov`: matrix-free, for large d. One Lanczos basis serves every shift, every sigma and the correction by T."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.checks import positive, whole
from tercet.model import Regularizer, add_third, power_of
from tercet.objectives.base import Traits
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Needs, Taylor, Workspace, meets_first
from tercet.subsolvers.dense import acting, limited
from tercet.subsolvers.spectral import EPS, Tridiagonal, regularized_step
from tercet.vectors import combine, length

CAUTION = 20.0  # where the model bends down, the shift of a step is this many times what would hold it up
REORTHOGONAL = 2000  # up to this many variables the whole basis is made orthogonal again; above only locally


@dataclass(frozen=True)
class Krylov:
    """Minimize the model over the Krylov space of B and g, enlarged until the residual is below `relative` |g|.

    Lanczos vectors V give the tridiagonal T = V'BV, and the residual of a step Vz is the last entry of z times the next
    off-diagonal of T: each new vector costs one product with B and no more. The third derivative enters through one
    product, as in `Dense`, over the same space.

    Once there is a radius, a space in which B is not positive definite is not enlarged, and the step is a cautious one:
    among very many terms the exact minimizer spends its whole length on the few that bend down, and f falls little.
    """

    theta: float = 100.0
    relative: float = 0.3
    vectors: int = 200

    def __post_init__(self) -> None:
        positive("Krylov", "theta", self.theta)
        positive("Krylov", "relative", self.relative)
        whole("Krylov", "vectors", self.vectors, most=1e6)

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """Nothing but products."""
        return Needs(products=True)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Begin with an empty basis."""
        return KrylovWorkspace(self, taylor)


@dataclass(eq=False)
class KrylovWorkspace:
    """Lanczos vectors V with T = V'BV, kept across sigma retries."""

    settings: Krylov
    taylor: Taylor
    V: list[Vector] = field(default_factory=list)
    diag: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)
    known: Tridiagonal | None = None  # T, as far as it was asked for
    rest: Vector | None = None  # the direction of the next vector, not yet of length one; None when there is none

    def extend(self) -> bool:
        """One more vector, at the price of one product with B; False when the space is complete or large enough."""
        if not self.grow():
            return False
        self.follow(self.taylor.B.hessian_product(self.V[-1]))
        return True

    def grow(self) -> bool:
        """One more vector, of which nothing is known yet."""
        rest = self.rest if self.V else self.taylor.g
        if rest is None or len(self.V) >= min(self.settings.vectors, len(rest)):
            return False
        size = length(rest)
        if self.V:
            self.off.append(size)
        self.V.append(rest / size)
        return True

    def follow(self, w: Vector) -> None:
        """From the product w of B with the last vector, the direction of the next: what is new in w."""
        v, image = self.V[-1], length(w)
        if len(self.diag) < len(self.V):
            self.diag.append(float(v @ w))
        w = w - self.diag[-1] * v
        if len(self.V) > 1:
            w -= self.off[-1] * self.V[-2]
        if len(v) <= REORTHOGONAL:
            basis = np.stack(self.V)
            for _ in range(2):  # twice is enough (Kahan, Parlett)
                w -= (basis @ w) @ basis
        self.rest = w if length(w) > 1e-12 * image else None

    @property
    def tridiagonal(self) -> Tridiagonal:
        """T over the vectors so far."""
        if self.known is None or len(self.known.diag) < len(self.diag):
            self.known = Tridiagonal(np.array(self.diag), np.array(self.off))
        return self.known

    def cautious(self, ask: Ask) -> bool:
        """Whether the model bends down in this space, and a radius says how far that can be trusted."""
        return bool(np.isfinite(ask.radius)) and self.tridiagonal.floor > 0.0

    def coordinates(self, ask: Ask) -> tuple[Vector, float]:
        """The coordinates z of the minimizer over the vectors so far, and its shift."""
        c = np.zeros(len(self.V))
        c[0] = length(self.taylor.g)
        if self.cautious(ask):
            return cautious_step(self.tridiagonal, c, ask)
        return regularized_step(self.tridiagonal, c, ask.sigma2, ask.power, ask.radius)

    def minimize(self, ask: Ask) -> tuple[Vector, float]:
        """The coordinates z of the minimizer over a space that is large enough, and its shift."""
        norm = length(self.taylor.g)
        while True:
            if self.V:
                z, shift = self.coordinates(ask)
                left = 0.0 if self.rest is None else length(self.rest) * abs(float(z[-1]))
                cube = self.settings.theta * power_of(length(z), 3)
                enough = max(min(self.settings.relative * norm, cube), 1e-14 * norm)
                if left <= enough or self.cautious(ask):
                    return z, shift
            if not self.extend():
                return z, shift

    def solve(self, ask: Ask) -> Step:
        """The second-order step, corrected by T where that is worth its price."""
        g, point = self.taylor.g, self.taylor.T
        if not np.any(g):
            return Step(np.zeros_like(g), Forecast(0.0, g), None, 0, ask.sigma2)
        before = len(self.V)
        z, shift = self.minimize(ask)
        s, cautious = combine(z, self.V), self.cautious(ask)
        sigma = ask.sigma2 if cautious else acting(shift, z, ask)  # a cautious step minimizes the model with no sigma
        plain = Step(s, self.forecast(z), None, len(self.V) - before, sigma)
        if point is None or not ask.buy_third or cautious:
            return plain
        bend = point.third_square(s)
        c = np.array([float(v @ bend) for v in self.V])
        z = z + limited(-0.5 * self.tridiagonal.shifted(shift)(c), 0.5 * length(z))
        s, quadratic = combine(z, self.V), self.forecast(z)
        cubic = add_third(quadratic, s, bend)
        return Step(s, quadratic, cubic, plain.inner, plain.sigma) if cubic.decrease > 0 else plain

    def forecast(self, z: Vector) -> Forecast:
        """g's + 1/2 s'Bs and its gradient g + Bs at s = Vz; BV = VT and, beyond the last vector, the rest."""
        T, g = self.tridiagonal, self.taylor.g
        Tz = T.times(z)
        Bs = combine(Tz, self.V)
        if self.rest is not None:
            Bs += float(z[-1]) * self.rest
        return Forecast(-(length(g) * float(z[0]) + 0.5 * float(z @ Tz)), g + Bs)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """The first condition for the quadratic model; the others would take products."""
        if step.cubic:
            return None, None, None
        gradient = step.quadratic.gradient + Regularizer(step.sigma, ask.power).gradient(step.s)
        return meets_first(gradient, step.s, self.settings.theta), None, None

    def decreases(self, vectors: Matrix) -> Vector | None:
        """None: B is not factored."""
        return None


def cautious_step(T: Tridiagonal, c: Vector, ask: Ask) -> tuple[Vector, float]:
    """The lower of two points: the minimizers of c'z + 1/2 z'Tz along -(T + mu I)^-1 c and along -c.

    mu = 20 |lambda_min| lets all directions of the gradient take part; -c leads to the Cauchy point. Both go no further
    than the radius, and not beyond where the regularized model is no longer negative:

        c'z + 1/2 z'Tz + sigma/p |z|^p = 0
    """
    shift, p = CAUTION * T.floor, ask.power

    def furthest(z: Vector) -> tuple[float, Vector]:
        u = z / length(z)
        slope, curvature = float(c @ u), float(u @ T.times(u))
        # That equation over t = |z| is the one of a minimizer with half the curvature and sigma / p.
        half = Tridiagonal(np.array([0.5 * curvature]), np.zeros(0))
        t = float(regularized_step(half, np.array([slope]), ask.sigma2 / p, p, ask.radius)[0][0])
        t = min(t, -slope / curvature) if curvature > 0.0 else t
        return t * slope + 0.5 * t * t * curvature, t * u

    rise = shift - T.floor
    while (solve := T.solver(rise)) is None:  # rounding of a floor that should be 0
        rise = max(4.0 * rise, EPS * (T.bound + T.floor), 1e-280)
    return min(map(furthest, (-solve(c), -c)), key=lambda found: found[0])[1], T.floor + rise
