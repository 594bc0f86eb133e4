"""`profile`: how well one parameter is known, with the others fitted anew wherever it is held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from tercet.checks import probability, whole
from tercet.inference.spread import ON_BOUND
from tercet.methods.inferring import check_names, infer
from tercet.methods.minimize import as_problem, minimize
from tercet.methods.stm import STM
from tercet.objectives.base import traits_of
from tercet.objectives.capabilities import result_of
from tercet.objectives.own import OwnObjective
from tercet.objectives.pinned import Pinned
from tercet.objectives.transformed import Transformed
from tercet.records import Vector
from tercet.sampling import Full

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOUBLINGS = 12  # of the distance, in search of where the likelihood has fallen enough
EXACT = 1e-6  # of a standard error, to which the limits are found
STEPS = 500  # of the fit of the others
LOWER = 64.0  # roundings by which f has to fall to be lower


@dataclass(frozen=True, eq=False)
class Profile:
    """The profile of one parameter: `root` is r(t) = sign(t - x_j) sqrt(2 n (min f at x_j = t - min f) / phi).

    `lower` and `upper` are where it is the quantile of the normal distribution; infinite where it does not get there,
    and nan where a fit on the way was not certified. `lowest` is below 0 where a point lower than the estimate was met.
    """

    name: str
    estimate: float
    level: float
    lower: float
    upper: float
    t: Vector
    root: Vector
    lowest: float = 0.0

    def __str__(self) -> str:
        text = (
            f"{self.name}: {self.estimate:.6g}, {self.level:.0%} profile interval [{self.lower:.6g}, {self.upper:.6g}]"
        )
        return (
            text
            if self.lowest == 0.0
            else f"{text}; a point lower by {-self.lowest:.3g} was met: minimize on from there"
        )

    __repr__ = __str__

    def plot(self, ax: Axes | None = None) -> Axes:
        """r(t) against t, straight where the likelihood is quadratic, with the interval (needs Matplotlib)."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        ax.plot(self.t, self.root, "o-")
        for end in (self.lower, self.upper):
            if np.isfinite(end):
                ax.axvline(end, color="0.6", linewidth=1)
        ax.set_xlabel(self.name)
        ax.set_ylabel("signed root of the deviance")
        return ax


class NotCertifiedError(Exception):
    """The fit of the others was not certified."""


@dataclass(eq=False)
class Walk:
    """The profile on the way: each fit begins at the others' last values."""

    objective: Any
    j: int
    x: Vector
    f: float
    unit: float  # 2 n / phi
    seen: dict[float, float]
    lowest: float = 0.0

    def root(self, t: float) -> float:
        """r(t), by a fit of the others."""
        pinned, rest = Pinned(self.objective, self.j, float(t)), np.delete(self.x, self.j)
        if pinned.d == 0:
            f = float(result_of(pinned.over(None).at(rest).value()))
        else:
            found = minimize(OwnObjective(pinned), rest, method=STM(sizes=Full()), max_iterations=STEPS)
            if not found.success:
                raise NotCertifiedError
            f, self.x = found.fun, np.insert(np.asarray(found.x), self.j, float(t))
        rounding = LOWER * traits_of(self.objective).epsilon * max(abs(f), abs(self.f))
        self.lowest = min(self.lowest, f - self.f) if f < self.f - rounding else self.lowest
        sign = 1.0 if t >= self.seen_from else -1.0
        self.seen[float(t)] = sign * float(np.sqrt(max(0.0, self.unit * (f - self.f))))
        return self.seen[float(t)]

    @property
    def seen_from(self) -> float:
        """The estimate."""
        return next(iter(self.seen))

    def limit(self, side: float, step: float, q: float, x: Vector) -> float:
        """Where r(t) = side q; infinite where it is not reached, nan where a fit is not certified."""
        from scipy.optimize import brentq  # takes long to load

        self.x, start = x, self.seen_from
        near, far = start, start + side * step
        try:
            for _ in range(DOUBLINGS):
                if side * self.root(far) >= q:
                    return float(brentq(lambda t: self.root(t) - side * q, near, far, xtol=EXACT * step))
                near, far = far, start + 2.0 * (far - start)
        except NotCertifiedError:
            return np.nan
        return side * np.inf


def profile(
    problem: Any,
    result: Any,
    which: int | str,
    *,
    level: float = 0.95,
    points: int = 9,
    **derivatives: Callable[..., Any],
) -> Profile:
    """The profile likelihood of one parameter, and the interval where twice the log-likelihood falls by a quantile.

        { t : 2 n (min over x with x_j = t of f(x) - min f) / phi <= q^2 },     q the normal quantile of the level

    It does not assume that the likelihood is quadratic, nor depend on how the parameter is written, as
    `confidence_intervals` does; each point takes a fit of the others. `which` is the number or the name of a
    coordinate, `problem` and `result` are those of `infer`; at `points` values within the interval it is also computed,
    for the picture.
    """
    own: dict[str, Any] = dict(derivatives)
    told = infer(problem, result, "hessian", **own)
    if any(why == ON_BOUND for why in told.why):
        raise ValueError("profile(result=...): the estimate is on bounds, which a profile does not keep.")
    q = -float(ndtri(0.5 * (1.0 - probability("profile", "level", level))))
    if isinstance(problem, Transformed):
        raise ValueError("profile(problem=Transformed(...)): give the problem itself; a profile needs no transform.")
    points = whole("profile", "points", points, 0)
    bound = as_problem(problem, derivatives).bind(told.x)
    names = check_names(None, problem, bound)
    j = names.index(which) if which in names else which
    if isinstance(j, bool) or not isinstance(j, int | np.integer) or not 0 <= j < len(names):
        raise ValueError(f"profile(which={which!r}): no such coordinate; there are {', '.join(names[:8])}.")
    step, x = q * float(told.deviations[j]), told.flat
    if not np.isfinite(step):
        raise ValueError(f"profile(which={which!r}): {names[j]} has no standard error: {told.why[j]}.")
    f = float(result_of(bound.objective.over(None).at(x).value()))
    walk = Walk(bound.objective, int(j), x, f, 2.0 * bound.objective.n / told.phi_factor, {float(x[j]): 0.0})
    lower, upper = (walk.limit(side, step, q, x) for side in (-1.0, 1.0))
    ends = [end if np.isfinite(end) else x[j] + side * step for side, end in ((-1.0, lower), (1.0, upper))]
    for between in np.linspace(ends[0], ends[1], points):
        with suppress(NotCertifiedError):
            walk.root(float(between))
    t = np.array(sorted(walk.seen))
    return Profile(names[j], float(x[j]), level, lower, upper, t, np.array([walk.seen[s] for s in t]), walk.lowest)
