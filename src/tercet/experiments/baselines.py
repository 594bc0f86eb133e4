"""`SVRG` and `SAGA`, the variance-reduced gradient methods, as baselines of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tercet.checks import positive, whole
from tercet.control.sigma import Control
from tercet.frame import Reach
from tercet.methods.anchored import Anchor
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.saved import need, vector
from tercet.methods.state import Memory, State, Views
from tercet.records import Matrix, Rows, Sizes, Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.sampling.rules import count


@dataclass(frozen=True)
class SVRG:
    """x <- x - step (g_S(x) - g_S(a) + grad f(a)), S a `batch` of the terms (Johnson and Zhang 2013).

    The anchor a is renewed after every `passes` passes over the terms.
    """

    batch: float = 0.01
    step: float = 0.1
    passes: float = 2.0

    def __post_init__(self) -> None:
        count("SVRG", "batch", self.batch, 1)
        positive("SVRG", "step", self.step)
        positive("SVRG", "passes", self.passes)

    def kernel(self, run: Run) -> GradientKernel:
        """The method on the terms of a run."""
        refuse_bounds("SVRG", run)
        size = count("SVRG", "batch", self.batch, run.n)
        return GradientKernel(self.step, size, Anchored(max(1, round(self.passes * run.n / size))))


@dataclass(frozen=True)
class SAGA:
    """x <- x - step (g_j(x) - m_j + mean m), j one of `blocks` blocks of terms, m_j the gradient over it when it
    was last drawn (Defazio, Bach and Lacoste-Julien 2014); the table of the m_j begins at x0.
    """

    blocks: int = 100
    step: float = 0.1

    def __post_init__(self) -> None:
        whole("SAGA", "blocks", self.blocks, most=1e7)
        positive("SAGA", "step", self.step)

    def kernel(self, run: Run) -> GradientKernel:
        """The method on the terms of a run."""
        refuse_bounds("SAGA", run)
        blocks = min(self.blocks, run.n)
        return GradientKernel(self.step, -(-run.n // blocks), Remembered(blocks))


class Estimator(Protocol):
    """How the gradient is estimated."""

    def recall(self, run: Run, arrays: Any) -> Any:
        """What it remembers, from a checkpoint."""
        ...

    def estimate(self, run: Run, state: State, size: int) -> tuple[Vector, Any, Stream]:
        """The estimate at x, what is remembered then, and the stream after the draw."""
        ...


@dataclass(frozen=True)
class Anchored:
    """SVRG's: a difference to an anchor, which is renewed every so many steps."""

    steps: int

    def recall(self, run: Run, arrays: Any) -> Any:
        """The anchor."""
        return Anchor.of(arrays, run.d)

    def estimate(self, run: Run, state: State, size: int) -> tuple[Vector, Any, Stream]:
        """g_S(x) - g_S(a) + grad f(a)."""
        x, anchor = state.x, state.extra
        if state.memory.iteration % self.steps == 0 or not isinstance(anchor, Anchor):
            anchor = Anchor(x, run.full.at(x).gradient())
            return anchor.g, anchor, state.stream
        rows, stream = state.stream.draw(run.n, size)
        view = run.objective.over(rows)
        return view.at(x).gradient() - view.at(anchor.x).gradient() + anchor.g, anchor, stream


@dataclass(frozen=True, eq=False)
class Table:
    """SAGA's: the gradient over each block when it was last drawn, times its share of the terms."""

    parts: Matrix

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)


@dataclass(frozen=True)
class Remembered:
    """SAGA's: a difference to the gradient over the same block when it was last drawn."""

    blocks: int

    def recall(self, run: Run, arrays: Any) -> Any:
        """The table."""
        if arrays is None:
            return None
        need(set(arrays) == {"parts"}, "its table has other parts")
        vector("its table", arrays["parts"], self.blocks, run.d)
        return Table(**arrays)

    def rows(self, run: Run, j: int) -> Rows:
        """The terms of a block."""
        return np.arange(j, run.n, self.blocks)

    def share(self, run: Run, j: int, x: Vector) -> Vector:
        """What a block adds to the gradient over all terms."""
        rows = self.rows(run, j)
        return run.objective.over(rows).at(x).gradient() * (len(rows) / run.n)

    def estimate(self, run: Run, state: State, size: int) -> tuple[Vector, Any, Stream]:
        """b (g_j(x) - m_j) + sum m, each with its share of the terms."""
        x, table = state.x, state.extra
        if not isinstance(table, Table):
            table = Table(np.stack([self.share(run, j, x) for j in range(self.blocks)]))
            return np.sum(table.parts, axis=0), table, state.stream
        rows, stream = state.stream.draw(self.blocks, 1, True)
        assert rows is not None
        j = int(rows[0])
        new, parts = self.share(run, j, x), table.parts.copy()
        g = self.blocks * (new - parts[j]) + np.sum(parts, axis=0)
        parts[j] = new
        return g, Table(parts), stream


@dataclass(frozen=True)
class GradientKernel:
    """Steps of a constant length times an estimate of the gradient."""

    rate: float
    size: int
    estimator: Estimator

    def begin(self, run: Run) -> State:
        """Stand at x0; nothing is evaluated there."""
        control = Control(1.0 / self.rate, 1.0 / self.rate)
        at, sizes = run.full.at(run.x0), Sizes(self.size, self.size, 0, 0)
        return State(at, at, sizes, Views.alone(run.full), Memory(control, Reach.of(run.x0)), Stream.of(run.seed))

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        extra = self.estimator.recall(run, arrays.get("extra"))
        return State.from_arrays(run, lambda sizes: Views.alone(run.full), arrays, extra)

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One gradient step."""
        g, extra, stream = self.estimator.estimate(run, state, self.size)
        if not np.all(np.isfinite(g)):
            return state, Status.NOT_FINITE
        s = -self.rate * g
        row = Row(
            iteration=state.memory.iteration,
            f=np.nan,  # no function values are taken
            gradient_norm=float(np.linalg.norm(g)),
            sigma=state.memory.control.sigma2,
            ratio=np.nan,
            accepted=True,
            step_norm=float(np.linalg.norm(s)),
            sizes=state.sizes,
            inner=1,
            counts=run.meter.counts(),
            seconds=perf_counter() - run.started,
        )
        memory = replace(state.memory, iteration=row.iteration + 1, length=row.step_norm)
        return replace(state, point=run.full.at(state.x + s), memory=memory, stream=stream, extra=extra), row
