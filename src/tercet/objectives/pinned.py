"""An objective with one of its variables held fast."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.objectives.base import Priced, Traits, traits_of
from tercet.objectives.capabilities import add_up, hessian_from_products, result_of
from tercet.records import Rows, Vector


@dataclass(frozen=True, eq=False)
class Pinned:
    """f over the variables but x_j, which is t."""

    inner: Any
    j: int
    t: float

    @property
    def n(self) -> int:
        """The number of terms."""
        return self.inner.n

    @property
    def d(self) -> int:
        """The number of variables that are left."""
        return self.inner.d - 1

    @property
    def traits(self) -> Traits:
        """Those of f, whose points know nothing of spans here."""
        return replace(traits_of(self.inner), images=False, forms_third=False)

    def over(self, rows: Rows | None) -> PinnedView:
        """The mean over the given terms."""
        return PinnedView(self.inner.over(rows), self.j, self.t)


@dataclass(frozen=True, eq=False)
class PinnedView:
    """The mean over some terms."""

    inner: Any
    j: int
    t: float

    @property
    def terms(self) -> int:
        """The number of terms."""
        return self.inner.terms

    def at(self, x: Vector, carry: None = None) -> PinnedPoint:
        """At the other variables."""
        return PinnedPoint(self.inner.at(np.insert(x, self.j, self.t)), self.j, self.terms)


@dataclass(frozen=True, eq=False)
class PinnedPoint:
    """The mean over some terms at one x."""

    inner: Any
    j: int
    terms: int

    def value(self) -> Any:
        """f(x)."""
        return self.inner.value()

    def gradient(self) -> Any:
        """Without its entry j."""
        return self.without(self.inner.gradient(), "gradient")

    def product(self, order: int, *vectors: Vector) -> Any:
        """Hessian or third derivative over the other variables."""
        whole = tuple(np.insert(v, self.j, 0.0) for v in vectors)
        return self.without(self.inner.product(order, *whole), "hessian" if order == 2 else "third")

    def hessian(self) -> Any:
        """Without row and column j."""
        own = getattr(self.inner, "hessian", None)
        if own is None:
            d = len(np.asarray(result_of(self.inner.gradient())))
            return hessian_from_products(self, d - 1, self.terms)
        answer = own()
        B = np.delete(np.delete(result_of(answer), self.j, axis=0), self.j, axis=1)
        return add_up(B, [answer], "hessian", self.terms) if isinstance(answer, Priced) else B

    def without(self, answer: Any, order: str) -> Any:
        """A vector without its entry j, at its price."""
        rest = np.delete(result_of(answer), self.j)
        return add_up(rest, [answer], order, self.terms) if isinstance(answer, Priced) else rest
