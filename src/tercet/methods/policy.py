"""How the samples of a run are drawn, grow, and give points: nested beginnings of one order, or independent draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tercet.frame import at_rest
from tercet.methods.noise import noise_share, sampling_errors
from tercet.methods.run import Run
from tercet.methods.state import Expansion, Memory, Model, State, Views
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import NOTHING, Carry, MeteredPoint, MeteredView
from tercet.records import Sizes, Step, Vector
from tercet.sampling.rules import Outlook
from tercet.subsolvers.base import Taylor
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts

NO_BEND = np.zeros(0)  # where no Hessian is formed


class Policy(Protocol):
    """How samples serve an iteration."""

    def first(self, run: Run, parts: Parts) -> Sizes:
        """The sizes to begin with."""
        ...

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

    def resumed(self, run: Run, parts: Parts, state: State) -> State:
        """The state of a checkpoint, with what only this policy makes of it."""
        ...

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """f, g, B and T at x over this iteration's samples; NotFiniteError where f, g or B is not finite."""
        ...

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """f at x + s over the terms of f."""
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
        scattered=run.traits.scattered,
    )


def gradient_of(point: MeteredPoint) -> Vector:
    """grad f; nan where f is not finite, which needs no derivatives."""
    known = point.known
    if known.gradient is not None:
        return known.gradient
    return point.gradient() if np.isfinite(point.value()) else np.full(len(point.x), np.nan)


def expansion(
    run: Run, parts: Parts, state: State, g: Vector, slope: MeteredPoint, B: MeteredPoint, T: MeteredPoint, same: bool
) -> Expansion:
    """The Taylor polynomial at x from the points that give g, B and T, with a sub-solver that is ready on it."""
    point = state.point
    f = point.known.value
    f = point.value() if f is None else f
    if not (isfinite(f) and np.isfinite(g).all()):
        raise NotFiniteError("value")
    lines = B.residuals.linear() if parts.linear else None
    bend = lines.bend if lines is not None else B.hessian().diagonal() if parts.forms_hessian else NO_BEND
    reach = state.memory.reach.at(point.x, run.x0, bend)
    frame = parts.units.frame(reach, run.scales, B.white() if parts.turns else None)
    frame = at_rest(frame, reach, bend, g, f) if bend.size else frame
    norm, frame = run.domain.chi1(point.x, g), run.domain.face(frame, point.x, g)
    whole: Any = parts.guarantee.third(T) if parts.guarantee.promises else T
    third = frame.point(whole) if parts.order >= 3 else None
    taylor = Taylor(frame.slope(g), frame.point(B), third, parts.forms_third, run.meter.wait, frame.walls)
    model = Model(reach, frame, length(frame.coordinates(point.x)), taylor, parts.subsolver.prepare(taylor))
    rounding = max(run.traits.epsilon * abs(f), 0.0 if lines is None else lines.rounding(point.x))
    return Expansion(point, f, g, norm, slope, B, T, same, model, rounding)


@dataclass(frozen=True)
class Nested:
    """Samples are beginnings of one shuffled order. f and g are over the same terms, B and T perhaps over fewer."""

    def first(self, run: Run, parts: Parts) -> Sizes:
        """As the rule says."""
        return parts.sizes.first(run.n, run.d)

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """Beginnings of the order."""
        return Views.of(run, sizes, old)

    def look(self, view: MeteredView, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """f, and g where f is finite: a value that is not needs no derivatives."""
        point = view.first_at(x, given)
        gradient_of(point)
        return point

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """What the rule says; a sample that has nothing more to teach gives way to all terms, and that of B where
        f is rounded off, too: from there on only the gradient leads, and it takes a B that is exact."""
        point, sizes, n = state.point, state.sizes, run.n
        if sizes.hessian >= n or not np.isfinite(gradient_of(point)).all():
            return sizes
        if sizes.value >= n and state.memory.stuck > 0:
            return Sizes(n, n, n, n)
        if sizes.value < n and run.domain.chi1(point.x, gradient_of(point)) <= run.tolerances.eps1:
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
        radius = memory.control.radius
        if run.traits.in_memory is not None and views.value is run.full and state.views.value is not run.full:
            radius = np.inf  # a sample that was solved says nothing of how far it is, and short steps take a pass each
        elif np.isfinite(memory.length):  # a good step over fewer terms says no more than that about longer ones
            radius = min(radius, memory.length)
        memory = replace(memory, control=replace(memory.control, radius=radius))
        return replace(state, point=point, sizes=sizes, views=views, memory=memory, kept=None)

    def resumed(self, run: Run, parts: Parts, state: State) -> State:
        """As it is."""
        return state

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """The expansion that is kept, or one over the views of B and T."""
        if state.kept is not None:
            return state, state.kept
        point, views = state.point, state.views
        B = point if views.hessian is views.value else views.hessian.at(point.x, point.carry)
        B = B if B.borrowed is None else parts.curvature.before(B, max(state.memory.unexplained, state.memory.missed))
        T = B if views.third is views.hessian else point if views.third is views.value else views.third.at(point.x)
        return state, expansion(run, parts, state, gradient_of(point), point, B, T, True)

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """With f and g at once where the objective can; a sub-solver may have looked already, over the same terms."""
        if step.trial is not None and at.B is at.point:
            return step.trial
        carry = at.B.carry
        carry = carry.fresh() if state.phase.order else carry
        return state.views.value.first_at(at.model.frame.move(at.point.x, step.s), carry)

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """From the spread of the sampled terms, by this iteration's B."""
        g, errors, slope = gradient_of(trial), sampling_errors(trial, run.n, False), at.model.frame.slope
        return noise_share(at.model.workspace, slope(g), slope(errors))

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """The terms stay the same."""
        return True


@dataclass(frozen=True)
class Independent:
    """Samples of g, B and T are drawn afresh in each iteration; f is over a beginning of the order, usually all."""

    def first(self, run: Run, parts: Parts) -> Sizes:
        """As the rule says."""
        return parts.sizes.first(run.n, run.d)

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

    def resumed(self, run: Run, parts: Parts, state: State) -> State:
        """As it is."""
        return state

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
        # Where all is over all terms, nothing is drawn, also not with replacement.
        same = sizes.is_full(run.n) or (sizes.gradient >= run.n and not replacement)
        slope, B, T = points
        return replace(state, stream=stream), expansion(run, parts, state, g, slope, B, T, same)

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """f alone."""
        return state.views.value.at(at.model.frame.move(at.point.x, step.s), at.point.carry.fresh())

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """As it was measured for the step."""
        return memory.noise_share

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """Where all terms are used."""
        return sizes.is_full(run.n)


@dataclass(frozen=True)
class Completed:
    """What a setting of another policy says itself, and independent draws in all that it does not."""

    first: Callable[..., Sizes]
    views: Callable[..., Views]
    look: Callable[..., MeteredPoint]
    sizes: Callable[..., Sizes]
    grow: Callable[..., State]
    resumed: Callable[..., State]
    expand: Callable[..., tuple[State, Expansion]]
    trial: Callable[..., MeteredPoint]
    share: Callable[..., float]
    keeps: Callable[..., bool]

    @staticmethod
    def of(own: Any) -> Completed:
        """Its members, and the others."""
        plain = Independent()
        return Completed(
            **{each.name: getattr(own, each.name, getattr(plain, each.name)) for each in fields(Completed)}
        )
