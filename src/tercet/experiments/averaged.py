"""`Averaged`: stochastic cubic and tensor steps with momentum, for samples of any size.

Chayti, Doikov and Jaggi 2025 (second order): the gradient and the Hessian are moving averages over the samples of all
iterations, the gradient carried along each step s by the Hessian. With third order it is carried by T too:

    g <- (1 - a) (g + Bs + 1/2 T_S[s, s]) + a g_S,   B <- (1 - a) B + a B_S,

and the step is that of the model of g, B and T_S with a constant sigma. No value of f is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import number, positive
from tercet.control.sigma import Control
from tercet.frame import Reach
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.saved import need, vector
from tercet.methods.state import Memory, State, Views
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Sizes, Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.sampling.rules import count
from tercet.subsolvers import Dense
from tercet.subsolvers.base import Ask, Taylor


@dataclass(frozen=True)
class Averaged:
    """`batch` of the terms in each iteration, `momentum` the share a of the newest sample (1: none is remembered)."""

    batch: float = 0.01
    momentum: float = 0.1
    sigma: float = 1.0
    order: int = 3

    def __post_init__(self) -> None:
        count("Averaged", "batch", self.batch, 1)
        positive("Averaged", "sigma", self.sigma)
        if not 0 < number(self.momentum) <= 1:
            raise ValueError(f"Averaged(momentum={self.momentum!r}): give a share above 0 and at most 1.")
        if isinstance(self.order, bool) or self.order not in (2, 3):
            raise ValueError(f"Averaged(order={self.order!r}): order is 2 or 3.")

    def kernel(self, run: Run) -> AveragedKernel:
        """The method on the terms of a run."""
        refuse_bounds("Averaged", run)
        return AveragedKernel(self, count("Averaged", "batch", self.batch, run.n))


@dataclass(frozen=True, eq=False)
class Means:
    """The moving averages, and the x at which they stand; as a point they give products with B."""

    x: Vector
    g: Vector
    B: Matrix

    def hessian(self) -> Matrix:
        """B."""
        return self.B

    def hessian_product(self, v: Vector) -> Vector:
        """Bv."""
        return self.B @ v

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def of(arrays: Any, d: int) -> Means | None:
        """From a checkpoint; ValueError where it cannot be one."""
        if arrays is None:
            return None
        need(set(arrays) == {"x", "g", "B"}, "its averages have other parts")
        for name, shape in (("x", (d,)), ("g", (d,)), ("B", (d, d))):
            vector(f"the {name} of its averages", arrays[name], *shape)
        return Means(**arrays)

    def after(self, point: MeteredPoint, a: float, order: int) -> Means:
        """The averages with another sample, at its x."""
        s = point.x - self.x
        carried = self.g + self.B @ s
        if order > 2 and s.any():
            carried = carried + 0.5 * point.third_product(s, s)
        B = (1.0 - a) * self.B + a * point.hessian()
        return Means(point.x, (1.0 - a) * carried + a * point.gradient(), B)


@dataclass(frozen=True)
class AveragedKernel:
    """Steps of the model of the averages."""

    settings: Averaged
    size: int

    def begin(self, run: Run) -> State:
        """Stand at x0; nothing is evaluated there."""
        at, sigma, m = run.full.at(run.x0), self.settings.sigma, self.size
        sizes = Sizes(m, m, m, m if self.settings.order > 2 else 0)
        memory = Memory(Control(sigma, sigma), Reach.of(run.x0))
        return State(at, at, sizes, Views.alone(run.full), memory, Stream.of(run.seed))

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        means = Means.of(arrays.get("extra"), run.d)
        return State.from_arrays(run, lambda sizes: Views.alone(run.full), arrays, means)

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One step."""
        order, sigma, before = self.settings.order, self.settings.sigma, state.extra
        rows, stream = state.stream.draw(run.n, self.size)
        point = (run.full if rows is None else run.objective.over(rows)).at(state.x)
        try:
            if isinstance(before, Means):
                means = before.after(point, self.settings.momentum, order)
            else:
                means = Means(state.x, point.gradient(), point.hessian())
            if not np.isfinite(means.g).all():
                return state, Status.NOT_FINITE
            taylor = Taylor(means.g, means, point if order > 2 else None, False, run.meter.wait)
            move = Dense().prepare(taylor).solve(Ask(sigma, sigma, order + 1))
        except NotFiniteError:
            return state, Status.NOT_FINITE
        row = Row(
            iteration=state.memory.iteration,
            f=np.nan,  # no function values are taken
            gradient_norm=float(np.linalg.norm(means.g)),
            sigma=sigma,
            ratio=np.nan,
            accepted=True,
            step_norm=float(np.linalg.norm(move.s)),
            sizes=state.sizes,
            inner=move.inner,
            third_bought=move.cubic is not None,
            counts=run.meter.counts(),
            seconds=perf_counter() - run.started,
        )
        memory = replace(state.memory, iteration=row.iteration + 1, length=row.step_norm)
        return replace(state, point=run.full.at(state.x + move.s), memory=memory, stream=stream, extra=means), row
