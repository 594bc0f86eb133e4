"""Rows of a sparse matrix on a device, in PyTorch's CSR layout or CuPy's `csr_matrix`.

Products with A are the library's own; products with A' add up over the entries, a piece of the rows at a time. On CUDA
such sums are made by many threads in no fixed order, so that they are the same only up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tercet.objectives.device.arrays import BUFFER, Array, Arrays
from tercet.objectives.device.table import Coefficients, by_piece, symmetric
from tercet.objectives.tables import ALL, GROUPS, cut, inverse_rms
from tercet.once import once
from tercet.records import Matrix, Vector
from tercet.watch import Look, unwatched

ENTRIES = 1 << 24  # that are worked on at once, where products with A' take their rows one by one
NARROW = 3000  # up to this many columns rows are made dense, some at a time


class Csr(Protocol):
    """A CSR matrix of some library."""

    shape: tuple[int, int]

    @property
    def entries(self) -> Array:
        """The entries that are stored."""
        ...

    def with_entries(self, entries: Array) -> Csr:
        """Others in their place."""
        ...

    def times(self, v: Array) -> Array:
        """Av."""
        ...

    def weigh(self, c: Array, piece: slice, K: int) -> Array:
        """A'c over a piece of the rows, dealt out in turn to K groups: a row for each."""
        ...

    def take(self, rows: Array) -> Csr:
        """Some rows, in the order given."""
        ...

    def dense(self, piece: slice) -> Array:
        """A piece of the rows as a dense array."""
        ...


class TorchCsr:
    """A tensor in PyTorch's CSR layout."""

    def __init__(self, matrix: Any):
        self.matrix, self.shape = matrix, (int(matrix.shape[0]), int(matrix.shape[1]))
        self.crow, self.col = matrix.crow_indices(), matrix.col_indices()

    @property
    def entries(self) -> Array:
        """The entries that are stored."""
        return self.matrix.values()

    def with_entries(self, entries: Array) -> TorchCsr:
        """Others in their place."""
        return TorchCsr(csr_tensor(self.crow, self.col, entries, self.shape))

    def times(self, v: Array) -> Array:
        """Av."""
        return self.matrix @ v

    def weigh(self, c: Array, piece: slice, K: int) -> Array:
        """A'c over a piece of the rows, dealt out in turn to K groups."""
        import torch

        ends = self.crow[piece.start : piece.stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        lengths, place = ends[1:] - ends[:-1], self.col[first:last].to(torch.int64)
        products = torch.repeat_interleave(c, lengths, output_size=last - first) * self.entries[first:last]
        if K > 1:
            group = torch.arange(len(c), device=c.device) % K * self.shape[1]
            place = place + torch.repeat_interleave(group, lengths, output_size=last - first)
        sums = torch.zeros(K * self.shape[1], dtype=c.dtype, device=c.device)
        return sums.index_add_(0, place, products).view(K, -1)

    def take(self, rows: Array) -> TorchCsr:
        """Some rows, in the order given."""
        import torch

        rows = rows.to(torch.int64)
        begin = self.crow[rows]
        lengths = self.crow[rows + 1] - begin
        crow = torch.cat([lengths.new_zeros(1), torch.cumsum(lengths, 0)])
        count = int(crow[-1])
        place = torch.arange(count, device=rows.device)
        place += torch.repeat_interleave(begin - crow[:-1], lengths, output_size=count)
        crow = crow.to(self.crow.dtype)
        return TorchCsr(csr_tensor(crow, self.col[place], self.entries[place], (len(rows), self.shape[1])))

    def dense(self, piece: slice) -> Array:
        """A piece of the rows as a dense array."""
        ends = self.crow[piece.start : piece.stop + 1]
        part = slice(int(ends[0]), int(ends[-1]))
        shape = (piece.stop - piece.start, self.shape[1])
        return csr_tensor(ends - ends[0], self.col[part], self.entries[part], shape).to_dense()


def csr_tensor(crow: Array, col: Array, entries: Array, shape: tuple[int, int]) -> Any:
    """A tensor in CSR layout, whose parts are known to be right."""
    import warnings

    import torch

    with warnings.catch_warnings():  # PyTorch calls the layout a beta, and advises to check what is known
        warnings.filterwarnings("ignore", message=".*[Ss]parse (CSR|invariant).*")
        return torch.sparse_csr_tensor(crow, col, entries, shape, check_invariants=False)


class CupyCsr:
    """A `cupyx.scipy.sparse.csr_matrix`."""

    def __init__(self, matrix: Any):
        self.matrix, self.shape = matrix, (int(matrix.shape[0]), int(matrix.shape[1]))

    @property
    def entries(self) -> Array:
        """The entries that are stored."""
        return self.matrix.data

    def with_entries(self, entries: Array) -> CupyCsr:
        """Others in their place."""
        own = self.matrix
        return CupyCsr(type(own)((entries, own.indices, own.indptr), shape=own.shape))

    def times(self, v: Array) -> Array:
        """Av."""
        return self.matrix @ v

    def weigh(self, c: Array, piece: slice, K: int) -> Array:
        """A'c over a piece of the rows, dealt out in turn to K groups."""
        import cupy

        whole = piece.start == 0 and piece.stop == self.shape[0]
        part = self.matrix if whole else self.matrix[piece]
        if K == 1:
            return (part.T @ c)[None, :]
        spread = cupy.zeros((len(c), K), dtype=c.dtype)
        at = cupy.arange(len(c))
        spread[at, at % K] = c
        return (part.T @ spread).T

    def take(self, rows: Array) -> CupyCsr:
        """Some rows, in the order given."""
        return CupyCsr(self.matrix[rows])

    def dense(self, piece: slice) -> Array:
        """A piece of the rows as a dense array."""
        return self.matrix[piece].toarray()


@dataclass(frozen=True, eq=False)
class CsrDeviceTable:
    """Rows of a sparse matrix on a device; what only columns have comes to the host."""

    arrays: Arrays
    A: Csr
    ones: bool = False  # a last column of ones, which is not stored
    sampled: bool = False  # these are a sample in the order of its drawing
    look: Look = unwatched
    scattered: float = 0.2  # samples of a larger share of the rows take as long to collect as all of them to read

    @once
    def shape(self) -> tuple[int, int]:
        """The number of rows here, and of columns."""
        return self.A.shape[0], self.A.shape[1] + self.ones

    @once
    def pieces(self) -> list[slice]:
        """Rows that are worked on at once, with some millions of entries."""
        m = self.A.shape[0]
        step = max(1, int(ENTRIES * m / max(1, int(self.A.entries.shape[0]))))
        return cut(m, max(GROUPS, step // GROUPS * GROUPS))

    def over(self, rows: Any) -> CsrDeviceTable:
        """A copy of some rows of the whole matrix, in the order given."""
        return CsrDeviceTable(self.arrays, self.A.take(rows), self.ones, True, self.look)

    def times(self, x: Vector, piece: slice = ALL) -> Array:
        """Ax on the device."""
        v = self.arrays.put(x)
        z = self.A.times(v[:-1]) + v[-1] if self.ones else self.A.times(v)
        return z if piece == ALL else z[piece]

    def grouped(self, c: Coefficients, groups: int | None = None) -> Array:
        """A'c split into groups of rows on the device."""
        a, part, total = self.arrays, by_piece(c), None
        K = groups or (min(GROUPS, self.shape[0]) if self.sampled else 1)
        for piece in self.pieces:
            some = part(piece)
            sums = self.A.weigh(some, piece, K)
            if self.ones:
                edge = a.dealt(some, a.xp.ones_like(some)[:, None], K)
                sums = a.xp.stack([a.join([sums[k, :], edge[k, :]]) for k in range(K)])
            total = sums if total is None else total + sums
        return total

    def weighed(self, c: Coefficients) -> Array:
        """A'c on the device."""
        return self.grouped(c, 1)[0, :]

    def weigh(self, c: Coefficients) -> Vector:
        """A'c."""
        return self.arrays.host(self.weighed(c))[0]

    def dense_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Rows as dense arrays, some at a time."""
        step = max(GROUPS, BUFFER // (8 * self.A.shape[1]))
        return ((piece, self.A.dense(piece)) for piece in cut(self.shape[0], step))

    def gram(self, c: Coefficients | None) -> Matrix:
        """A' diag(c) A; None stands for ones."""
        a, weights = self.arrays, None if c is None else c(slice(0, self.shape[0])) if callable(c) else c
        total, m = None, self.shape[0]
        weights = a.put(np.ones(m)) if weights is None else weights
        for piece, block in self.dense_blocks():
            self.look()
            total = a.add_gram(total, block, weights[piece])
        G = a.host(a.whole_gram(total))[0]
        if not self.ones:
            return symmetric(G)
        edge = a.host(self.weighed(weights))[0]
        return symmetric(np.block([[G, edge[:-1, None]], [edge[None, :]]]))

    def lengths(self, P: Matrix | None = None) -> Array:
        """|a_i| for each row, or sqrt(a_i'P a_i), its length after a projection P."""
        a = self.arrays
        if P is None:
            squares = self.A.with_entries(self.A.entries * self.A.entries)
            return a.xp.sqrt(squares.times(a.put(np.ones(self.A.shape[1]))) + float(self.ones))
        values, vectors = np.linalg.eigh(P)
        rows = self.products(vectors[:, values > 0.0] * np.sqrt(values[values > 0.0]))
        return a.xp.sqrt(a.xp.sum(rows * rows, axis=1))

    def products(self, V: Matrix) -> Array:
        """AV for few directions."""
        columns = [self.times(np.ascontiguousarray(v)) for v in V.T]
        return self.arrays.xp.stack(columns).T

    def images(self, V: Matrix) -> Iterator[tuple[slice, Array]]:
        """Pieces of AV for few directions."""
        rows = self.products(V)
        return ((piece, rows[piece, :]) for piece in self.pieces)

    def absolute_sums(self, size: Array) -> Vector:
        """|A|'(size * |A|1), where |A| has the absolute values of the entries."""
        other = replace(self, A=self.A.with_entries(self.arrays.xp.abs(self.A.entries)))
        return other.weigh(size * other.times(np.ones(self.shape[1])))

    def scales(self) -> Vector:
        """1 / rms of the entries of each column that are not 0."""
        scales = inverse_rms(*seen(self))
        return np.append(scales, 1.0) if self.ones else scales

    def touched(self) -> Any:
        """Which columns hold anything but zeros in these rows."""
        return np.append(seen(self)[1] > 0.0, [True] * self.ones)


def seen(table: CsrDeviceTable) -> tuple[Vector, Vector]:
    """For each column the sum of squares, and how many entries are not 0."""
    xp, entries = table.arrays.xp, table.A.entries
    one = table.arrays.put(np.ones(table.shape[0]))
    there = xp.where(entries != 0.0, xp.ones_like(entries), xp.zeros_like(entries))
    squares, counts = (
        replace(table, A=table.A.with_entries(each), ones=False).weigh(one) for each in (entries * entries, there)
    )
    return squares, counts
