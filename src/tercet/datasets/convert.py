"""From one large file to a folder of shards, in one streaming pass: LIBSVM text, CSV or Parquet."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.checks import open_data, regular_file, whole
from tercet.datasets.libsvm import LibsvmRows
from tercet.datasets.unpack import Where, chunks_of, unpacked
from tercet.records import Vector
from tercet.shards.layout import Extent, windows
from tercet.shards.manifest import Digester, Entry, Manifest, labels_of
from tercet.shards.sources import import_parquet

SHARD = 1 << 26  # bytes of a shard
TEXT = (".csv", ".tsv", ".csv.gz", ".csv.bz2")
Progress = Callable[[float, int], None]  # the share of the file that was read, and the rows so far
Part = tuple[Any, Vector, Vector | None]  # rows, targets, weights


@dataclass(eq=False)
class Written:
    """A shard that was written, as far as it can be known before the last row was read."""

    X: str
    y: str
    weights: str | None
    rows: int
    digest: Digester


@dataclass(eq=False)
class Writer:
    """Rows into files of about the same size; nothing of a shard is kept once it is written but its targets."""

    folder: Path
    size: int  # bytes
    sparse: bool
    parts: list[Part] = field(default_factory=list)
    held: int = 0  # bytes in the parts
    done: list[Written] = field(default_factory=list)
    targets: list[Vector] = field(default_factory=list)

    def add(self, X: Any, y: Vector, w: Vector | None = None) -> None:
        """Some more rows."""
        self.parts.append((X, y, w))
        self.held += int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if self.sparse else X.nbytes)
        if self.held >= self.size:
            self.flush()

    def flush(self) -> None:
        """What is held, as one shard."""
        if not self.parts:
            return
        tables, name = [X for X, _, _ in self.parts], f"X-{len(self.done):05d}.{'npz' if self.sparse else 'npy'}"
        X: Any = sp.csr_array(stacked(tables)) if self.sparse else np.concatenate(tables)
        digest = Digester()
        if self.sparse:
            # Its width is known at the end; `shape` is added to the archive then.
            np.savez(self.folder / name, indices=X.indices, indptr=X.indptr, data=X.data, format=np.array(b"csr"))
            digest.table(X)
        else:
            np.save(self.folder / name, X)
            for a, b in windows(*X.shape):
                digest.table(X[a:b])
        self.targets.append(np.concatenate([y for _, y, _ in self.parts]))
        weights, parts = None, [w for _, _, w in self.parts if w is not None]
        if parts:
            weights = f"w-{len(self.done):05d}.npy"
            np.save(self.folder / weights, np.concatenate(parts))
        self.done.append(Written(name, f"y-{len(self.done):05d}.npy", weights, X.shape[0], digest))
        self.parts, self.held = [], 0

    def finish(self, columns: int, keep_labels: bool, source: str) -> Manifest:
        """Targets, widths and the manifest."""
        self.flush()
        labels = None if keep_labels else two_labels(self.targets)
        entries = []
        for shard, raw in zip(self.done, self.targets, strict=True):
            y = raw if labels is None else (raw == max(labels)).astype(np.float64)
            np.save(self.folder / shard.y, y)
            if self.sparse:
                add_shape(self.folder / shard.X, (shard.rows, columns))
            w = None if shard.weights is None else np.load(self.folder / shard.weights)
            for a, b in [(0, len(y))] if self.sparse else windows(len(y), columns):
                shard.digest.targets(y[a:b], None if w is None else w[a:b])
            size = sum(os.path.getsize(self.folder / name) for name in (shard.X, shard.y, shard.weights) if name)
            extent = Extent(shard.rows, columns, "<f8", self.sparse, w is not None, size)
            entries.append(Entry(shard.X, shard.y, shard.weights, extent, shard.digest.hexdigest()))
        manifest = Manifest(tuple(entries), labels_of(labels), source)
        manifest.write(self.folder)
        return manifest


def stacked(tables: list[Any]) -> Any:
    """Sparse tables on top of each other, each as wide as the widest."""
    width = max(table.shape[1] for table in tables)
    return sp.vstack([sp.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], width)) for A in tables], "csr")


def add_shape(path: Path, shape: tuple[int, int]) -> None:
    """Add the shape to a sparse matrix, which `scipy.sparse.load_npz` wants."""
    text = io.BytesIO()
    np.save(text, np.array(shape))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("shape.npy", text.getvalue())


def two_labels(targets: list[Vector]) -> dict[float, int] | None:
    """The map to 0 and 1 where there are two values in all shards; None where there are others."""
    values: set[float] = set()
    for y in targets:
        values |= set(np.unique(y[: 1 << 20])[:3].tolist())
        if len(values) > 2:
            return None
    low, high = min(values), max(values)
    if low == high or not all(np.all((y == low) | (y == high)) for y in targets):
        return None
    return {low: 0, high: 1}


def shard_file(
    file: str | Path,
    folder: str | Path,
    *,
    target: str | None = None,
    weights: str | None = None,
    n_features: int | None = None,
    shard_bytes: int = SHARD,
    keep_labels: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Cut a file into shards for `Shards(folder)`, reading it once, with memory for a shard and the targets.

    LIBSVM text (plain, gz, bz2, xz) becomes CSR matrices, as wide as `n_features` or the largest index; CSV with a line
    of names and Parquet (both by pyarrow) become dense ones, with the column `target` as y, `weights` as weights where
    it is given, and all others as features.
    Two labels are mapped to 0 and 1, and the manifest keeps the map, unless `keep_labels` is set. The manifest is
    written last: a folder without one is not whole.
    """
    path, out = regular_file("shard", file), Path(folder)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    size = whole("shard", "shard_bytes", shard_bytes, 1 << 10)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"shard {out}: something lies there; name a folder that is empty or new.")
    tabular = path.suffix in (".parquet", ".pq") or path.name.endswith(TEXT)
    if tabular and target is None:
        raise ValueError(f"shard {path}: name the column of the targets with target (--target).")
    if not tabular and (target is not None or weights is not None):
        raise ValueError(
            f"shard {path}: LIBSVM text has its labels first and no weights; leave target out, and weights, or give "
            "CSV or Parquet."
        )
    out.mkdir(parents=True, exist_ok=True)
    writer, tell = Writer(out, size, not tabular), progress or (lambda share, rows: None)
    read = tables_of(path, str(target), weights, writer, tell) if tabular else libsvm_of(path, n_features, writer, tell)
    return writer.finish(read, keep_labels, path.name)


def libsvm_of(path: Path, n_features: int | None, writer: Writer, tell: Progress) -> int:
    """The rows of LIBSVM text, block by block; gives the number of columns."""
    where, total = Where(str(path)), max(1, os.path.getsize(path))
    with open_data("shard", path) as file:
        rows, done = LibsvmRows(n_features), 0
        for text in unpacked(chunks_of(file, where), where):
            for X, y in rows.add(text, where):
                writer.add(X, y)
                done += len(y)
            tell(file.tell() / total, done)
        for X, y in rows.end(where):
            writer.add(X, y)
    return rows.columns(where)


def tables_of(path: Path, target: str, weights: str | None, writer: Writer, tell: Progress) -> int:
    """The rows of CSV or Parquet, batch by batch; gives the number of columns."""
    done, columns = 0, 0
    for share, batch in batches(path):
        names = batch.schema.names
        beside = [target] if weights is None else [target, weights]
        for name in beside:
            if name not in names:
                raise ValueError(f"{path}: there is no column {name!r}; it has {', '.join(names[:8])}.")
        features = [name for name in names if name not in beside]
        columns = len(features)
        X = np.empty((batch.num_rows, columns))
        for j, name in enumerate(features):
            X[:, j] = numbers(path, name, batch.column(name), done)
        y, *w = (numbers(path, name, batch.column(name), done) for name in beside)
        if len(y):
            writer.add(X, y, *w)
        done += len(y)
        tell(share, done)
    if not done or not columns:
        raise ValueError(f"{path}: found {done} rows of {columns} features, expected at least one of each.")
    return columns


def batches(path: Path) -> Iterator[tuple[float, Any]]:
    """Record batches, each with the share of the file up to it."""
    parquet = import_parquet()
    if path.suffix in (".parquet", ".pq"):
        file = parquet.ParquetFile(path)
        total, seen = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches():
            seen += batch.num_rows
            yield seen / total, batch
        return
    import pyarrow
    from pyarrow import csv

    size, seen = max(1, os.path.getsize(path)), 0
    parse = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    try:
        with csv.open_csv(path, parse_options=parse) as reader:
            for batch in reader:
                seen += batch.nbytes
                yield min(1.0, seen / size), batch
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a table with a line of names and numbers ({error}).") from error


def numbers(path: Path, name: str, column: Any, done: int) -> Vector:
    """A column as finite float64, or a ValueError that names its row."""
    if column.null_count:
        row = done + int(np.argmax(np.asarray(column.is_null())))
        raise ValueError(f"{path}: column {name!r}, row {row} is empty; fill or drop it.")
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: column {name!r} holds {column.type}; give numbers (0 and 1 for two classes), or drop the column."
        )
    out = np.asarray(values, dtype=np.float64)
    if not np.isfinite(out).all():
        raise ValueError(f"{path}: column {name!r}, row {done + int(np.argmin(np.isfinite(out)))} is not finite.")
    return out
