"""Residuals by JAX: the mean over examples of w rho(r(x, example)), in batches of a fixed number of examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Priced, Traits
from tercet.objectives.finite_sum import small_chunk
from tercet.objectives.residuals.linearized import Curve, Linearized, reduced, rows_of
from tercet.objectives.residuals.outer import Outer
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

GROUPS = 16  # gradients come in this many groups of examples, whose spread is the sampling error
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

    def __init__(self, jax: Any, residual: Callable[..., Any], loss: Outer, width: int, d: int):
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
            small = small_chunk(len(r), d)

            def fold(leaf: Any) -> Any:
                return leaf.reshape((len(r) // small, small, *leaf.shape[1:]))

            def add(total: Any, part: Any) -> Any:
                some, c = part
                return total + jax.hessian(lambda p: xp.sum(c * residuals(p, some)))(x), None

            parts = (jax.tree_util.tree_map(fold, batch), fold(slope))
            return jax.lax.scan(add, xp.zeros((d, d), x.dtype), parts)[0]

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

        plain = (residuals, jacobian, total, jax.value_and_grad(total), rest, hvp, tvp, bend, pull, tensor, grouped)
        names = ("residuals", "jacobian", "total", "first", "rest", "hvp", "tvp", "bend", "pull", "tensor", "grouped")
        self.calls = {name: jax.jit(call) for name, call in zip(names, plain, strict=True)}


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

    @property
    def whole_jacobian(self) -> bool:
        """Whether the Jacobian of all examples is small enough to be kept at a point."""
        return self.n * self.width * self.d <= KEPT

    def over(self, rows: Rows | None) -> TracedView:
        """The mean over the given examples, gathered once."""
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
            arrays = [np.asarray(a, dtype=o.dtype) for a in (x, *more)]
            call, out = o.kernels.calls[name], []
            for batch, w in self.batches:
                out.append(call(arrays[0], batch, *([w] if weighted else []), *arrays[1:]))
            return [o.jax.tree_util.tree_map(np.asarray, part) for part in out]

    def mean(self, name: str, x: Vector, *more: Any) -> Any:
        """The sum over the batches divided by the number of examples, in float64."""
        parts = self.each(name, x, *more)
        return sum(np.asarray(part, dtype=np.float64) for part in parts) / self.terms

    def product(self, order: int, x: Vector, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        bent: Vector = self.mean("hvp" if order == 2 else "tvp", x, *vectors)
        return bent + self.objective.l2 * vectors[0] if order == 2 else bent

    def residuals(self, x: Vector) -> Vector:
        """r, flat."""
        parts = self.each("residuals", x, weighted=False)
        width = self.objective.width
        return np.concatenate([p.reshape(-1, width) for p in parts])[: self.terms].astype(np.float64).ravel()

    def jacobian(self, x: Vector) -> Matrix:
        """J, a row for each residual."""
        o = self.objective
        parts = [p.reshape(-1, o.width * o.d) for p in self.each("jacobian", x, weighted=False)]
        rows = (parts[0] if len(parts) == 1 else np.concatenate(parts))[: self.terms]
        return rows.astype(np.float64, copy=False).reshape(-1, o.d)

    @property
    def row_weights(self) -> Vector:
        """The weight of each residual."""
        return np.repeat(self.weights, self.objective.width)


@dataclass(frozen=True, eq=False)
class TracedPoint:
    """Residuals over some examples at one x, with their Jacobian as it is: it gives the gradient, too."""

    view: TracedView
    x: Vector

    @once
    def r(self) -> Vector:
        """The residuals."""
        return self.view.residuals(self.x)

    @once
    def J(self) -> Matrix:
        """Their Jacobian."""
        return self.view.jacobian(self.x)

    def value(self) -> float:
        """f(x): one evaluation of every residual."""
        o = self.view.objective
        return float(self.view.row_weights @ o.loss.value(self.r)) / self.view.terms + o.penalty(self.x)

    @once
    def terms_slopes(self) -> Matrix:
        """The gradient of each example."""
        o = self.view.objective
        slope = self.view.row_weights * o.loss.weights(self.r)[0]
        rows = slope[:, None] * self.J
        return rows if o.width == 1 else rows.reshape(-1, o.width, o.d).sum(axis=1)

    def paid(self) -> int:
        """What the Jacobian costs: one gradient of each example, once."""
        return 0 if "J" in self.__dict__ else self.view.terms

    def gradient(self) -> Priced[Vector]:
        """grad f(x) = (1/m) J'(w rho')."""
        price, o = self.paid(), self.view.objective
        slope = self.view.row_weights * o.loss.weights(self.r)[0]
        return Priced(self.J.T @ slope / self.view.terms + o.l2 * self.x, gradient=price)

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over the groups."""
        rows = self.terms_slopes
        return np.stack([rows[k::GROUPS].sum(axis=0) for k in range(min(GROUPS, len(rows)))])

    def linear(self, paid: bool = False) -> Priced[Linearized]:
        """A root of the Gauss-Newton matrix, by QR."""
        price = 0 if paid else self.paid()
        return Priced(self.root, gradient=price)

    @once
    def root(self) -> Linearized:
        """By QR of the weighted Jacobian."""
        v, o = self.view, self.view.objective
        return o.lines(rows_of(self.r, self.J, v.row_weights, o.loss, v.terms), self.x)

    @once
    def remainder(self) -> Matrix:
        """B - root'root: the terms with second derivatives of r, and what the weights leave out."""
        return remainder(self.view, self.x, self.r, self.J)

    def rest(self) -> Priced[Matrix]:
        """The same; one Hessian of each example, once."""
        price, known = self.paid(), "remainder" in self.__dict__
        return Priced(self.remainder, hessian=0 if known else self.view.terms, gradient=price)

    def hessian(self) -> Priced[Matrix]:
        """root'root and the rest."""
        price, known = self.paid(), "remainder" in self.__dict__
        G = self.root.gram
        B = G + self.remainder
        return Priced(B, hessian=0 if known else self.view.terms, gradient=price)

    def curve(self, s: Vector) -> Curve:
        """r''[s, s]."""
        v = self.view
        parts = v.each("bend", self.x, s, weighted=False)
        b = np.concatenate([p.reshape(-1, v.objective.width) for p in parts])[: v.terms].astype(np.float64).ravel()
        slope, h = v.objective.loss.weights(self.r)
        w = v.row_weights / v.terms
        return Curve(self.J.T @ (w * h * b), float((w * slope) @ b), float((w * h * b) @ b))

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.view.product(order, self.x, *vectors)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.view.mean("tensor", self.x, V)


def remainder(view: TracedView, x: Vector, r: Vector, J: Matrix) -> Matrix:
    """(1/m) sum w rho' hess r, and J' diag(w (rho'' - h)) J, which is 0 for squares."""
    S, loss = view.mean("rest", x), view.objective.loss
    S = 0.5 * (S + S.T)
    if loss.name == "squares":
        return S
    less = view.row_weights * (loss.derivatives(r)[2] - loss.weights(r)[1])
    return S + J.T @ (less[:, None] * J) / view.terms


@dataclass(frozen=True, eq=False)
class LargePoint:
    """Residuals over many examples at one x: the gradient by a reverse pass, the Jacobian batch by batch, not kept."""

    view: TracedView
    x: Vector

    @once
    def grouped(self) -> tuple[Vector, Matrix]:
        """Sums of values and gradients over groups of examples."""
        v, o = self.view, self.view.objective
        with o.jax.enable_x64(o.dtype == np.float64):
            x, out = np.asarray(self.x, dtype=o.dtype), []
            for k, (batch, w) in enumerate(v.batches):
                group = ((k * o.size + np.arange(o.size)) % GROUPS).astype(np.int32)
                out.append(o.kernels.calls["grouped"](x, batch, w, group))
            return tuple(sum(np.asarray(part[i], dtype=np.float64) for part in out) for i in range(2))  # type: ignore[return-value]

    def first(self) -> tuple[float, Vector]:
        """f(x) and its gradient in one pass."""
        v, o = self.view, self.view.objective
        if v.whole:
            parts = v.each("first", self.x)
            f, g = float(sum(p[0] for p in parts)), sum(p[1].astype(np.float64) for p in parts)
        else:
            f, g = float(np.sum(self.grouped[0])), np.sum(self.grouped[1], axis=0)
        return f / v.terms + o.penalty(self.x), g / v.terms + o.l2 * self.x

    def value(self) -> float:
        """f(x)."""
        return float(self.view.mean("total", self.x)) + self.view.objective.penalty(self.x)

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.first()[1]

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over the groups that are not empty."""
        return self.grouped[1][: min(GROUPS, self.view.terms)]

    @once
    def passed(self) -> tuple[Linearized, Matrix]:
        """One pass over the Jacobian: its triangle, and what the weights leave out of the Hessian."""
        v, o = self.view, self.view.objective
        rows: Matrix = np.zeros((0, o.d + 1))
        less, left = np.zeros((o.d, o.d)), v.terms
        for batch, w in v.batches:
            with o.jax.enable_x64(o.dtype == np.float64):
                x = np.asarray(self.x, dtype=o.dtype)
                r, J = (
                    np.asarray(o.kernels.calls[name](x, batch), dtype=np.float64) for name in ("residuals", "jacobian")
                )
            m = min(left, o.size)
            left -= m
            r, J = r[:m].ravel(), J[:m].reshape(-1, o.d)
            weights = np.repeat(np.asarray(w, dtype=np.float64)[:m], o.width)
            rows = reduced(np.concatenate([rows, rows_of(r, J, weights, o.loss, v.terms)]))
            if o.loss.name != "squares":
                gap = weights * (o.loss.derivatives(r)[2] - o.loss.weights(r)[1])
                less += J.T @ (gap[:, None] * J) / v.terms
        return o.lines(rows, self.x), less

    def linear(self, paid: bool = False) -> Priced[Linearized]:
        """A root of the Gauss-Newton matrix, by QR of one batch after the other; a gradient of each example, once."""
        known = "passed" in self.__dict__
        return Priced(self.passed[0], gradient=0 if known else self.view.terms)

    @once
    def remainder(self) -> Matrix:
        """B - root'root."""
        S = self.view.mean("rest", self.x)
        return 0.5 * (S + S.T) + self.passed[1]

    def rest(self) -> Priced[Matrix]:
        """B - root'root; one Hessian of each example, once."""
        known, price = "remainder" in self.__dict__, 0 if "passed" in self.__dict__ else self.view.terms
        return Priced(self.remainder, hessian=0 if known else self.view.terms, gradient=price)

    def hessian(self) -> Priced[Matrix]:
        """root'root and the rest."""
        known, price = "remainder" in self.__dict__, 0 if "passed" in self.__dict__ else self.view.terms
        G = self.passed[0].gram
        return Priced(G + self.remainder, hessian=0 if known else self.view.terms, gradient=price)

    def curve(self, s: Vector) -> Curve:
        """r''[s, s], batch by batch; J is not formed again."""
        v, o = self.view, self.view.objective
        slope, image, square = np.zeros(o.d), 0.0, 0.0
        with o.jax.enable_x64(o.dtype == np.float64):
            x, along = np.asarray(self.x, dtype=o.dtype), np.asarray(s, dtype=o.dtype)
            for batch, w in v.batches:
                r, b = (
                    np.asarray(part, dtype=np.float64)
                    for part in (o.kernels.calls["residuals"](x, batch), o.kernels.calls["bend"](x, batch, along))
                )
                first, h = o.loss.weights(r)
                share = np.asarray(w, dtype=np.float64)[:, None] / v.terms
                slope += np.asarray(
                    o.kernels.calls["pull"](x, batch, (share * h * b).astype(o.dtype)), dtype=np.float64
                )
                image += float(np.sum(share * first * b))
                square += float(np.sum(share * h * b * b))
        return Curve(slope, image, square)

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.view.product(order, self.x, *vectors)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.view.mean("tensor", self.x, V)
