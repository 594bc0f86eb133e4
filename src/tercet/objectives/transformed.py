"""`Transformed`: a problem some of whose parameters live in a part of the line, minimized in free variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.objectives.base import Bound, Priced, Traits, traits_of
from tercet.objectives.capabilities import add_up, hessian_from_products, result_of
from tercet.objectives.functions import Function
from tercet.objectives.own import OwnObjective
from tercet.objectives.structure import places
from tercet.objectives.transforms import Elementwise, Free, Transform, as_transform
from tercet.once import once
from tercet.records import Rows, Vector


class Transformed:
    """A problem whose parameters are kept within open intervals: x_j = phi_j(u_j), minimized over free u.

    `where` says for which: a dict from a coordinate (its number, its name as in `Inference.names`, or the name of a
    whole array) to `tercet.positive`, `tercet.interval(low, high)`, `tercet.above(low)`, `tercet.below(high)` or a pair
    (low, high) with None for no bound; or a list of these, one for each coordinate. x0 and the result's x are the
    user's own parameters, strictly inside. Standard errors are those of x, and intervals are mapped back, so that they
    do not leave the set. A minimum on an edge is not reached, but approached: such a run is not certified.
    """

    def __init__(self, problem: Any, where: Any, **derivatives: Any):
        if not hasattr(problem, "bind"):
            problem = OwnObjective(problem) if hasattr(problem, "over") else Function(problem, **derivatives)
        elif derivatives:
            raise ValueError("Transformed(...): derivatives go with a plain function; this problem has its own.")
        self.problem = problem
        pairs = where.items() if isinstance(where, Mapping) else enumerate(where)
        self.where: dict[Any, Transform] = {key: as_transform(given) for key, given in pairs}

    def fingerprint(self) -> dict[str, str]:
        """That of the problem, and the transforms."""
        return {**self.problem.fingerprint(), "where": repr(self.where)}

    def bind(self, x0: Any) -> Bound:
        """Start at x0, which lies strictly inside; where the problem has a start of its own, in the middle."""
        inner = self.problem.bind(x0)
        phi = self.maps(inner)
        middle = phi.derivatives(np.zeros(inner.x0.size))[0]
        x = inner.x0 if x0 is not None else np.where(self.bounded(phi), middle, inner.x0)
        j = phi.outside(x)
        if j is not None:
            t = phi.transforms[j]
            raise ValueError(
                f"minimize(x0=...): {self.names(inner)[j]} starts at {x[j]:.6g}, which is not strictly between "
                f"{t.low:g} and {t.high:g}; start inside."
            )
        objective = TransformedObjective(inner.objective, phi)
        return Bound(objective, phi.inverse(x), lambda u: inner.restore(phi.derivatives(u)[0]))

    def maps(self, inner: Bound) -> Elementwise:
        """The transform of each coordinate."""
        names = self.names(inner)
        chosen: list[Transform] = [Free() for _ in names]
        for key, transform in self.where.items():
            found = [j for j, name in enumerate(names) if is_named(key, j, name)]
            if not found:
                some = ", ".join(names[:8])
                raise ValueError(f"Transformed(where={{{key!r}: ...}}): no such coordinate; there are {some}.")
            for j in found:
                chosen[j] = transform
        return Elementwise(tuple(chosen))

    def names(self, inner: Bound) -> list[str]:
        """Of the coordinates."""
        own = getattr(self.problem, "names", None)
        d = len(inner.x0)
        return [str(name) for name in own] if own is not None and len(own) == d else places(inner.restore, d)

    @staticmethod
    def bounded(phi: Elementwise) -> Any:
        """Which coordinates are."""
        return np.array([not isinstance(transform, Free) for transform in phi.transforms])


def is_named(key: Any, j: int, name: str) -> bool:
    """Whether a key of `where` means a coordinate."""
    if isinstance(key, int | np.integer):
        return int(key) == j
    return name == key or name.startswith((f"{key}[", f"{key}."))


@dataclass(frozen=True, eq=False)
class TransformedObjective:
    """f(phi(u))."""

    inner: Any
    phi: Elementwise

    @property
    def n(self) -> int:
        """The number of terms."""
        return self.inner.n

    @property
    def d(self) -> int:
        """The number of variables."""
        return self.inner.d

    @property
    def traits(self) -> Traits:
        """Those of f, whose points know nothing of spans here."""
        own = traits_of(self.inner)
        return replace(own, images=False, forms_third=False, provenance=f"{own.provenance}, in transformed variables")

    def over(self, rows: Rows | None) -> TransformedView:
        """The mean over the given terms."""
        return TransformedView(self.inner.over(rows), self.phi)


@dataclass(frozen=True, eq=False)
class TransformedView:
    """The mean over some terms, as a function of u."""

    inner: Any
    phi: Elementwise

    @property
    def terms(self) -> int:
        """The number of terms."""
        return self.inner.terms

    def at(self, u: Vector, carry: None = None) -> TransformedPoint:
        """At u."""
        return TransformedPoint(self, u)


class TransformedPoint:
    """f(phi(u)) over some terms. A derivative of a term counts once, whatever lower ones of f it takes."""

    def __init__(self, view: TransformedView, u: Vector):
        self.view, self.u = view, u

    @once
    def maps(self) -> tuple[Vector, Vector, Vector, Vector]:
        """phi and its first three derivatives."""
        return self.view.phi.derivatives(self.u)

    @once
    def inner(self) -> Any:
        """f at x = phi(u)."""
        return self.view.inner.at(self.maps[0])

    @once
    def slope(self) -> Vector:
        """grad f(x)."""
        return np.asarray(result_of(self.inner.gradient()))

    def value(self) -> Any:
        """f(x); inf where x is beyond what a number can be."""
        return self.inner.value() if np.all(np.isfinite(self.maps[0])) else np.inf

    def gradient(self) -> Any:
        """D g."""
        answer = self.inner.gradient()
        object.__setattr__(self, "slope", np.asarray(result_of(answer)))  # what the `once` would have computed
        return self.as_priced(self.maps[1] * self.slope, answer, "gradient")

    def product(self, order: int, *vectors: Vector) -> Any:
        """Of the Hessian one product with B; of the third derivative one with T and three with B (two for u = v)."""
        _, D, h, third = self.maps
        g, bend, (u, v) = self.slope, self.inner.product, (vectors[0], vectors[-1])
        if order == 2:
            Bv = bend(2, D * v)
            return self.as_priced(D * result_of(Bv) + h * g * v, Bv, "hessian")
        T, Bu, both = bend(3, D * u, D * v), result_of(bend(2, D * u)), result_of(bend(2, h * u * v))
        Bv = Bu if v is u else result_of(bend(2, D * v))
        total = D * (result_of(T) + both) + h * (u * Bv + v * Bu) + third * g * u * v
        return self.as_priced(total, T, "third")

    def hessian(self) -> Any:
        """D B D + diag(h g)."""
        _, D, h, _ = self.maps
        own = getattr(self.inner, "hessian", None)
        answer = hessian_from_products(self.inner, len(self.u), self.view.terms) if own is None else own()
        B = np.outer(D, D) * result_of(answer)
        B.ravel()[:: len(B) + 1] += h * self.slope
        return self.as_priced(B, answer, "hessian")

    def as_priced(self, result: Any, answer: Any, order: str) -> Any:
        """A result at the price of the answer that it was made of."""
        return add_up(result, [answer], order, self.view.terms) if isinstance(answer, Priced) else result
