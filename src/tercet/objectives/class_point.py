"""The rows of a `ClassModel` at a point: values and derivatives from products of few columns, K x n arrays between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.objectives.classes import ClassLoss, Labels, Shares, SoftmaxLoss
from tercet.objectives.kronecker import Kronecker, Pair
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of rows
BYTES = 1 << 24  # of the scaled rows of one piece of a Hessian
WORTH = 50.0  # products: coordinates that take longer to make than these are not made


@dataclass(frozen=True, eq=False)
class ClassView:
    """Rows of the model."""

    A: Any
    y: Labels
    w: Vector | None
    loss: ClassLoss
    Q: Matrix
    penalty: Vector  # l2 for each variable, 0 for intercepts
    sampled: bool = False

    @property
    def terms(self) -> int:
        """The number of rows."""
        return int(self.A.shape[0])

    def at(self, x: Vector, carry: None = None) -> ClassPoint:
        """These rows at x."""
        return ClassPoint(self, x)

    def take(self, rows: Rows) -> ClassView:
        """The given rows, copied."""
        w = None if self.w is None else self.w[rows]
        return ClassView(self.A[rows], self.y[rows], w, self.loss, self.Q, self.penalty, True)

    def margins(self, v: Vector) -> Matrix:
        """Q V a_i for each row, K x n."""
        V = self.Q @ v.reshape(self.Q.shape[1], -1)
        return np.ascontiguousarray((self.A @ V.T).T) if sp.issparse(self.A) else V @ self.A.T

    def sums(self, C: Matrix, rows: slice = slice(None)) -> Vector:
        """sum_i (Q'c_i) a_i' as a vector."""
        A = self.A[rows]
        total = (A.T @ C.T).T if sp.issparse(A) else C @ A
        return np.asarray(self.Q.T @ total).ravel()

    def weighed(self, C: Matrix) -> Matrix:
        """w_i c_i for each row."""
        return C if self.w is None else self.w * C

    def pieces(self) -> Iterator[tuple[slice, Matrix]]:
        """Dense rows, few at a time, so that K (K - 1) / 2 scaled copies of them fit."""
        k, p = self.Q.shape[1], self.A.shape[1]
        size = max(16, BYTES // (4 * p * k * (k + 1)))
        for start in range(0, self.terms, size):
            piece = slice(start, start + size)
            block = self.A[piece]
            yield piece, block.toarray() if sp.issparse(block) else block

    @once
    def pair(self) -> Pair | None:
        """The Gram matrix of the rows beside the penalty; None where it is too dear for what it saves."""
        (n, p), k = self.A.shape, self.Q.shape[1]
        if n * p * p + 10 * p**3 > WORTH * 4 * n * p * (k + 1):
            return None
        A = self.A.toarray() if sp.issparse(self.A) else self.A
        G = (A if self.w is None else self.w[:, None] * A).T @ A / n
        return Pair.of(G, self.penalty[:p], k + 1)


class ClassPoint:
    """The model over some rows at one x."""

    def __init__(self, view: ClassView, x: Vector):
        self.view, self.x = view, x

    @once
    def shares(self) -> Shares:
        """softmax(z) of each row, from one product with A, for the value and all derivatives."""
        return Shares.of(self.view.margins(self.x), self.view.y)

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        view = self.view
        mean = float(np.mean(view.weighed(view.loss.value(self.shares, view.y))))
        return mean + 0.5 * float(view.penalty @ (self.x * self.x))

    @once
    def slopes(self) -> Matrix:
        """w_i l_i', K x n."""
        return self.view.weighed(self.view.loss.gradient(self.shares.p, self.view.y))

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over the groups to which the rows are dealt in turn; the penalty is left out."""
        view, C = self.view, self.slopes
        if not view.sampled:
            return view.sums(C)[None]
        count = min(GROUPS, view.terms)
        groups = [slice(g, None, count) for g in range(count)]
        return np.stack([view.sums(C[:, rows], rows) for rows in groups])

    def gradient(self) -> Vector:
        """C'A / m + l2 U."""
        return self.group_sums.sum(axis=0) / self.view.terms + self.view.penalty * self.x

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        view, loss, p, first = self.view, self.view.loss, self.shares.p, self.view.margins(vectors[0])
        if order == 2:
            C = loss.product(p, view.y, first)
            return view.sums(view.weighed(C)) / view.terms + view.penalty * vectors[0]
        second = first if vectors[1] is vectors[0] else view.margins(vectors[1])
        return view.sums(view.weighed(loss.third(p, view.y, first, second))) / view.terms

    def white(self) -> Kronecker | None:
        """B is nearly S (x) G + diag(l2): the mean of what bends a row, and the Gram matrix of the rows."""
        view = self.view
        if view.pair is None:
            return None
        w = np.full(view.terms, 1.0 / view.terms) if view.w is None else view.w / view.terms
        return Kronecker.of(view.Q.T @ view.loss.typical(self.shares.p, w) @ view.Q, view.pair)

    def hessian(self) -> Matrix:
        """(1/m) sum w_i (Q'l_i''Q) (x) a_i a_i' + diag(l2)."""
        k, p = self.view.Q.shape[1], self.view.A.shape[1]
        total = np.zeros((k, p, k, p))
        add = self.add_log if isinstance(self.view.loss, SoftmaxLoss) else self.add_pairs
        for piece, block in self.view.pieces():
            add(total, piece, block)
        B = total.reshape(k * p, k * p) / self.view.terms
        B.ravel()[:: k * p + 1] += self.view.penalty
        return B

    def add_log(self, total: Tensor, piece: slice, block: Matrix) -> None:
        """Q'(diag(p) - p p')Q = sum_k p_k q_k q_k' - (Q'p)(Q'p)': K Gram matrices, and a large one."""
        view, P = self.view, self.shares.p[:, piece]
        k, p = view.Q.shape[1], block.shape[1]
        root = np.ones(len(block)) if view.w is None else np.sqrt(view.w[piece])
        rows = root[:, None] * block
        grams = np.stack([(share[:, None] * rows).T @ rows for share in P])
        total += np.einsum("cr,cs,cij->risj", view.Q, view.Q, grams, optimize=True)
        M = ((P.T @ view.Q)[:, :, None] * rows[:, None, :]).reshape(len(block), k * p)
        total -= (M.T @ M).reshape(k, p, k, p)

    def add_pairs(self, total: Tensor, piece: slice, block: Matrix) -> None:
        """For each pair of contrasts a Gram matrix, all at once."""
        view, p = self.view, block.shape[1]
        H = view.Q.T @ view.loss.curvature(self.shares.p[:, piece], view.y[piece]) @ view.Q
        rows, columns = np.tril_indices(view.Q.shape[1])
        h = H[:, rows, columns] if view.w is None else view.w[piece, None] * H[:, rows, columns]
        grams = block.T @ (h[:, :, None] * block[:, None, :]).reshape(len(block), -1)
        for q, (r, s) in enumerate(zip(rows, columns, strict=True)):
            gram = grams[:, q * p : (q + 1) * p]
            total[r, :, s] += gram
            if r != s:
                total[s, :, r] += gram

    def scatter(self) -> Matrix:
        """The covariance of the terms' gradients; the penalty is the same in every term."""
        view, C = self.view, self.slopes.T @ self.view.Q
        total = np.zeros((len(self.x), len(self.x)))
        for piece, block in view.pieces():
            each = (C[piece][:, :, None] * block[:, None, :]).reshape(len(block), -1)
            total += each.T @ each
        mean = self.group_sums.sum(axis=0) / view.terms
        return total / view.terms - np.outer(mean, mean)
