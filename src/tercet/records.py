"""Records that travel between the rooms: what was counted, drawn, solved and certified. Data only, no work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]
Tensor = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]

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


@dataclass(frozen=True)
class Certificate:
    """How close x is to a critical point of order 1, 2 and 3.

        chi_1 = |grad f(x)|,  chi_2 = max(0, -lambda_min(hess f(x))),
        chi_3 = max |third f(x)[y]^3| over unit y with |hess f(x)[y]^2| <= zeta.

    `holds` says that chi_i <= eps_i for every i up to `order`. A chi that was not computed is nan.
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
    how: str  # how the derivatives and the measures were computed
    sampling: Sampling | None = None  # what the samples of the run guarantee, where its size rule says so

    @property
    def holds(self) -> bool:
        """chi_i <= eps_i for i = 1 ... order; a chi that is nan does not hold."""
        pairs = ((self.chi1, self.eps1), (self.chi2, self.eps2), (self.chi3, self.eps3))
        return all(chi <= eps for chi, eps in pairs[: self.order])

    @property
    def over(self) -> str:
        """The data behind the certificate, in words."""
        return f"all {self.n} components" if self.terms >= self.n else f"{self.terms} of {self.n} components"

    def __str__(self) -> str:
        rows = [
            f"chi{i} = {chi:.3e}  (asked: at most {eps:.1e}{'' if i <= self.order else '; not asked for'})"
            for i, chi, eps in ((1, self.chi1, self.eps1), (2, self.chi2, self.eps2), (3, self.chi3, self.eps3))
        ]
        verdict = "holds" if self.holds else "does not hold"
        if self.sampling is not None:
            rows.append(str(self.sampling))
        return "\n".join([f"certificate of order {self.order} {verdict}, over {self.over} ({self.how})", *rows])


class Status(Enum):
    """Why a run ended. The value is the advice that `Result.message` begins with."""

    CERTIFIED = "The certificate holds at the returned point."
    NOT_CERTIFIED = (
        "No lower point was found from here, but the certificate does not hold; "
        "loosen tol, lower the order, or look at the chi that is too large."
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
        "The objective seems unbounded below: it fell beyond any sensible value; add a penalty or check its sign."
    )
