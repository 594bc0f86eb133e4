"""Rows of a CSR matrix, by compiled loops. Each kernel has a NumPy/SciPy twin in the tests.

Kernels take `rows`, the rows to visit; an empty array stands for all rows, in order. Indices are read as unsigned
numbers, which spares the test for negative ones in the innermost loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tercet.objectives.tables import ALL, NONE, UNLABELED, Coefficients, Picked, cut, inverse_rms
from tercet.once import once
from tercet.records import Matrix, Rows, Vector
from tercet.watch import Look, unwatched

PIECE = 1 << 14  # rows in one piece
SHORT = 0.25  # samples up to this fraction of the rows are copied


@numba.njit(cache=True)
def csr_times(data: Any, indices: Any, indptr: Any, rows: Any, x: Any, z: Any) -> None:
    """z = A x over the rows."""
    for q in range(len(z)):
        i = rows[q] if len(rows) else q
        total = 0.0
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[j] * x[np.uint64(indices[j])]
        z[q] = total


@numba.njit(cache=True)
def csr_forms(data: Any, indices: Any, indptr: Any, rows: Any, P: Any, forms: Any) -> None:
    """forms = a_i'P a_i of the rows, for a symmetric P; an empty P stands for the identity."""
    for q in range(len(forms)):
        i = rows[q] if len(rows) else q
        start, total = np.uint64(indptr[i]), 0.0
        for j in range(start, np.uint64(indptr[i + 1])):
            if len(P) == 0:
                total += data[j] * data[j]
                continue
            line, part = P[np.uint64(indices[j])], 0.0
            for k in range(start, j):
                part += line[np.uint64(indices[k])] * data[k]
            total += data[j] * (2.0 * part + line[np.uint64(indices[j])] * data[j])
        forms[q] = total


@numba.njit(cache=True)
def csr_weigh(data: Any, indices: Any, indptr: Any, rows: Any, c: Any, labels: Any, sums: Any) -> None:
    """sums[k] += sum of c_i a_i over the rows with label k; without labels all rows have label 0."""
    for q in range(len(c)):
        i = rows[q] if len(rows) else q
        w = c[q]
        if w == 0.0:
            continue
        total = sums[np.uint64(labels[q]) if len(labels) else np.uint64(0)]
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total[np.uint64(indices[j])] += w * data[j]


@numba.njit(cache=True)
def csr_gram(data: Any, indices: Any, indptr: Any, rows: Any, c: Any, B: Any) -> None:
    """Add the lower triangle of A' diag(c) A to the flat B, for rows with sorted columns; c = 0 costs nothing."""
    d = np.uint64(np.sqrt(len(B)))
    for q in range(len(c)):
        w = c[q]
        if w == 0.0:
            continue
        i = rows[q] if len(rows) else q
        start = np.uint64(indptr[i])
        for j in range(start, np.uint64(indptr[i + 1])):
            a, line = w * data[j], np.uint64(indices[j]) * d
            for k in range(start, j + np.uint64(1)):
                B[line + np.uint64(indices[k])] += a * data[k]


@numba.njit(cache=True)
def csr_squares(data: Any, indices: Any, squares: Any, count: Any) -> None:
    """The sum of squares of each column, and how many of its entries are not 0."""
    for j in range(len(data)):
        squares[indices[j]] += data[j] * data[j]
        count[indices[j]] += data[j] != 0.0


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Rows of a CSR array with sorted columns; the loops are compiled."""

    A: Any
    rows: Rows = field(default_factory=lambda: NONE)  # the rows to visit; none stands for all
    labels: NDArray[np.uint8] = field(default_factory=lambda: UNLABELED)
    look: Look = unwatched  # at the clock, before each piece of a Gram matrix

    @once
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    @once
    def pieces(self) -> list[slice]:
        """The rows in pieces that fit in the cache with all that is computed of them."""
        return cut(self.shape[0], PIECE)

    def over(self, picked: Picked) -> SparseTable:
        """Some rows of the whole matrix."""
        return SparseTable(*picked.of_matrix(self.A, SHORT), self.look)

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
        start, stop, _ = piece.indices(self.shape[0])
        z = np.empty(stop - start)
        csr_times(*self.parts(piece), np.ascontiguousarray(x), z)
        return z

    def lengths(self, piece: slice = ALL, P: Matrix | None = None) -> Vector:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
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
        sums, part = np.zeros((groups, self.shape[1])), c if callable(c) else c.__getitem__
        for piece in self.pieces:
            csr_weigh(*self.parts(piece), part(piece), labels[piece], sums)
        return sums

    def gram(self, c: Coefficients) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        total, part = np.zeros((self.shape[1], self.shape[1])), c if callable(c) else c.__getitem__
        for piece in self.pieces:
            if self.look is not unwatched:
                self.look()
            csr_gram(*self.parts(piece), part(piece), total.reshape(-1))
        whole = total + total.T  # of a lower triangle
        whole.ravel()[:: len(whole) + 1] *= 0.5
        return whole

    def scales(self) -> Vector:
        """1 / rms of the entries of each column that are not 0; 1 for a column of zeros."""
        squares, count = np.zeros(self.A.shape[1]), np.zeros(self.A.shape[1])
        csr_squares(self.A.data, self.A.indices, squares, count)
        return inverse_rms(squares, count)
