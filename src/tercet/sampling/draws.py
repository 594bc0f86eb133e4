"""Drawing the rows that the sizes ask for. Same seed, same rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tercet.once import once
from tercet.records import Rows


@dataclass(eq=False)
class Shuffle:
    """A shuffled order of n rows, made as far as it is asked for; nested samples are its beginnings."""

    n: int
    seed: int
    order: Rows = field(init=False)
    _last: Rows | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.order = np.empty(0, dtype=np.int32 if self.n < 2**31 else np.int64)  # int32: half the memory

    @once
    def stream(self) -> np.random.Generator:
        """What the order is drawn from."""
        return np.random.default_rng([self.seed, 0])

    def beginning(self, m: int) -> Rows | None:
        """The first m rows of the shuffled order; None for all. A small m takes four bytes a row, and little time."""
        if m >= self.n:
            return None
        while len(self.order) < m:
            self.extend()
        return self.order[:m]

    def last(self) -> Rows:
        """For each row the number of the draw, among those made at once, that it came with; -1 if it never came."""
        if self._last is None:
            self._last = np.full(self.n, -1, dtype=self.order.dtype)
            self._last[self.order] = 0
        return self._last

    def extend(self) -> None:
        """About twice the rows, by drawing and leaving out what came before; in the end all the others."""
        known, kind = len(self.order), self.order.dtype
        if 3 * known >= self.n:
            others = np.ones(self.n, dtype=bool)
            others[self.order] = False
            self.order = np.concatenate([self.order, self.stream.permutation(np.flatnonzero(others).astype(kind))])
            return
        last = self.last()
        new = self.stream.integers(self.n, size=max(4096, known + known // 4), dtype=kind)
        new = new[last[new] < 0]
        numbers = np.arange(len(new), dtype=kind)
        last[new] = numbers
        self.order = np.concatenate([self.order, new[last[new] == numbers]])  # of a row that came twice, the last
        if 8 * len(self.order) >= self.n:
            self.rest()

    def rest(self) -> None:
        """Let go of what only further rows would need; it is made again if they are asked for."""
        self._last = None


@dataclass(frozen=True, eq=False)
class Stream:
    """Independent draws: where a random stream stands. A draw gives the rows, and the stream after it."""

    state: Any

    @staticmethod
    @lru_cache(maxsize=8)
    def of(seed: int) -> Stream:
        """The stream of a run; where one stands is never changed, so that runs with the same seed share it."""
        return Stream(np.random.default_rng([seed, 1]).bit_generator.state)

    def draw(self, n: int, m: int, replacement: bool = False) -> tuple[Rows | None, Stream]:
        """m of n rows; None for all rows."""
        if m >= n and not replacement:
            return None, self
        bits = np.random.PCG64()
        bits.state = self.state
        rows = np.random.Generator(bits).choice(n, size=m, replace=replacement)
        return np.asarray(rows, dtype=np.intp), Stream(bits.state)
