"""How long is a long step? The unit of each x_j, read off the problem (docs/decisions/012).

Multiply f by a number, or measure an x_j in other units: steps stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tercet.frame import Frame, Reach, Same, Scaled
from tercet.records import Vector

SAME = Same()


class Units(Protocol):
    """In which units steps are measured."""

    def frame(self, reach: Reach, scales: Vector | None) -> Frame:
        """The coordinates of the next step; `scales` is what the objective itself knows of its units."""
        ...


@dataclass(frozen=True)
class Natural:
    """The unit of x_j is the geometric mean of two lengths that both know its units: how far x_j reaches, D_j, and over
    how far f bends by one,

        E_j = sqrt(D_j / sqrt(b_j)),   b_j the largest |B_jj| along the run.

    A linear model knows more: a step of one unit changes the margin by one where a_ij is not 0, E_j = 1 / rms a_ij.
    Where no Hessian is formed and nothing else is known, all x_j have the same unit.
    """

    def frame(self, reach: Reach, scales: Vector | None) -> Frame:
        """E."""
        if scales is not None:
            return Scaled(scales)
        if not reach.bend.size:
            return SAME
        D = reach.spans
        return Scaled(np.sqrt(D * reach.lengths(D)))


@dataclass(frozen=True)
class Euclidean:
    """|s| as the paper has it, in the units of x as given."""

    def frame(self, reach: Reach, scales: Vector | None) -> Frame:
        """x itself."""
        return SAME


def bend_of(B: Any, dense: bool, linear: bool = False) -> Vector:
    """The diagonal of a Hessian that is formed, or of a Gauss-Newton matrix, else nothing."""
    if linear:
        return B.linear().bend
    return np.diagonal(B.hessian()) if dense else np.zeros(0)
