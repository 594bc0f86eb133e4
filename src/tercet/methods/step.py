"""One iteration of STM and SCR, a straight line of values:

sizes -> [grow] -> expand -> [stop?] -> solve -> search -> judge -> learn -> the next state
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np

from tercet.control.judge import EPS, judge
from tercet.frame import Reach
from tercet.methods.anchored import Kept
from tercet.methods.guarantee import NO_RECORD, Record
from tercet.methods.parts import Parts, Settings
from tercet.methods.phases import DESCENT, Judged, asked
from tercet.methods.run import Run
from tercet.methods.state import Expansion, Memory, State
from tercet.methods.stop import End, Turn, stop
from tercet.methods.walking import Walked, Walker
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Counts, Meets, Sizes, Status
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.vectors import length

HALVINGS = 4  # of the way from x0, in search of a point where f is finite


def begin(run: Run, parts: Parts, memory: Memory | None = None) -> State:
    """Stand at the start, or at a better one that the first sample tells; f is known there."""
    sizes = parts.policy.first(run, parts)
    origin = MeteredPoint(run.full, run.x0)
    sampled = sizes.value < run.n
    return stand(run, parts, sizes, memory or Memory(parts.sigma.first(), Reach.of(run.x0)), origin, sampled)


def stand(run: Run, parts: Parts, sizes: Sizes, memory: Memory, origin: MeteredPoint, sampled: bool) -> State:
    """The state at x0 with samples of these sizes."""
    views = parts.policy.views(run, sizes)
    x = run.domain.start(run.x0, views.value.start)
    point = parts.policy.look(views.value, x, views.value.seed)
    if x is run.x0 and not sampled:
        origin = point  # a sampled run looks at x0 over all terms when it ends
    return State(point, origin, sizes, views, memory, Stream.of(run.seed), sampled=sampled, scale=abs(point.value()))


def step(run: Run, parts: Parts, state: State) -> tuple[State, Row | Status]:
    """One iteration, or the reason why there is none; from further back where f or a derivative is not finite at x."""
    while True:
        try:
            return iterate(run, parts, state)
        except NotFiniteError:
            back = retreat(run, parts, state)
            if back is None:
                return state, Status.NOT_FINITE
            state = back


def iterate(run: Run, parts: Parts, state: State) -> tuple[State, Row | Status]:
    """One iteration from x. The size rule is asked here, once, and nowhere else."""
    sizes = parts.policy.sizes(run, parts, state)
    if sizes != state.sizes:
        state = parts.policy.grow(run, state, sizes)
    while True:
        state, at = parts.policy.expand(run, parts, state)
        ask = asked(parts, state, at)
        verdict = stop(run, parts, state, at, ask, partial(restart, run, parts, state))
        if not isinstance(verdict, Turn):
            break
        state = verdict.state  # the run stands elsewhere, or looks another way
        if verdict.due:
            if state.kept is None:
                state, at = parts.policy.expand(run, parts, state)
                ask = asked(parts, state, at)
            break
    if isinstance(verdict, End):
        return replace(state, certificate=verdict.certificate, point=verdict.point or state.point), verdict.status
    sizes = state.sizes
    move, ask = state.phase.solve(at, ask)
    move, trial, after = parts.search.look(parts, state, at, move, ask)
    paid = Counts(**run.meter.tally, n=run.n)  # what it took to know f; the gradient belongs to the next iteration
    forecast = move.cubic or move.quadratic
    score = judge(at.f, forecast.decrease, after, max(state.memory.rounding, at.rounding))
    eta1 = parts.sigma.eta1 if move.looks == 1 else EPS  # the lowest of several looks is taken if it is lower at all
    accepted, slope = state.phase.verdict(at, trial, score, eta1)
    judged, size = Judged(move, ask, after, slope, score, accepted), length(at.model.frame.lift(move.s))
    sure = parts.guarantee.record(run, sizes, at, move) if parts.guarantee.promises else NO_RECORD
    meets = state.phase.meets(at, judged)
    memory, phase = state.phase.learn(run, parts, state, at, judged)
    row = describe(run, state, at, judged, size, meets, sure, paid)
    if sure.variances is not memory.variances:
        memory = replace(memory, variances=sure.variances)
    if not accepted:
        # What serves for another step from the same x, but no B from nearby, which is renewed, nor other terms.
        kept = at if at.B.borrowed is None and parts.policy.keeps(run, sizes) else None
        return replace(state, memory=memory, phase=phase, kept=kept), row
    if trial.terms < run.n:
        memory = replace(memory, noise_share=parts.policy.share(run, at, trial, memory))
    phase, scale, x = DESCENT, state.scale, at.point.x
    return State(
        trial, state.origin, sizes, state.views, memory, state.stream, phase, state.sampled, scale, x, extra=state.extra
    ), row


def retreat(run: Run, parts: Parts, state: State) -> State | None:
    """Where to go on from when x is outside the domain of f over its terms, or of a derivative; None: nowhere.

    Where the last step began, with a tenth of its length; or on the way back to x0; or from x0 with all terms. There is
    no second retreat before another step is accepted.
    """
    x, view = state.x, state.views.value
    toward = [run.x0 + 0.5**k * (x - run.x0) for k in range(1, HALVINGS + 1)]
    for back in [] if state.before is None else [state.before, *toward]:
        point = parts.policy.look(view, back, view.seed)
        if isfinite(point.value()) and np.isfinite(point.gradient()).all():
            away = parts.units.frame(state.memory.reach, run.scales).coordinates(x - back)
            control = replace(state.memory.control, radius=0.1 * length(away))
            memory = replace(state.memory, control=control, missed=np.inf)
            return replace(state, point=point, memory=memory, phase=DESCENT, before=None, kept=None, certificate=None)
    return restart(run, parts, state) if state.sampled else None


def restart(run: Run, parts: Parts, state: State) -> State:
    """Begin again at x0 with all data."""
    n, memory = run.n, Memory(parts.sigma.first(), Reach.of(run.x0), state.memory.iteration)
    at_x0 = stand(run, parts, Sizes(n, n, n, n), memory, state.origin, state.sampled)
    return replace(at_x0, sampled=False, stream=state.stream, scale=abs(at_x0.point.value()))


def describe(
    run: Run, state: State, at: Expansion, judged: Judged, size: float, meets: Meets, sure: Record, paid: Counts
) -> Row:
    """What an observer sees of this iteration, with the length of its step in x."""
    step = judged.step
    return Row(
        iteration=state.memory.iteration,
        f=judged.after if judged.accepted else at.f,
        gradient_norm=at.norm,
        sigma=step.sigma,
        ratio=judged.score.ratio,
        accepted=judged.accepted,
        step_norm=size,
        sizes=state.sizes,
        inner=step.inner,
        third_bought=step.cubic is not None,
        escape=state.phase.order,
        meets=meets,
        seconds=perf_counter() - run.started,
        counts=paid,
        predicted=(step.cubic or step.quadratic).decrease,
        guaranteed=sure.holds,
        failure=sure.failure,
    )


@dataclass(frozen=True)
class TensorKernel:
    """STM or SCR with the parts that suit a run."""

    parts: Parts
    walker: Walker | None = None  # who takes ordinary iterations on small linear models

    @staticmethod
    def of(settings: Settings, run: Run) -> TensorKernel:
        """The parts are chosen once."""
        parts = Parts.of(settings, run)
        return TensorKernel(parts, Walker.of(parts, run))

    def begin(self, run: Run) -> State:
        """Stand at the start."""
        return begin(run, self.parts)

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        policy = self.parts.policy
        extra = Kept.of(arrays["extra"], run.d) if "extra" in arrays else None
        return policy.resumed(run, self.parts, State.from_arrays(run, partial(policy.views, run), arrays, extra))

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One iteration, or the reason why there is none."""
        return step(run, self.parts, state)

    def fast_forward(self, run: Run, state: State, most: int, evaluations: float) -> Walked:
        """Iterations that need no more than arithmetic."""
        return (state, [], False) if self.walker is None else self.walker.walk(run, state, most, evaluations)
