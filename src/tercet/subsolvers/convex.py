"""Minimizing g's + 1/2 s'Bs + 1/6 T[s]^3 + sigma/p |s|^p where f is convex: B is factored once, T enters by products.

For sigma large enough beside the fourth derivative the model is convex too, and smooth relative to

    rho(h) = 1/2 h'Bh + sigma/4 |h|^4        (Nesterov 2021, "Implementable tensor methods in unconstrained convex
                                              optimization"; Bauschke, Bolte and Teboulle 2017)

since a convex f has |T[h]| <= B/tau + tau L/2 |h|^2. So the gradient method in the geometry of rho,

    h+ = argmin <grad m(h) - beta grad rho(h), h'> + beta rho(h'),

converges linearly; each of its steps is a problem with a quadratic and a fourth power, which the tridiagonal form of B
solves exactly, and takes one product T[h, h].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tercet.model import Regularizer, power_of
from tercet.records import Vector
from tercet.subsolvers.base import Taylor
from tercet.subsolvers.krylov import Krylov, KrylovWorkspace
from tercet.subsolvers.spectral import EPS, Tridiagonal, regularized_step
from tercet.vectors import combine, length

LONGEST = 40  # steps of the inner method; one that takes more has met a model that is not convex
CAREFUL = 1.5  # beta where the first step of beta = 1 raised the model: 1 + 1/tau with tau = 2


@dataclass(frozen=True, eq=False)
class Solved:
    """An approximate minimizer s of the model, and the gradient of its Taylor polynomial there."""

    s: Vector
    slope: Vector  # g + Bs + 1/2 T[s, s]
    decrease: float  # of the Taylor polynomial
    inner: int


class Space(Protocol):
    """Where the model is minimized: all of it, or a Krylov space that can be enlarged."""

    def curvature(self) -> Tridiagonal:
        """The tridiagonal form of B over the space."""
        ...

    def rotate(self, v: Vector) -> Vector:
        """Coordinates of v, in which B is tridiagonal."""
        ...

    def lift(self, z: Vector) -> tuple[Vector, Vector]:
        """s of coordinates z, and Bs."""
        ...

    def extend(self) -> bool:
        """A larger space; False where there is none."""
        ...


@dataclass(frozen=True, eq=False)
class Whole:
    """All of R^d with B as a matrix."""

    B: Any
    form: Tridiagonal

    def curvature(self) -> Tridiagonal:
        """Of B itself."""
        return self.form

    def rotate(self, v: Vector) -> Vector:
        """Q'v."""
        return self.form.rotate(v)

    def lift(self, z: Vector) -> tuple[Vector, Vector]:
        """Qz."""
        s = self.form.rotate(z, back=True)
        return s, self.B @ s

    def extend(self) -> bool:
        """There is no larger one."""
        return False


@dataclass(frozen=True, eq=False)
class Lanczos:
    """The Krylov space of B and g, a product with B for each vector."""

    basis: KrylovWorkspace

    def curvature(self) -> Tridiagonal:
        """V'BV."""
        return self.basis.tridiagonal

    def rotate(self, v: Vector) -> Vector:
        """V'v."""
        return np.array([float(w @ v) for w in self.basis.V])

    def lift(self, z: Vector) -> tuple[Vector, Vector]:
        """Vz, and BVz from the recurrence."""
        Bs = combine(self.basis.tridiagonal.times(z), self.basis.V)
        return combine(z, self.basis.V), Bs if self.basis.rest is None else Bs + float(z[-1]) * self.basis.rest

    def extend(self) -> bool:
        """Another vector, until the space is complete."""
        return self.basis.extend()


def space_of(taylor: Taylor, dense: bool) -> Space:
    """The whole space where B is worth forming, else a Krylov space of one vector."""
    if dense:
        B = taylor.B.hessian()
        return Whole(B, taylor.wait(Tridiagonal.of, B))
    basis = KrylovWorkspace(Krylov(), taylor)
    basis.extend()
    return Lanczos(basis)


def minimize_convex(taylor: Taylor, space: Space, sigma: float, power: int, accuracy: float) -> Solved | None:
    """s with |grad m(s)| <= accuracy sigma |s|^(p-1); None where the model turns out not to be convex with this sigma.

    Without T (`taylor.T` is None) m is a quadratic and a power, and s is exact over the space.
    """
    inner = 0
    while True:
        look, steps = over(taylor, space, sigma, power, accuracy)
        inner += steps
        if look is None:
            return None
        enough = accuracy * sigma * power_of(length(look.s), power - 1)
        if length(look.gradient) <= enough or not enlarged(space):
            return Solved(look.s, look.slope, look.decrease, inner)


def enlarged(space: Space) -> bool:
    """A space larger by a quarter; False where there is none."""
    more = 1 + len(space.curvature().diag) // 4
    return sum(space.extend() for _ in range(more)) > 0


@dataclass(frozen=True, eq=False)
class Look:
    """The model at s."""

    s: Vector
    Bs: Vector
    slope: Vector  # of the Taylor polynomial
    gradient: Vector  # of the model
    decrease: float  # of the Taylor polynomial
    model: float

    @staticmethod
    def of(taylor: Taylor, space: Space, z: Vector, sigma: float, power: int) -> Look:
        """One product with T, where there is one."""
        s, Bs = space.lift(z)
        slope, decrease = taylor.g + Bs, -float(taylor.g @ s + 0.5 * (s @ Bs))
        if taylor.T is not None:
            bend = taylor.T.third_product(s, s)  # no term is left out: what is would be taken for a miss
            slope, decrease = slope + 0.5 * bend, decrease - float(s @ bend) / 6
        act = Regularizer(sigma, power)
        return Look(s, Bs, slope, slope + act.gradient(s), decrease, act.value(s) - decrease)


def over(taylor: Taylor, space: Space, sigma: float, power: int, accuracy: float) -> tuple[Look | None, int]:
    """The minimizer over the space as it is, and the steps that it took."""
    form = space.curvature()

    def at(c: Vector) -> Look:
        z, _ = regularized_step(form, c, sigma, power, np.inf)
        return Look.of(taylor, space, z, sigma, power)

    look, beta, before = at(space.rotate(taylor.g)), 1.0, 0.0
    if taylor.T is None:
        return look, 1
    for steps in range(1, LONGEST + 1):
        inside = length(space.rotate(look.gradient))  # what lies beyond the space is for a larger one
        if inside <= max(0.5 * accuracy * sigma * power_of(length(look.s), 3), EPS * length(taylor.g)):
            return look, steps
        beta = beta if look.model <= before else CAREFUL
        before = look.model
        rho = look.Bs + look.gradient - look.slope  # grad rho
        look = at(space.rotate(look.gradient / beta - rho))
    return None, LONGEST
