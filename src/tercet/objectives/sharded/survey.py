"""The first pass over shards: are the numbers what a model can take, how are columns scaled, and which rows are the
sample that lives with the driver?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from tercet.objectives.linear.model import LARGEST
from tercet.objectives.linear.point import LinearPoint
from tercet.objectives.losses import Loss
from tercet.objectives.sharded.sums import LinearRecipe
from tercet.objectives.tables import inverse_rms
from tercet.records import Rows, Vector
from tercet.shards.keys import below, by_key
from tercet.shards.layout import Block
from tercet.shards.manifest import digest_of


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows that were picked, with their numbers and keys."""

    rows: Rows
    keys: Any
    X: Any
    y: Vector
    w: Vector | None

    @staticmethod
    def joined(parts: list[Drawn]) -> Drawn:
        """One after the other."""
        tables = [part.X for part in parts]
        X = sp.csr_array(sp.vstack(tables, format="csr")) if sp.issparse(tables[0]) else np.concatenate(tables)
        w = None if parts[0].w is None else np.concatenate([part.w for part in parts])
        rows, keys, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "keys", "y"))
        return Drawn(rows, keys, X, y, w)

    @staticmethod
    def ordered(parts: list[Drawn], m: int) -> Drawn:
        """Of all parts the m rows with the smallest keys, in that order. The parts are let go of one by one."""
        rows, keys, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "keys", "y"))
        w = None if parts[0].w is None else np.concatenate([part.w for part in parts])
        order = by_key(rows, keys)[:m]
        if sp.issparse(parts[0].X):
            X = sp.csr_array(sp.vstack([part.X for part in parts], format="csr"))[order]
        else:
            place = np.full(len(rows), m)
            place[order] = np.arange(len(order))
            X, last = np.empty((len(order), parts[0].X.shape[1])), len(rows)
            while parts:
                part = parts.pop()
                own = place[last - len(part.rows) : last]
                X[own[own < m]], last = part.X[own < m], last - len(part.rows)
        return Drawn(rows[order], keys[order], X, y[order], at(w, order))

    def first(self, m: int) -> Drawn:
        """The first m rows."""
        w = None if self.w is None else self.w[:m]
        return Drawn(self.rows[:m], self.keys[:m], self.X[:m], self.y[:m], w)


def at(w: Vector | None, index: Any) -> Vector | None:
    """Some of the weights, where there are any."""
    return None if w is None else w[index]


def picked(block: Block, rows: Rows, keys: Any, first: int) -> Drawn:
    """Rows of a block by their numbers among all; `first` is that of the block's first row."""
    local = rows - first
    return Drawn(rows, keys, block.X[local], block.y[local], at(block.w, local))


class Seen(Protocol):
    """What a survey found; parts of it add up."""

    @property
    def weight(self) -> float:
        """The sum of the weights of the rows."""
        ...

    def __add__(self, other: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class Found:
    """What a survey found for a linear model: over one shard, or over all."""

    squares: Vector  # of the entries of each column, summed
    count: Vector  # how many of them are not 0
    zero: float  # sum w l(0, y), which is f at x = 0
    weight: float  # the sum of the weights

    def __add__(self, other: Found) -> Found:
        return Found(
            self.squares + other.squares,
            self.count + other.count,
            self.zero + other.zero,
            self.weight + other.weight,
        )

    def scales(self, intercept: bool) -> Vector:
        """1 / rms of the entries of each column that are not 0."""
        own = inverse_rms(self.squares, self.count)
        return np.append(own, 1.0) if intercept else own


@dataclass(frozen=True, eq=False)
class Survey:
    """The survey of one shard, and its rows whose keys are below the limit."""

    inspect: Callable[[Block], Seen] | None  # None: only the sample is wanted
    seed: int
    limit: int
    starts: Any  # the number of the first row of each shard
    name: str = "survey"

    def __call__(self, blocks: Iterator[Block]) -> tuple[Any, Drawn]:
        """One read."""
        found: Any = None
        drawn = []
        for block in blocks:
            if self.inspect is not None:
                part = self.inspect(block)
                found = part if found is None else found + part
            first = int(self.starts[block.shard]) + block.start
            drawn.append(picked(block, *below(self.seed, first, first + block.rows, self.limit), first))
        return found, Drawn.joined(drawn)


@dataclass(frozen=True, eq=False)
class Inspect:
    """What the first pass looks at for a linear model."""

    recipe: LinearRecipe

    def __call__(self, block: Block) -> Found:
        """Check a block and sum up what is asked of it; ValueError names shard and row."""
        check(block)
        loss = self.recipe.own_loss()
        refused = refusal(loss, block.y)
        if refused is not None:
            row = bisect_left(range(block.rows - 1), True, key=lambda k: bool(refusal(loss, block.y[: k + 1])))
            raise ValueError(f"shard {block.shard}, row {block.start + row}: {refused}")
        point = LinearPoint(self.recipe.view(block), np.zeros(block.X.shape[1] + self.recipe.intercept))
        zero = sum(float(point.margins.coefficients(0, piece).sum()) for piece in point.view.table.pieces)
        return Found(*columns(block), zero, weight_of(block))


def refusal(loss: Loss, y: Vector) -> str | None:
    """Why a loss does not take some targets; None where it does."""
    try:
        if hasattr(loss, "check"):
            loss.check(y)
    except ValueError as error:
        return str(error)
    return None


def weight_of(block: Block) -> float:
    """The sum of the weights of its rows."""
    return float(block.rows) if block.w is None else float(block.w.sum())


def columns(block: Block) -> tuple[Vector, Vector]:
    """The sum of squares of each column, and how many of its entries are not 0."""
    X, d = block.X, block.X.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        if not sp.issparse(X):
            return np.einsum("ij,ij->j", X, X), np.count_nonzero(X, axis=0).astype(np.float64)
        squares = np.asarray(np.bincount(X.indices, weights=X.data**2, minlength=d), dtype=np.float64)
    return squares, np.bincount(X.indices[X.data != 0.0], minlength=d).astype(np.float64)


def check(block: Block, largest: float = LARGEST) -> None:
    """ValueError that names the shard and the row of an entry that no model can take."""
    for name, values in (("y", block.y), ("weights", block.w)):
        if values is not None and not np.isfinite(values).all():
            row = block.start + int(np.argmin(np.isfinite(values)))
            raise ValueError(f"shard {block.shard}, row {row}: {name} is not finite; drop that row or fill it")
    if block.w is not None and np.any(block.w < 0):
        row = block.start + int(np.argmax(block.w < 0))
        raise ValueError(f"shard {block.shard}, row {row}: its weight is below 0; weights are at least 0")
    values = block.X.data if sp.issparse(block.X) else block.X
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if size <= largest:
        return
    bad = ~(np.abs(values) <= largest)
    place = int(np.argmax(bad))
    if sp.issparse(block.X):
        row, column = int(np.searchsorted(block.X.indptr, place, side="right")) - 1, int(block.X.indices[place])
    else:
        row, column = divmod(place, block.X.shape[1])
    raise ValueError(
        f"shard {block.shard}, row {block.start + row}, column {column}: X holds {values.ravel()[place]}; "
        "drop or fill such entries, and rescale columns whose cubes are beyond double precision"
    )


@dataclass(frozen=True, eq=False)
class Pick:
    """Given rows of one shard; an index may repeat."""

    rows: tuple[Rows, ...]  # by shard, ascending, as numbers among all
    starts: Any
    name: str = "pick"

    def __call__(self, blocks: Iterator[Block]) -> Drawn:
        """One read."""
        parts = []
        for block in blocks:
            first, own = int(self.starts[block.shard]) + block.start, self.rows[block.shard]
            low, high = np.searchsorted(own, [first, first + block.rows])
            parts.append(picked(block, own[low:high], np.zeros(high - low, dtype=np.uint64), first))
        return Drawn.joined(parts)


@dataclass(frozen=True)
class Digest:
    """A digest of the numbers of one shard."""

    name: str = "digest"

    def __call__(self, blocks: Iterator[Block]) -> str:
        """One read."""
        return digest_of(blocks)
