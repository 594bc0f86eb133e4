"""Residuals by JAX: the mean over examples of w rho(r(x, example)), in batches of a fixed number of examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Traits
from tercet.objectives.capabilities import result_of
from tercet.objectives.finite_sum import small_chunk
from tercet.objectives.layers import Layers
from tercet.objectives.residuals.linearized import Linearized
from tercet.objectives.residuals.outer import Normal, Outer
from tercet.objectives.residuals.points import GROUPS, LargePoint, TracedPoint
from tercet.once import once
from tercet.records import Matrix, Rows, Vector

FORMED = 200  # up to this many variables Hessians are formed
FACTORED = 3000  # up to this many variables the Jacobian is factored
KEPT = 1 << 24  # numbers in the Jacobian of all examples, up to which it gives the gradient, too


def residual_traits(d: int, provenance: str, epsilon: float) -> Traits:
    """The Hessian of few variables is worth forming, and takes a product for each, some of them at once; the Jacobian
    is worth factoring for many more."""
    return Traits(
        dense=d <= FORMED,
        hessian_cost=max(2.0, d / 8),
        residuals=d <= FACTORED,
        provenance=provenance,
        epsilon=epsilon,
    )


class ResidualKernels:
    """Compiled functions of a flat x over one batch of examples with their weights (0: an example that fills up)."""

    def __init__(
        self, jax: Any, residual: Callable[..., Any], loss: Outer, width: int, d: int, layers: Layers | None = None
    ):
        xp = jax.numpy

        def residuals(x: Any, batch: Any) -> Any:
            return jax.vmap(lambda *e: xp.ravel(residual(x, *e)))(*batch)

        def jacobian(x: Any, batch: Any) -> Any:
            mode = jax.jacrev if width < d else jax.jacfwd
            return jax.vmap(lambda *e: mode(lambda p: xp.ravel(residual(p, *e)))(x))(*batch)

        def total(x: Any, batch: Any, w: Any) -> Any:
            return xp.sum(xp.where(w > 0.0, w * xp.sum(loss.value(residuals(x, batch), xp), axis=1), 0.0))

        def rest(x: Any, batch: Any, w: Any) -> Any:
            r = residuals(x, batch)
            slope = jax.grad(lambda q: xp.sum(loss.value(q, xp)))(r) * xp.where(w > 0.0, w, 0.0)[:, None]
            if layers is None:
                return weighted_hessians(jax, residuals, x, batch, slope)
            return layered_hessians(jax, layers, x, batch, slope[:, 0], w > 0.0)

        def ahead(x: Any, batch: Any, w: Any, most: Any) -> Any:
            f = total(x, batch, w) <= most
            d, m = len(x), len(w)
            none = xp.zeros((m, width, d), x.dtype), xp.zeros((d, d), x.dtype)
            J, S = jax.lax.cond(f, lambda: (jacobian(x, batch), rest(x, batch, w)), lambda: none)
            return residuals(x, batch), J, S, f

        def hvp(x: Any, batch: Any, w: Any, v: Any) -> Any:
            return jax.jvp(lambda p: jax.grad(total)(p, batch, w), (x,), (v,))[1]

        def tvp(x: Any, batch: Any, w: Any, u: Any, v: Any) -> Any:
            return jax.jvp(lambda p: hvp(p, batch, w, v), (x,), (u,))[1]

        def bend(x: Any, batch: Any, v: Any) -> Any:
            def slope(p: Any) -> Any:
                return jax.jvp(lambda q: residuals(q, batch), (p,), (v,))[1]

            return jax.jvp(slope, (x,), (v,))[1]

        def pull(x: Any, batch: Any, c: Any) -> Any:
            return jax.vjp(lambda p: residuals(p, batch), x)[1](c)[0]

        def tensor(x: Any, batch: Any, w: Any, V: Any) -> Any:
            zero = xp.zeros(V.shape[1], dtype=x.dtype)
            return jax.jacfwd(jax.hessian(lambda z: total(x + V @ z, batch, w)))(zero)

        def grouped(x: Any, batch: Any, w: Any, group: Any) -> Any:
            first = jax.value_and_grad(total)
            return jax.vmap(lambda k: first(x, batch, xp.where(group == k, w, 0.0)))(xp.arange(GROUPS))

        def lines(x: Any, batch: Any) -> Any:
            return residuals(x, batch), jacobian(x, batch)

        plain = (residuals, lines, total, rest, ahead, hvp, tvp, bend, pull, tensor, grouped)
        self.calls = {call.__name__: jax.jit(call) for call in plain} | {"first": jax.jit(jax.value_and_grad(total))}


def weighted_hessians(jax: Any, residuals: Callable[..., Any], x: Any, batch: Any, c: Any) -> Any:
    """The sum over some examples of c_i hess r_i(x), a few of them at a time."""

    def add(total: Any, part: Any) -> Any:
        some, weights = part
        return total + jax.hessian(lambda p: jax.numpy.sum(weights * residuals(p, some)))(x), None

    return jax.lax.scan(add, jax.numpy.zeros((len(x),) * 2, x.dtype), folded(jax, len(x), (batch, c)))[0]


def layered_hessians(jax: Any, layers: Layers, x: Any, batch: Any, c: Any, counts: Any) -> Any:
    """The same from the layers of a network, where an example has one residual."""

    def add(total: Any, part: Any) -> Any:
        return jax.tree_util.tree_map(jax.numpy.add, total, layers.sums(x, *part)), None

    sums = jax.lax.scan(add, layers.nothing(x), folded(jax, layers.units, (batch, counts, c)))[0]
    return layers.hessian(x, batch, sums)


def folded(jax: Any, columns: int, parts: Any) -> Any:
    """Examples a few at a time, so that so many columns of them stay in the cache."""
    m = len(jax.tree_util.tree_leaves(parts)[0])
    small = small_chunk(m, columns)
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape((m // small, small, *leaf.shape[1:])), parts)


@dataclass(frozen=True, eq=False)
class TracedResiduals:
    """Residuals over JAX of a flat vector."""

    d: int
    n: int
    width: int  # residuals of an example
    size: int  # examples of a batch
    data: Any
    weights: Vector  # of the examples, with mean one
    loss: Outer
    kernels: ResidualKernels
    dtype: np.dtype[Any]
    jax: Any
    l2: Vector  # of each variable

    def penalty(self, x: Vector) -> float:
        """1/2 sum l2_j x_j^2."""
        return 0.5 * float((self.l2 * x) @ x)

    def lines(self, rows: Matrix, x: Vector) -> Linearized:
        """Residuals as straight lines, and sqrt(l2_j) x_j below them where there is a penalty."""
        (own,) = np.nonzero(self.l2)
        if not len(own):
            return Linearized(rows)
        more = np.zeros((len(own), self.d + 1))
        more[np.arange(len(own)), own] = np.sqrt(self.l2[own])
        more[:, -1] = np.sqrt(self.l2[own]) * x[own]
        return Linearized(np.concatenate([rows, more]))

    @property
    def traits(self) -> Traits:
        """By JAX."""
        return residual_traits(self.d, "derivatives of the residuals by JAX", float(np.finfo(self.dtype).eps))

    def likelihood(self, x: Vector) -> Normal | None:
        """Of the residuals, as normal errors."""
        halves = self.n * (float(result_of(self.over(None).at(x).value())) - self.penalty(x))
        return self.loss.likelihood(halves, self.n * self.width, self.d, bool(np.any(self.l2)))

    @property
    def whole_jacobian(self) -> bool:
        """Whether the Jacobian of all examples is small enough to be kept at a point."""
        return self.n * self.width * self.d <= KEPT

    def over(self, rows: Rows | None) -> TracedView:
        """The mean over the given examples, gathered once."""
        return self.whole if rows is None else self.gathered(rows)

    @once
    def whole(self) -> TracedView:
        """The mean over all of them."""
        return self.gathered(None)

    def gathered(self, rows: Rows | None) -> TracedView:
        """The examples of a mean, in batches."""
        index = np.arange(self.n) if rows is None else np.asarray(rows)
        m, size = len(index), self.size
        padded = np.full(-(-m // size) * size, index[0])
        padded[:m] = index
        w = np.where(np.arange(len(padded)) < m, self.weights[padded], 0.0).astype(self.dtype)
        batches, tree = [], self.jax.tree_util
        with self.jax.enable_x64(self.dtype == np.float64):
            for k in range(0, len(padded), size):
                part = slice(None) if rows is None and m == size else padded[k : k + size]
                leaves = [self.jax.numpy.asarray(leaf[part]) for leaf in tree.tree_leaves(self.data)]
                batch = tree.tree_unflatten(tree.tree_structure(self.data), leaves)
                batches.append((batch, self.jax.numpy.asarray(w[k : k + size])))
        return TracedView(self, batches, m, rows is None, self.weights[index])


@dataclass(frozen=True, eq=False)
class TracedView:
    """The mean over some examples."""

    objective: TracedResiduals
    batches: list[tuple[Any, Any]]
    terms: int
    whole: bool  # all examples, whose gradient has no sampling error
    weights: Vector

    def at(self, x: Vector, carry: None = None) -> TracedPoint | LargePoint:
        """These examples at x."""
        return TracedPoint(self, x) if self.objective.whole_jacobian else LargePoint(self, x)

    def each(self, name: str, x: Vector, *more: Any, weighted: bool = True) -> list[Any]:
        """A compiled function over each batch, as NumPy in the precision of the parameters."""
        o = self.objective
        with o.jax.enable_x64(o.dtype == np.float64):
            first, *rest = (np.asarray(a, dtype=o.dtype) for a in (x, *more))
            call, out = o.kernels.calls[name], []
            for batch, w in self.batches:
                out.append(call(first, batch, w, *rest) if weighted else call(first, batch, *rest))
            return [tuple(map(np.asarray, part)) if isinstance(part, tuple) else np.asarray(part) for part in out]

    def mean(self, name: str, x: Vector, *more: Any) -> Any:
        """The sum over the batches divided by the number of examples, in float64."""
        parts = self.each(name, x, *more)
        return sum(np.asarray(part, dtype=np.float64) for part in parts) / self.terms

    def product(self, order: int, x: Vector, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        bent: Vector = self.mean("hvp" if order == 2 else "tvp", x, *vectors)
        return bent + self.objective.l2 * vectors[0] if order == 2 else bent

    def flat(self, parts: list[Any]) -> Vector:
        """What every batch tells of its residuals, as one vector."""
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.ravel()[: self.terms * self.objective.width].astype(np.float64, copy=False)

    def residuals(self, x: Vector) -> Vector:
        """r, flat."""
        return self.flat(self.each("residuals", x, weighted=False))

    def ahead(self, x: Vector, most: float) -> dict[str, Any]:
        """r and, where f <= most, J and S: what of that one batch tells at once, nothing where there are more."""
        if len(self.batches) > 1:
            return {}
        o, terms = self.objective, self.terms
        ((r, J, S, made),) = self.each("ahead", x, (most - o.penalty(x)) * terms)
        found = {"r": self.flat([r])}
        if made:
            found |= {"J": self.rowed([J]), "S": S.astype(np.float64, copy=False) / terms}
        return found

    def lines(self, x: Vector) -> tuple[Vector, Matrix]:
        """r and J, a row for each residual."""
        rows, slopes = zip(*self.each("lines", x, weighted=False), strict=True)
        return self.flat(list(rows)), self.rowed(list(slopes))

    def rowed(self, parts: list[Any]) -> Matrix:
        """What every batch tells of its rows of the Jacobian, as one matrix."""
        o = self.objective
        parts = [p.reshape(-1, o.width * o.d) for p in parts]
        rows = (parts[0] if len(parts) == 1 else np.concatenate(parts))[: self.terms]
        return rows.astype(np.float64, copy=False).reshape(-1, o.d)

    @once
    def row_weights(self) -> Vector:
        """The weight of each residual."""
        return np.repeat(self.weights, self.objective.width)
