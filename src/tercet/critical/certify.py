"""How critical a point is: chi_1, chi_2, chi_3, and the direction that leads away when it is not.

    chi_1 = |grad f|,  chi_2 = max(0, -lambda_min(hess f)),  chi_3 = max |third f[y]^3| over |hess f[y]^2| <= zeta

The near-kernel of chi_3 is taken as the span of the eigenvectors with |lambda| <= zeta; every unit y in it satisfies
|hess f[y]^2| <= zeta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.critical.escape import Escape, escape_along
from tercet.critical.measures import kernel_measure, lowest_eigenpairs
from tercet.objectives.base import Traits
from tercet.objectives.metered import MeteredPoint
from tercet.records import Certificate


@dataclass(frozen=True)
class Tolerances:
    """eps_1, eps_2, eps_3, the near-kernel's zeta, and the order that is asked for.

    From one tolerance: eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3) (paper, Condition 1) and
    zeta = min(10 tol^(1/2), 1e-3). Beside a degenerate point with third derivative T a gradient of size tol comes with
    a curvature of sqrt(2 tol T), which has to count as near the kernel.
    """

    eps1: float
    eps2: float
    eps3: float
    zeta: float
    order: int

    @staticmethod
    def of(tol: float, order: int) -> Tolerances:
        """The four numbers that belong to one tolerance."""
        return Tolerances(tol, tol ** (2 / 3), tol ** (1 / 3), min(10 * tol**0.5, 1e-3), order)


def certify(
    point: MeteredPoint, n: int, tolerances: Tolerances, traits: Traits, seed: int = 0
) -> tuple[Certificate, Escape | None]:
    """The certificate of a point up to the order asked for, and a way down where orders 2 or 3 fail.

    A gradient (usually known), for order 2 a Hessian (dense) or some 20-60 products (Lanczos), for order 3 one
    evaluation of all third derivatives where a bound suffices, else the products of a power iteration.
    """
    g = point.gradient()
    chi1, chi2, chi3 = float(np.linalg.norm(g)), np.nan, np.nan
    notes, escape = [traits.provenance], None
    if tolerances.order >= 2:
        values, vectors = lowest_eigenpairs(point, len(g), traits.dense, tolerances.zeta, seed)
        notes.append("chi2 by a dense eigenvalue problem" if traits.dense else "chi2 by Lanczos")
        chi2 = 0.0 if values[0] >= 0 else -float(values[0])  # nan stays nan
        if chi2 > tolerances.eps2:
            escape = escape_along(point, g, vectors[:, 0], 2)
        elif tolerances.order >= 3:
            kernel = vectors[:, np.abs(values) <= tolerances.zeta]
            whole = len(values) == len(g) or values[-1] > tolerances.zeta
            chi3, y, note = kernel_measure(point, kernel if whole else None, tolerances.eps3, seed)
            notes.append(note)
            if chi3 > tolerances.eps3 and y is not None:
                escape = escape_along(point, g, y, 3)
    t = tolerances
    certificate = Certificate(
        chi1, chi2, chi3, t.eps1, t.eps2, t.eps3, t.zeta, t.order, point.terms, n, "; ".join(notes)
    )
    return certificate, escape
