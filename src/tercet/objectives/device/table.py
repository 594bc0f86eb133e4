"""Rows of a matrix on a device: products with A and A', and the weighted Gram matrix A' diag(c) A.

What has a row for each row of A stays on the device, what has only columns comes to the host. A column of ones, for an
intercept, is not stored. A small sample is copied; of a larger one only the row numbers are kept, and its rows are
gathered a piece at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.device.arrays import LEAST, ROWS, SHARE, Array, Arrays
from tercet.objectives.tables import ALL, GROUPS, SOME, cut, inverse_rms
from tercet.once import once
from tercet.records import Matrix, Vector
from tercet.watch import Look, unwatched

COPIED = 0.04  # samples up to this fraction of the rows are copied, and there are no larger ones but for B
Coefficients = Array | Callable[[slice], Array]


@dataclass(frozen=True, eq=False)
class DenseDeviceTable:
    """Rows of a dense array."""

    arrays: Arrays
    A: Array
    ones: bool = False  # a last column of ones
    picked: Array | None = None  # the rows to visit; None: all
    sampled: bool = False  # these are a sample in the order of its drawing, whose groups tell the sampling error
    look: Look = unwatched  # at the clock, before each piece of a Gram matrix
    scattered: float = COPIED  # samples of a larger share of the rows would be collected anew in each pass

    @once
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        m = self.A.shape[0] if self.picked is None else self.picked.shape[0]
        return int(m), int(self.A.shape[1]) + self.ones

    @once
    def pieces(self) -> list[slice]:
        """Rows that are worked on at once."""
        m = self.shape[0]
        if self.arrays.whole:
            return [ALL]
        copies = self.picked is not None or self.arrays.data != self.arrays.kind
        return cut(m, min(ROWS, few(self)) // GROUPS * GROUPS if copies else ROWS)

    @once
    def straight(self) -> bool:
        """Whether products take the rows where they lie, as they are."""
        return self.picked is None and (self.arrays.mixed or self.arrays.data == self.arrays.kind)

    def over(self, rows: Any) -> DenseDeviceTable:
        """Some rows of the whole matrix, in the order given."""
        a, m = self.arrays, int(rows.shape[0])
        if a.whole or m <= COPIED * self.A.shape[0] or m <= few(self):
            return DenseDeviceTable(a, a.rows(self.A, rows), self.ones, None, True, self.look)
        return DenseDeviceTable(a, self.A, self.ones, rows, True, self.look)

    @once
    def long(self) -> list[slice]:
        """Rows whose product is made at once: their coefficients are all that is made for it, where they lie there."""
        m = self.shape[0]
        return self.pieces if self.arrays.whole or not self.straight else cut(m, ROWS)

    def stored(self, piece: slice) -> Array:
        """A piece for a product: as it is, where that will do."""
        return self.block(piece) if not self.straight else self.A if piece == ALL else self.A[piece, :]

    def block(self, piece: slice) -> Array:
        """A piece as an array in the precision of sums: a view where it is one already."""
        if self.picked is None:
            A = self.A if piece == ALL else self.A[piece, :]
        else:
            A = self.arrays.rows(self.A, self.picked[piece])
        return self.arrays.widen(A)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """The rows as arrays, few at a time."""
        return ((piece, self.block(piece)) for piece in cut(self.shape[0], few(self)))

    def times(self, x: Vector, piece: slice = ALL) -> Array:
        """Ax, or a piece of it, on the device."""
        v = self.arrays.put(x)
        if piece != ALL:
            return image(self.block(piece), v, self.ones)
        if self.straight:
            return self.arrays.times(self.A, v[:-1]) + v[-1] if self.ones else self.arrays.times(self.A, v)
        parts = [image(self.block(some), v, self.ones) for some in self.pieces]
        return parts[0] if len(parts) == 1 else self.arrays.join(parts)

    def weighed(self, c: Coefficients) -> Array:
        """A'c on the device."""
        part, total = by_piece(c), None
        for piece in self.long:
            some = part(piece)
            sums = self.arrays.weigh(some, self.stored(piece))
            sums = bordered(self.arrays, sums, self.arrays.xp.sum(some)) if self.ones else sums
            total = sums if total is None else total + sums
        return total

    def weigh(self, c: Coefficients) -> Vector:
        """A'c."""
        return self.arrays.host(self.weighed(c))[0]

    def grouped(self, c: Coefficients) -> Array:
        """A'c split into groups of rows on the device: rows are dealt out in turn; all are one group where these are
        no sample."""
        m, a = self.shape[0], self.arrays
        if not self.sampled:
            return self.weighed(c)[None, :]
        part, K, total = by_piece(c), min(GROUPS, m), None
        for piece in self.pieces:
            some, block = part(piece), self.block(piece)
            sums = a.dealt(some, block, K)
            if self.ones:
                edge = a.dealt(some, a.xp.ones_like(block[:, :1]), K)
                sums = a.xp.stack([a.join([sums[k, :], edge[k, :]]) for k in range(K)])
            total = sums if total is None else total + sums
        return total

    def gram(self, c: Coefficients | None) -> Matrix:
        """A' diag(c) A; None stands for ones."""
        a, total, border = self.arrays, None, None
        for block, weights in self.weighted(c):
            self.look()
            total = a.add_gram(total, block, weights)
            if self.ones:
                edge = bordered(a, a.weigh(weights, block), a.xp.sum(weights))
                border = edge if border is None else border + edge
        G = a.whole_gram(total)
        if border is None:
            return symmetric(a.host(G)[0])
        inner, edge = a.host(G, border)
        return symmetric(np.block([[inner, edge[:-1, None]], [edge[None, :]]]))

    def weighted(self, c: Coefficients | None) -> Iterator[tuple[Array, Array]]:
        """Rows for a Gram matrix and their coefficients: few at a time, where these are scaled or collected first."""
        a, m = self.arrays, self.shape[0]
        part = by_piece(a.put(np.ones(m)) if c is None else c)
        sweep = a.whole or (self.straight and self.A.shape[1] <= a.swept)
        for piece in self.long if sweep else self.pieces:
            some = part(piece)
            if sweep:
                yield self.stored(piece), some
                continue
            for within in cut(piece.stop - piece.start, few(self)):
                yield self.block(slice(piece.start + within.start, piece.start + within.stop)), some[within]

    def lengths(self, P: Matrix | None = None) -> Array:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
        a, squares, P = self.arrays, [], np.eye(self.shape[1]) if P is None and self.ones else P
        inner = None if P is None else a.put(P[:-1, :-1] if self.ones else P)
        for _, block in self.blocks():
            square = a.xp.sum(block * (block if inner is None else block @ inner), axis=1)
            if self.ones and P is not None:
                square = square + block @ a.put(2.0 * P[:-1, -1]) + float(P[-1, -1])
            squares.append(square)
        total = squares[0] if len(squares) == 1 else a.join(squares)
        return a.xp.sqrt(a.xp.abs(total))

    def images(self, V: Matrix) -> Iterator[tuple[slice, Array]]:
        """Pieces of AV for few directions."""
        directions = self.arrays.put(V)
        return ((piece, image(block, directions, self.ones)) for piece, block in self.blocks())

    def absolute_sums(self, size: Array) -> Vector:
        """|A|'(size * |A|1), where |A| has the absolute values of the entries."""
        a, total = self.arrays, None
        for piece, block in self.blocks():
            entries = a.xp.abs(block)
            c = size[piece] * (a.xp.sum(entries, axis=1) + float(self.ones))
            sums = bordered(a, c @ entries, a.xp.sum(c)) if self.ones else c @ entries
            total = sums if total is None else total + sums
        return a.host(total)[0]

    def scales(self) -> Vector:
        """1 / rms of the entries of each column that are not 0, over some of the rows where there are many."""
        a, n = self.arrays, self.A.shape[0]
        some = a.rows(self.A, a.numbers(np.arange(0, n, max(1, n // SOME))))
        squares, count = seen(a, some)
        if np.any(squares == 0.0):  # a rare one
            parts = [seen(a, block) for _, block in self.blocks()]
            squares, count = (np.sum(each, axis=0) for each in zip(*parts, strict=True))
        scales = inverse_rms(squares, count)
        return np.append(scales, 1.0) if self.ones else scales

    def touched(self) -> Any:
        """Which columns hold anything but zeros in these rows."""
        a = self.arrays
        counts = [a.host(a.xp.sum(a.xp.abs(block), axis=0))[0] for _, block in self.blocks()]
        return np.append(np.sum(counts, axis=0) > 0.0, [True] * self.ones)


def few(table: DenseDeviceTable) -> int:
    """Rows of which a second copy may be made."""
    a, (m, d) = table.arrays, table.A.shape
    return max(GROUPS, int(max(LEAST, SHARE * a.data.itemsize * m * d)) // (a.kind.itemsize * d))


def image(block: Array, V: Array, ones: bool) -> Array:
    """A piece of AV for a vector or a matrix V on the device."""
    return block @ V[:-1, ...] + V[-1, ...] if ones else block @ V


def bordered(a: Arrays, sums: Array, total: Array) -> Array:
    """A'c where A ends with a column of ones, from the sums over the stored columns and the sum of c."""
    return a.join([sums, a.xp.reshape(total, (1,))])


def seen(a: Arrays, rows: Array) -> tuple[Vector, Vector]:
    """For each column the sum of squares, and how many entries are not 0."""
    wide = a.widen(rows)
    there = a.xp.where(wide != 0.0, a.xp.ones_like(wide), a.xp.zeros_like(wide))
    squares, count = a.host(a.xp.sum(wide * wide, axis=0), a.xp.sum(there, axis=0))
    return squares, count


def by_piece(c: Coefficients) -> Callable[[slice], Array]:
    """Coefficients as a function of the piece."""
    return c if callable(c) else lambda piece: c if piece == ALL else c[piece]


def symmetric(G: Matrix) -> Matrix:
    """(G + G')/2: rounding in batches may differ between the two halves."""
    return 0.5 * (G + G.T)
