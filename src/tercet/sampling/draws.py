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
    def shuffler(self) -> np.random.Generator:
        """The stream of the shuffled order."""
        return np.random.default_rng([self.seed, 0])

    @cached_property
    def rng(self) -> np.random.Generator:
        """The stream of the independent draws."""
        return np.random.default_rng([self.seed, 1])

    def beginning(self, m: int) -> Rows | None:
        """The first m rows of the shuffled order; None for all rows. A small m costs little, however large n is."""
        if m >= self.n:
            return None
        while len(self.order) < m:
            self.extend()
        return self.order[:m]

    def extend(self) -> None:
        """Twice the rows, the new ones drawn from those that are not among them yet; in the end all the others.

        With the rows so far r_0 < r_1 < ..., the t-th of the others is t + j, j being the number of r_i - i <= t.
        """
        known = np.sort(self.order)
        if 8 * len(known) >= self.n:
            others = np.ones(self.n, dtype=bool)
            others[known] = False
            new = self.shuffler.permutation(np.flatnonzero(others))
        else:
            t = self.shuffler.choice(self.n - len(known), min(max(4096, len(known)), self.n), replace=False)
            new = t + np.searchsorted(known - np.arange(len(known)), t, side="right")
        self.order = np.concatenate([self.order, new.astype(known.dtype)])

    def independent(self, m: int) -> Rows | None:
        """m rows, drawn afresh; None for all rows."""
        if m >= self.n and not self.replacement:
            return None
        return np.asarray(self.rng.choice(self.n, size=m, replace=self.replacement), dtype=np.intp)
