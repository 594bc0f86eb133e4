"""What an objective is: a finite sum that can be looked at over some of its terms, at a point.

    objective.over(rows).at(x) -> Point

Eight members are required: `n`, `d`, `over` of an objective, `terms`, `at` of a view, `value`, `gradient`, `product` of
a point. Each answer costs one evaluation of every term; one that costs more or less comes as `Priced`. What an engine
can do beyond that are the capabilities of `tercet.objectives.capabilities`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tercet.checks import plain_array
from tercet.records import Matrix, Rows, Tensor, Vector

R = TypeVar("R")
PRODUCTS = 200  # up to this many variables a Hessian is formed, where it takes a product for each of them


class NotFiniteError(Exception):
    """f or a derivative that the run needs is not finite; `order` is its name in `ORDERS`."""

    def __init__(self, order: str):
        super().__init__(order)
        self.order = order


@dataclass(frozen=True, eq=False)
class Priced(Generic[R]):
    """An answer with its price: how many evaluations of single terms it took, by order."""

    result: R
    value: int = 0
    gradient: int = 0
    hessian: int = 0
    third: int = 0


class Point(Protocol):
    """(1/m) sum f_i at one x over m terms. Nothing is computed before it is asked for."""

    def value(self) -> float | Priced[float]:
        """f(x)."""
        ...

    def gradient(self) -> Vector | Priced[Vector]:
        """grad f(x)."""
        ...

    def product(self, order: int, *vectors: Vector) -> Vector | Priced[Vector]:
        """hess f(x) v for order 2 and one vector; third f(x)[u, v] for order 3 and two."""
        ...


class View(Protocol):
    """The mean over some of the terms, as a function of x."""

    @property
    def terms(self) -> int:
        """m, the number of terms."""
        ...

    def at(self, x: Vector, carry: Any = None) -> Point:
        """The mean over these terms at x. `carry` is what a point nearby handed on; None is always legal, and the
        point is then exact and owes nothing to others."""
        ...


class Objective(Protocol):
    """A finite sum of n terms in d variables."""

    @property
    def n(self) -> int:
        """The number of terms."""
        ...

    @property
    def d(self) -> int:
        """The number of variables."""
        ...

    def over(self, rows: Rows | None) -> View:
        """The mean over the given terms (None: all of them; an index may repeat)."""
        ...


@dataclass(frozen=True)
class Traits:
    """What is worth knowing of an objective before a run: its attribute `traits`, or `Traits.of(d)`."""

    dense: bool  # the d x d Hessian is worth forming
    hessian_cost: float = 2.0  # how long the Hessian of a term takes, in its gradients
    hessian_products: float = 0.0  # how many products with B take as long as forming and factoring it, where known
    forms_third: bool = False  # the d x d x d third derivative is worth forming
    images: bool = False  # its points know f over the span of a few directions
    residuals: bool = False  # its points know a root of their Gauss-Newton matrix (`Linear`)
    buys_third: bool = True  # third derivatives are worth asking for on the way, not for the certificate alone
    provenance: str = "derivatives as given"  # how they are computed, in words, for the certificate
    epsilon: float = float(np.finfo(float).eps)  # of the precision in which f is computed
    blur: float = 0.0  # beside its diagonal, how wrong a Hessian may be that is made of differences
    scattered: float = 0.2  # samples of a larger share of the rows, which lie anywhere, take as long as all in a row
    on_device: bool = False  # terms are summed on an accelerator, and the host has d x d matrices only
    fewest: float = 0.0  # terms; all that is made of fewer takes no longer than the rest of an iteration
    in_memory: int | None = None  # the largest sample at hand; what is beyond takes a pass over data elsewhere

    @staticmethod
    def of(d: int) -> Traits:
        """Of an objective that says nothing of itself: a Hessian takes a product, two gradients, a variable."""
        return Traits(dense=d <= PRODUCTS, hessian_cost=2.0 * d)


def traits_of(objective: Any) -> Traits:
    """What an objective says of itself, or the defaults."""
    return getattr(objective, "traits", None) or Traits.of(objective.d)


@dataclass(frozen=True, eq=False)
class Bound:
    """An objective together with the flat start and the way back to the user's structure of x."""

    objective: Objective
    x0: Vector
    restore: Callable[[Vector], Any] = np.asarray


class Problem(Protocol):
    """What `minimize` takes: something that becomes an objective once it knows x0."""

    def fingerprint(self) -> dict[str, str]:
        """Named digests of data and settings: two problems with the same fingerprint are the same to a run."""
        ...

    def bind(self, x0: Any) -> Bound:
        """Check x0 (None: a default, where there is one) and give the objective of a flat vector."""
        ...


def tensor_from_products(product: Callable[[Vector, Vector], Vector], V: Matrix) -> Tensor:
    """T[v_i, v_j, v_k] over the columns of V from k (k + 1) / 2 products."""
    k = V.shape[1]
    T = np.empty((k, k, k))
    for i in range(k):
        for j in range(i + 1):
            T[i, j] = T[j, i] = V.T @ product(V[:, i], V[:, j])
    return T


def as_start(x0: Any) -> NDArray[Any]:
    """x0 as an array of real numbers, or a ValueError that names it."""
    try:
        return plain_array(x0)
    except ValueError as error:
        raise ValueError(f"minimize(x0=...): x0 is not an array of real numbers ({error}).") from error


def check_length(name: str, x0: Any, d: int) -> Vector:
    """x0 as a finite float vector of length d, or a ValueError that says what is wrong with it."""
    x = as_start(x0)
    if x.shape != (d,):
        raise ValueError(
            f"minimize({name}=...): x0 has shape {x.shape}, but the problem has {d} variables; give shape ({d},)."
        )
    if not np.all(np.isfinite(x)):
        raise ValueError(
            f"minimize({name}=...): x0[{int(np.argmin(np.isfinite(x)))}] is not finite; start from finite numbers."
        )
    return x.astype(np.float64)


def digest(*arrays: Any) -> str:
    """A short digest of arrays: their dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for array in arrays:
        block = np.ascontiguousarray(array)
        total.update(f"{block.dtype.str}{block.shape}".encode())
        total.update(block.data if block.size else b"")
    return total.hexdigest()[:16]


def name_of(function: Any) -> str:
    """A function's name and a digest of its code, as far as that can be had; for anything else its repr."""
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    constants = [repr(c) for c in code.co_consts if not hasattr(c, "co_code")]
    text = f"{code.co_code.hex()} {constants} {code.co_names}"
    return f"{function.__qualname__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def group_errors(sums: Matrix, m: int) -> Matrix:
    """e_k = (S_k - m_k mean) / sqrt(m_k m (K - 1)) from sums S_k of gradients over K groups of the m terms.

    The terms are dealt out in turn, so sizes m_k differ by at most one; unbiased also then. One group tells nothing
    of its error; then the gradient itself stands for it.
    """
    K = len(sums)
    if K < 2:
        return sums / m
    sizes = ((m + K - 1 - np.arange(K)) // K)[:, None]
    return (sums - sizes * (np.sum(sums, axis=0) / m)) / np.sqrt(sizes * m * (K - 1.0))
