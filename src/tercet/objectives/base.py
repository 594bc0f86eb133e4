"""What an objective is: a finite sum that can be looked at over some of its terms, at a point.

    objective.over(rows).at(x) -> Point

A `Point` is f over those terms at x with its derivatives, each computed when first asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tercet.records import Matrix, Rows, Tensor, Vector


class NotFiniteError(Exception):
    """A derivative that the run needs is not finite."""


class Point(Protocol):
    """(1/m) sum f_i at one x over m terms, and its derivatives."""

    @property
    def terms(self) -> int:
        """m, the number of terms."""
        ...

    def value(self) -> float:
        """f(x)."""
        ...

    def gradient(self) -> Vector:
        """grad f(x)."""
        ...

    def gradient_errors(self) -> Matrix:
        """Rows e_k with sum_k e_k e_k' = the covariance of grad f(x) over draws of the terms, from the terms at hand.

        The terms are split into groups, whose gradients differ by as much as sampling lets them (`group_errors`).
        """
        ...

    def hessian(self) -> Matrix:
        """hess f(x) as a dense symmetric matrix."""
        ...

    def hessian_price(self) -> int:
        """How many terms `hessian` has to evaluate: m, or fewer where a nearby point's can be used again."""
        ...

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v."""
        ...

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v], a vector."""
        ...

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s], where terms that hardly bend along s may be left out."""
        ...

    def third_square_price(self, s: Vector) -> int:
        """How many terms `third_square(s)` evaluates."""
        ...

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x)[v_i, v_j, v_k] over the k columns of V, a symmetric k x k x k array."""
        ...

    def memento(self) -> dict[str, Any]:
        """What this point owes to points before it, as arrays, so that `View.recall` can make the same point again."""
        ...

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A number that |third f(x)[y]^3| does not exceed for unit y in the span of V; inf where none is cheap.

        None stands for all directions; `tight` may take longer and say less.
        """
        ...


class View(Protocol):
    """The mean over some of the terms, as a function of x."""

    def at(self, x: Vector, near: Any = None) -> Point:
        """The mean over these terms at x; `near` is a point close to x whose Hessian may be used again, or its `trail`,
        where it has one: what can be used again, without the terms."""
        ...

    def recall(self, x: Vector, memento: dict[str, Any]) -> Point:
        """The point at x that gave this memento."""
        ...

    def settle(self, x: Vector) -> Vector:
        """A start that is no worse for these terms: directions that none of them sees go to the penalty's minimum."""
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

    @property
    def how(self) -> str:
        """How the derivatives are computed, in words, for the certificate."""
        ...

    @property
    def dense(self) -> bool:
        """Whether the dense d x d Hessian is the right thing to ask for."""
        ...

    @property
    def forms_third(self) -> bool:
        """Whether the dense d x d x d third derivative is the right thing to ask for."""
        ...

    @property
    def hessian_cost(self) -> float:
        """How long the Hessian of a term takes, in its gradients; a dear one, above 2, serves for several steps."""
        ...

    def over(self, rows: Rows | None) -> View:
        """The mean over the given terms (None: all of them; an index may repeat)."""
        ...


@dataclass(frozen=True, eq=False)
class Bound:
    """An objective together with the flat start and the way back to the user's structure of x."""

    objective: Objective
    x0: Vector
    restore: Callable[[Vector], Any]


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


def check_length(name: str, x0: Any, d: int) -> Vector:
    """x0 as a finite float vector of length d, or a ValueError that says what is wrong with it."""
    try:
        x = np.asarray(x0)
    except ValueError as error:
        raise ValueError(f"minimize(x0={x0!r}): x0 is not a rectangular array of numbers.") from error
    if x.dtype.kind not in "fiub":
        raise ValueError(f"minimize({name}=...): x0 has dtype {x.dtype}; give real numbers.")
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
