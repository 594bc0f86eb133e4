"""Drawing the rows that the sizes ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tercet.records import Rows


@dataclass(eq=False)
class Draws:
    """The random rows of one run: a shuffled order for nested samples, and independent draws. Same seed, same rows."""

    n: int
    seed: int
    replacement: bool = False

    order: Rows = field(init=False)  # the shuffled order, as far as it was asked for

    def __post_init__(self) -> None:
        self.order = np.empty(0, dtype=np.int32 if self.n < 2**31 else np.int64)  # int32: half the memory

    @cached_property
    def last(self) -> Rows:
        """For each row the number of the draw, among those made at once, that it came with; -1 if it never came."""
        last = np.full(self.n, -1, dtype=self.order.dtype)
        last[self.order] = 0
        return last

    @cached_property
    def shuffler(self) -> np.random.Generator:
        """The stream of the shuffled order."""
        return np.random.default_rng([self.seed, 0])

    @cached_property
    def rng(self) -> np.random.Generator:
        """The stream of the independent draws."""
        return np.random.default_rng([self.seed, 1])

    def beginning(self, m: int) -> Rows | None:
        """The first m rows of the shuffled order; None for all. A small m takes four bytes a row, and little time."""
        if m >= self.n:
            return None
        while len(self.order) < m:
            self.extend()
        return self.order[:m]

    def extend(self) -> None:
        """About twice the rows, by drawing and leaving out what came before; in the end all the others."""
        known, kind = len(self.order), self.order.dtype
        if 3 * known >= self.n:
            others = np.ones(self.n, dtype=bool)
            others[self.order] = False
            self.order = np.concatenate([self.order, self.shuffler.permutation(np.flatnonzero(others).astype(kind))])
            return
        new = self.shuffler.integers(self.n, size=max(4096, known + known // 4), dtype=kind)
        new = new[self.last[new] < 0]
        numbers = np.arange(len(new), dtype=kind)
        self.last[new] = numbers
        self.order = np.concatenate([self.order, new[self.last[new] == numbers]])  # of a row that came twice, the last
        if 8 * len(self.order) >= self.n:
            self.rest()

    def rest(self) -> None:
        """Let go of what only further rows would need; it is made again if they are asked for."""
        self.__dict__.pop("last", None)

    def independent(self, m: int) -> Rows | None:
        """m rows, drawn afresh; None for all rows."""
        if m >= self.n and not self.replacement:
            return None
        return np.asarray(self.rng.choice(self.n, size=m, replace=self.replacement), dtype=np.intp)
