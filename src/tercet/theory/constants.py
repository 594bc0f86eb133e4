"""The constants that the theorems ask for: exact for linear models, estimated and labelled so for the rest.

For f_i(x) = w_i l(a_i'x, y_i) + penalty(x) every derivative of the loss part is w_i l^(k)(z) a_i (x) ... (x) a_i, so
its norm is w_i |l^(k)| |a_i|^k, and the suprema of |l^(k)| over all z give the constants.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tercet.checks import positive, whole
from tercet.objectives.linear.bounds import weighted_gram
from tercet.objectives.linear.model import DENSE_LIMIT, LinearModel
from tercet.objectives.linear.point import LinearView
from tercet.objectives.metered import Meter, Metered
from tercet.objectives.suprema import EXACT, Suprema, loss_suprema, penalty_bounds
from tercet.records import Vector
from tercet.sampling.theory import Ranges


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
