"""Rows of a data matrix A, dense or CSR: products with A and A', and the weighted Gram matrix A' diag(c) A.

A small sample is copied, so that its rows lie side by side; of a larger one only the row numbers are kept. They are
sorted, so that memory is read forward.

Coefficients c are a vector, or a function that gives them for a piece of the rows: then they are made while they are
used, and no vector as long as the data is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.once import once
from tercet.records import Matrix, Rows, Vector
from tercet.watch import Look, unwatched

GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of rows
BLOCK = 1 << 21  # bytes of the dense rows in one piece
ALL = slice(None)
SOME = 10_000  # dense rows that tell the scale of a column
FILLED = 0.5  # of a CSR array: with more, loops over its entries take longer than dense algebra with the zeros
LONG = 0.1  # samples up to this fraction of the rows are copied: dense rows are long, and read well where they lie
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
        return Picked(np.sort(drawn).astype(np.intp), dealt(len(drawn)))

    def of_matrix(self, A: Any, copied: float) -> tuple[Any, Rows, NDArray[np.uint8]]:
        """A matrix, the rows to visit and their labels: a copy of a small sample, or the whole with row numbers."""
        if len(self.rows) <= copied * A.shape[0]:
            return A[self.rows], NONE, self.labels
        return A, self.rows, self.labels


@lru_cache(maxsize=8)
def dealt(m: int) -> NDArray[np.uint8]:
    """The groups of m rows."""
    labels: NDArray[np.uint8] = np.random.default_rng(m).permutation((np.arange(m) % min(GROUPS, m)).astype(np.uint8))
    labels.flags.writeable = False
    return labels


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

    @property
    def look(self) -> Look:
        """At the clock, within long work."""
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

    def scales(self) -> Vector:
        """1 / rms of the entries of each column that are not 0; 1 for a column of zeros."""
        ...


def inverse_rms(squares: Vector, count: Any) -> Vector:
    """1 / sqrt(squares / count), 1 where there is nothing; squares that are too small for a number are nothing."""
    return np.where(squares > 0.0, np.sqrt(np.maximum(count, 1) / np.where(squares > 0.0, squares, 1.0)), 1.0)


def table_of(A: Any) -> Table:
    """The table of a NumPy array or a CSR array; one that is hardly sparse is taken as dense."""
    if not sp.issparse(A):
        return DenseTable(A)
    if A.nnz >= FILLED * A.shape[0] * A.shape[1]:
        return DenseTable(A.toarray())
    from tercet.objectives.sparse import SparseTable  # compiled, and loaded only where it is used

    return SparseTable(A)


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
    look: Look = unwatched  # at the clock, before each piece of a Gram matrix

    @once
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return (len(self.rows) or self.A.shape[0], self.A.shape[1])

    @once
    def pieces(self) -> list[slice]:
        """The rows in pieces that fit in the cache with all that is computed of them."""
        m, d = self.shape
        return cut(m, max(64, BLOCK // (8 * d)))

    def over(self, picked: Picked) -> DenseTable:
        """Some rows of the whole matrix."""
        return DenseTable(*picked.of_matrix(self.A, LONG), self.look)

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
        part, pieces = by_piece(c), self.pieces
        total = self.gram_of(pieces[0], part(pieces[0]))
        for piece in pieces[1:]:
            total += self.gram_of(piece, part(piece))
        return total

    def gram_of(self, piece: slice, c: Vector) -> Matrix:
        """A piece of it."""
        if self.look is not unwatched:
            self.look()
        rows, least = self.block(piece), c.min()
        if not least > 0.0 and np.count_nonzero(c) < len(c):
            used = np.flatnonzero(c)
            rows, c = rows[used], c[used]
        if not least >= 0.0:
            return rows.T @ (c[:, None] * rows)
        rows = np.sqrt(c)[:, None] * rows  # its product with itself takes little more than half as long
        return rows.T @ rows

    def scales(self) -> Vector:
        """1 / rms of the entries of each column that are not 0, over some of the rows where there are many."""
        some = self.A[:: max(1, self.A.shape[0] // SOME)]
        squares, count = np.einsum("ij,ij->j", some, some), np.count_nonzero(some, axis=0)
        for j in np.flatnonzero(squares == 0.0):  # a rare one
            squares[j], count[j] = self.A[:, j] @ self.A[:, j], np.count_nonzero(self.A[:, j])
        return inverse_rms(squares, count)
