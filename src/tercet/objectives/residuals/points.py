"""Residuals at one x: with their Jacobian as it is, or, where the examples are many, batch by batch.

The view that these are points of gives what JAX makes of the examples (`traced.TracedView`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Priced
from tercet.objectives.residuals.linearized import Curve, Linearized, reduced, rows_of
from tercet.once import known, once, remember
from tercet.records import Matrix, Tensor, Vector

GROUPS = 16  # gradients come in this many groups of examples, whose spread is the sampling error


@dataclass(frozen=True, eq=False)
class TracedPoint:
    """Residuals over some examples at one x, with their Jacobian as it is: it gives the gradient, too."""

    view: Any
    x: Vector

    @once
    def r(self) -> Vector:
        """The residuals."""
        return self.view.residuals(self.x)

    @once
    def J(self) -> Matrix:
        """Their Jacobian, which comes with them."""
        r, J = self.view.lines(self.x)
        remember(self, "r", r)
        return J

    @once
    def S(self) -> Matrix:
        """The mean of w rho' hess r."""
        return self.view.mean("rest", self.x)

    def ahead(self, most: float) -> Priced[None]:
        """r and, where f <= most, J and S by one call; f is counted when it is asked for."""
        v = self.view
        found = v.ahead(self.x, most)
        for name, made in found.items():
            remember(self, name, made)
        return Priced(None, gradient=v.terms, hessian=v.terms) if "J" in found else Priced(None)

    @once
    def weights(self) -> tuple[Vector, Vector]:
        """w rho' and w h of each residual."""
        w, (slope, h) = self.view.row_weights, self.view.objective.loss.weights(self.r)
        return w * slope, w * h

    def value(self) -> float:
        """f(x): one evaluation of every residual."""
        o = self.view.objective
        return float(self.view.row_weights @ o.loss.value(self.r)) / self.view.terms + o.penalty(self.x)

    @once
    def terms_slopes(self) -> Matrix:
        """The gradient of each example."""
        o = self.view.objective
        rows = self.weights[0][:, None] * self.J
        return rows if o.width == 1 else rows.reshape(-1, o.width, o.d).sum(axis=1)

    def paid(self) -> int:
        """What the Jacobian costs: one gradient of each example, once."""
        return 0 if known(self, "J") else self.view.terms

    def gradient(self) -> Priced[Vector]:
        """grad f(x) = (1/m) J'(w rho')."""
        price, o = self.paid(), self.view.objective
        return Priced(self.J.T @ self.weights[0] / self.view.terms + o.l2 * self.x, gradient=price)

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
        """B - root'root: S, and J' diag(w (rho'' - h)) J, which is 0 for squares."""
        S, loss = 0.5 * (self.S + self.S.T), self.view.objective.loss
        if loss.name == "squares":
            return S
        less = self.view.row_weights * (loss.derivatives(self.r)[2] - loss.weights(self.r)[1])
        return S + self.J.T @ (less[:, None] * self.J) / self.view.terms

    def rest(self) -> Priced[Matrix]:
        """The same; one Hessian of each example, once."""
        price, there = self.paid(), known(self, "S")
        return Priced(self.remainder, hessian=0 if there else self.view.terms, gradient=price)

    def hessian(self) -> Priced[Matrix]:
        """root'root and the rest."""
        price, there = self.paid(), known(self, "S")
        G = self.root.gram
        B = G + self.remainder
        return Priced(B, hessian=0 if there else self.view.terms, gradient=price)

    def curve(self, s: Vector) -> Curve:
        """r''[s, s]."""
        v = self.view
        b = v.flat(v.each("bend", self.x, s, weighted=False))
        slope, h = self.weights
        hb = h * b
        return Curve(self.J.T @ hb / v.terms, float(slope @ b) / v.terms, float(hb @ b) / v.terms)

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.view.product(order, self.x, *vectors)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.view.mean("tensor", self.x, V)


@dataclass(frozen=True, eq=False)
class LargePoint:
    """Residuals over many examples at one x: the gradient by a reverse pass, the Jacobian batch by batch, not kept."""

    view: Any
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
            values, sums = ([np.asarray(part[i], dtype=np.float64) for part in out] for i in range(2))
            return np.sum(values, axis=0), np.sum(sums, axis=0)

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
                r, J = (np.asarray(part, dtype=np.float64) for part in o.kernels.calls["lines"](x, batch))
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
        there = known(self, "passed")
        return Priced(self.passed[0], gradient=0 if there else self.view.terms)

    @once
    def remainder(self) -> Matrix:
        """B - root'root."""
        S = self.view.mean("rest", self.x)
        return 0.5 * (S + S.T) + self.passed[1]

    def rest(self) -> Priced[Matrix]:
        """B - root'root; one Hessian of each example, once."""
        there, price = known(self, "remainder"), 0 if known(self, "passed") else self.view.terms
        return Priced(self.remainder, hessian=0 if there else self.view.terms, gradient=price)

    def hessian(self) -> Priced[Matrix]:
        """root'root and the rest."""
        there, price = known(self, "remainder"), 0 if known(self, "passed") else self.view.terms
        G = self.passed[0].gram
        return Priced(G + self.remainder, hessian=0 if there else self.view.terms, gradient=price)

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
