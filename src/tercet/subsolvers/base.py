"""What a sub-solver is: prepared once at a point, asked for a step as often as sigma changes there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tercet.objectives.base import Point
from tercet.records import Matrix, Meets, Step, Vector
from tercet.vectors import length


@dataclass(frozen=True, eq=False)
class Taylor:
    """g, B and T at x: the gradient, and the points that give products with B and T (T is None for order 2)."""

    g: Vector
    second: Point
    third: Point | None
    dense: bool  # the d x d Hessian may be formed
    forms_third: bool  # the d x d x d third derivative may be formed


@dataclass(frozen=True)
class Regularization:
    """How far a step may go: sigma for the model without T and with it, the power p, and a bound on |s|.

    `bends` says whether a third derivative may be bought for this step, `unexplained` what the last quadratic model
    left of the gradient.
    """

    second: float
    third: float
    power: int = 4
    radius: float = np.inf
    bends: bool = True
    unexplained: float = 1.0


class Workspace(Protocol):
    """A sub-solver at one point: what does not depend on sigma is computed once and kept."""

    def solve(self, how: Regularization) -> Step:
        """An approximate minimizer of the model."""
        ...

    def meets(self, step: Step, how: Regularization) -> Meets:
        """Whether chi_{m,i}(s) <= theta |s|^(4-i), i = 1, 2, 3 (Condition 2 of the paper); None where not checked."""
        ...

    def decreases(self, vectors: Matrix) -> Vector | None:
        """1/2 v'(B + mu I)^-1 v for each row v, mu the shift of the last step: the decrease that a gradient v promises,
        or that an error v of the gradient can pretend. None where B is not factored."""
        ...


class Subsolver(Protocol):
    """Settings of a way to minimize the model."""

    def prepare(self, taylor: Taylor) -> Workspace:
        """Get ready at a point."""
        ...


def meets_first(gradient: Vector, s: Vector, theta: float) -> bool:
    """chi_{m,1}(s) <= theta |s|^3 (Condition 2, i = 1)."""
    return length(gradient) <= theta * length(s) ** 3


def check_positive(call: str, name: str, value: float) -> None:
    """A setting that has to be a positive number."""
    if not value > 0:
        raise ValueError(f"{call}({name}={value}): {name} must be positive.")
