"""Rows of a data matrix A, dense or CSR: products with A and A', and the weighted Gram matrix A' diag(c) A.

A small sample is copied, so that its rows lie side by side; of a larger one only the row numbers are kept. They are
sorted, so that memory is read forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.records import Matrix, Rows, Vector

GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of rows
BLOCK = 1 << 20  # bytes of a dense block that is gathered at once
SHORT, LONG = 1 / 3, 0.1  # samples up to this fraction of sparse and of dense rows are copied: long rows read well
NONE: NDArray[np.intp] = np.empty(0, dtype=np.intp)
UNLABELED: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)


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
        return Picked(np.sort(np.asarray(drawn, dtype=np.intp)), np.random.default_rng(m).permutation(labels))

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

    def over(self, picked: Picked) -> Table:
        """Some rows of the whole matrix."""
        ...

    def times(self, x: Vector) -> Vector:
        """A x."""
        ...

    def weigh(self, c: Vector) -> Vector:
        """A'c."""
        ...

    def group_sums(self, c: Vector) -> Matrix:
        """A'c split by the labels of the rows."""
        ...

    def gram(self, c: Vector) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        ...

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows in blocks, as arrays."""
        ...


def table_of(A: Any) -> Table:
    """The table of a NumPy array or a CSR array."""
    return SparseTable(A) if sp.issparse(A) else DenseTable(A)


@dataclass(frozen=True, eq=False)
class DenseTable:
    """Rows of a NumPy array; a sample is gathered in blocks that fit in the cache."""

    A: Any
    rows: Rows = field(default_factory=lambda: NONE)  # the rows to visit; none stands for all
    labels: NDArray[np.uint8] = field(default_factory=lambda: UNLABELED)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    def over(self, picked: Picked) -> DenseTable:
        """Some rows of the whole matrix."""
        return DenseTable(*picked.of_matrix(self.A, LONG))

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows in blocks; of all rows these are views, of a sample copies."""
        m, d = self.shape
        size = max(64, BLOCK // (8 * d))
        for start in range(0, m, size):
            piece = slice(start, min(m, start + size))
            yield piece, self.A[self.rows[piece] if len(self.rows) else piece]

    def times(self, x: Vector) -> Vector:
        """A x."""
        if not len(self.rows):
            return self.A @ x
        z = np.empty(self.shape[0])
        for piece, block in self.blocks():
            np.matmul(block, x, out=z[piece])
        return z

    def weigh(self, c: Vector) -> Vector:
        """A'c."""
        if not len(self.rows):
            return c @ self.A
        total = np.zeros(self.shape[1])
        for piece, block in self.blocks():
            total += c[piece] @ block
        return total

    def group_sums(self, c: Vector) -> Matrix:
        """A'c split by the labels of the rows; all rows are one group where there are no labels."""
        if not len(self.labels):
            return self.weigh(c)[None, :]
        sums = np.zeros((int(self.labels.max()) + 1, self.shape[1]))
        for piece, block in self.blocks():
            m = block.shape[0]
            pick = sp.csc_array((c[piece], self.labels[piece], np.arange(m + 1)), shape=(len(sums), m))
            sums += pick @ block
        return sums

    def gram(self, c: Vector) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        B = np.zeros((self.shape[1], self.shape[1]))
        for piece, block in self.blocks():
            used = np.flatnonzero(c[piece])
            if len(used) == 0:
                continue
            weights = c[piece]
            rows, weights = (block, weights) if len(used) == len(weights) else (block[used], weights[used])
            B += rows.T @ (weights[:, None] * rows)
        return B


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Rows of a CSR array with sorted columns; the loops are compiled (see `kernels`)."""

    A: Any
    rows: Rows = field(default_factory=lambda: NONE)  # the rows to visit; none stands for all
    labels: NDArray[np.uint8] = field(default_factory=lambda: UNLABELED)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    def over(self, picked: Picked) -> SparseTable:
        """Some rows of the whole matrix."""
        return SparseTable(*picked.of_matrix(self.A, SHORT))

    def times(self, x: Vector) -> Vector:
        """A x."""
        from tercet.objectives.kernels import csr_times

        z = np.empty(self.shape[0])
        csr_times(self.A.data, self.A.indices, self.A.indptr, self.rows, np.ascontiguousarray(x), z)
        return z

    def weigh(self, c: Vector) -> Vector:
        """A'c."""
        return self._sums(c, UNLABELED, 1)[0]

    def group_sums(self, c: Vector) -> Matrix:
        """A'c split by the labels of the rows; all rows are one group where there are no labels."""
        return self._sums(c, self.labels, int(self.labels.max(initial=0)) + 1)

    def _sums(self, c: Vector, labels: NDArray[np.uint8], groups: int) -> Matrix:
        from tercet.objectives.kernels import csr_weigh

        sums = np.zeros((groups, self.shape[1]))
        csr_weigh(self.A.data, self.A.indices, self.A.indptr, self.rows, c, labels, sums)
        return sums

    def gram(self, c: Vector) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        from tercet.objectives.kernels import csr_gram

        d = self.shape[1]
        flat = np.zeros(d * d)
        csr_gram(self.A.data, self.A.indices, self.A.indptr, self.rows, c, flat)
        lower = flat.reshape(d, d)
        B = lower + lower.T
        B[np.diag_indices(d)] *= 0.5
        return B

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows in blocks, copied."""
        m, size = self.shape[0], 2048
        for start in range(0, m, size):
            piece = slice(start, min(m, start + size))
            yield piece, self.A[self.rows[piece] if len(self.rows) else piece]
