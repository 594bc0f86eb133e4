"""What a sub-solver is: prepared once at a point, asked for a step as often as sigma changes there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tercet.model import power_of
from tercet.objectives.base import Traits
from tercet.records import Matrix, Meets, Step, Vector
from tercet.vectors import length


@dataclass(frozen=True, eq=False)
class Taylor:
    """g, B and T at x: the gradient, and the points that give products with B and T (T is None for order 2).

    All are in the coordinates of a step (`tercet.frame`).
    """

    g: Vector
    B: Any
    T: Any
    forms_third: bool  # the d x d x d third derivative may be formed
    wait: Callable[..., Any] = lambda work, matrix: work(matrix)  # work(matrix), or the end when the time is up
    walls: tuple[Vector, Vector] | None = None  # how far down and up each coordinate of a step may go


@dataclass(frozen=True)
class Ask:
    """What is asked of a sub-solver: sigma for the model without T and with it, the power p, and a bound on |s|.

    The bound is that of the model's step; one that T corrects may be longer by half.
    `buy_third` says whether a third derivative may be bought for this step, `unexplained` what the last quadratic model
    left of the gradient.
    """

    sigma2: float
    sigma3: float
    power: int = 4
    radius: float = np.inf
    buy_third: bool = True
    unexplained: float = 1.0


class Workspace(Protocol):
    """A sub-solver at one point: what does not depend on sigma is computed once and kept."""

    def solve(self, ask: Ask) -> Step:
        """An approximate minimizer of the model."""
        ...

    def meets(self, step: Step, ask: Ask) -> Meets:
        """Whether chi_{m,i}(s) <= theta |s|^(4-i), i = 1, 2, 3 (Condition 2 of the paper); None where not checked."""
        ...

    def decreases(self, vectors: Matrix) -> Vector | None:
        """1/2 v'(B + mu I)^-1 v for each row v, mu the shift of the last step: the decrease that a gradient v promises,
        or that an error v of the gradient can pretend. None where B is not factored."""
        ...


class Subsolver(Protocol):
    """Settings of a way to minimize the model. One that is not for every objective also has `needs` (`Particular`)."""

    def prepare(self, taylor: Taylor) -> Workspace:
        """Get ready at a point."""
        ...


@dataclass(frozen=True)
class Needs:
    """What a sub-solver asks of the run that it works in."""

    power: int | None = None  # of the regularizer; None: that of the method
    same_terms: bool = False  # B and T are taken over the terms of f
    own_units: bool = False  # it works on x itself, whatever the units of the method
    forms_hessian: bool = False  # B is formed as a matrix anyway, and may serve for more
    products: bool = False  # it takes products with B and T alone, in whatever coordinates
    linear: bool = False  # steps are made of the Jacobian of residuals


class Particular(Protocol):
    """A sub-solver that is not for every run."""

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """What it needs; ValueError where the objective or the size rule cannot give it."""
        ...


def needs_of(subsolver: Any, traits: Traits, sizes: Any) -> Needs:
    """What a sub-solver needs; by default nothing."""
    return subsolver.needs(traits, sizes) if hasattr(subsolver, "needs") else Needs()


def meets_first(gradient: Vector, s: Vector, theta: float) -> bool:
    """chi_{m,1}(s) <= theta |s|^3 (Condition 2, i = 1)."""
    return length(gradient) <= theta * power_of(length(s), 3)
