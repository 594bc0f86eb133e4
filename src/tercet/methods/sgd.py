"""`SGD`: the paper's baseline, stochastic gradient descent with a constant step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.methods.run import Run
from tercet.methods.state import restore_run, run_state
from tercet.objectives.counting import CountedPoint
from tercet.records import Certificate, Sizes, Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Draws
from tercet.sampling.rules import count


@dataclass(frozen=True)
class SGD:
    """x <- x - step g, with g over `batch` of the terms (a fraction or a count), drawn without replacement."""

    batch: float = 0.01
    step: float = 0.1

    def __post_init__(self) -> None:
        count("SGD", "batch", self.batch, 1)
        if not (np.isfinite(self.step) and self.step > 0):
            raise ValueError(f"SGD(step={self.step}): step must be a positive number.")

    def start(self, run: Run) -> Descent:
        """Set out from run.x0."""
        return Descent(run, self, run.x0)


@dataclass(eq=False)
class Descent:
    """A run of SGD."""

    run: Run
    settings: SGD
    x: Vector
    iteration: int = 0
    draws: Draws = field(init=False)
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        self.draws = Draws(self.run.n, self.run.seed)
        self.size = count("SGD", "batch", self.settings.batch, self.run.n)

    def state(self) -> dict[str, Any] | None:
        """All that the next iteration depends on."""
        return {"x": self.x, "iteration": self.iteration, **run_state(self.run, self.draws)}

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where `state` was taken."""
        restore_run(self.run, self.draws, state)
        self.x, self.iteration = state["x"], int(state["iteration"])

    def full_point(self) -> CountedPoint | None:
        """Never at hand."""
        return None

    def step(self) -> Row | Status:
        """One gradient step."""
        point = self.run.objective.over(self.draws.independent(self.size)).at(self.x)
        g = point.gradient()
        if not np.all(np.isfinite(g)):
            return Status.NOT_FINITE
        s = -self.settings.step * g
        self.x = self.x + s
        row = Row(
            iteration=self.iteration,
            f=np.nan,  # SGD takes no function values
            gradient_norm=float(np.linalg.norm(g)),
            sigma=1.0 / self.settings.step,
            ratio=np.nan,
            accepted=True,
            step_norm=float(np.linalg.norm(s)),
            sizes=Sizes(self.size, self.size, 0, 0),
            inner=1,
            counts=self.run.meter.counts(),
        )
        self.iteration += 1
        return row
