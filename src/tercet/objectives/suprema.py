"""How large the derivatives of a loss become: over all margins, exact for tercet's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import cos, e, exp, inf, pi, sin, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.checks import positive
from tercet.objectives.losses import Cauchy, GemanMcClure, Logistic, SigmoidSquares, Squares, Welsch

if TYPE_CHECKING:
    from tercet.objectives.linear.point import Penalty

EXACT = "exact"
UP = 1 + 1e-12  # suprema that are not closed forms are rounded up


@dataclass(frozen=True)
class Suprema:
    """sup |l'|, |l''|, |l'''|, |l''''| over all margins, and the lowest and highest l''."""

    first: float
    second: float
    third: float
    fourth: float
    lowest: float
    highest: float
    how: str = EXACT

    def scaled(self, c: float) -> Suprema:
        """For l(z) = c^2 h(z/c): the k-th derivative goes with c^(2-k)."""
        return Suprema(
            self.first * c, self.second, self.third / c, self.fourth / c**2, self.lowest, self.highest, self.how
        )


@cache
def sigmoid_squares() -> Suprema:
    """l = p^2/2 (y = 0; y = 1 mirrors it). With p' = p(1-p), d/dz = p(1-p) d/dp:

    l' = p^2(1-p) <= 4/27, l'' = p^2(1-p)(2-3p) with extremes at p = (15 -+ sqrt 33)/24, and l''', l'''' are polynomials
    in p on [0, 1] whose critical points are found as roots.
    """
    p = np.polynomial.Polynomial([0.0, 1.0])
    chain = [p * p / 2]
    for _ in range(4):
        chain.append(chain[-1].deriv() * p * (1 - p))
    low, high = zip(*(extremes(q) for q in chain[1:]), strict=True)
    tops = [max(-a, b) * UP for a, b in zip(low, high, strict=True)]
    return Suprema(4 / 27, tops[1], tops[2], tops[3], low[1] * UP, high[1] * UP)


def extremes(q: np.polynomial.Polynomial) -> tuple[float, float]:
    """The lowest and the highest value of a polynomial on [0, 1]."""
    roots = q.deriv().roots()
    real = roots[np.abs(roots.imag) < 1e-8].real
    values = q(np.concatenate([[0.0, 1.0], real[(real > 0) & (real < 1)]]))
    return float(np.min(values)), float(np.max(values))


def logistic() -> Suprema:
    """|l'| < 1; with q = p(1-p) <= 1/4: l'' = q, |l'''| = q |1-2p| <= 1/(6 sqrt 3), |l''''| = q |1-6q| <= 1/8."""
    return Suprema(1.0, 0.25, 1 / (6 * sqrt(3)), 0.125, 0.0, 0.25)


def squares() -> Suprema:
    """l' = z - y is unbounded; l'' = 1, the rest vanishes."""
    return Suprema(inf, 1.0, 0.0, 0.0, 1.0, 1.0)


def cauchy() -> Suprema:
    """With u = cot(psi), |l^(k)| = (k-1)! |Re (u+i)^-k| = (k-1)! sin^k(psi) |cos(k psi)|, top at cos((k+1) psi) = 0.

    sup 1/2, 1, 2 sin^4(3 pi/8), 6; l'' is lowest, -1/8, at psi = pi/6.
    """
    return Suprema(0.5, 1.0, 2 * sin(3 * pi / 8) ** 3 * cos(pi / 8), 6.0, -0.125, 1.0)


def welsch() -> Suprema:
    """l' = u exp(-u^2) <= 1/sqrt(2e); l'' from -2 exp(-3/2) to 1; |l'''| top at u^2 = (3-sqrt 6)/2; |l''''| <= 6."""
    q = (3 - sqrt(6)) / 2
    return Suprema(1 / sqrt(2 * e), 1.0, 2 * sqrt(q) * (3 - 2 * q) * exp(-q), 6.0, -2 * exp(-1.5), 1.0)


def geman_mcclure() -> Suprema:
    """l' = u/(1+u^2)^2 <= 3 sqrt(3)/16; l'' from -1/4 to 1; |l'''| largest at u^2 = 1 - 2/sqrt 5, |l''''| = 12 at 0."""
    q = 1 - 2 / sqrt(5)
    return Suprema(3 * sqrt(3) / 16, 1.0, 12 * sqrt(q) * (1 - q) / (1 + q) ** 4, 12.0, -0.25, 1.0)


TABLE: dict[type, Callable[[], Suprema]] = {SigmoidSquares: sigmoid_squares, Logistic: logistic, Squares: squares}
SCALED = {Cauchy: cauchy, Welsch: welsch, GemanMcClure: geman_mcclure}


def known_suprema(loss: Any) -> Suprema | None:
    """The suprema of one of tercet's own losses, which are exact; None of any other."""
    if type(loss) in TABLE:
        return TABLE[type(loss)]()
    return SCALED[type(loss)]().scaled(loss.scale) if type(loss) in SCALED else None


def loss_suprema(loss: Any, targets: Any = (0.0, 1.0), reach: float = 30.0) -> Suprema:
    """The suprema of a loss: exact for tercet's own, else the largest values met on a grid of margins, labelled so.

    The grid has 20001 margins within `reach` of 0 for up to 20 of the targets; l'''' is a difference of l'''.
    """
    known = known_suprema(loss)
    if known is not None:
        return known
    if not hasattr(loss, "derivatives"):
        raise ValueError(f"loss_suprema(loss={loss!r}): give a loss object with derivatives(z, y).")
    z = np.linspace(-positive("loss_suprema", "reach", reach), reach, 20001)
    some = np.unique(np.asarray(targets, dtype=np.float64))
    some = some[np.linspace(0, len(some) - 1, min(20, len(some))).astype(int)]
    parts = [loss.derivatives(z, np.full_like(z, y)) for y in some]
    third = np.stack([part[3] for part in parts])
    fourth = np.max(np.abs(np.diff(third, axis=1))) / (z[1] - z[0])
    tops = [float(np.max(np.abs([part[k] for part in parts]))) for k in (1, 2, 3)]
    second = np.stack([part[2] for part in parts])
    how = f"estimate: the largest of {third.size} values with |z| <= {reach:g}"
    return Suprema(
        tops[0], tops[1], tops[2], float(fourth), min(0.0, float(np.min(second))), float(np.max(second)), how
    )


def penalty_bounds(penalty: Penalty) -> tuple[float, float, float, float]:
    """sup of the first four derivatives of l2/2 |x|^2 + alpha sum x_j^2/(1+x_j^2): twice those of Geman-McClure.

    Each coordinate stands alone, so only the gradient's norm grows with the number of coordinates.
    """
    own, alpha = geman_mcclure(), penalty.alpha
    count = float(np.count_nonzero(penalty.mask))
    first = inf if penalty.l2 > 0 and count else 2 * alpha * own.first * sqrt(count)
    return first, penalty.l2 + 2 * alpha, 2 * alpha * own.third, 2 * alpha * own.fourth
