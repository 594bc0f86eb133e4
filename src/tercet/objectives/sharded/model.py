"""`ShardedLinearModel`: what `LinearModel(shards, loss=...)` gives. The sum stays on disk, the sample in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import flag, whole
from tercet.objectives.base import Bound, Traits, check_length, name_of
from tercet.objectives.linear.model import COMPILED, DENSE_LIMIT, add_ones, check_matrix, check_penalty
from tercet.objectives.linear.point import LinearView, Penalty
from tercet.objectives.losses import Formula, as_loss
from tercet.objectives.metered import DeadlineError
from tercet.objectives.sharded.engine import Engine, Local, Traffic, line_of, on_terminal
from tercet.objectives.sharded.point import ShardedView
from tercet.objectives.sharded.sums import Gradient, Recipe, Sum, Sweep, Value, add_up
from tercet.objectives.sharded.survey import Drawn, Found, Pick, Survey
from tercet.objectives.tables import GROUPS, NONE
from tercet.records import Rows, Vector
from tercet.shards import Shards
from tercet.shards.keys import by_key, keys, threshold
from tercet.watch import Look, unwatched

SAMPLE = 1 << 27  # bytes of the sample that lives with the driver


@dataclass(eq=False)
class Known:
    """What was learnt of the shards: by the first pass, and of the sample of the last seed. Written in place."""

    found: Found | None = None
    seed: int | None = None
    sample: Drawn | None = None  # in the order of the keys


class ShardedLinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2) over `Shards`.

    `LinearModel(shards, loss=...)` makes one; loss and penalties are those of `LinearModel`, targets and weights those
    of the shards. f, its gradient and what is asked with them take one pass over the shards. The sample on which a run
    begins is gathered in the first pass and lives in memory, up to `sample_bytes` of it; B and T stay on it when f and
    its gradient are taken over all rows, so that a run takes few passes.

    Memory: the sample, some blocks that are read ahead, and a few d x d matrices.
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
        self.engine: Engine = Local(shards) if engine is None else engine
        self.loss, layout = as_loss(loss, scale), self.engine.layout
        self.intercept = flag("LinearModel", "intercept", intercept)
        self.n, self.d = layout.n, layout.columns + self.intercept
        l2, alpha = check_penalty("LinearModel", "l2", l2), check_penalty("LinearModel", "alpha", alpha)
        mask = np.ones(self.d)
        if intercept:
            mask[-1] = 0.0
        self.penalty = Penalty(l2, alpha, mask)
        wide = self.d > DENSE_LIMIT
        self.recipe = Recipe(loss, scale, self.intercept, layout.sparse or self.n >= COMPILED, wide)
        most = max(1, whole("LinearModel", "sample_bytes", sample_bytes) // layout.row_bytes)
        self.most = min(self.n, most)
        self.traits = Traits(
            dense=not wide,
            provenance=f"closed-form derivatives over {len(layout.extents)} shards",
            in_memory=None if self.most >= self.n else self.most,
        )
        self.known, self.traffic, self.look = Known(), Traffic(), unwatched

    # what a run asks for

    def over(self, rows: Rows | None) -> LinearView | ShardedView:
        """All rows, by passes over the shards; or some, gathered into memory."""
        if rows is None:
            return ShardedView(self)
        sample, m = self.known.sample, len(rows)
        if sample is not None and m <= len(sample.rows) and np.array_equal(rows, sample.rows[:m]):
            return self.in_memory(replace_rows(sample, m), rows)
        return self.in_memory(self.gather(rows), rows)

    def shuffle(self, seed: int) -> Order:
        """The order of the rows by their keys, of which nested samples are beginnings; the next pass gathers them."""
        if self.known.seed != seed:
            self.known.seed, self.known.sample = seed, None
        return Order(self, seed)

    @property
    def convex(self) -> bool | None:
        """False where the loss or the penalty is not."""
        return False if self.penalty.alpha else getattr(self.loss, "convex", None)

    @property
    def scales(self) -> Vector:
        """1 / rms of a_ij over the rows where it is not 0; when the time is up before it is known, ones."""
        try:
            return self.survey().scales(self.intercept)
        except DeadlineError:
            return np.ones(self.d)

    def clocked(self, look: Look) -> ShardedLinearModel:
        """The same model for one run: it looks at the clock between blocks, and counts its passes from 0."""
        other = copy(self)
        other.engine, other.look, other.traffic = self.engine.watching(look), look, Traffic()
        return other

    def fingerprint(self) -> dict[str, str]:
        """Digests of the shards; the loss and the penalties by their values."""
        each = self.engine.digests(self.traffic)
        settings = {"l2": self.penalty.l2, "alpha": self.penalty.alpha, "intercept": self.intercept, "most": self.most}
        return {
            "X": f"{self.n} x {self.engine.layout.columns} in {len(each)} shards "
            + hashlib.sha256(" ".join(each).encode()).hexdigest()[:16],
            "loss": name_of(getattr(self.loss, "function", self.loss)),
            **{name: repr(value) for name, value in settings.items()},
        }

    def bind(self, x0: Any) -> Bound:
        """Start at x0, by default at zero."""
        start = np.zeros(self.d) if x0 is None else check_length("problem", x0, self.d)
        return Bound(self, start)

    def margins(self, X: Any, x: Vector) -> Vector:
        """z = Ax for new rows, the intercept added if the model has one."""
        A = check_matrix(X)
        return (add_ones(A) if self.intercept else A) @ x

    # passes

    def sweep(self, x: Vector, sums: Sequence[Sum]) -> list[Any]:
        """Some sums at x over all rows, in one pass, added up in the order of the shards."""
        name = "-".join(type(each).__name__.lower() for each in sums)
        recipe, started = replace(self.recipe, factor=self.factor()), perf_counter()
        total = add_up(self.engine.each(Sweep(name, recipe, x, tuple(sums)), self.traffic))
        show = on_terminal()
        if show is not None:
            parts = {type(each): part for each, part in zip(sums, total, strict=True)}
            told = f"  f {float(parts[Value]) / self.n:.8g}" if Value in parts else ""
            if Gradient in parts:
                told += f"  |g| {np.linalg.norm(parts[Gradient] / self.n + self.penalty.gradient(x)):.2e}"
            show(line_of(self.traffic, name, self.engine.layout, perf_counter() - started, told))
        return total

    def survey(self, seed: int | None = None) -> Found:
        """The first pass: the numbers are checked, columns measured, and the sample of a seed gathered with it."""
        known = self.known
        wanted = known.seed if seed is None else seed
        if known.found is not None and (wanted is None or (known.sample is not None and known.seed == wanted)):
            return known.found
        layout = self.engine.layout
        limit = 0 if wanted is None else threshold(self.most, self.n)
        work = Survey(self.recipe, wanted or 0, limit, layout.starts, known.found is None)
        found, drawn = known.found, []
        for part, rows in self.engine.each(work, self.traffic):
            if known.found is None:
                found = part if found is None else found + part
            drawn.append(rows)
        assert found is not None
        if layout.weighted and not 0.0 < found.weight < np.inf:
            raise ValueError(f"LinearModel(shards): the weights sum to {found.weight}; they must not all be 0.")
        known.found = found
        if wanted is not None:
            known.seed, known.sample = wanted, Drawn.ordered(drawn, self.most)
        return found

    def factor(self) -> float:
        """On the weights, so that their mean is one."""
        return self.n / self.survey().weight if self.engine.layout.weighted else 1.0

    def at_zero(self) -> float:
        """The mean loss at x = 0."""
        return self.survey().zero * self.factor() / self.n

    def gather(self, rows: Rows) -> Drawn:
        """Any rows, from the shards that have them, ascending."""
        self.survey()
        starts, ordered = self.engine.layout.starts, np.sort(rows).astype(np.intp)
        cuts = np.searchsorted(ordered, starts)
        by_shard = tuple(ordered[a:b] for a, b in pairwise(cuts))
        only = [i for i, own in enumerate(by_shard) if len(own)]
        return Drawn.joined(list(self.engine.each(Pick(by_shard, starts), self.traffic, only)))

    def in_memory(self, drawn: Drawn, rows: Rows) -> LinearView:
        """Rows that were gathered as a view like that of any linear model."""
        labels = (np.arange(len(rows)) % min(GROUPS, len(rows))).astype(np.uint8)
        table = replace(self.recipe.table(drawn.X), rows=NONE, labels=labels, look=self.look)
        w = None if drawn.w is None else self.factor() * drawn.w
        formula = Formula.of(self.loss, self.recipe.compiled)
        return LinearView(
            table, drawn.y, w, self.loss, formula, self.penalty, self.recipe.compiled, self.recipe.wide, rows
        )


def sample_of(model: ShardedLinearModel, seed: int) -> Drawn:
    """The rows of the in-memory sample of a seed."""
    model.shuffle(seed)
    model.survey(seed)
    assert model.known.sample is not None
    return model.known.sample


def replace_rows(sample: Drawn, m: int) -> Drawn:
    """The first m rows of a sample."""
    w = None if sample.w is None else sample.w[:m]
    return Drawn(sample.rows[:m], sample.keys[:m], sample.X[:m], sample.y[:m], w)


@dataclass(frozen=True, eq=False)
class Order:
    """Rows in the order of their keys, in place of a shuffled list."""

    model: ShardedLinearModel
    seed: int

    def beginning(self, m: int) -> Rows | None:
        """The first m rows; None for all. Up to the size of the sample they come with it."""
        if m >= self.model.n:
            return None
        if m <= self.model.most:
            return sample_of(self.model, self.seed).rows[:m]
        each = keys(self.seed, 0, self.model.n)
        return by_key(np.arange(self.model.n), each)[:m]

    def rest(self) -> None:
        """Nothing is kept beside the sample."""
