"""Drawing the rows that the sizes ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tercet.records import Rows


@dataclass(eq=False)
class Draws:
    """The random rows of one run: a shuffled order for nested samples, and independent draws. Same seed, same rows."""

    n: int
    seed: int
    replacement: bool = False

    @cached_property
    def order(self) -> Rows:
        """All rows, shuffled once."""
        narrow = np.int32 if self.n < 2**31 else np.int64  # half the memory
        return np.random.default_rng([self.seed, 0]).permutation(np.arange(self.n, dtype=narrow))

    @cached_property
    def rng(self) -> np.random.Generator:
        """The stream of the independent draws."""
        return np.random.default_rng([self.seed, 1])

    def beginning(self, m: int) -> Rows | None:
        """The first m rows of the shuffled order; None for all rows."""
        return None if m >= self.n else self.order[:m]

    def independent(self, m: int) -> Rows | None:
        """m rows, drawn afresh; None for all rows."""
        if m >= self.n and not self.replacement:
            return None
        return np.asarray(self.rng.choice(self.n, size=m, replace=self.replacement), dtype=np.intp)
