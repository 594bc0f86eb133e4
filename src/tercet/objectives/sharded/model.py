"""`ShardedLinearModel`: what `LinearModel(shards, loss=...)` gives. The sum stays on disk, the sample in memory."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from tercet.checks import flag
from tercet.objectives.base import Bound, Traits, check_length, name_of
from tercet.objectives.linear.model import COMPILED, DENSE_LIMIT, add_ones, check_matrix, check_penalty
from tercet.objectives.linear.point import LinearView, Penalty
from tercet.objectives.losses import Formula, as_loss
from tercet.objectives.metered import DeadlineError
from tercet.objectives.sharded.driver import SAMPLE, Driver, Order
from tercet.objectives.sharded.engine import Engine, Local, Traffic
from tercet.objectives.sharded.point import ShardedView
from tercet.objectives.sharded.sums import LinearRecipe
from tercet.objectives.sharded.survey import Drawn, Inspect
from tercet.objectives.tables import GROUPS, NONE
from tercet.records import Rows, Vector
from tercet.shards import Shards
from tercet.watch import Look


class ShardedLinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2) over `Shards`.

    `LinearModel(shards, loss=...)` makes one; loss and penalties are those of `LinearModel`, targets and weights those
    of the shards. f, its gradient and what is asked with them take one pass over the shards. The sample on which a run
    begins is gathered in the first pass and lives in memory, up to `sample_bytes` of it; B and T stay on it when f and
    its gradient are taken over all rows, so that a run takes few passes.

    Memory: the sample, a block for each thread, and a few d x d matrices.
    """

    def __init__(
        self,
        shards: Shards,
        loss: Any = "sigmoid_squares",
        *,
        l2: float = 0.0,
        alpha: float = 0.0,
        scale: float | None = None,
        intercept: bool = False,
        sample_bytes: int = SAMPLE,
        engine: Engine | None = None,
    ):
        engine = Local(shards) if engine is None else engine
        self.loss, layout = as_loss(loss, scale), engine.layout
        self.intercept = flag("LinearModel", "intercept", intercept)
        self.n, self.d = layout.n, layout.columns + self.intercept
        l2, alpha = check_penalty("LinearModel", "l2", l2), check_penalty("LinearModel", "alpha", alpha)
        mask = np.ones(self.d)
        if intercept:
            mask[-1] = 0.0
        self.penalty = Penalty(l2, alpha, mask)
        wide = self.d > DENSE_LIMIT
        self.recipe = LinearRecipe(loss, scale, self.intercept, layout.sparse or self.n >= COMPILED, wide)
        self.driver = Driver.of("LinearModel", engine, Inspect(self.recipe), sample_bytes)
        self.traits = Traits(
            dense=not wide,
            provenance=f"closed-form derivatives over {len(layout.extents)} shards",
            in_memory=self.driver.in_memory,
        )

    # what a run asks for

    def over(self, rows: Rows | None) -> LinearView | ShardedView:
        """All rows, by passes over the shards; or some, gathered into memory."""
        if rows is None:
            return ShardedView(self)
        sample = self.driver.beginning(rows)
        return self.in_memory(self.driver.gather(rows) if sample is None else sample.first(len(rows)), rows)

    def shuffle(self, seed: int) -> Order:
        """The order of the rows by their keys, of which nested samples are beginnings; the next pass gathers them."""
        return self.driver.shuffle(seed)

    @property
    def traffic(self) -> Traffic:
        """What was read so far."""
        return self.driver.traffic

    @property
    def convex(self) -> bool | None:
        """False where the loss or the penalty is not."""
        return False if self.penalty.alpha else getattr(self.loss, "convex", None)

    @property
    def scales(self) -> Vector:
        """1 / rms of a_ij over the rows where it is not 0; when the time is up before it is known, ones."""
        try:
            return np.asarray(self.driver.survey().scales(self.intercept))
        except DeadlineError:
            return np.ones(self.d)

    def clocked(self, look: Look) -> ShardedLinearModel:
        """The same model for one run: it looks at the clock between blocks."""
        return self.driven(self.driver.clocked(look))

    def driven(self, driver: Driver) -> ShardedLinearModel:
        """The same model with another driver."""
        other = copy(self)
        other.driver = driver
        return other

    def fingerprint(self) -> dict[str, str]:
        """Digests of the shards; the loss and the penalties by their values."""
        most = self.driver.most
        settings = {"l2": self.penalty.l2, "alpha": self.penalty.alpha, "intercept": self.intercept, "most": most}
        return {
            "X": self.driver.fingerprint(),
            "loss": name_of(getattr(self.loss, "function", self.loss)),
            **{name: repr(value) for name, value in settings.items()},
        }

    def bind(self, x0: Any) -> Bound:
        """Start at x0, by default at zero."""
        start = np.zeros(self.d) if x0 is None else check_length("problem", x0, self.d)
        return Bound(self.driven(self.driver.for_a_run()), start)

    def margins(self, X: Any, x: Vector) -> Vector:
        """z = Ax for new rows, the intercept added if the model has one."""
        A = check_matrix(X)
        return (add_ones(A) if self.intercept else A) @ x

    def at_zero(self) -> float:
        """The mean loss at x = 0, which the first pass found."""
        return float(self.driver.survey().zero) * self.driver.factor() / self.n

    def in_memory(self, drawn: Drawn, rows: Rows) -> LinearView:
        """Rows that were gathered as a view like that of any linear model."""
        labels = (np.arange(len(rows)) % min(GROUPS, len(rows))).astype(np.uint8)
        table = replace(self.recipe.table(drawn.X), rows=NONE, labels=labels, look=self.driver.look)
        w = None if drawn.w is None else self.driver.factor() * drawn.w
        formula = Formula.of(self.loss, self.recipe.compiled)
        return LinearView(
            table, drawn.y, w, self.loss, formula, self.penalty, self.recipe.compiled, self.recipe.wide, rows
        )
