"""How the samples of a run are drawn, grow, and give points: nested beginnings of one order, or independent draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tercet.methods.noise import noise_share, sampling_errors
from tercet.methods.run import Run
from tercet.methods.state import Expansion, Memory, State, Views
from tercet.objectives.metered import NOTHING, Carry, MeteredPoint, MeteredView
from tercet.records import Sizes, Step, Vector
from tercet.sampling.rules import Outlook
from tercet.subsolvers.base import Taylor
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts


class Policy(Protocol):
    """How samples serve an iteration."""

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """The terms of f, and of B and T where these are not drawn afresh."""
        ...

    def look(self, view: MeteredView, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """x over the terms of f, with f, and with g where it is over the same terms."""
        ...

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """The sizes of this iteration; the size rule is asked once."""
        ...

    def grow(self, run: Run, state: State, sizes: Sizes) -> State:
        """The same x over samples of other sizes."""
        ...

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """f, g, B and T at x over this iteration's samples; B and T are computed when they are asked for."""
        ...

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """f at x + s over the terms of f."""
        ...

    def consistent(self, run: Run, parts: Parts, sizes: Sizes) -> bool:
        """f and g are averages over the same terms, so that a new gradient can be compared with the forecast."""
        ...

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """The share of noise in the decrease that the gradient at an accepted point promises, where f is sampled."""
        ...

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """Whether an expansion serves again after its step was rejected."""
        ...


def outlook(run: Run, state: State) -> Outlook:
    """What a size rule may look at."""
    m = state.memory
    return Outlook(
        n=run.n,
        d=run.d,
        iteration=m.iteration,
        sizes=state.sizes,
        step=m.length,
        noise_share=m.noise_share,
        noisy=m.noisy,
        spreads=m.spreads,
        variances=m.variances,
        missed=m.missed,
        cost=run.traits.hessian_cost,
    )


def gradient_of(point: MeteredPoint) -> Vector:
    """grad f; nan where f is not finite, which needs no derivatives."""
    known = point.known
    if known.gradient is not None:
        return known.gradient
    return point.gradient() if np.isfinite(point.value()) else np.full(len(point.x), np.nan)


def expansion(
    parts: Parts, point: MeteredPoint, g: Vector, slope: MeteredPoint, B: MeteredPoint, T: MeteredPoint
) -> Expansion:
    """The Taylor polynomial from the points that give g, B and T, with a sub-solver prepared on it."""
    whole: Any = parts.guarantee.third(T) if parts.guarantee.promises else T
    workspace = parts.subsolver.prepare(Taylor(g, B, whole if parts.order >= 3 else None, parts.forms_third))
    f = point.known.value
    return Expansion(point, point.value() if f is None else f, g, length(g), slope, B, T, workspace)


@dataclass(frozen=True)
class Nested:
    """Samples are beginnings of one shuffled order. f and g are over the same terms, B and T perhaps over fewer."""

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """Beginnings of the order."""
        return Views.of(run, sizes, old)

    def look(self, view: MeteredView, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """f, and g where f is finite: a value that is not needs no derivatives."""
        point = view.first_at(x, given)
        gradient_of(point)
        return point

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """What the rule says; a sample that has nothing more to teach gives way to all terms."""
        point, sizes, n = state.point, state.sizes, run.n
        if sizes.hessian >= n or not np.isfinite(gradient_of(point)).all():
            return sizes
        if sizes.value < n and length(gradient_of(point)) <= run.tolerances.eps1:
            return Sizes(n, n, n, n)
        return parts.sizes.next(outlook(run, state))

    def grow(self, run: Run, state: State, sizes: Sizes) -> State:
        """f and g are looked at anew where their terms changed."""
        views, point = self.views(run, sizes, state.views), state.point
        if views.value is not state.views.value:
            point = self.look(views.value, point.x, point.carry.fresh())
        if sizes.value >= run.n:
            run.shuffle.rest()
        memory = replace(state.memory, noise_share=0.0, missed=0.0)
        return replace(state, point=point, sizes=sizes, views=views, memory=memory, kept=None)

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """The expansion that is kept, or one over the views of B and T."""
        if state.kept is not None:
            return state, state.kept
        point, views = state.point, state.views
        B = point if views.hessian is views.value else views.hessian.at(point.x, point.carry)
        B = B if B.borrowed is None else parts.curvature.before(B, state.memory.unexplained)
        T = B if views.third is views.hessian else point if views.third is views.value else views.third.at(point.x)
        return state, expansion(parts, point, gradient_of(point), point, B, T)

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """With f and g at once where the objective can; a sub-solver may have looked already, over the same terms."""
        if step.trial is not None and at.B is at.point:
            return step.trial
        carry = at.B.carry
        carry = carry.fresh() if state.phase.order else carry
        return state.views.value.first_at(at.point.x + step.s, carry)

    def consistent(self, run: Run, parts: Parts, sizes: Sizes) -> bool:
        """Always."""
        return True

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """From the spread of the sampled terms, by this iteration's B."""
        g = gradient_of(trial)
        return noise_share(at.workspace, g, sampling_errors(trial, run.n, False))

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """Always: the terms stay the same."""
        return True


@dataclass(frozen=True)
class Independent:
    """Samples of g, B and T are drawn afresh in each iteration; f is over a beginning of the order, usually all."""

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """The terms of f."""
        same = old is not None and old.value.terms == min(sizes.value, run.n)
        return old if old is not None and same else Views.alone(run.sample(sizes.value))

    def look(self, view: MeteredView, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """f."""
        point = view.at(x, given)
        point.value()
        return point

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """What the rule says of the last iteration."""
        return parts.sizes.next(outlook(run, state)) if state.memory.iteration > 0 else state.sizes

    def grow(self, run: Run, state: State, sizes: Sizes) -> State:
        """Other samples are new hope."""
        views, point = self.views(run, sizes, state.views), state.point
        if views.value is not state.views.value:
            point = self.look(views.value, point.x, point.carry)
        memory = replace(state.memory, stuck=0)
        return replace(state, point=point, sizes=sizes, views=views, memory=memory, kept=None)

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """Three draws, or all terms."""
        if state.kept is not None:
            return state, state.kept
        point, sizes, replacement = state.point, state.sizes, parts.sizes.replacement
        if sizes.is_full(run.n):
            whole = parts.guarantee.base(point)
            points, stream = [whole, whole, whole], state.stream
        else:
            points, stream, unsampled = [], state.stream, (point, *2 * (parts.guarantee.base(point),))
            for whole, m in zip(unsampled, (sizes.gradient, sizes.hessian, sizes.third), strict=True):
                rows, stream = stream.draw(run.n, m, replacement)
                points.append(whole if rows is None else run.objective.over(rows).at(point.x))
        g = points[0].gradient() if np.isfinite(point.value()) else np.full(run.d, np.nan)
        return replace(state, stream=stream), expansion(parts, point, g, points[0], points[1], points[2])

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """f alone."""
        return state.views.value.at(at.point.x + step.s, at.point.carry.fresh())

    def consistent(self, run: Run, parts: Parts, sizes: Sizes) -> bool:
        """Where g is not sampled."""
        return sizes.gradient >= run.n and not parts.sizes.replacement

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """As it was measured for the step."""
        return memory.noise_share

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """Where all terms are used."""
        return sizes.is_full(run.n)
