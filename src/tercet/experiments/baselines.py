"""`SVRG` and `SAGA`, variance-reduced gradient methods, and `SVRC`, a cubic one, as baselines of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from tercet.checks import number, positive, whole
from tercet.control.sigma import Control
from tercet.frame import Reach
from tercet.methods.anchored import Anchor
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.saved import need, vector
from tercet.methods.state import Memory, State, Views
from tercet.objectives.base import NotFiniteError
from tercet.records import Matrix, Rows, Sizes, Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.sampling.rules import count
from tercet.subsolvers import Dense
from tercet.subsolvers.base import Ask, Taylor


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


@dataclass(frozen=True)
class SVRC:
    """Stochastic variance-reduced cubic regularization (Zhou, Xu and Gu 2018), with the schedule of its paper.

    Every T iterations the anchor a is renewed, with g_a = grad f(a) and B_a = hess f(a) over all terms; in between

        g = g_I(x) - g_I(a) - (B_I(a) - B_a) (x - a) + g_a,   B = B_J(x) - B_J(a) + B_a

    over independent draws I and J, and the step minimizes g's + 1/2 s'Bs + M/6 |s|^3. No value of f is taken. Its
    analysis asks for T = n^(1/5), |I| of the order n^(4/5) and |J| of the order n^(2/5) log d; `epoch`, `gradient` and
    `hessian` are the factors before these. M = penalty / (1 + decay)^(k/T) in iteration k, as in its experiments;
    without decay it is constant, as in the analysis.
    """

    epoch: float = 1.0
    gradient: float = 1.0
    hessian: float = 1.0
    penalty: float = 1.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epoch", "gradient", "hessian", "penalty"):
            positive("SVRC", name, getattr(self, name))
        if not 0 <= number(self.decay) < np.inf:
            raise ValueError(f"SVRC(decay={self.decay!r}): give a finite number of at least 0.")

    def kernel(self, run: Run) -> CubicKernel:
        """The method on the terms of a run."""
        refuse_bounds("SVRC", run)
        n, d = run.n, run.d
        sizes = (self.epoch * n**0.2, self.gradient * n**0.8, self.hessian * n**0.4 * max(1.0, np.log(d)))
        steps, gradient, hessian = (max(1, round(min(size, n))) for size in sizes)
        return CubicKernel(self.penalty, self.decay, steps, gradient, hessian)


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
        return moved(run, replace(state, stream=stream, extra=extra), g, -self.rate * g)


@dataclass(frozen=True)
class CubicKernel:
    """Steps of a cubic model of semi-stochastic derivatives, with a penalty that falls by a schedule."""

    penalty: float
    decay: float
    steps: int  # from one anchor to the next
    gradient: int
    hessian: int

    def begin(self, run: Run) -> State:
        """Stand at x0; nothing is evaluated there."""
        at, sizes = run.full.at(run.x0), Sizes(self.gradient, self.gradient, self.hessian, 0)
        control = Control(self.sigma(0), self.sigma(0))
        return State(at, at, sizes, Views.alone(run.full), Memory(control, Reach.of(run.x0)), Stream.of(run.seed))

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        anchor = Anchor.of(arrays.get("extra"), run.d)
        return State.from_arrays(run, lambda sizes: Views.alone(run.full), arrays, anchor)

    def sigma(self, iteration: int) -> float:
        """sigma/3 |s|^3 is M/6 |s|^3."""
        return 0.5 * self.penalty / (1.0 + self.decay) ** (iteration / self.steps)

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One step of the model."""
        sigma = self.sigma(state.memory.iteration)
        state = replace(state, memory=replace(state.memory, control=Control(sigma, sigma)))
        try:
            point, state = self.estimate(run, state)
            if not np.all(np.isfinite(point.gradient)):
                return state, Status.NOT_FINITE
            taylor = Taylor(point.gradient, point, None, False, run.meter.wait)
            move = Dense().prepare(taylor).solve(Ask(sigma, sigma, 3))
        except NotFiniteError:
            return state, Status.NOT_FINITE
        return moved(run, state, point.gradient, move.s)

    def estimate(self, run: Run, state: State) -> tuple[Estimate, State]:
        """The estimates at x, which an anchor that is made there does not need, and the state after the draws."""
        x, anchor, stream = state.x, state.extra, state.stream
        if state.memory.iteration % self.steps == 0 or not isinstance(anchor, Anchor) or anchor.B is None:
            whole = run.full.at(x)
            anchor = Anchor(x, whole.gradient().copy(), whole.hessian().copy())
            assert anchor.B is not None
            return Estimate(anchor.g, anchor.B), replace(state, extra=anchor)
        rows, stream = stream.draw(run.n, self.gradient)
        view, e = run.objective.over(rows), x - anchor.x
        there = view.at(anchor.x)
        g = view.at(x).gradient() - there.gradient() - there.hessian_product(e) + anchor.B @ e + anchor.g
        rows, stream = stream.draw(run.n, self.hessian)
        view = run.objective.over(rows)
        B = view.at(x).hessian() - view.at(anchor.x).hessian() + anchor.B
        return Estimate(g, B), replace(state, stream=stream)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Derivatives at a point, as far as a sub-solver of second order asks for them."""

    gradient: Vector
    B: Matrix

    def hessian(self) -> Matrix:
        """B."""
        return self.B

    def hessian_product(self, v: Vector) -> Vector:
        """Bv."""
        return self.B @ v


def moved(run: Run, state: State, g: Vector, s: Vector) -> tuple[State, Row]:
    """After a step from an estimate of the gradient, which is not judged: no function values are taken."""
    row = Row(
        iteration=state.memory.iteration,
        f=np.nan,
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
    return replace(state, point=run.full.at(state.x + s), memory=memory), row
