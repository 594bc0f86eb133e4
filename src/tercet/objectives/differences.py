"""Derivatives by differences of those that the user gave, at any x, and how many calls they took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tercet.domain import Domain
from tercet.objectives.base import Priced
from tercet.records import ORDERS, Matrix, Tensor, Vector

EPS = float(np.finfo(float).eps)
FORWARD = 100.0  # times its error, which a gradient of forward differences has to be


class Asked(Protocol):
    """A function with the derivatives that the user gave."""

    @property
    def d(self) -> int:
        """The number of variables."""
        ...

    @property
    def domain(self) -> Domain:
        """Where it may be called."""
        ...

    def has(self, *names: str) -> bool:
        """Whether the user gave one of these derivatives."""
        ...

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call."""
        ...


class Differences:
    """Central differences, and where a gradient is only to lead on, forward ones."""

    def __init__(self, objective: Asked):
        self.objective, self.made = objective, dict.fromkeys(ORDERS, 0)

    def priced(self, result: Any, order: str, count: int = 1) -> Any:
        """A result that counts so many of its order, and what was made since the last one; as it is, where it counts
        one and no more."""
        if count == 1 and not any(self.made.values()):
            return result
        spent, self.made = self.made, dict.fromkeys(ORDERS, 0)
        spent[order] += count
        return Priced(result, **spent)

    def gradient(self, x: Vector) -> Vector:
        """grad f: as given, or by differences of f."""
        o = self.objective
        if o.has("grad"):
            return o.ask("grad", x, shape=(o.d,))
        h = EPS ** (1 / 3) * np.maximum(1.0, np.abs(x))
        return np.array([o.domain.difference(self.value, x, e, float(t)) for e, t in zip(np.eye(o.d), h, strict=True)])

    def value(self, x: Vector) -> float:
        """f, counted."""
        self.made["value"] += 1
        return float(self.objective.ask("fun", x, shape=()))

    def forward(self, x: Vector, f: float, bend: Vector) -> Vector:
        """grad f by differences to one side, f(x) and about how f bends along the axes being known: d values."""
        h = self.objective.domain.beside(x, forward_steps(x))
        there = [x + t * e for t, e in zip(h, np.eye(len(x)), strict=True)]
        rise = np.array([0.0 if t == 0.0 else self.value(z) - f for t, z in zip(h, there, strict=True)])
        return np.divide(rise, h, out=np.zeros_like(h), where=h != 0.0) - 0.5 * h * bend

    def bends(self, x: Vector, f: float) -> tuple[Vector, Vector]:
        """grad f, and how f bends along each axis, from the same values."""
        h = EPS ** (1 / 3) * np.maximum(1.0, np.abs(x))
        pairs = np.array([(self.value(x + e), self.value(x - e)) for e in np.diag(h)])
        return (pairs[:, 0] - pairs[:, 1]) / (2 * h), (pairs[:, 0] + pairs[:, 1] - 2 * f) / (h * h)

    def hessian(self, x: Vector, f: float) -> Matrix:
        """hess f from d (d + 1) values beside f(x), or from products where these lead out of the domain."""
        o, h = self.objective, EPS**0.25 * np.maximum(1.0, np.abs(x))
        if not room_for(o.domain, x, h):
            return self.products(x)
        E = np.diag(h)
        up, down = np.array([self.value(x + e) for e in E]), np.array([self.value(x - e) for e in E])
        H = np.diag(up + down - 2 * f)
        sides = up + down
        for i in range(o.d):
            for j in range(i):
                both = self.value(x + E[i] + E[j]) + self.value(x - E[i] - E[j])
                H[i, j] = H[j, i] = 0.5 * (both - sides[i] - sides[j]) + f
        return H / np.outer(h, h)

    def counted(self, order: str, of: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        """A function whose calls count."""

        def call(z: Vector) -> Any:
            self.made[order] += 1
            return of(z)

        return call

    def product(self, x: Vector, v: Vector) -> Vector:
        """hess f v: as given, or by differences of the gradient (of f, where that is all there is)."""
        o = self.objective
        if o.has("hvp"):
            return o.ask("hvp", x, v, shape=(o.d,))
        if o.has("hess"):
            self.made["hessian"] += 1
            return o.ask("hess", x, shape=(o.d, o.d)) @ v
        length = float(np.linalg.norm(v))
        if length == 0.0:
            return np.zeros(o.d)
        # A gradient that is itself a difference carries an error near EPS^(2/3), so the step is the wider one.
        h = (EPS ** (1 / 3) if o.has("grad") else EPS ** (1 / 5)) * max(1.0, float(np.linalg.norm(x))) / length
        gradient = self.counted("gradient", self.gradient) if o.has("grad") else self.gradient
        return o.domain.difference(gradient, x, v, h)

    def third(self, x: Vector, u: Vector, v: Vector) -> Vector:
        """third f[u, v]: the difference of Hessian products along u."""
        o, length = self.objective, float(np.linalg.norm(u))
        if length == 0.0:
            return np.zeros(o.d)
        h = (EPS ** (1 / 3) if o.has("hess", "hvp") else EPS ** (1 / 5)) * max(1.0, float(np.linalg.norm(x))) / length

        def product(z: Vector) -> Vector:
            return self.product(z, v)

        return o.domain.difference(self.counted("hessian", product) if o.has("hvp") else product, x, u, h)

    def products(self, x: Vector) -> Matrix:
        """hess f from d products."""
        d = self.objective.d
        self.made["hessian"] += d - 1 if self.objective.has("hvp") else 0  # one of d products is counted already
        return np.stack([self.product(x, e) for e in np.eye(d)])

    def square(self, x: Vector, g: Vector, u: Vector) -> Vector:
        """third f[u, u]: the second difference of the gradient, which is g at x, along u."""
        o, length = self.objective, float(np.linalg.norm(u))
        h = (EPS ** (1 / 4) if o.has("grad") else EPS ** (1 / 6)) * max(1.0, float(np.linalg.norm(x)))
        if length == 0.0 or min(o.domain.room(x, u), o.domain.room(x, -u)) * length < h:
            return self.third(x, u, u)
        v = u * (h / length)
        gradient = self.counted("gradient", self.gradient) if o.has("grad") else self.gradient
        return (gradient(x + v) + gradient(x - v) - 2 * g) * (length / h) ** 2

    def tensor(self, x: Vector, V: Matrix) -> Tensor:
        """third f over the columns of V by differences of Hessians, two for each; products would take two a pair."""
        o, h = self.objective, EPS ** (1 / 3) * max(1.0, float(np.linalg.norm(x)))
        hessian = self.counted("hessian", lambda z: o.ask("hess", z, shape=(o.d, o.d)))
        T = np.stack([V.T @ o.domain.difference(hessian, x, v, h) @ V for v in V.T])
        return (T + T.transpose(0, 2, 1)) / 2


def forward_steps(x: Vector) -> Vector:
    """How far forward differences go along each axis."""
    return EPS**0.5 * np.maximum(1.0, np.abs(x))


def leads(x: Vector, f: float, g: Vector, bend: Vector) -> bool:
    """Whether a gradient of about g at about x is far above the error e of forward differences: truncation, of which a
    good part is known and taken off, and the rounding of f. Both are measured by what they make of f over a step,

        sum g_j^2 / b_j > FORWARD^2 sum e_j^2 / b_j,     b_j = |B_jj|,

    so that one axis along which f bends strongly is not overlooked beside others, whatever their units.
    """
    h, b = forward_steps(x), np.abs(bend)
    b = np.maximum(b, EPS * float(b.max()) or 1.0)
    e = h * b + 2 * EPS * abs(f) / h
    return float(g @ (g / b)) > FORWARD * FORWARD * float(e @ (e / b))


def room_for(domain: Domain, x: Vector, h: Vector) -> bool:
    """Whether steps of h along any two axes stay in the domain, forward and backward."""
    return all(np.array_equal(domain.project(x + sign * h), x + sign * h) for sign in (1.0, -1.0))
