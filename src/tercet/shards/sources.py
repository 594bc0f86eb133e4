"""Where the rows of a shard come from: files of NumPy and SciPy, Parquet, arrays, or a function of the user's own.

A source is small, can be sent to another process, and opens a shard when it is asked for.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import scipy.sparse as sp
from numpy.lib.format import open_memmap

from tercet.checks import regular_file
from tercet.shards.layout import Extent, Room

PACKED = 1 << 24  # bytes of the rows of Parquet that are unpacked at once
Part = tuple[Any, Any, Any]  # X, y and weights or None, as they are stored


class Source(Protocol):
    """Shards by their numbers."""

    def __len__(self) -> int: ...

    def name(self, i: int) -> str:
        """How shard i is called in errors."""
        ...

    def extent(self, i: int) -> Extent:
        """What is known of shard i without reading its rows."""
        ...

    def open(self, i: int, room: Room | None = None) -> Any:
        """A context whose value gives rows: part(start, stop), read into the room where that can be done."""
        ...


@contextmanager
def whole(X: Any, y: Any, w: Any) -> Iterator[Callable[[int, int], Part]]:
    """Rows of a shard that can be sliced."""

    def part(start: int, stop: int) -> Part:
        return X[start:stop], y[start:stop], None if w is None else w[start:stop]

    yield part


def size_of(X: Any) -> int:
    """The bytes of an array, or of the three of a sparse one."""
    if sp.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(np.prod(X.shape, dtype=np.int64)) * np.dtype(X.dtype).itemsize


def extent_of(X: Any, y: Any, w: Any) -> Extent:
    """Of a shard that is at hand; ValueError where its shapes do not agree."""
    if len(X.shape) != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; give a table of rows and columns")
    rows, columns = (int(k) for k in X.shape)
    for name, values in (("y", y), ("weights", w)):
        if values is not None and tuple(values.shape) != (rows,):
            raise ValueError(f"{name} has shape {tuple(values.shape)}, but X has {rows} rows")
    total = size_of(X) + sum(size_of(v) for v in (y, w) if v is not None)
    return Extent(rows, columns, np.dtype(X.dtype).str, bool(sp.issparse(X)), w is not None, total)


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Arrays, memory maps or sparse matrices, a shard each."""

    X: Sequence[Any]
    y: Sequence[Any]
    w: Sequence[Any] | None

    def __len__(self) -> int:
        return len(self.X)

    def name(self, i: int) -> str:
        """Its number is all it has."""
        return f"array {i}"

    def extent(self, i: int) -> Extent:
        """Its shapes."""
        return extent_of(self.X[i], self.y[i], None if self.w is None else self.w[i])

    def open(self, i: int, room: Room | None = None) -> Any:
        """Slices of it."""
        return whole(self.X[i], self.y[i], None if self.w is None else self.w[i])


@dataclass(frozen=True, eq=False)
class SlicedSource:
    """One large array that gives rows as it is sliced (a memory map, zarr, HDF5), cut into shards."""

    X: Any
    y: Any
    w: Any
    cuts: tuple[int, ...]  # the first row of each shard, and the number of all

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def name(self, i: int) -> str:
        """Its rows."""
        return f"rows {self.cuts[i]} to {self.cuts[i + 1]}"

    def extent(self, i: int) -> Extent:
        """Of these rows."""
        rows, columns, dtype = self.cuts[i + 1] - self.cuts[i], int(self.X.shape[1]), np.dtype(self.X.dtype)
        beside = sum(np.dtype(v.dtype).itemsize for v in (self.y, self.w) if v is not None)
        return Extent(rows, columns, dtype.str, False, self.w is not None, rows * (columns * dtype.itemsize + beside))

    @contextmanager
    def open(self, i: int, room: Room | None = None) -> Iterator[Callable[[int, int], Part]]:
        """Slices of the whole."""
        first = self.cuts[i]

        def part(start: int, stop: int) -> Part:
            a, b = first + start, first + stop
            return self.X[a:b], self.y[a:b], None if self.w is None else self.w[a:b]

        yield part


@dataclass(frozen=True, eq=False)
class ReadSource:
    """A function read(i) -> (X, y) or (X, y, weights)."""

    read: Callable[[int], Any]
    extents: tuple[Extent, ...]

    def __len__(self) -> int:
        return len(self.extents)

    def name(self, i: int) -> str:
        """The call."""
        return f"read({i})"

    def extent(self, i: int) -> Extent:
        """As it was told, or seen once."""
        return self.extents[i]

    def open(self, i: int, room: Room | None = None) -> Any:
        """What the function gives."""
        return whole(*called(self.read, i))


def called(read: Callable[[int], Any], i: int) -> Part:
    """What a user's function gives for shard i, as arrays."""
    try:
        parts = read(i)
    except Exception as error:
        raise OSError(f"it raised {type(error).__name__}: {error}") from error
    if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
        raise ValueError(f"read({i}) gave {type(parts).__name__}; it has to give (X, y) or (X, y, weights)")
    X, y = parts[0] if sp.issparse(parts[0]) else np.asarray(parts[0]), np.asarray(parts[1])
    return X, y, None if len(parts) == 2 or parts[2] is None else np.asarray(parts[2])


@dataclass(frozen=True)
class FileSource:
    """npy or npz files for X, npy files for y and the weights; of paths alone, so that workers open them themselves."""

    X: tuple[str, ...]
    y: tuple[str, ...]
    w: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.X)

    def name(self, i: int) -> str:
        """The file of X."""
        return self.X[i]

    def paths(self, i: int) -> tuple[str, ...]:
        """All files of shard i."""
        return (self.X[i], self.y[i]) if self.w is None else (self.X[i], self.y[i], self.w[i])

    def extent(self, i: int) -> Extent:
        """From the heads of the files."""
        sparse = self.X[i].endswith(".npz")
        (rows, columns), dtype = head_of_npz(self.X[i]) if sparse else head_of_npy(self.X[i], 2)
        for path in self.paths(i)[1:]:
            (length,), _ = head_of_npy(path, 1)
            if length != rows:
                raise ValueError(f"{path} has {length} entries, but {self.X[i]} has {rows} rows")
        total = sum(os.path.getsize(path) for path in self.paths(i))
        return Extent(rows, columns, dtype.str, sparse, self.w is not None, total)

    @contextmanager
    def open(self, i: int, room: Room | None = None) -> Iterator[Callable[[int, int], Part]]:
        """By windows where it is dense, else whole."""
        if self.X[i].endswith(".npz"):
            y, *more = (loaded(np.load, path, allow_pickle=False) for path in self.paths(i)[1:])
            with whole(loaded(sp.load_npz, self.X[i]), y, more[0] if more else None) as part:
                yield part
            return
        with ExitStack() as stack:
            named = zip("Xyw", self.paths(i), strict=False)
            X, y, *more = (stack.enter_context(Rows.of(path, name, room)) for name, path in named)
            yield lambda a, b: (X.read(a, b), y.read(a, b), more[0].read(a, b) if more else None)


def loaded(load: Callable[..., Any], path: str, **how: Any) -> Any:
    """What lies in a file; OSError where it is damaged."""
    try:
        return load(path, **how)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise OSError(f"{path} is damaged ({error})") from error


def head_of_npy(path: str, axes: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an npy file."""
    try:
        head = open_memmap(regular_file("Shards", path), mode="r")
    except ValueError as error:
        raise ValueError(f"{path} is no npy file of numbers ({error})") from error
    if head.ndim != axes:
        raise ValueError(f"{path} holds shape {head.shape}; {axes} axes are needed")
    return tuple(int(k) for k in head.shape), head.dtype


def head_of_npz(path: str) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Shape and dtype of a sparse matrix in a file of `scipy.sparse.save_npz`; its rows are not read."""
    try:
        with zipfile.ZipFile(regular_file("Shards", path)) as archive, np.load(path, allow_pickle=False) as file:
            if file["format"].item() not in (b"csr", "csr"):
                raise ValueError(f"its format is {file['format'].item()!r}; save CSR")
            rows, columns = (int(k) for k in file["shape"])
            with archive.open("data.npy") as data:
                version = np.lib.format.read_magic(data)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                dtype = read(data)[2]
    except (KeyError, zipfile.BadZipFile, ValueError) as error:
        raise ValueError(f"{path} is no CSR matrix of scipy.sparse.save_npz ({error})") from error
    return (rows, columns), dtype


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of an open npy file, read into memory as they are asked for: mapped pages would pile up."""

    path: str
    name: str  # of its place in the room
    file: Any
    array: Any  # a memory map, of which only the head is used where rows lie one after the other
    room: Room | None

    @staticmethod
    @contextmanager
    def of(path: str, name: str, room: Room | None) -> Iterator[Rows]:
        """Open a file."""
        array = loaded(open_memmap, path, mode="r")
        with open(path, "rb", buffering=0) as file:
            yield Rows(path, name, file, array, room)

    def read(self, start: int, stop: int) -> Any:
        """Rows from start up to stop, as they are stored."""
        array = self.array
        if not array.flags.c_contiguous:
            return np.array(array[start:stop], order="C")
        shape = (stop - start, *array.shape[1:])
        out = np.empty(shape, array.dtype) if self.room is None else self.room.array(self.name, shape, array.dtype)
        view = memoryview(cast(Any, out)).cast("B")
        self.file.seek(array.offset + start * math.prod(array.shape[1:]) * array.itemsize)
        filled = 0
        while filled < len(view):
            count = self.file.readinto(view[filled:])
            if not count:
                raise OSError(f"{self.path} ends before row {stop}")
            filled += count
        return out


@dataclass(frozen=True)
class ParquetSource:
    """Parquet files, one a shard: a column of targets, perhaps one of weights, and columns of features."""

    files: tuple[str, ...]
    target: str
    weights: str | None
    features: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def name(self, i: int) -> str:
        """The file."""
        return self.files[i]

    def extent(self, i: int) -> Extent:
        """From the metadata."""
        parquet, columns = import_parquet(), self.columns
        head, schema = parquet.read_metadata(self.files[i]), parquet.read_schema(self.files[i])
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise ValueError(f"{self.files[i]} has no column {missing[0]!r}; it has {', '.join(schema.names[:8])}")
        kinds = {np.dtype(schema.field(name).type.to_pandas_dtype()) for name in columns}
        wrong = [kind for kind in kinds if kind.kind not in "fiub"]
        if wrong:
            raise ValueError(f"{self.files[i]} holds {wrong[0]}; give columns of real numbers, or name the features")
        size = os.path.getsize(self.files[i])
        return Extent(head.num_rows, len(self.features), "<f8", False, self.weights is not None, size)

    @property
    def columns(self) -> list[str]:
        """All that are read."""
        return [*self.features, self.target, *([] if self.weights is None else [self.weights])]

    @contextmanager
    def open(self, i: int, room: Room | None = None) -> Iterator[Callable[[int, int], Part]]:
        """Rows as they come: Parquet is packed, so that it is read from its beginning to its end."""
        size = max(1, PACKED // (8 * len(self.columns)))
        with import_parquet().ParquetFile(self.files[i]) as file:
            rest = Batches(self.files[i], file.iter_batches(size, columns=self.columns))

            def part(start: int, stop: int) -> Part:
                X, batches, row = np.empty((stop - start, len(self.features))), rest.next(stop - start), 0
                beside: dict[str, list[Any]] = {name: [] for name in self.columns[len(self.features) :]}
                for batch in batches:
                    for j, name in enumerate(self.features):
                        X[row : row + batch.num_rows, j] = batch.column(name).to_numpy(zero_copy_only=False)
                    for name, parts in beside.items():
                        parts.append(batch.column(name).to_numpy(zero_copy_only=False))
                    row += batch.num_rows
                y, *w = (np.concatenate(parts) for parts in beside.values())
                return X, y, w[0] if w else None

            yield part


@dataclass(eq=False)
class Batches:
    """Record batches, of which as many rows are taken as are wanted; what is left is kept."""

    path: str
    batches: Iterator[Any]
    left: Any = None

    def next(self, rows: int) -> list[Any]:
        """The next rows, in one batch or in several; OSError where there are fewer."""
        out = []
        while rows > 0:
            batch = next(self.batches, None) if self.left is None else self.left
            if batch is None:
                raise OSError(f"{self.path} ends {rows} rows early")
            out.append(batch.slice(0, rows))
            rows -= out[-1].num_rows
            self.left = batch.slice(out[-1].num_rows) if out[-1].num_rows < batch.num_rows else None
        return out


def import_parquet() -> Any:
    """pyarrow.parquet, or an ImportError that says how to get it."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError("Shards of Parquet files need pyarrow: pip install 'tercet[parquet]'.") from error
    return pyarrow.parquet
