"""Two ways to go on from a point: down the model, or away from a saddle along an escape direction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tercet.control.judge import EPS, Score
from tercet.control.ray import Ray
from tercet.control.sigma import Control, Evidence, Miss
from tercet.critical.looks import WayDown
from tercet.methods.noise import Noise, noise_of
from tercet.objectives.base import PRODUCTS, NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Forecast, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Taylor
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts
    from tercet.methods.run import Run
    from tercet.methods.state import Expansion, Memory, State

AHEAD = 10.0  # a T that is formed tells itself how far it can be trusted: the first radius may be that much longer
NEAR = 1 / 3  # residuals bend, and a first step beyond the size of x leads many fits to where nothing is told
PATIENCE = 20  # this many rejections that noise or rounding explains end the run


@dataclass(frozen=True, eq=False)
class Judged:
    """A step that was tried: what was asked, f at x + s and the gradient where it was looked at, and the verdict."""

    step: Step
    ask: Ask
    after: float
    slope: Vector | None  # the gradient at x + s, in the coordinates of the step
    score: Score
    accepted: bool


class Phase(Protocol):
    """How a run goes on from x."""

    @property
    def order(self) -> int:
        """0 down the model; 2 or 3 along a direction of negative curvature or of the third derivative."""
        ...

    def solve(self, at: Expansion, ask: Ask) -> tuple[Step, Ask]:
        """The step, and what was asked for it."""
        ...

    def verdict(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float) -> tuple[bool, Vector | None]:
        """Whether x + s is the next x, and the gradient there, where it was looked at, in the step's coordinates."""
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

    def solve(self, at: Expansion, ask: Ask) -> tuple[Step, Ask]:
        """The step of the model; without T where that is not finite."""
        workspace = at.model.workspace
        try:
            return workspace.solve(ask), ask
        except NotFiniteError as error:
            if not (ask.buy_third and error.order == "third"):
                raise
            ask = replace(ask, buy_third=False)
            return workspace.solve(ask), ask

    def verdict(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float) -> tuple[bool, Vector | None]:
        """ratio >= eta1 with a finite gradient; where f is rounded off, a smaller gradient decides."""
        if score.ratio == -np.inf or (score.ratio < eta1 and not score.rounding):
            return False, None
        if not at.consistent:
            return not score.rounding, None
        slope = at.model.frame.slope(trial.gradient())
        size = length(slope)
        if not (isfinite(size) or np.isfinite(slope).all()):
            return False, None
        if score.rounding:  # what leads across a bound that the step came to is no slope to follow
            return length(at.model.frame.left(trial.x, slope)) < length(at.model.taylor.g), slope
        return True, slope

    def meets(self, at: Expansion, judged: Judged) -> Meets:
        """As the sub-solver says."""
        return at.model.workspace.meets(judged.step, judged.ask)

    def learn(self, run: Run, parts: Parts, state: State, at: Expansion, judged: Judged) -> tuple[Memory, Phase]:
        """Sigma and radius from the evidence, unless sampling error or rounding explains how the model missed."""
        memory = state.memory
        noise = Noise(memory.noise_share, 0.0, memory.spreads)
        if not at.consistent:
            noise = noise_of(at, judged.step, run.n, parts.sizes.replacement)
        evidence = gather(at, judged, noise.allowance)
        excused = not at.consistent and parts.noise_aware and noise_explains(evidence, noise)
        stuck, noisy = count_stuck(memory.stuck, evidence.length, judged, at, excused)
        unexplained = left_over(memory.unexplained, at, judged)
        lost = judged.score.rounding and not judged.accepted
        control = Control(judged.ask.sigma2, judged.ask.sigma3, judged.ask.radius)
        if lost and evidence.length > 0.0:
            control = replace(control, radius=0.5 * evidence.length)
        elif not excused and evidence.length > 0.0:  # a step of no length says nothing of longer ones
            control = parts.sigma.next(control, evidence)
        return type(memory)(
            control,
            at.model.reach,
            memory.iteration + 1,
            evidence.length if judged.accepted else memory.length,
            unexplained,
            missed=unexplained if judged.accepted else np.inf,
            noisy=noisy,
            noise_share=noise.share,
            stuck=stuck,
            hopeless=memory.hopeless,
            closer=memory.closer,
            rounding=memory.rounding,
            looked=memory.looked,
            spreads=noise.spreads,
            variances=memory.variances,
        ), self


DESCENT = Descent()


def asked(parts: Parts, state: State, at: Expansion) -> Ask:
    """What is asked of the sub-solver at x."""
    model, memory = at.model, state.memory
    ahead = AHEAD if parts.forms_third else NEAR if parts.linear else 1.0
    c = memory.control
    if not isfinite(c.radius):
        size = ahead * model.size
        c = parts.begin(c, size, lambda: ahead * cauchy(model.taylor, parts.linear))
    return Ask(c.sigma2, c.sigma3, parts.power, c.radius, parts.buys_first, memory.unexplained)


def gather(at: Expansion, judged: Judged, allowance: float) -> Evidence:
    """How the polynomials of second and third order missed the trial point, less what noise may do."""
    step, score, there = judged.step, judged.score, judged.slope
    compare = there is not None and judged.accepted and step.trial is None

    def miss(forecast: Forecast) -> Miss:
        slope = float((there - forecast.gradient) @ step.s) if compare and there is not None else np.nan
        return Miss(judged.after - (at.f - forecast.decrease) - allowance, slope)

    cubic = None if step.cubic is None else miss(step.cubic)
    ray, change = partial(Ray.of, at.model.taylor.g, step), judged.after - at.f
    best = ray().lowest([(1.0, change)]) if not judged.accepted and np.isfinite(judged.after) else 0.5
    power, second = judged.ask.power, miss(step.quadratic)
    return Evidence(score.ratio, judged.accepted, length(step.s), power, second, cubic, best, ray, change, step.sigma)


def left_over(before: float, at: Expansion, judged: Judged) -> float:
    """|grad f+ - (g + Bs)| / |g|, what the quadratic left of the gradient; as before where the step does not tell."""
    step = judged.step
    if not judged.accepted:
        return before
    if step.trial is not None:
        return before if step.left is None else step.left
    if judged.slope is None:
        return before
    return length(judged.slope - step.quadratic.gradient) / max(length(at.model.taylor.g), 1e-300)


def cauchy(taylor: Taylor, linear: bool) -> float:
    """|g| / |u'Bu| along u = g / |g|: the length of the step of steepest descent, or, where f bends down along it, the
    one over which its slope doubles; |g| where f is straight.

    One product with B, or, where B is not worth forming and residuals are known, with the Gauss-Newton matrix.
    """
    size = length(taylor.g)
    if size == 0.0:
        return 0.0
    u = taylor.g / size
    known = linear and len(u) > PRODUCTS
    bend = taylor.B.residuals.linear().along(u) if known else float(u @ taylor.B.hessian_product(u))
    return size / abs(bend) if bend else size


def noise_explains(evidence: Evidence, noise: Noise) -> bool:
    """Whether the miss is within the allowance, which was taken off already, or noise is most of g."""
    if evidence.ratio >= 0.75:
        return False
    return (evidence.cubic or evidence.quadratic).value <= 0.0 or noise.share >= 0.5


def count_stuck(stuck: int, size: float, judged: Judged, at: Expansion, excused: bool) -> tuple[int, bool]:
    """How many steps in a row noise or rounding explains, and whether it was noise."""
    noisy = excused and not judged.accepted
    if size <= EPS * max(at.model.size, 1e-140):  # at x = 0 before |s|^2 underflows
        return PATIENCE, not at.consistent
    if noisy or judged.score.rounding:
        return stuck + 1, noisy
    if judged.accepted and not excused:
        return (0 if at.consistent else max(0, stuck - 1)), noisy
    return stuck, noisy


@dataclass(frozen=True, eq=False)
class Leaving:
    """A step to a point that was looked at and is lower, although the gradient at x is small."""

    way: WayDown

    @property
    def order(self) -> int:
        """2 or 3."""
        return self.way.order

    def solve(self, at: Expansion, ask: Ask) -> tuple[Step, Ask]:
        """What it promises was seen."""
        forecast = Forecast(self.way.fall, at.model.taylor.g)
        return Step(at.model.frame.coordinates(self.way.s), forecast, forecast, 1, 0.0), Ask(0.0, 0.0)

    def verdict(self, at: Expansion, trial: MeteredPoint, score: Score, eta1: float) -> tuple[bool, Vector | None]:
        """Where f is lower, as it was seen to be."""
        return score.ratio >= eta1, None

    def meets(self, at: Expansion, judged: Judged) -> Meets:
        """Not asked of such a step."""
        return None, None, None

    def learn(self, run: Run, parts: Parts, state: State, at: Expansion, judged: Judged) -> tuple[Memory, Phase]:
        """From there on steps may be as long as this one."""
        size = length(judged.step.s)
        control = replace(parts.sigma.first(), radius=3.0 * size)
        memory = replace(state.memory, control=control, iteration=state.memory.iteration + 1)
        if not judged.accepted:  # f is not the same when it is asked again
            return replace(memory, hopeless=True), DESCENT
        return replace(memory, reach=at.model.reach, length=size, stuck=0, looked=False), DESCENT
