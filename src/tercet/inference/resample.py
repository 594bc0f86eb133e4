"""The bootstrap: estimates from rows that were drawn again, with replacement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Traits, traits_of
from tercet.records import Matrix, Rows, Vector

LEAST = 0.5  # of the draws have to have a certified minimizer


@dataclass(frozen=True, eq=False)
class Resampled:
    """An objective over a list of rows, in which one may come several times."""

    objective: Any
    rows: Rows

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def d(self) -> int:
        """The number of variables."""
        return self.objective.d

    @property
    def traits(self) -> Traits:
        """Those of the objective."""
        return traits_of(self.objective)

    def over(self, rows: Rows | None) -> Any:
        """The mean over some of the rows."""
        return self.objective.over(self.rows if rows is None else self.rows[rows])


def bootstrap(
    objective: Any, x: Vector, fit: Callable[[Any, Vector], Vector | None], draws: int, seed: int
) -> tuple[Matrix, int]:
    """The estimates of so many resamples, as rows, and how many resamples had no certified minimizer.

    `fit` minimizes an objective from x, and gives None where that is not certified. Each resample has its own stream of
    random numbers, so the first k of them are the same whatever the number of draws is.
    """
    found: list[Vector] = []
    for stream in np.random.SeedSequence(seed).spawn(draws):
        rows = np.random.default_rng(stream).integers(0, objective.n, objective.n).astype(np.intp)
        estimate = fit(Resampled(objective, rows), x)
        if estimate is not None:
            found.append(estimate)
    failed = draws - len(found)
    if len(found) < max(2.0, LEAST * draws):
        raise ValueError(
            f"covariance(kind='bootstrap'): {failed} of {draws} resamples have no certified minimizer; the estimate "
            "hangs on a few rows. Add a penalty, or use kind='sandwich'."
        )
    return np.stack(found), failed
