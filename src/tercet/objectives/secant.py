"""Secants: what the gradients at two points tell of the Hessian, where no formula gives it.

A point hands its f, its gradient and its B to the next one, which makes its own B of them. Such a B is not exact: a
certificate is made of the same point without what it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from tercet.objectives.lengths import Units, alike
from tercet.records import Matrix, Vector

LEAST = 1e-8  # r's / |r| |s| below which a symmetric update of rank one says nothing
FAINTEST = 1e-3  # of the strongest bend along an axis, at the start: what is weaker may be nothing but rounding


@dataclass(frozen=True)
class Seed:
    """What the first point of a run is given: B begins as a diagonal matrix, and is not formed."""

    def arrays(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def exact(self) -> None:
        """Nothing of it."""
        return None

    def tell(self, view: Any) -> Any:
        """The view as it is."""
        return view


@dataclass(frozen=True, eq=False)
class Secant:
    """f, its gradient and B at a point, for the next one."""

    x: Vector
    f: float
    g: Vector
    B: Matrix
    units: Units | None = None  # None: the variables are in units that suit

    def arrays(self) -> dict[str, Any]:
        """As they are."""
        units = {} if self.units is None else self.units.arrays()
        return {"x": self.x, "f": self.f, "g": self.g, "B": self.B, **units}

    def exact(self) -> Units | None:
        """The units."""
        return self.units

    def tell(self, view: Any) -> Any:
        """The view that knows them."""
        return view if self.units is None else self.units.tell(view)

    def hessian(self, x: Vector, g: Vector) -> Matrix:
        """B at x, where the gradient is g: with s and y the differences of x and g, the B+ with B+ s = y

        B - Bs s'B / s'Bs + y y' / s'y         where B and f bend up along s (BFGS),
        B + r r' / r's,   r = y - Bs           elsewhere (symmetric of rank one), so that B may bend down.
        """
        s, y, B = x - self.x, g - self.g, self.B
        Bs = B @ s
        bend, seen = float(s @ Bs), float(s @ y)
        if bend > 0.0 and seen > 0.0:
            p, q = Bs / sqrt(bend), y / sqrt(seen)
            return B - p[:, None] * p + q[:, None] * q
        r = y - Bs
        rs = float(r @ s)
        if not abs(rs) > LEAST * float(np.linalg.norm(r)) * float(np.linalg.norm(s)):
            return B
        return B + np.outer(r, r / rs)


def recalled(arrays: dict[str, Any]) -> Seed | Secant | Units:
    """The carry that gave these arrays."""
    if not arrays:
        return Seed()
    units = Units.recalled(arrays)
    if "B" not in arrays and units is not None:
        return units
    return Secant(arrays["x"], float(arrays["f"]), arrays["g"], arrays["B"], units)


def diagonal(bends: Vector, sizes: Vector) -> Matrix:
    """B at a start where f bends so along the axes: upward, and along none by next to nothing. Where x_j are in units
    of other sizes, nothing is compared, and where nothing is told of one it bends f as much as others in the mean."""
    size, most = np.abs(bends), float(np.max(np.abs(bends), initial=0.0))
    if alike(sizes):
        return np.diag(np.maximum(size, FAINTEST * most)) if 0.0 < most < np.inf else np.eye(len(bends))
    told = (size > 0.0) & (size < np.inf)
    mean = float(np.exp(np.mean(np.log((size * sizes**2)[told])))) if told.any() else 1.0
    return np.diag(np.where(told, size, mean / sizes**2))
