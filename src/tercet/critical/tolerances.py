"""What is asked of a point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.checks import number


@dataclass(frozen=True)
class Tolerances:
    """What is asked of a point, up to an order: chi_i <= eps_i with the near-kernel's zeta, or digits.

    From one tolerance: eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3) (paper, Condition 1) and
    zeta = min(10 tol^(1/2), 1e-3). Beside a degenerate point with third derivative T a gradient of size tol comes with
    a curvature of sqrt(2 tol T), which has to count as near the kernel.

    With `relative` above 0, which is `minimize(tol=None)`, each x_j is asked to within that fraction of its size
    (or as close as rounding lets it come), whatever the units of f and of x; the eps_i are then not looked at.
    """

    eps1: float = 0.0
    eps2: float = 0.0
    eps3: float = 0.0
    zeta: float = 0.0
    order: int = 3
    relative: float = 0.0

    def __post_init__(self) -> None:
        for name in ("eps1", "eps2", "eps3", "zeta", "relative"):
            value = getattr(self, name)
            if not 0 <= number(value) < np.inf:
                raise ValueError(f"Tolerances({name}={value!r}): give a finite number that is at least 0.")
        if isinstance(self.order, bool) or self.order not in (1, 2, 3):
            raise ValueError(f"Tolerances(order={self.order!r}): order is 1, 2 or 3.")
        if self.eps1 == 0.0 and self.relative == 0.0:
            raise ValueError("Tolerances(eps1=0, relative=0): nothing is asked; give the eps_i or relative.")

    @staticmethod
    def of(tol: float, order: int) -> Tolerances:
        """The four numbers that belong to one tolerance."""
        return Tolerances(tol, tol ** (2 / 3), tol ** (1 / 3), min(10 * tol**0.5, 1e-3), order)

    def within_reach(self, epsilon: float, least: float) -> Tolerances:
        """Itself; ValueError where a precision has not the digits: `relative` within a few eps, eps_1 below `least`."""
        if 0.0 < self.relative < 4 * epsilon:
            raise ValueError(
                f"minimize(tol=Tolerances(relative={self.relative!r})): the objective is computed to {epsilon:.1e}; "
                f"ask for {4 * epsilon:.1e} or more."
            )
        if 0.0 < self.eps1 < least:
            raise ValueError(
                f"minimize(tol={self.eps1!r}): no gradient is told from 0 so finely where numbers have a precision of "
                f"{epsilon:.1e}; ask for {least:.1e} or more, best for {epsilon:.1e} of what the gradient is made of, "
                "or leave tol out: the default asks for digits and knows no units. Where the units of f are tiny, "
                "Tolerances(eps1=...) is taken as it is."
            )
        return self

    @staticmethod
    def half(epsilon: float, order: int) -> Tolerances:
        """Half of the digits that the precision has: sqrt(eps) of each x_j, where f is within eps of its minimum."""
        return Tolerances(order=order, relative=float(np.sqrt(epsilon)))
