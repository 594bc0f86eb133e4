"""`Shards`: a table in row blocks of known shapes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.checks import plain_array, sparse_matrix
from tercet.records import Vector
from tercet.shards import manifest as manifests
from tercet.shards.files import found, is_pattern, paired
from tercet.shards.layout import Block, Extent, Layout, Room, windows
from tercet.shards.sources import (
    ArraySource,
    FileSource,
    ParquetSource,
    ReadSource,
    SlicedSource,
    Source,
    called,
    extent_of,
    import_parquet,
)

SHARD = 1 << 26  # bytes of a shard that one large array is cut into


class Shards:
    """A table in row blocks, opened when they are used: `LinearModel(shards, loss=...)` then runs out of core.

    - `Shards("X-*.npy", "y-*.npy")`: npy files, or CSR matrices as `scipy.sparse.save_npz` writes them ("X-*.npz"),
      with targets beside them, paired by what the wildcards stand for; or lists of paths.
    - `Shards("part-*.parquet", "label")`: Parquet by pyarrow; `y` and `weights` name columns, `features` others (all).
    - `Shards(folder)`: what `tercet shard` or `write_manifest` described in its manifest.json.
    - `Shards([X0, X1, ...], [y0, y1, ...])`: arrays, memory maps or sparse matrices.
    - `Shards(X, y)`: one large array that gives rows as it is sliced (memory map, zarr, HDF5), cut into shards.
    - `Shards(read, shapes=[(rows, columns), ...])`: a function read(i) -> (X, y) or (X, y, weights), which several
      threads may call at once; instead of the shapes their number may be given, and every shard is then read once to
      know its shape.

    `weights` go with y, in the same form. Rows are numbered through, in the order of the shards. What is known of the
    shapes is checked here; what only the numbers tell (nan, targets that a loss does not take) in the first pass.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        weights: Any = None,
        shapes: Sequence[tuple[int, int]] | int | None = None,
        features: Sequence[str] | None = None,
    ):
        self.manifest: manifests.Manifest | None = None
        self.source = self._source(X, y, weights, shapes, features)
        self.layout = Layout(tuple(checked(self.source, self.manifest)))

    def _source(self, X: Any, y: Any, weights: Any, shapes: Any, features: Any) -> Source:
        """What kind of shards these are."""
        if callable(X) and not hasattr(X, "shape"):
            return read_source(X, y, weights, shapes)
        if shapes is not None:
            raise ValueError("Shards(shapes=...): shapes go with a function read(i); files and arrays know their own.")
        if isinstance(X, str | os.PathLike) and Path(X).is_dir():
            if y is not None or weights is not None:
                raise ValueError(f"Shards({os.fspath(X)!r}, ...): a folder has its targets; leave y and weights out.")
            return self._folder(Path(X))
        if y is None:
            raise ValueError("Shards(y=None): give the targets: a pattern of files, a column, arrays, or a folder.")
        if is_pattern(X):
            return file_source(X, y, weights, features)
        if isinstance(X, list | tuple):
            return array_source(X, y, weights)
        if len(getattr(X, "shape", ())) == 2 and not sp.issparse(X):
            return sliced_source(X, y, weights)
        raise ValueError(f"Shards(X={type(X).__name__}): give files, a folder, arrays, one large array or a function.")

    def _folder(self, folder: Path) -> Source:
        if not (folder / manifests.NAME).is_file():
            raise ValueError(
                f"Shards({str(folder)!r}): the folder has no {manifests.NAME}; `tercet shard` writes one, or give "
                "patterns of its files."
            )
        self.manifest = manifests.Manifest.read(folder / manifests.NAME)
        entries = self.manifest.entries
        X, y = (tuple(str(folder / getattr(entry, name)) for entry in entries) for name in ("X", "y"))
        w = None if entries[0].weights is None else tuple(str(folder / str(entry.weights)) for entry in entries)
        absent = [path for path in (*X, *y, *(w or ())) if not Path(path).is_file()]
        if absent:
            raise ValueError(f"Shards({str(folder)!r}): {absent[0]!r} of its {manifests.NAME} is not there.")
        return FileSource(X, y, w)

    def __len__(self) -> int:
        return len(self.layout.extents)

    def __repr__(self) -> str:
        kind, size = "CSR" if self.layout.sparse else self.layout.extents[0].dtype, self.layout.bytes / 1e9
        return f"Shards({len(self)} of {self.n} x {self.layout.columns}, {kind}, {size:.3g} GB)"

    @property
    def n(self) -> int:
        """The number of rows in all shards."""
        return self.layout.n

    @property
    def labels(self) -> dict[str, int] | None:
        """What the two labels of the original are here, where a manifest says so."""
        return None if self.manifest is None else self.manifest.labels

    def blocks(self, i: int, room: Room | None = None) -> Iterator[Block]:
        """The rows of shard i, few at a time where they are dense; OSError or ValueError that names it.

        With a `room` (`tercet.shards.layout.Room`) a block is overwritten by the next one.
        """
        extent = self.layout.extents[i]
        cuts = [(0, extent.rows)] if extent.sparse else windows(extent.rows, extent.columns)
        try:
            with self.source.open(i, room) as part:
                for start, stop in cuts:
                    X, y, w = part(start, stop)
                    yield block_of(i, start, stop, extent, X, y, w, room)
        except OSError as error:
            raise OSError(f"shard {i} ({self.source.name(i)}) cannot be read: {error}") from error

    def read(self, i: int) -> tuple[Any, Vector, Vector | None]:
        """X, y and weights of shard i, whole."""
        blocks = list(self.blocks(i))
        stack = sp.vstack if self.layout.sparse else np.concatenate
        w = [block.w for block in blocks if block.w is not None]
        X = blocks[0].X if len(blocks) == 1 else stack([block.X for block in blocks])
        return X, np.concatenate([block.y for block in blocks]), np.concatenate(w) if w else None

    def digest(self, i: int) -> str:
        """Of the numbers of shard i; one read."""
        return manifests.digest_of(self.blocks(i))

    def write_manifest(self) -> Path:
        """Write manifest.json beside the files, with shapes, dtypes and digests; one read of all shards."""
        if not isinstance(self.source, FileSource):
            raise ValueError("Shards.write_manifest(): only shards of npy or npz files have a manifest.")
        folder = Path(self.source.X[0]).resolve().parent
        names = [[os.path.relpath(path, folder) for path in self.source.paths(i)] for i in range(len(self))]
        entries = [
            manifests.Entry(own[0], own[1], own[2] if len(own) > 2 else None, extent, self.digest(i))
            for i, (own, extent) in enumerate(zip(names, self.layout.extents, strict=True))
        ]
        return manifests.Manifest(tuple(entries), self.labels).write(folder)

    def verify(self) -> None:
        """Read all shards and compare them with the digests of the manifest; ValueError at the first that differs."""
        if self.manifest is None:
            raise ValueError("Shards.verify(): there is no manifest to compare with; write_manifest() makes one.")
        for i, entry in enumerate(self.manifest.entries):
            if self.digest(i) != entry.digest:
                raise ValueError(
                    f"Shards.verify(): the numbers of shard {i} ({entry.X}) are not those of the manifest; "
                    "make the shard again, or write the manifest anew."
                )


def read_source(read: Callable[[int], Any], y: Any, weights: Any, shapes: Any) -> ReadSource:
    """Of a function; each shard is read once where only their number is known."""
    if y is not None or weights is not None:
        raise ValueError("Shards(read, y=...): the function gives the targets and weights; leave them out.")
    if isinstance(shapes, int | np.integer) and not isinstance(shapes, bool) and shapes > 0:
        return ReadSource(read, tuple(seen(read, i) for i in range(int(shapes))))
    if not isinstance(shapes, list | tuple) or not shapes or not all(len(shape) == 2 for shape in shapes):
        raise ValueError(
            f"Shards(read, shapes={shapes!r}): give the shape (rows, columns) of every shard, or how many."
        )
    first = seen(read, 0)
    entries = first.rows if not first.sparse else max(1, first.rows)
    return ReadSource(
        read,
        tuple(
            Extent(int(m), int(d), first.dtype, first.sparse, first.weighted, first.bytes * int(m) // entries)
            for m, d in shapes
        ),
    )


def seen(read: Callable[[int], Any], i: int) -> Extent:
    """The extent of what a function gives."""
    try:
        return extent_of(*called(read, i))
    except (OSError, ValueError) as error:
        raise ValueError(f"Shards(read): shard {i}: {error}.") from error


def file_source(X: Any, y: Any, weights: Any, features: Any) -> Source:
    """Of files; their kind is seen from their names."""
    files = found("X", X)
    kinds = {Path(path).suffix for path in files}
    if len(kinds) > 1 or not kinds <= {".npy", ".npz", ".parquet", ".pq"}:
        raise ValueError(
            f"Shards(X=...): files of kind {', '.join(sorted(kinds))}; give npy, npz or parquet, one kind."
        )
    if kinds <= {".parquet", ".pq"}:
        return parquet_source(files, y, weights, features)
    if features is not None:
        raise ValueError("Shards(features=...): features go with Parquet files, which name their columns.")
    left, right = paired(X, y, "y")
    return FileSource(tuple(left), tuple(right), None if weights is None else tuple(paired(X, weights, "weights")[1]))


def parquet_source(files: list[str], y: Any, weights: Any, features: Any) -> ParquetSource:
    """Of Parquet files; without `features` all columns but those of targets and weights."""
    if not isinstance(y, str) or not (weights is None or isinstance(weights, str)):
        raise ValueError("Shards('*.parquet', y=..., weights=...): y and weights are names of columns.")
    try:
        names = import_parquet().read_schema(files[0]).names
    except (OSError, ValueError) as error:
        raise ValueError(f"Shards({files[0]!r}): it is no Parquet file ({str(error).rstrip('.')}).") from error
    own = tuple(name for name in names if name not in (y, weights)) if features is None else tuple(features)
    if not own or y not in names:
        raise ValueError(f"Shards({files[0]!r}, {y!r}): its columns are {', '.join(names[:8])}.")
    return ParquetSource(tuple(files), y, weights, own)


def array_source(X: Sequence[Any], y: Any, weights: Any) -> ArraySource:
    """Of lists of arrays."""
    for name, parts in (("y", y), ("weights", weights)):
        if parts is not None and (not isinstance(parts, list | tuple) or len(parts) != len(X)):
            raise ValueError(f"Shards(X=..., {name}=...): give a list of {len(X)} arrays, one for each of X.")
    tables = [A if hasattr(A, "shape") else np.asarray(A) for A in X]
    others = [None if parts is None else [np.asarray(part) for part in parts] for parts in (y, weights)]
    return ArraySource(tables, others[0] or [], others[1])


def sliced_source(X: Any, y: Any, weights: Any) -> SlicedSource:
    """Of one large array; cuts fall where its chunks end, if it has some."""
    for name, values in (("y", y), ("weights", weights)):
        if values is not None and tuple(getattr(values, "shape", ())) != (X.shape[0],):
            raise ValueError(f"Shards(X, {name}=...): give an array of shape ({X.shape[0]},), one entry for each row.")
    size = max(1, SHARD // max(1, int(X.shape[1]) * np.dtype(X.dtype).itemsize))
    chunks = getattr(X, "chunks", None)
    if chunks and isinstance(chunks[0], int):
        size = max(1, size // chunks[0]) * chunks[0]
    return SlicedSource(X, y, weights, (*range(0, int(X.shape[0]), size), int(X.shape[0])))


def checked(source: Source, manifest: manifests.Manifest | None) -> Iterator[Extent]:
    """The extents of all shards; ValueError at the first that does not fit the manifest, a model, or the others."""
    first: Extent | None = None
    if len(source) == 0:
        raise ValueError("Shards(X=...): there is no shard; give at least one.")
    for i in range(len(source)):
        where = f"Shards(...): shard {i} ({source.name(i)})"
        try:
            extent = source.extent(i)
        except (OSError, ValueError) as error:
            raise ValueError(f"{where}: {str(error).rstrip('.')}.") from error
        if manifest is not None:
            manifest.compare(i, extent)
        if extent.rows < 1 or extent.columns < 1:
            raise ValueError(f"{where} is empty, {extent.rows} x {extent.columns}; leave it out.")
        if np.dtype(extent.dtype).kind not in "fiub":
            raise ValueError(f"{where} holds {np.dtype(extent.dtype)}; give real numbers.")
        first = first or extent
        for name in ("columns", "dtype", "sparse", "weighted"):
            if getattr(extent, name) != getattr(first, name):
                raise ValueError(
                    f"{where} has {name} {getattr(extent, name)!r}, but shard 0 has {getattr(first, name)!r}; "
                    "all shards need the same."
                )
        yield extent


def block_of(i: int, start: int, stop: int, extent: Extent, X: Any, y: Any, w: Any, room: Room | None = None) -> Block:
    """What was read, as float64; ValueError where it is not what was known of it."""
    try:
        A = sparse_matrix(X) if sp.issparse(X) else as_float64("X as float64", X, room)
        targets = as_float64("y as float64", y, room)
        weights = None if w is None else as_float64("w as float64", w, room)
    except ValueError as error:
        raise ValueError(f"shard {i} is no table of real numbers ({error})") from error
    rows, wrong = stop - start, sp.issparse(X) != extent.sparse or (weights is not None) != extent.weighted
    lengths = {len(targets)} | (set() if weights is None else {len(weights)})
    if wrong or A.shape != (rows, extent.columns) or lengths != {rows} or targets.ndim != 1:
        raise ValueError(
            f"shard {i} gave {A.shape} with {len(targets)} targets from row {start} on, where "
            f"{(rows, extent.columns)} was expected; it changed since it was opened"
        )
    return Block(i, start, A, targets, weights)


def as_float64(name: str, values: Any, room: Room | None) -> Any:
    """An array as float64 in C order: itself where it is that, else a copy, in the room where there is one."""
    array = plain_array(values)
    if room is None or (array.dtype == np.float64 and array.flags.c_contiguous):
        return np.ascontiguousarray(array, dtype=np.float64)
    out = room.array(name, array.shape, np.float64)
    np.copyto(out, array)
    return out
