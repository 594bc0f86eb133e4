"""Two ways to go on from a point: down the model, or away from a saddle along an escape direction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tercet.control.judge import EPS, Score
from tercet.control.limit import limit
from tercet.control.sigma import Control, Evidence, Miss
from tercet.critical.escape import Escape
from tercet.methods.noise import Noise, noise_of
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Forecast, Meets, Step, Vector
from tercet.subsolvers.base import Ask
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts
    from tercet.methods.run import Run
    from tercet.methods.state import Expansion, Memory, State

PATIENCE = 20  # this many rejections that noise or rounding explains end the run


@dataclass(frozen=True, eq=False)
class Judged:
    """A step that was tried: what was asked, f at x + s and the gradient where it was looked at, and the verdict."""

    step: Step
    ask: Ask
    after: float
    gradient: Vector | None
    score: Score
    accepted: bool
    consistent: bool  # f and g are averages over the same terms


class Phase(Protocol):
    """How a run goes on from x."""

    @property
    def order(self) -> int:
        """0 down the model; 2 or 3 along a direction of negative curvature or of the third derivative."""
        ...

    def solve(self, run: Run, parts: Parts, state: State, at: Expansion) -> tuple[Step, Ask]:
        """The step, and what was asked for it."""
        ...

    def accepts(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float, consistent: bool) -> bool:
        """Whether x + s is the next x."""
        ...

    def meets(self, at: Expansion, judged: Judged) -> Meets:
        """Which parts of Condition 2 the step meets."""
        ...

    def learn(self, run: Run, parts: Parts, state: State, at: Expansion, judged: Judged) -> tuple[Memory, Phase]:
        """What is remembered of the step, and how to go on if it was rejected."""
        ...


@dataclass(frozen=True)
class Descent:
    """Steps of the model."""

    order: int = 0

    def solve(self, run: Run, parts: Parts, state: State, at: Expansion) -> tuple[Step, Ask]:
        """The step of the model; sigma is raised until it can be trusted."""
        memory, sizes = state.memory, state.sizes
        buy = parts.third.buys(memory.unexplained, sizes.third / run.n, sizes.hessian < sizes.value)
        c = memory.control
        ask = Ask(c.sigma2, c.sigma3, parts.power, c.radius, buy, memory.unexplained)
        try:
            return limit(at.workspace.solve, ask, at.point.x, at.f)
        except NotFiniteError as error:
            if not (buy and error.order == "third"):
                raise
            return limit(at.workspace.solve, replace(ask, buy_third=False), at.point.x, at.f)

    def accepts(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float, consistent: bool) -> bool:
        """ratio >= eta1 with a finite gradient; where f is rounded off, a smaller gradient decides."""
        if score.ratio == -np.inf or (score.ratio < eta1 and not score.rounding):
            return False
        if not consistent:
            return not score.rounding
        g = trial.gradient()
        return bool(np.isfinite(g).all()) and not (score.rounding and length(g) >= at.norm)

    def meets(self, at: Expansion, judged: Judged) -> Meets:
        """As the sub-solver says."""
        return at.workspace.meets(judged.step, judged.ask)

    def learn(self, run: Run, parts: Parts, state: State, at: Expansion, judged: Judged) -> tuple[Memory, Phase]:
        """Sigma and radius from the evidence, unless sampling error or rounding explains how the model missed."""
        memory = state.memory
        noise = Noise(memory.noise_share, 0.0, memory.spreads)
        if not judged.consistent:
            noise = noise_of(at, judged.step, run.n, parts.sizes.replacement)
        evidence = gather(at, judged, noise.allowance)
        excused = not judged.consistent and parts.noise_aware and noise_explains(evidence, noise)
        stuck, noisy = count_stuck(memory.stuck, evidence.length, judged, at, excused)
        unexplained = left_over(memory.unexplained, at, judged)
        lost = judged.score.rounding and not judged.accepted
        control = Control(judged.ask.sigma2, judged.ask.sigma3, judged.ask.radius)
        if lost:
            control = replace(control, radius=0.5 * evidence.length)
        elif not excused:
            control = parts.sigma.next(control, evidence)
        return type(memory)(
            control,
            memory.iteration + 1,
            evidence.length if judged.accepted else memory.length,
            unexplained,
            missed=unexplained if judged.accepted else np.inf,
            noisy=noisy,
            noise_share=noise.share,
            stuck=stuck,
            hopeless=memory.reach < 1.0 if lost else memory.hopeless,
            reach=1.0 if judged.accepted and not judged.score.rounding else memory.reach,
            spreads=noise.spreads,
            variances=memory.variances,
        ), self


DESCENT = Descent()


def gather(at: Expansion, judged: Judged, allowance: float) -> Evidence:
    """How the polynomials of second and third order missed the trial point, less what noise may do."""
    step, g = judged.step, judged.gradient
    compare = judged.accepted and judged.consistent and step.trial is None

    def miss(forecast: Forecast) -> Miss:
        slope = float((g - forecast.gradient) @ step.s) if compare and g is not None else np.nan
        return Miss(judged.after - (at.f - forecast.decrease) - allowance, slope)

    cubic = None if step.cubic is None else miss(step.cubic)
    return Evidence(judged.score.ratio, judged.accepted, length(step.s), judged.ask.power, miss(step.quadratic), cubic)


def left_over(before: float, at: Expansion, judged: Judged) -> float:
    """|grad f+ - (g + Bs)| / |g|, what the quadratic left of the gradient; as before where the step does not tell."""
    step, g = judged.step, judged.gradient
    if not judged.accepted:
        return before
    if step.trial is not None:
        return before if step.left is None else step.left
    if not judged.consistent or g is None:
        return before
    return length(g - step.quadratic.gradient) / max(at.norm, 1e-300)


def noise_explains(evidence: Evidence, noise: Noise) -> bool:
    """Whether the miss is within the allowance, which was taken off already, or noise is most of g."""
    if evidence.ratio >= 0.75:
        return False
    return (evidence.cubic or evidence.quadratic).value <= 0.0 or noise.share >= 0.5


def count_stuck(stuck: int, size: float, judged: Judged, at: Expansion, excused: bool) -> tuple[int, bool]:
    """How many steps in a row noise or rounding explains, and whether it was noise."""
    noisy = excused and not judged.accepted
    if size <= EPS * max(length(at.point.x), 1e-140):  # at x = 0 before |s|^2 underflows
        return PATIENCE, not judged.consistent
    if noisy or judged.score.rounding:
        return stuck + 1, noisy
    if judged.accepted and not excused:
        return (0 if judged.consistent else max(0, stuck - 1)), noisy
    return stuck, noisy


@dataclass(frozen=True, eq=False)
class Leaving:
    """Steps along a direction in which f falls although its gradient is small; shorter ones until one is accepted."""

    escape: Escape
    sigma: float

    @property
    def order(self) -> int:
        """2 or 3."""
        return self.escape.order

    def solve(self, run: Run, parts: Parts, state: State, at: Expansion) -> tuple[Step, Ask]:
        """As long as the model in that direction says."""
        t = self.escape.length(self.sigma)
        forecast = Forecast(self.escape.fall(t), at.g)
        return Step(t * self.escape.y, forecast, forecast, 1, self.sigma), Ask(self.sigma, self.sigma)

    def accepts(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float, consistent: bool) -> bool:
        """ratio >= eta1, and the decrease shows in f."""
        return score.ratio >= eta1 and not score.rounding

    def meets(self, at: Expansion, judged: Judged) -> Meets:
        """Not asked of an escape."""
        return None, None, None

    def learn(self, run: Run, parts: Parts, state: State, at: Expansion, judged: Judged) -> tuple[Memory, Phase]:
        """A shorter step along the escape direction next time, until it is too short to show in f."""
        memory, control = replace(state.memory, iteration=state.memory.iteration + 1), parts.sigma.first()
        if judged.accepted:
            size = length(judged.step.s)
            return replace(memory, control=replace(control, radius=2 * size), length=size, stuck=0, reach=1.0), DESCENT
        if judged.score.rounding:
            # f no longer shows the way down, but at a flat minimum the gradient may still lead closer.
            reach = 0.1 * at.norm / run.tolerances.eps1
            return replace(memory, control=control, reach=reach, hopeless=bool(reach < 1e-8)), DESCENT
        return memory, replace(self, sigma=4.0 * self.sigma)
