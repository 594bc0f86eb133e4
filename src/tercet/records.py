"""Records that travel between the rooms: what was counted, drawn, solved and certified. Data only, no work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]
Tensor = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

Meets = tuple[bool | None, bool | None, bool | None]

ORDERS = ("value", "gradient", "hessian", "third")


@dataclass(frozen=True)
class Counts:
    """Component evaluations by order: how often a value, gradient, Hessian or third derivative of one f_i was taken.

    A product with the Hessian of f_i counts one, and so does forming it; a third-derivative product T_i[u, v] counts
    one, and a third derivative formed over k directions counts its k (k + 1) / 2 products.
    """

    value: int = 0
    gradient: int = 0
    hessian: int = 0
    third: int = 0
    n: int = 1

    @property
    def epochs(self) -> float:
        """All evaluations of all orders, divided by the number of components n."""
        return (self.value + self.gradient + self.hessian + self.third) / self.n

    def as_dict(self) -> dict[str, float]:
        """The four counts and `epochs`, for tables and files."""
        return {**asdict(self), "epochs": self.epochs}


@dataclass(frozen=True)
class Sizes:
    """How many components the function values, g, B and T of one iteration are averaged over."""

    value: int
    gradient: int
    hessian: int
    third: int

    def is_full(self, n: int) -> bool:
        """True when every part is taken over at least n components."""
        return min(self.value, self.gradient, self.hessian, self.third) >= n


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a Taylor polynomial phi promises for x + s: its decrease phi(0) - phi(s) and its gradient there."""

    decrease: float
    gradient: Vector


@dataclass(frozen=True, eq=False)
class Step:
    """What a sub-solver gives back: the step, what the Taylor polynomials promise, the work, and the sigma it used.

    `quadratic` is the forecast of g's + 1/2 s'Bs, `cubic` the one with 1/6 T[s]^3 (None where T was not bought; after
    Chebyshev's correction from s_2 to s, with T[s_2]^2 in place of T[s]^2).
    """

    s: Vector
    quadratic: Forecast
    cubic: Forecast | None
    inner: int
    sigma: float
    trial: Any = None  # the point at x + s, where the sub-solver has looked at f there
    left: float | None = None  # what the quadratic model left of the gradient, where s was found without the others
    looks: int = 1  # at f, along the step: of several, x + s is the lowest

    @property
    def forecast(self) -> Forecast:
        """The forecast of the highest order that was bought."""
        return self.cubic or self.quadratic


@dataclass(frozen=True)
class Sampling:
    """What the samples of a run guarantee: in how many of its iterations each part of Condition 1, and how surely.

        |g - grad f| <= kg eps,  |B - hess f| <= kb eps^(2/3),  |T - third f| <= kt eps^(1/3)

    All that is counted here holds at once with probability at least 1 - failure, a sum over the iterations.
    """

    iterations: int
    gradient: int
    hessian: int
    third: int
    failure: float

    @property
    def complete(self) -> bool:
        """Whether all three conditions are guaranteed in every iteration."""
        return min(self.gradient, self.hessian, self.third) >= self.iterations

    @property
    def probability(self) -> float:
        """With what probability all that is counted holds, at least."""
        return max(0.0, 1.0 - self.failure)

    def __str__(self) -> str:
        parts = f"g {self.gradient}, B {self.hessian}, T {self.third} of {self.iterations} iterations"
        return f"Condition 1 guaranteed for {parts}, all at once with probability {self.probability:.6g}"


Floats = tuple[float, ...]


@dataclass(frozen=True)
class Certificate:
    """How close x is to a critical point of order 1, 2 and 3, and to a minimizer.

        chi_1 = |grad f(x)|,  chi_2 = max(0, -lambda_min(hess f(x))),
        chi_3 = max |third f(x)[y]^3| over unit y with |hess f(x)[y]^2| <= zeta.

    Between bounds chi_1 is the length of the projected gradient, and the others are over the directions along which f
    does not rise at first order: those of the critical cone.

    `holds` says that x is a minimizer as far as was asked: no way down was seen, and x is as close as was asked. With
    `relative` above 0 that is every x_j within that fraction of its size (or as close as rounding lets it come), else
    chi_i <= eps_i for every i up to `order`; where f was seen to rise (`rises`), chi_3 is not asked. What was not
    computed is nan.
    """

    chi1: float
    chi2: float
    chi3: float
    eps1: float
    eps2: float
    eps3: float
    zeta: float
    order: int
    terms: int  # number of components the derivatives were averaged over
    n: int
    how: str  # how the derivatives and the measures were computed, and what was looked at
    sampling: Sampling | None = None  # what the samples of the run guarantee, where its size rule says so
    relative: float = 0.0  # the fraction of its size to which each x_j was asked; 0: the eps_i were
    converged: bool = False  # x is as close as was asked
    rises: bool = False  # f was looked at along directions in doubt, and rises
    strict: bool | None = None  # the minimizer is alone; None: not known
    lowest: float = nan  # the smallest eigenvalue of the Hessian
    condition: float = nan  # of the Hessian with its diagonal scaled to 1; inf where it is singular
    error_f: float = nan  # f(x) less its minimum, estimated
    error_x: Floats = ()  # of each x_j, estimated
    bound_x: Floats = ()  # of each |x_j - x*_j|, proved; empty where nothing could be
    digits: float = nan  # of every x_j that are right, estimated; nan where there is a way down, or no minimizer
    rounding_f: float = nan  # the rounding errors of f and of its gradient, as they were seen
    rounding_g: float = nan
    kernel: tuple[Floats, ...] = ()  # directions along which f does not change: combinations that are not identified
    involved: tuple[int, ...] = ()  # the j of the x_j that take part in them
    way_down: Floats | None = None  # a step to a lower point
    fall: float = 0.0  # f(x) less f there
    ray: Floats | None = None  # along this f is flat as far as can be seen, and no minimizer is near
    active: tuple[int, ...] = ()  # the j of the x_j on a bound from which f rises at first order
    weak: tuple[int, ...] = ()  # and of those on a bound whose g_j is not told from 0
    multipliers: Floats = ()  # g_j of what is active, else 0: by so much min f changes where a bound is moved by one

    @property
    def holds(self) -> bool:
        """Whether x is a minimizer as far as was asked; a chi that is nan does not hold."""
        if not self.converged or self.way_down is not None or self.ray is not None:
            return False
        if self.relative:
            return self.order < 2 or self.chi2 >= 0.0
        third = self.chi3 <= self.eps3 or self.rises
        return all((self.chi1 <= self.eps1, self.chi2 <= self.eps2, third)[: self.order])

    @property
    def over(self) -> str:
        """The data behind the certificate, in words."""
        return f"all {self.n} components" if self.terms >= self.n else f"{self.terms} of {self.n} components"

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        if self.way_down is not None:
            return f"not a minimizer: f falls by {self.fall:.3g} along certificate.way_down"
        if self.ray is not None:
            return "no minimizer is near: f is flat along certificate.ray, as far as it can be seen"
        if not self.holds:
            return "not known to be a minimizer"
        right = "" if isnan(self.digits) else f", {self.digits:.1f} digits of x"
        if self.kernel:
            names = listed(self.involved)
            many = f"{len(self.kernel)} combination{'s' * (len(self.kernel) > 1)}"
            return f"a minimizer, one of many{right}; not identified: {many} of {names}"
        return f"{'the only minimizer nearby' if self.strict else 'a minimizer'}{right}"

    @property
    def on_bounds(self) -> str:
        """Which x_j are on a bound, in words; empty where none is."""
        weakly = f" ({len(self.weak)} weakly: {listed(self.weak)})" if self.weak else ""
        where = sorted((*self.active, *self.weak))
        return f"on a bound: {listed(where)}{weakly}" if where else ""

    @property
    def headline(self) -> str:
        """The verdict, and what it is about."""
        return f"{self.verdict} (order {self.order}, over {self.over})"

    @property
    def measures(self) -> str:
        """chi_1 to chi_3, and what was asked."""
        asked = (
            f"each x[j] to {self.relative:.1e} of its size"
            if self.relative
            else f"chi <= {', '.join(f'{eps:.1e}' for eps in (self.eps1, self.eps2, self.eps3)[: self.order])}"
        )
        return f"chi = {self.chi1:.3e}, {self.chi2:.3e}, {self.chi3:.3e}; asked: {asked}"

    @property
    def shape(self) -> str:
        """The Hessian at x, and what is proved of x."""
        proof = f"; proved: |x - x*| <= {max(self.bound_x):.1e}" if self.bound_x else ""
        return f"lowest curvature {self.lowest:.3e}, condition {self.condition:.1e}{proof}"

    @property
    def of_f(self) -> str:
        """How close f is to its minimum, and how exactly it is computed."""
        return (
            f"within {self.error_f:.1e} of its minimum; rounding of f {self.rounding_f:.1e}, of g {self.rounding_g:.1e}"
        )

    @property
    def remarks(self) -> list[str]:
        """What there is to say of bounds and samples, if anything."""
        return [self.on_bounds] * bool(self.on_bounds) + [str(self.sampling)] * (self.sampling is not None)

    def __str__(self) -> str:
        rows = [self.headline, self.measures, f"{self.shape}; f is {self.of_f}", "; ".join([self.how, *self.remarks])]
        return "\n".join(rows)


def listed(some: Sequence[int]) -> str:
    """The names of some x_j, the first six of them."""
    return ", ".join(f"x[{j}]" for j in some[:6]) + (", ..." if len(some) > 6 else "")


class Status(Enum):
    """Why a run ended. The value is the advice that `Result.message` begins with."""

    CERTIFIED = "The certificate holds at the returned point."
    NOT_CERTIFIED = (
        "No lower point was found from here, but the certificate does not hold; "
        "loosen tol, lower the order, or look at what the certificate says is too large."
    )
    FLAT = (
        "There seems to be no minimizer: f is flat as far as it can be seen along certificate.ray, while x runs away; "
        "add a penalty or a bound, or fix what is not identified."
    )
    NOISE = (
        "Progress ended at the sampling noise: the sampled gradient no longer tells the way; "
        "use larger samples, or a size rule that grows (Progressive, Growing, Adaptive)."
    )
    ROUNDING = (
        "Progress ended at rounding error before the tolerance was met; loosen tol, rescale the problem, "
        "use float64 if it is in float32, or see with check_derivatives=True whether the derivatives are right."
    )
    MAX_ITERATIONS = "The iteration budget is spent; raise max_iterations to go on."
    MAX_SECONDS = "The time budget is spent; raise max_seconds to go on."
    MAX_EPOCHS = "The evaluation budget is spent; raise max_epochs to go on."
    CALLBACK = "The callback asked to stop."
    INTERRUPTED = "Interrupted from the keyboard; the best point so far is returned."
    FUNCTION_ERROR = (
        "A user function raised an exception; the best point so far is returned. See the message and result.error."
    )
    NOT_FINITE = (
        "The objective or a derivative is not finite at a point the run needs; start elsewhere, or make the "
        "objective finite along the path."
    )
    UNBOUNDED = (
        "The objective seems unbounded below: it fell beyond any sensible value, or ever faster towards an edge; "
        "add a penalty or a bound, or check its sign."
    )
    NOT_CONVEX = (
        "The objective bends down at a point of the run, and accelerated methods are for convex ones; the best point "
        "so far is returned: go on from it with STM() or SCR(), or add a penalty that makes the objective convex."
    )
