"""dask.array and dask.dataframe as shards: one a row chunk, kept by the workers, and made again where one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from distributed import Client, Future

from tercet.dask.engine import Done, results, work_on
from tercet.objectives.sharded.engine import Work
from tercet.shards.layout import Block, Extent, Layout, windows
from tercet.shards.shards import block_of
from tercet.shards.sources import extent_of

Part = tuple[Any, Any, Any]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Row chunks on a cluster: a future for each, whose value is X, y and the weights."""

    parts: tuple[Future, ...]
    layout: Layout

    @staticmethod
    def of(call: str, client: Client, X: Any, y: Any, weights: Any, patience: float) -> Chunks:
        """Have the workers make the chunks and tell their shapes; ValueError where they do not fit."""
        tables, targets, w = split(call, X, y, weights)
        lists = [client.compute(column) for column in ([*tables], [*targets], *([] if w is None else [[*w]]))]
        others = lists[2] if w is not None else [None] * len(tables)
        parts = [client.submit(pack, *three, pure=False) for three in zip(lists[0], lists[1], others, strict=True)]
        extents = results(client, client.map(describe, range(len(parts)), parts, pure=False), patience)
        full = [(part, extent) for part, extent in zip(parts, extents, strict=True) if extent.rows > 0]
        if not full:
            raise ValueError(f"{call}(X=...): all chunks are empty.")
        for i, (_, extent) in enumerate(full):
            same(call, i, extent, full[0][1])
        return Chunks(tuple(part for part, _ in full), Layout(tuple(alike(full[0][1], extent) for _, extent in full)))

    def submit(self, client: Client, work: Work, chosen: list[int], keys: list[Any], retries: int) -> list[Future]:
        """One task a chunk, which runs where the chunk is."""
        parts, extents = [self.parts[i] for i in chosen], [self.layout.extents[i] for i in chosen]
        return client.map(on_chunk, chosen, parts, extents, work=work, key=keys, retries=retries, pure=False)


def split(call: str, X: Any, y: Any, weights: Any) -> tuple[list[Any], list[Any], list[Any] | None]:
    """Collections as lists of delayed chunks, cut alike."""
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        names = [name for name in (y, weights) if isinstance(name, str)]
        absent = [name for name in names if name not in X.columns]
        if absent:
            raise ValueError(f"{call}(X, {absent[0]!r}): X has no such column.")
        y, weights = (X[v] if isinstance(v, str) else v for v in (y, weights))
        X = X.drop(columns=names)
    elif isinstance(X, da.Array):
        if X.ndim != 2:
            raise ValueError(f"{call}(X=...): X has shape {X.shape}; give rows and columns.")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    else:
        raise ValueError(f"{call}(X={type(X).__name__}): give Shards, a dask array or a dask dataframe.")
    tables = list(np.ravel(np.array(X.to_delayed(), dtype=object)))
    others = [
        None if v is None else column(call, name, v, X, len(tables)) for name, v in (("y", y), ("weights", weights))
    ]
    if others[0] is None:
        raise ValueError(f"{call}(y=None): give the targets: a dask array, or the name of a column.")
    return tables, others[0], others[1]


def column(call: str, name: str, values: Any, X: Any, count: int) -> list[Any]:
    """Targets or weights, in the chunks of X."""
    if isinstance(values, np.ndarray) and isinstance(X, da.Array):
        values = da.from_array(values, chunks=(X.chunks[0],))
    if not hasattr(values, "to_delayed"):
        raise ValueError(f"{call}({name}={type(values).__name__}): give a dask array, as X is.")
    if isinstance(values, da.Array) and isinstance(X, da.Array):
        if values.ndim != 1 or (known(values) and known(X) and values.shape[0] != X.shape[0]):
            raise ValueError(f"{call}({name}=...): it has shape {values.shape}, but X has {X.shape[0]} rows.")
        if known(values) and known(X):
            values = values.rechunk((X.chunks[0],))
    parts = list(np.ravel(np.array(values.to_delayed(), dtype=object)))
    if len(parts) != count:
        raise ValueError(f"{call}({name}=...): it has {len(parts)} chunks, but X has {count}.")
    return parts


def known(array: Any) -> bool:
    """Whether the lengths of the chunks are known."""
    return not any(np.isnan(length) for length in array.chunks[0])


def pack(X: Any, y: Any, w: Any) -> Part:
    """A chunk as arrays."""
    table = X if sp.issparse(X) else np.asarray(X)
    return table, np.asarray(y).ravel(), None if w is None else np.asarray(w).ravel()


def describe(i: int, part: Part) -> Extent:
    """What is known of a chunk."""
    try:
        return extent_of(*part)
    except ValueError as error:
        raise ValueError(f"chunk {i}: {error}") from error


def same(call: str, i: int, extent: Extent, first: Extent) -> None:
    """ValueError where a chunk does not fit the first."""
    if np.dtype(extent.dtype).kind not in "fiub":
        raise ValueError(f"{call}(X=...): chunk {i} holds {np.dtype(extent.dtype)}; give numbers.")
    for name in ("columns", "sparse", "weighted"):
        if getattr(extent, name) != getattr(first, name):
            raise ValueError(
                f"{call}(X=...): chunk {i} has {name} {getattr(extent, name)!r}, but chunk 0 has "
                f"{getattr(first, name)!r}; all need the same."
            )


def alike(first: Extent, extent: Extent) -> Extent:
    """Chunks of a frame may differ in dtype; what is read of them is float64."""
    return replace(extent, dtype=first.dtype)


def blocks_of(i: int, extent: Extent, part: Part) -> Iterator[Block]:
    """The rows of a chunk, cut like those of a shard."""
    X, y, w = part
    for a, b in [(0, extent.rows)] if extent.sparse else windows(extent.rows, extent.columns):
        yield block_of(i, a, b, extent, X[a:b], y[a:b], None if w is None else w[a:b])


def on_chunk(i: int, part: Part, extent: Extent, work: Work) -> list[Done]:
    """A task on a chunk."""
    return [work_on(work, blocks_of(i, extent, part))]
