"""What the driver of a run has of its shards: passes over them, and the sample that is gathered in the first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import whole
from tercet.objectives.sharded.engine import Engine, Traffic, line_of, on_terminal
from tercet.objectives.sharded.sums import Gradient, Recipe, Sum, Sweep, Value, add_up
from tercet.objectives.sharded.survey import Drawn, Pick, Seen, Survey
from tercet.records import Rows, Vector
from tercet.shards.keys import by_key, keys, threshold
from tercet.shards.layout import Block, Layout
from tercet.watch import Look, unwatched

SAMPLE = 1 << 27  # bytes of the sample that lives with the driver


def nothing(x: Vector) -> tuple[float, Vector]:
    """No penalty: 0, and its gradient."""
    return 0.0, np.zeros_like(x)


@dataclass(eq=False)
class Known:
    """What was learnt of the shards: by the first pass, and of the sample of the last seed. Written in place."""

    found: Any = None
    seed: int | None = None
    sample: Drawn | None = None  # in the order of the keys


@dataclass(frozen=True, eq=False)
class Driver:
    """Passes over shards for one objective. What a pass gives is added up in the order of the shards."""

    call: str  # whose shards these are, for errors
    engine: Engine
    inspect: Callable[[Block], Seen]  # what the first pass finds of a block, or its ValueError
    most: int  # rows of the sample
    known: Known = field(default_factory=Known)
    traffic: Traffic = field(default_factory=Traffic)
    look: Look = unwatched

    @staticmethod
    def of(call: str, engine: Engine, inspect: Callable[[Block], Seen], sample_bytes: Any) -> Driver:
        """With a sample of so many bytes."""
        most = max(1, whole(call, "sample_bytes", sample_bytes) // engine.layout.row_bytes)
        return Driver(call, engine, inspect, min(engine.layout.n, most))

    @property
    def layout(self) -> Layout:
        """The shapes of the shards."""
        return self.engine.layout

    @property
    def in_memory(self) -> int | None:
        """The largest sample at hand; None where that is all rows."""
        return None if self.most >= self.layout.n else self.most

    def for_a_run(self) -> Driver:
        """The same, which counts its passes from 0."""
        return replace(self, traffic=Traffic())

    def clocked(self, look: Look) -> Driver:
        """The same for one run: it looks at the clock between blocks."""
        return replace(self.for_a_run(), engine=self.engine.watching(look), look=look)

    def fingerprint(self) -> str:
        """Shapes and digests of the shards."""
        each = self.engine.digests(self.traffic)
        digest = hashlib.sha256(" ".join(each).encode()).hexdigest()[:16]
        return f"{self.layout.n} x {self.layout.columns} in {len(each)} shards {digest}"

    # passes

    def sweep(
        self, recipe: Recipe, x: Vector, sums: Sequence[Sum], beside: Callable[[Vector], tuple[float, Vector]] = nothing
    ) -> list[Any]:
        """Some sums at x over all rows, in one pass; `beside` is what f and its gradient have beside them."""
        name, started = "-".join(type(each).__name__.lower() for each in sums), perf_counter()
        total = add_up(self.engine.each(Sweep(name, recipe, x, tuple(sums)), self.traffic))
        show, n = on_terminal(), self.layout.n
        if show is not None:
            parts = {type(each): part for each, part in zip(sums, total, strict=True)}
            value, slope = beside(x)
            told = f"  f {float(parts[Value]) / n + value:.8g}" if Value in parts else ""
            if Gradient in parts:
                told += f"  |g| {np.linalg.norm(parts[Gradient] / n + slope):.2e}"
            show(line_of(self.traffic, name, self.layout, perf_counter() - started, told))
        return total

    def survey(self, seed: int | None = None) -> Any:
        """The first pass: the numbers are looked at, and the sample of a seed gathered with it."""
        known = self.known
        wanted = known.seed if seed is None else seed
        if known.found is not None and (wanted is None or (known.sample is not None and known.seed == wanted)):
            return known.found
        limit = 0 if wanted is None else threshold(self.most, self.layout.n)
        work = Survey(None if known.found is not None else self.inspect, wanted or 0, limit, self.layout.starts)
        found, drawn = known.found, []
        for part, rows in self.engine.each(work, self.traffic):
            if known.found is None:
                found = part if found is None else found + part
            drawn.append(rows)
        assert found is not None
        if self.layout.weighted and not 0.0 < found.weight < np.inf:
            raise ValueError(f"{self.call}(shards): the weights sum to {found.weight}; they must not all be 0.")
        known.found = found
        if wanted is not None:
            known.seed, known.sample = wanted, Drawn.ordered(drawn, self.most)
        return found

    def factor(self) -> float:
        """On the weights, so that their mean is one."""
        return float(self.layout.n / self.survey().weight) if self.layout.weighted else 1.0

    # samples

    def shuffle(self, seed: int) -> Order:
        """The order of the rows by their keys, of which nested samples are beginnings; the next pass gathers them."""
        if self.known.seed != seed:
            self.known.seed, self.known.sample = seed, None
        return Order(self, seed)

    def sample(self, seed: int) -> Drawn:
        """The rows of the in-memory sample of a seed."""
        self.shuffle(seed)
        self.survey(seed)
        assert self.known.sample is not None
        return self.known.sample

    def beginning(self, rows: Rows) -> Drawn | None:
        """The sample, where these rows are its beginning."""
        sample, m = self.known.sample, len(rows)
        known = sample is not None and m <= len(sample.rows) and np.array_equal(rows, sample.rows[:m])
        return sample if known else None

    def gather(self, rows: Rows) -> Drawn:
        """Any rows, from the shards that have them, ascending."""
        self.survey()
        starts, ordered = self.layout.starts, np.sort(rows).astype(np.intp)
        cuts = np.searchsorted(ordered, starts)
        by_shard = tuple(ordered[a:b] for a, b in pairwise(cuts))
        only = [i for i, own in enumerate(by_shard) if len(own)]
        return Drawn.joined(list(self.engine.each(Pick(by_shard, starts), self.traffic, only)))


@dataclass(frozen=True, eq=False)
class Order:
    """Rows in the order of their keys, in place of a shuffled list."""

    driver: Driver
    seed: int

    def beginning(self, m: int) -> Rows | None:
        """The first m rows; None for all. Up to the size of the sample they come with it."""
        n = self.driver.layout.n
        if m >= n:
            return None
        if m <= self.driver.most:
            return self.driver.sample(self.seed).rows[:m]
        return by_key(np.arange(n), keys(self.seed, 0, n))[:m]

    def rest(self) -> None:
        """Nothing is kept beside the sample."""
