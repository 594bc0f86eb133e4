"""What many fits of one model ask of it, compiled: 1/2 |r|^2 and its derivatives for a block of curves after the other.

A block is as many curves as a cache holds. Every function is of one curve, whose parameters are numbers of their own:
so derivatives that are 0 are never computed, and `vmap` makes each of these numbers a row over the block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CACHE = 1 << 16  # numbers in the Jacobians of a block of curves
LEAST = 8  # curves of a block

Row = list[Any]


def lower(d: int) -> list[tuple[int, int]]:
    """The entries of a triangle."""
    return [(i, j) for i in range(d) for j in range(i + 1)]


@dataclass(frozen=True, eq=False)
class Model:
    """f = 1/2 |r|^2 of one curve, and its derivatives; `residual(p, *e)` is of a tuple of d numbers."""

    jax: Any
    residual: Callable[..., Any]
    d: int

    def along(self, call: Callable[..., Any], p: Any, k: int) -> Any:
        """The derivative of a function of p in p_k alone."""
        one = self.jax.numpy.ones_like(p[k])
        return self.jax.jvp(lambda q: call((*p[:k], q, *p[k + 1 :])), (p[k],), (one,))[1]

    def half(self, p: Any, e: Any) -> Any:
        """f."""
        return 0.5 * self.jax.numpy.sum(self.residual(p, *e) ** 2)

    def columns(self, p: Any, e: Any) -> Row:
        """Those of J."""
        return [self.along(lambda q: self.residual(q, *e), p, k) for k in range(self.d)]

    def look(self, p: Any, e: Any) -> Row:
        """f, g = J'r and the triangle of J'J."""
        r, J, total = self.residual(p, *e), self.columns(p, e), self.jax.numpy.sum
        return [0.5 * total(r * r), *(total(c * r) for c in J), *(total(J[i] * J[j]) for i, j in lower(self.d))]

    def look_at_few(self, v: Any, e: Any) -> Any:
        """The same of a vector of parameters, in few operations: for few curves their number is what takes time."""
        xp = self.jax.numpy

        def of(q: Any) -> Any:
            return self.residual(tuple(q), *e)

        r, J = of(v), self.jax.jacfwd(of)(v)
        i, j = zip(*lower(self.d), strict=True)
        return xp.concatenate([0.5 * (r @ r)[None], r @ J, (J.T @ J)[xp.array(i), xp.array(j)]])

    def rest(self, p: Any, e: Any) -> Row:
        """The triangle of sum_i r_i hess r_i."""
        weights = self.residual(p, *e)
        pulled = self.jax.grad(lambda q: self.jax.numpy.sum(weights * self.residual(q, *e)))
        columns = [self.along(pulled, p, j) for j in range(self.d)]
        return [columns[j][i] for i, j in lower(self.d)]

    def bend(self, both: Any, e: Any) -> Row:
        """T[s, s], for p and then s."""
        jvp, p, s = self.jax.jvp, both[: self.d], both[self.d :]
        slope = self.jax.grad(self.half)
        return list(jvp(lambda x: jvp(lambda y: slope(y, e), (x,), (s,))[1], (p,), (s,))[1])


class BatchKernels:
    """Compiled functions of many curves: rows of numbers, one column for each curve, and data -> rows of numbers.

    `count` blocks are gone through, of the curves `index`; x is shared, y has a row for each curve, and the weights
    have one or are shared.
    """

    def __init__(self, jax: Any, residual: Callable[..., Any], d: int, points: int):
        self.jax, self.d, self.block = jax, d, LEAST
        while 2 * self.block * points * (d + 1) <= CACHE:
            self.block *= 2
        model, triangle = Model(jax, residual, d), d * (d + 1) // 2
        self.look = self.swept(model.look, 1 + d + triangle)
        self.look_at_few = jax.jit(lambda count, *arguments: self.many(model.look_at_few, *arguments))
        self.rest = self.swept(model.rest, triangle)
        self.bend = self.swept(model.bend, d)
        self.jacobian = self.swept(lambda p, e: [entry for c in model.columns(p, e) for entry in c], d * points)

    def many(self, one: Callable[..., Any], given: Any, index: Any, data: Any) -> Any:
        """A function of one curve, of some curves."""
        x, y, w = data
        axis = 0 if w.ndim == 2 else None
        each = self.jax.vmap(one, in_axes=(1, (None, 0, axis)), out_axes=1)
        return each(given, (x, y[index], w if axis is None else w[index]))

    def swept(self, one: Callable[..., Any], rows: int) -> Callable[..., Any]:
        """A function of one curve, over blocks of them."""
        jax, most, xp = self.jax, self.block, self.jax.numpy
        cut, put = jax.lax.dynamic_slice_in_dim, jax.lax.dynamic_update_slice_in_dim

        def stacked(v: Any, e: Any) -> Any:
            return xp.stack(one(tuple(v), e))

        def sweep(count: Any, given: Any, index: Any, data: Any) -> Any:
            size = min(most, given.shape[1])

            def block(k: Any, out: Any) -> Any:
                made = self.many(stacked, cut(given, k * size, size, 1), cut(index, k * size, size), data)
                return put(out, made, k * size, 1)

            return jax.lax.fori_loop(0, count, block, xp.zeros((rows, given.shape[1])))

        return jax.jit(sweep)
