"""`SGD`: the paper's baseline, stochastic gradient descent with a constant step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import positive
from tercet.control.sigma import Control
from tercet.frame import Reach
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.state import Memory, State, Views
from tercet.records import Sizes, Status
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.sampling.rules import count


@dataclass(frozen=True)
class SGD:
    """x <- x - step g, with g over `batch` of the terms (a fraction or a count), drawn without replacement."""

    batch: float = 0.01
    step: float = 0.1

    def __post_init__(self) -> None:
        count("SGD", "batch", self.batch, 1)
        positive("SGD", "step", self.step)

    def kernel(self, run: Run) -> DescentKernel:
        """The method on the terms of a run."""
        refuse_bounds("SGD", run)
        return DescentKernel(self.step, count("SGD", "batch", self.batch, run.n))


@dataclass(frozen=True)
class DescentKernel:
    """Gradient steps over `size` terms each; the state is that of every method, of which only x and the stream move."""

    rate: float
    size: int

    def begin(self, run: Run) -> State:
        """Stand at x0; nothing is evaluated there."""
        control = Control(1.0 / self.rate, 1.0 / self.rate)
        at, sizes = run.full.at(run.x0), Sizes(self.size, self.size, 0, 0)
        return State(at, at, sizes, Views.alone(run.full), Memory(control, Reach.of(run.x0)), Stream.of(run.seed))

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        return State.from_arrays(run, lambda sizes: Views.alone(run.full), arrays)

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One gradient step."""
        rows, stream = state.stream.draw(run.n, self.size)
        g = run.objective.over(rows).at(state.x).gradient()
        if not np.all(np.isfinite(g)):
            return state, Status.NOT_FINITE
        s = -self.rate * g
        row = Row(
            iteration=state.memory.iteration,
            f=np.nan,  # SGD takes no function values
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
        return replace(state, point=run.full.at(state.x + s), memory=memory, stream=stream), row
