"""What an engine may offer beyond the eight required members, each a small protocol of its own.

A capability that a class of points does not have is made of the required members by its default. Which ones a class has
is looked up once (`abilities`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Protocol

import numpy as np

from tercet.objectives.base import Objective, Priced, R, tensor_from_products
from tercet.records import ORDERS, Matrix, Tensor, Vector

# of points ----------------------------------------------------------------------------------------------------------


class FirstAtOnce(Protocol):
    """f and its gradient in one round, for less than one after the other."""

    def first(self) -> tuple[float, Vector]:
        """f(x) and grad f(x)."""
        ...


class GroupSums(Protocol):
    """A sampled gradient that comes in groups of terms, whose spread is its sampling error (`group_errors`)."""

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over up to 16 groups, to which the terms are dealt in turn; they cost no more than the
        gradient, which is made of them. What all terms share may be left out.

        Default: the gradients over such groups, of which the gradient is made, too.
        """
        ...


class FormedHessian(Protocol):
    """A dense Hessian for less than d products."""

    def hessian(self) -> Matrix | Priced[Matrix]:
        """hess f(x) as a dense symmetric matrix. Default: d products."""
        ...


class ThirdSquare(Protocol):
    """T[s, s] where terms that hardly bend along s may be left out."""

    def third_square(self, s: Vector) -> Vector | Priced[Vector]:
        """third f(x)[s, s]. Default: a product."""
        ...


class ProjectedThird(Protocol):
    """The third derivative over a few directions for less than its products."""

    def third_tensor(self, V: Matrix) -> Tensor | Priced[Tensor]:
        """third f(x)[v_i, v_j, v_k] over the k columns of V, a symmetric k x k x k array; counted as its k (k + 1) / 2
        products, of which the default makes it."""
        ...


class ThirdBound(Protocol):
    """A bound of the third derivative that is cheap."""

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float | Priced[float]:
        """A number that |third f(x)[y]^3| does not exceed for unit y in the span of V. Default: inf.

        None stands for all directions; `tight` may take longer and say less.
        """
        ...


@dataclass(frozen=True, eq=False)
class Limits:
    """What holds of f for certain: of its third derivative everywhere, of the rounding of the others at x."""

    third: float  # |third f(y)[Vu, Vv, Vw]| for unit u, v, w, at any y
    gradient: Vector  # how far each g_j may be off by rounding
    hessian: Vector  # h, where |u'(B - hess f(x))v| <= |Hu| |Hv| sum_j (h_j / H_jj^2) for every diagonal H


class Provable(Protocol):
    """A point of which something can be proved."""

    def limits(self, V: Matrix) -> Limits:
        """What holds for certain. No term is evaluated. No default."""
        ...


class Variances(Protocol):
    """How far single terms stray from their mean, for `Theory(bound="bernstein")`."""

    def variance(self, order: int) -> float | Priced[float]:
        """The variance of the terms' derivatives of one order. Default: nan, not known."""
        ...


class Whitens(Protocol):
    """Coordinates c of steps s in which the Hessian is nearly a multiple of one, so that few products make a step."""

    def white(self) -> Any:
        """With `lift(c)` = s, `coordinates(s)` = c and `slope(g)`, the gradient of f in c; counted as a product. None
        where they would be too dear, and by default."""
        ...


class Scatter(Protocol):
    """How the gradients of single terms vary, for the sandwich of `tercet.infer`."""

    def scatter(self) -> Matrix:
        """(1/m) sum (s_i - s)(s_i - s)', s_i the gradient of term i, s their mean. Default: from m gradients."""
        ...


class Images(Protocol):
    """A linear model, which knows what its rows make of directions, and f along one or over the span of several."""

    def line(self, s: Vector) -> Any:
        """With `at(t)`, the carry for a point x + ts, from one product with A. No default."""
        ...

    def images(self, point: Any) -> Any:
        """Av, v'Bv and Bv from Av, and f over a span, asked and counted through the metered point. No default."""
        ...


class Linear(Protocol):
    """A sum of losses of residuals, whose Jacobian J gives a step without the matrix J'J."""

    def linear(self, paid: bool) -> Any:
        """`root` and `image` with root'root = J' diag(h) J, the Gauss-Newton matrix, and root'image = grad f(x). No
        default. `paid` says that the gradient was counted; where it is made of J, so was J."""
        ...

    def rest(self) -> Matrix | Priced[Matrix]:
        """hess f(x) - root'root. No default."""
        ...

    def curve(self, s: Vector) -> Any:
        """With b = r''[s, s]: `slope` = root'b, `image` = b'image and `square` = b'b. No default."""
        ...

    def ahead(self, most: float) -> Priced[None]:
        """Make in one go what f, and where f <= most what `linear` and `rest` take; f is counted when it is asked for.
        Default: each is made when it is asked for."""
        ...


class Carry(Protocol):
    """What a point hands to a point nearby, without the terms themselves. Immutable."""

    def arrays(self) -> dict[str, Any]:
        """As numbers and arrays, from which `View.recall` makes it again."""
        ...

    def exact(self) -> Carry | None:
        """What of it leaves a point exact."""
        ...


class Carries(Protocol):
    """A point that can use what others have computed, and its view, which can make a carry again (`Recalls`)."""

    @property
    def carry(self) -> Carry | None:
        """For a point nearby. Default: None."""
        ...

    @property
    def inexact(self) -> int:
        """The lowest order of derivative here that owes something to other points; 4 where none does, the default."""
        ...


class Knows(Protocol):
    """A point that makes more of f and its gradient than to answer with them."""

    def know(self, value: float | None, gradient: Vector | None) -> None:
        """What was paid for at this x already, by a run that goes on or for the point that owes to others; None is not
        known. Default: they are asked for again."""
        ...


# of views and objectives --------------------------------------------------------------------------------------------


class Tells(Protocol):
    """A carry that knows more of the view than the view does."""

    def tell(self, view: Any) -> Any:
        """The view that knows it, too. Default: as it is."""
        ...


class Differenced(Protocol):
    """A point whose derivatives are differences."""

    @property
    def strides(self) -> Vector:
        """How far to either side the central differences reach that made the gradient; empty where it is given, and by
        default."""
        ...

    def drift(self, v: Vector) -> Vector:
        """By how much hess f(x) v may be off, where third f(x)[v, v] was asked for before. Default: 0."""
        ...


class Recalls(Protocol):
    """A view whose points carry."""

    def recall(self, arrays: dict[str, Any]) -> Carry:
        """The carry that gave these arrays."""
        ...


class Seeds(Protocol):
    """A view whose points are exact where nothing was handed to them, and dear; a run begins with less."""

    def seed(self) -> Carry | None:
        """What the first point of a run is given. Default: None."""
        ...


class Looped(Protocol):
    """A view of a small linear model, over which many iterations are taken in one compiled loop."""

    @property
    def looped(self) -> Any:
        """Its `tercet.objectives.linear.rows.Data`; None where the loop would not pay. Default: None."""
        ...


class BetterStart(Protocol):
    """A view that can tell a better start than x0."""

    def start(self, x: Vector) -> Vector | Priced[Vector]:
        """A start that is no worse for these terms. Default: x."""
        ...


class KnowsScales(Protocol):
    """An objective that knows in which units each x_j is measured."""

    @property
    def scales(self) -> Vector:
        """How long a step along x_j is one. Default: read off along the run (`tercet.frame.Natural`)."""
        ...


class KnowsConvexity(Protocol):
    """An objective that may be known not to be convex, which methods for convex sums then refuse."""

    @property
    def convex(self) -> bool | None:
        """False where it is known not to be convex for all x. Default: None, not known."""
        ...


class Clocked(Protocol):
    """An objective whose single evaluation takes so long that the clock should be looked at within."""

    def clocked(self, look: Callable[[], None]) -> Objective:
        """The same objective, which calls `look` before each of its steps and lets its exception through."""
        ...


class Ordered(Protocol):
    """An objective that shuffles its own terms, so that a sample can be found without a list of them."""

    def shuffle(self, seed: int) -> Any:
        """An order with `beginning(m)`, its first m terms. Default: `tercet.sampling.draws.Shuffle`."""
        ...


class Reads(Protocol):
    """An objective whose terms are not in memory, and who counts what it reads of them."""

    @property
    def traffic(self) -> Any:
        """With `as_dict()`: rounds, bytes_read and retries, as `Result` has them. Default: nothing is read."""
        ...


# defaults -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Abilities:
    """The members and capabilities of points of one class; None is a capability that they do not have."""

    value: Callable[[Any], Any]
    gradient: Callable[[Any], Any]
    product: Callable[..., Any]
    first: Callable[[Any], tuple[float, Vector]] | None
    hessian: Callable[[Any], Any] | None
    third_square: Callable[[Any, Vector], Any] | None
    third_tensor: Callable[[Any, Matrix], Any] | None
    third_bound: Callable[[Any, Matrix | None, bool], Any] | None
    limits: Callable[[Any, Matrix], Limits] | None
    variance: Callable[[Any, int], Any] | None
    line: Callable[[Any, Vector], Any] | None
    linear: Callable[[Any, bool], Any] | None
    white: Callable[[Any], Any] | None
    rest: Callable[[Any], Any] | None
    curve: Callable[[Any, Vector], Any] | None
    ahead: Callable[[Any, float], Priced[None]] | None
    know: Callable[[Any, float | None, Vector | None], None] | None
    drift: Callable[[Any, Vector], Vector] | None
    grouped: bool
    carries: bool


@cache
def abilities(kind: type[Any]) -> Abilities:
    """What points of this class offer."""
    names = [field.name for field in fields(Abilities)][:-2]
    offered: dict[str, Any] = {name: getattr(kind, name, None) for name in names}
    return Abilities(**offered, grouped=hasattr(kind, "group_sums"), carries=hasattr(kind, "carry"))


def hessian_from_products(point: Any, d: int, m: int) -> Priced[Matrix]:
    """hess f(x) over m terms in d variables, from d products."""
    columns = [point.product(2, e) for e in np.eye(d)]
    B = np.stack([result_of(column) for column in columns])
    return add_up(0.5 * (B + B.T), columns, "hessian", m)


def tensor_of_products(point: Any, V: Matrix, m: int) -> Priced[Tensor]:
    """third f(x) over m terms and the columns of V, from k (k + 1) / 2 products."""
    answers: list[Any] = []

    def product(u: Vector, v: Vector) -> Vector:
        answers.append(point.product(3, u, v))
        return result_of(answers[-1])

    return add_up(tensor_from_products(product, V), answers, "third", m)


def result_of(answer: Any) -> Any:
    """An answer without its price."""
    return answer.result if isinstance(answer, Priced) else answer


def add_up(result: R, answers: Sequence[Any], order: str, m: int) -> Priced[R]:
    """A result that was made of several answers, with their prices; one that comes without costs m of its order."""
    priced = [answer if isinstance(answer, Priced) else Priced(None, **{order: m}) for answer in answers]
    return Priced(result, **{name: sum(getattr(answer, name) for answer in priced) for name in ORDERS})
