"""The constants that the theorems ask for: exact for linear models, estimated and labelled so for the rest.

For f_i(x) = w_i l(a_i'x, y_i) + penalty(x) every derivative of the loss part is w_i l^(k)(z) a_i (x) ... (x) a_i, so
its norm is w_i |l^(k)| |a_i|^k, and the suprema of |l^(k)| over all z give the constants.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import cos, e, exp, inf, pi, sin, sqrt
from typing import Any

import numpy as np

from tercet.checks import positive, whole
from tercet.objectives.linear.bounds import weighted_gram
from tercet.objectives.linear.model import DENSE_LIMIT, LinearModel
from tercet.objectives.linear.point import LinearView, Penalty
from tercet.objectives.losses import Cauchy, GemanMcClure, Logistic, SigmoidSquares, Squares, Welsch
from tercet.objectives.metered import Meter, Metered
from tercet.records import Vector
from tercet.sampling.theory import Ranges

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


TABLE = {SigmoidSquares: sigmoid_squares, Logistic: logistic, Squares: squares}
SCALED = {Cauchy: cauchy, Welsch: welsch, GemanMcClure: geman_mcclure}


def loss_suprema(loss: Any, targets: Any = (0.0, 1.0), reach: float = 30.0) -> Suprema:
    """The suprema of a loss: exact for tercet's own, else the largest values met on a grid of margins, labelled so.

    The grid has 20001 margins within `reach` of 0 for up to 20 of the targets; l'''' is a difference of l'''.
    """
    if type(loss) in TABLE:
        return TABLE[type(loss)]()
    if type(loss) in SCALED:
        return SCALED[type(loss)]().scaled(loss.scale)
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


@dataclass(frozen=True)
class Constants:
    """Lipschitz constants of every f_i and of f, and the ranges that the sample sizes ask for.

    L_f, L_g, L_b, L_t bound |grad f_i|, |hess f_i|, |third f_i| and |fourth f_i| for all x (the paper's Assumption);
    `lipschitz` is L_t of the mean f, which sigma_max and the iteration bounds use and which is smaller. `ranges` are
    those of the part of a term that differs between terms: a common penalty has no sampling error.
    """

    L_f: float
    L_g: float
    L_b: float
    L_t: float
    lipschitz: float
    ranges: Ranges
    how: str = EXACT
    reason: str = ""  # why a constant is infinite

    @property
    def certified(self) -> bool:
        """Whether the numbers are bounds for all x, not estimates."""
        return self.how == EXACT

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


def constants(problem: LinearModel) -> Constants:
    """The constants of a linear model from the suprema of its loss and the norms of its rows; one pass over them."""
    if not isinstance(problem, LinearModel):
        raise ValueError(f"constants({type(problem).__name__}): exact for a LinearModel only; see estimate_constants.")
    view = problem.rows
    norms, w = view.table.lengths(), np.ones(problem.n) if view.w is None else view.w
    sup = loss_suprema(problem.loss, view.y)
    tops = [float(np.max(w * norms**k)) for k in (1, 2, 3, 4)]
    loss = [bound * top if top > 0 else 0.0 for bound, top in zip(orders(sup), tops, strict=True)]
    extra = penalty_bounds(view.penalty)
    L_f, L_g, L_b, L_t = (a + b for a, b in zip(loss, extra, strict=True))
    reasons = []
    if not np.isfinite(loss[0]):
        reasons.append("l' of this loss is unbounded, so no f_i is Lipschitz and no worst-case gradient sample exists")
    if not np.isfinite(extra[0]):
        reasons.append("the l2 penalty has an unbounded gradient; it is the same in every term and needs no sample")
    width = (max(sup.highest, 0.0) - min(sup.lowest, 0.0)) * tops[1]
    return Constants(
        L_f=L_f,
        L_g=L_g,
        L_b=L_b,
        L_t=L_t,
        lipschitz=sup.fourth * mean_fourth(view, w, norms) + extra[3],
        ranges=Ranges(loss[0], width, 2 * loss[2], rank_one=True),
        how=sup.how,
        reason="; ".join(reasons),
    )


def orders(sup: Suprema) -> tuple[float, float, float, float]:
    """The four suprema of absolute values."""
    return sup.first, sup.second, sup.third, sup.fourth


def mean_fourth(view: LinearView, w: Vector, norms: Vector) -> float:
    """A bound on (1/n) sum w_i (a_i'u)^4 over unit u: the largest eigenvalue of the mean of w_i |a_i|^2 a_i a_i'."""
    if len(view.penalty.mask) > DENSE_LIMIT:
        return float(np.mean(w * norms**4))
    return float(np.linalg.eigvalsh(weighted_gram(view, w * norms**2))[-1])


def penalty_bounds(penalty: Penalty) -> tuple[float, float, float, float]:
    """sup of the first four derivatives of l2/2 |x|^2 + alpha sum x_j^2/(1+x_j^2): twice those of Geman-McClure.

    Each coordinate stands alone, so only the gradient's norm grows with the number of coordinates.
    """
    own, alpha = geman_mcclure(), penalty.alpha
    count = float(np.count_nonzero(penalty.mask))
    first = inf if penalty.l2 > 0 and count else 2 * alpha * own.first * sqrt(count)
    return first, penalty.l2 + 2 * alpha, 2 * alpha * own.third, 2 * alpha * own.fourth


def estimate_constants(
    problem: Any, x0: Any = None, *, radius: float = 1.0, points: int = 8, terms: int = 16, seed: int = 0
) -> Constants:
    """Estimates for any finite sum: the largest values met at random points within `radius` of x0 in random terms.

    They are lower bounds of the true constants, good for planning and not for a guarantee; `how` says so. The third
    derivative is looked at along a few directions, and L_t is a difference of third derivatives.
    """
    call = "estimate_constants"
    radius, points, terms = positive(call, "radius", radius), whole(call, "points", points), whole(call, "terms", terms)
    bound = problem.bind(x0)
    metered = Metered.of(bound.objective, Meter(bound.objective.n))
    rng, met = np.random.default_rng(seed), np.zeros(4)
    low, high = 0.0, 0.0
    for _ in range(points):
        x = bound.x0 + radius * rng.random() * unit(rng, bound.objective.d)
        for i in rng.choice(bound.objective.n, size=min(terms, bound.objective.n), replace=False):
            found, ends = look(metered.over(np.array([i])), x, radius, rng)
            met, low, high = np.maximum(met, found), min(low, ends[0]), max(high, ends[1])
    how = f"estimate: the largest of {points} points within {radius:g} of x0 and {terms} terms each; not a bound"
    L_f, L_g, L_b, L_t = (float(v) for v in met)
    return Constants(L_f, L_g, L_b, L_t, L_t, Ranges(L_f, high - low, 2 * L_b), how)


def unit(rng: np.random.Generator, d: int) -> Vector:
    """A random direction."""
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)


def look(view: Any, x: Vector, radius: float, rng: np.random.Generator) -> tuple[Vector, tuple[float, float]]:
    """|grad|, |hess|, |third| and |fourth| of one term near x, as far as a few directions show, and its curvatures."""
    point, d, h = view.at(x), len(x), 1e-3 * radius
    curvatures = np.linalg.eigvalsh(point.hessian())
    y = unit(rng, d)
    for _ in range(10):
        image = point.third_product(y, y)
        if not np.any(image):
            break
        y = image / np.linalg.norm(image)
    third = point.third_product(y, y)
    fourth = (view.at(x + h * y).third_product(y, y) - third) / h
    sizes = (point.gradient(), curvatures, third, fourth)
    norms = np.array([np.linalg.norm(sizes[0]), np.max(np.abs(curvatures)), np.linalg.norm(third), abs(fourth @ y)])
    return norms, (float(curvatures[0]), float(curvatures[-1]))
