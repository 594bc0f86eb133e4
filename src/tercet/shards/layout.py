"""What is known of a table in shards before it is read: how many rows each has, and how they are cut."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.once import once
from tercet.records import Vector

WINDOW = 1 << 21  # bytes of the float64 rows that are read and summed at once: they stay in the cache meanwhile
LEAST = 64  # rows in a window


@dataclass(frozen=True)
class Extent:
    """One shard: its rows and columns, how they are stored, and how many bytes that takes."""

    rows: int
    columns: int
    dtype: str
    sparse: bool
    weighted: bool
    bytes: int


@dataclass(frozen=True)
class Layout:
    """All shards in their order. They have the same columns, and rows are numbered through."""

    extents: tuple[Extent, ...]

    @once
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each shard, and that of all rows."""
        return np.concatenate([[0], np.cumsum([extent.rows for extent in self.extents])]).astype(np.int64)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.extents[0].columns

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse."""
        return self.extents[0].sparse

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.extents[0].weighted

    @once
    def bytes(self) -> int:
        """What one pass reads."""
        return sum(extent.bytes for extent in self.extents)

    @once
    def row_bytes(self) -> int:
        """What a row takes in memory, on average."""
        if not self.sparse:
            return 8 * (self.columns + 2)
        return max(1, -(-self.bytes // self.n)) + 16

    def where(self, row: int) -> tuple[int, int]:
        """The shard of a row, and its number there."""
        shard = int(np.searchsorted(self.starts, row, side="right")) - 1
        return shard, row - int(self.starts[shard])


@dataclass(eq=False)
class Room:
    """Memory that windows are read into, one after the other: it is not asked of the system for each, and stays in the
    cache. A block is there until the next one is read; who keeps blocks for longer gives no room.
    """

    buffers: dict[str, Any] = field(default_factory=dict)

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array whose numbers are anything, in the place of the last one of that name."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        buffer = self.buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self.buffers[name] = np.empty(size, dtype=np.uint8)
        return buffer[:size].view(dtype).reshape(shape)


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a shard: X as float64, dense in C order or CSR, with targets and weights."""

    shard: int
    start: int  # the number of its first row within the shard
    X: Any
    y: Vector
    w: Vector | None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.y)


def windows(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The rows of a dense shard, few at a time. They depend on its shape alone, so that its sums have the same bits
    wherever they are made."""
    size = max(LEAST, WINDOW // (8 * columns))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)
