"""Rows of a data matrix A, dense or CSR: products with A and A', and the weighted Gram matrix A' diag(c) A.

A small sample is copied, so that its rows lie side by side; of a larger one only the row numbers are kept. They are
sorted, so that memory is read forward.

Coefficients c are a vector, or a function that gives them for a piece of the rows: then they are made while they are
used, and no vector as long as the data is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.records import Matrix, Rows, Vector

GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of rows
BLOCK = 1 << 21  # bytes of the dense rows in one piece
PIECE = 1 << 14  # sparse rows in one piece
ALL = slice(None)
SHORT, LONG = 0.25, 0.1  # samples up to this fraction of sparse and of dense rows are copied: long rows read well
NONE: NDArray[np.intp] = np.empty(0, dtype=np.intp)
UNLABELED: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
Coefficients = Vector | Callable[[slice], Vector]


@dataclass(frozen=True, eq=False)
class Picked:
    """Row numbers in ascending order, each with the number of a group; groups are random and of equal size."""

    rows: Rows
    labels: NDArray[np.uint8]

    @staticmethod
    def of(drawn: Rows) -> Picked:
        """Sort what was drawn, and deal the rows out to the groups."""
        m = len(drawn)
        labels = (np.arange(m) % min(GROUPS, m)).astype(np.uint8)
        return Picked(np.sort(drawn).astype(np.intp), np.random.default_rng(m).permutation(labels))

    def of_matrix(self, A: Any, copied: float) -> tuple[Any, Rows, NDArray[np.uint8]]:
        """A matrix, the rows to visit and their labels: a copy of a small sample, or the whole with row numbers."""
        if len(self.rows) <= copied * A.shape[0]:
            return A[self.rows], NONE, self.labels
        return A, self.rows, self.labels


class Table(Protocol):
    """Rows of A."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        ...

    @property
    def pieces(self) -> list[slice]:
        """The rows in pieces that fit in the cache with all that is computed of them."""
        ...

    def over(self, picked: Picked) -> Table:
        """Some rows of the whole matrix."""
        ...

    def times(self, x: Vector, piece: slice = ALL) -> Vector:
        """A x, or a piece of it."""
        ...

    def lengths(self, piece: slice = ALL, P: Matrix | None = None) -> Vector:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
        ...

    def weigh(self, c: Coefficients) -> Vector:
        """A'c."""
        ...

    def group_sums(self, c: Coefficients) -> Matrix:
        """A'c split by the labels of the rows; all rows are one group where there are no labels."""
        ...

    def gram(self, c: Coefficients) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        ...

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows as arrays, few at a time."""
        ...


def table_of(A: Any) -> Table:
    """The table of a NumPy array or a CSR array."""
    return SparseTable(A) if sp.issparse(A) else DenseTable(A)


def cut(m: int, size: int) -> list[slice]:
    """m rows in pieces of `size`."""
    return [slice(start, min(m, start + size)) for start in range(0, m, size)]


def by_piece(c: Coefficients) -> Callable[[slice], Vector]:
    """Coefficients as a function of the piece."""
    return c if callable(c) else c.__getitem__


@dataclass(frozen=True, eq=False)
class DenseTable:
    """Rows of a NumPy array; of a sample that was not copied each piece is gathered when it is used."""

    A: Any
    rows: Rows = field(default_factory=lambda: NONE)  # the rows to visit; none stands for all
    labels: NDArray[np.uint8] = field(default_factory=lambda: UNLABELED)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    @cached_property
    def pieces(self) -> list[slice]:
        """The rows in pieces that fit in the cache with all that is computed of them."""
        m, d = self.shape
        return cut(m, max(64, BLOCK // (8 * d)))

    def over(self, picked: Picked) -> DenseTable:
        """Some rows of the whole matrix."""
        return DenseTable(*picked.of_matrix(self.A, LONG))

    def block(self, piece: slice) -> Matrix:
        """A piece as an array: of all rows a view, of a sample a copy."""
        return self.A[self.rows[piece] if len(self.rows) else piece]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows as arrays, few at a time."""
        return ((piece, self.block(piece)) for piece in self.pieces)

    def times(self, x: Vector, piece: slice = ALL) -> Vector:
        """A x, or a piece of it."""
        if piece == ALL and len(self.rows):
            return np.concatenate([block @ x for _, block in self.blocks()])
        return self.block(piece) @ x

    def lengths(self, piece: slice = ALL, P: Matrix | None = None) -> Vector:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
        blocks = map(self.block, self.pieces if piece == ALL else [piece])
        squares = [np.einsum("ij,ij->i", block if P is None else block @ P, block) for block in blocks]
        return np.sqrt(np.maximum(np.concatenate(squares), 0.0))

    def weigh(self, c: Coefficients) -> Vector:
        """A'c."""
        total, c = np.zeros(self.shape[1]), by_piece(c)
        for piece, block in self.blocks():
            total += c(piece) @ block
        return total

    def group_sums(self, c: Coefficients) -> Matrix:
        """A'c split by the labels of the rows; all rows are one group where there are no labels."""
        if not len(self.labels):
            return self.weigh(c)[None, :]
        sums, c = np.zeros((int(self.labels.max()) + 1, self.shape[1])), by_piece(c)
        for piece, block in self.blocks():
            m = block.shape[0]
            pick = sp.csc_array((c(piece), self.labels[piece], np.arange(m + 1)), shape=(len(sums), m))
            sums += pick @ block
        return sums

    def gram(self, c: Coefficients) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        B, c = np.zeros((self.shape[1], self.shape[1])), by_piece(c)
        for piece, rows in self.blocks():
            weights = c(piece)
            used = np.flatnonzero(weights)
            if len(used) == 0:
                continue
            if len(used) < len(weights):
                rows, weights = rows[used], weights[used]
            B += rows.T @ (weights[:, None] * rows)
        return B


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Rows of a CSR array with sorted columns; the loops are compiled (see `kernels`)."""

    A: Any
    rows: Rows = field(default_factory=lambda: NONE)  # the rows to visit; none stands for all
    labels: NDArray[np.uint8] = field(default_factory=lambda: UNLABELED)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    @cached_property
    def pieces(self) -> list[slice]:
        """The rows in pieces that fit in the cache with all that is computed of them."""
        return cut(self.shape[0], PIECE)

    def over(self, picked: Picked) -> SparseTable:
        """Some rows of the whole matrix."""
        return SparseTable(*picked.of_matrix(self.A, SHORT))

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows as arrays, copied, few at a time: what they are multiplied with may make them dense."""
        return ((few, self.A[self.rows[few] if len(self.rows) else few]) for few in cut(self.shape[0], PIECE // 8))

    def parts(self, piece: slice) -> tuple[Any, Any, Any, Rows]:
        """data, indices and indptr of the rows of a piece, and which of them to visit."""
        A = self.A
        if len(self.rows):
            return A.data, A.indices, A.indptr, self.rows[piece]
        start, stop, _ = piece.indices(A.shape[0])
        return A.data, A.indices, A.indptr[start : stop + 1], NONE

    def times(self, x: Vector, piece: slice = ALL) -> Vector:
        """A x, or a piece of it."""
        from tercet.objectives.kernels import csr_times

        start, stop, _ = piece.indices(self.shape[0])
        z = np.empty(stop - start)
        csr_times(*self.parts(piece), np.ascontiguousarray(x), z)
        return z

    def lengths(self, piece: slice = ALL, P: Matrix | None = None) -> Vector:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
        from tercet.objectives.kernels import csr_forms

        start, stop, _ = piece.indices(self.shape[0])
        squares = np.empty(stop - start)
        csr_forms(*self.parts(piece), np.empty((0, 0)) if P is None else np.ascontiguousarray(P), squares)
        return np.sqrt(np.maximum(squares, 0.0))

    def weigh(self, c: Coefficients) -> Vector:
        """A'c."""
        return self._sums(c, UNLABELED, 1)[0]

    def group_sums(self, c: Coefficients) -> Matrix:
        """A'c split by the labels of the rows; all rows are one group where there are no labels."""
        return self._sums(c, self.labels, int(self.labels.max(initial=0)) + 1)

    def _sums(self, c: Coefficients, labels: NDArray[np.uint8], groups: int) -> Matrix:
        from tercet.objectives.kernels import csr_weigh

        sums, c = np.zeros((groups, self.shape[1])), by_piece(c)
        for piece in self.pieces:
            csr_weigh(*self.parts(piece), c(piece), labels[piece], sums)
        return sums

    def gram(self, c: Coefficients) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        from tercet.objectives.kernels import csr_gram

        d, c = self.shape[1], by_piece(c)
        flat = np.zeros(d * d)
        for piece in self.pieces:
            csr_gram(*self.parts(piece), c(piece), flat)
        lower = flat.reshape(d, d)
        B = lower + lower.T
        B.ravel()[:: d + 1] *= 0.5
        return B
