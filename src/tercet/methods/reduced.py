"""`Reduced`: samples whose error shrinks with the distance from an anchor at which all terms were looked at.

    F(x) = f_S(x) - P_S(x) + P(x),   P and P_S the Taylor polynomials of f and of f_S at the anchor a, without f(a):

a sample S of the terms, of which all that is known at a is replaced by what is true of all terms. Its derivatives are

    g = g_S(x) - g_S(a) - B_S(a) e + grad f(a) + hess f(a) e,   B = B_S(x) - B_S(a) + hess f(a),   e = x - a,

so that a term adds an error of order |e|^2 to g, |e| to B and |e|^3 to f: samples of a fixed size lead to the minimizer
and not to their noise, and f, too, takes a sample only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tercet.checks import leading_orders, positive
from tercet.methods.anchored import Anchor, Kept, ReducedView, Sample
from tercet.methods.noise import noise_share, sampling_errors
from tercet.methods.phases import asked
from tercet.methods.policy import Independent, expansion
from tercet.methods.run import Run
from tercet.methods.state import Expansion, State, Views
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Sizes
from tercet.sampling.draws import Stream

if TYPE_CHECKING:
    from tercet.methods.parts import Parts

PLAIN = Independent()


def kept(state: State) -> Kept:
    """What the last iteration left; nothing at the start."""
    return Kept() if state.extra is None else cast(Kept, state.extra)


@dataclass(frozen=True)
class Reduced:
    """Variance reduction, `STM(sizes=Fixed(), policy=Reduced())`: samples less their error at an anchor.

    Samples are plain ones until sampling error could pretend more than the fraction `anchor` of the decrease that g
    promises, as the gradients of groups tell, or noise explains a rejection. Then the anchor is made at x, with the
    gradient over all terms, and it is renewed where that holds of F. `orders` says which derivatives at
    the anchor take the place of the sample's: 1 always; 2 where B is formed and 3 where T is, which takes them over all
    terms at each new anchor.

    With 2 in `orders` and B formed f is over samples, too: a step is judged by a fresh one, which gives the next g, B
    and T, so that no direction that a sample does not see carries a step away; else f is over all terms. Where rounding
    hides what f tells, so is all else.
    """

    anchor: float = 0.5
    orders: tuple[int, ...] = field(default=(1, 2, 3))

    def __post_init__(self) -> None:
        positive("Reduced", "anchor", self.anchor)
        leading_orders("Reduced", self.orders)

    def check(self, rule: Any, run: Run) -> None:
        """ValueError where the size rule or the objective cannot serve it."""
        name = type(rule).__name__
        if rule.nested:
            raise ValueError(
                f"Reduced() with sizes={name}(): its samples are nested and f is over them, but an anchor goes with "
                "samples that are drawn afresh; use Fixed, Growing or Adaptive with nested=False."
            )
        if hasattr(rule, "guarantee"):
            raise ValueError(
                f"Reduced() with sizes={name}(): it promises something of plain samples, not of differences; use "
                "Fixed, Growing or Adaptive, and tercet.theory.reduced_bounds for what holds of them."
            )
        if run.traits.residuals:
            raise ValueError(
                "Reduced(): steps of residuals come from their Jacobian over one sample, which is no difference of "
                "two; leave the policy out."
            )
        if run.traits.in_memory is not None:
            raise ValueError(
                "Reduced(): the terms of this objective are not in memory, and a sample at an anchor has to be read "
                "again in every iteration; use the nested default, Progressive()."
            )

    def first(self, run: Run, parts: Parts) -> Sizes:
        """Those of the rule, with f over as many terms as g."""
        return self.with_values(run, parts, parts.sizes.first(run.n, run.d))

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """Those of the rule; once rounding hides what f tells, all terms: only the gradient leads from there on."""
        n, memory = run.n, state.memory
        if state.sizes.is_full(n) or (memory.stuck > 0 and not memory.noisy):
            return Sizes(n, n, n, n)
        return self.with_values(run, parts, PLAIN.sizes(run, parts, state))

    def with_values(self, run: Run, parts: Parts, sizes: Sizes) -> Sizes:
        """The sizes with that of f."""
        sampled = 2 in self.orders and parts.forms_hessian and sizes.gradient < run.n
        return replace(sizes, value=sizes.gradient if sampled else run.n)

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """The terms of f: all of them, or the first sample."""
        rows, _ = Stream.of(run.seed).draw(run.n, sizes.value)
        return Views.alone(run.objective.over(rows))

    def grow(self, run: Run, state: State, sizes: Sizes) -> State:
        """Other samples, the same anchor. Larger ones are new hope, and samples say nothing of how far all terms go."""
        held, memory = kept(state), state.memory
        if sizes.gradient > state.sizes.gradient:
            memory = replace(memory, stuck=0)
        if sizes.is_full(run.n):
            memory = replace(memory, control=replace(memory.control, radius=np.inf))
        bare = held.anchor and replace(held.anchor, slopes=None, bends=None, third=None)
        return replace(state, sizes=sizes, memory=memory, kept=None, extra=replace(held, anchor=bare))

    def resumed(self, run: Run, parts: Parts, state: State) -> State:
        """A state from a checkpoint, with the sample that judged its last step."""
        if state.sizes.value >= run.n:
            return state
        sample, held = draw(run, parts, state.stream, state.sizes)[0][state.sizes.gradient], kept(state)
        assert sample is not None
        view: Any = ReducedView(sample, held.anchor, held.level)
        point = view.at(state.point.x)
        point.known.value = state.point.known.value
        return replace(state, point=point, views=Views.alone(view))

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """By the sample that judged the last step, or by a new anchor where that tells too little, with the next judge.

        The stream stands where that sample was drawn, so that a run that is resumed draws it again.
        """
        if state.kept is not None:
            return again(run, state, state.kept)
        x, sizes = state.point.x, state.sizes
        whole = state.point if state.point.terms >= run.n else run.full.at(x)
        if sizes.is_full(run.n):
            return PLAIN.expand(run, parts, replace(state, point=whole, views=Views.alone(run.full)))
        samples, stream = draw(run, parts, state.stream, sizes)
        anchor = kept(state).anchor
        slope, B, T = points(whole, samples, sizes, anchor, parts.order)
        anchor = slope.view.anchor if slope is not whole else anchor
        at = expansion(run, parts, state, slope.gradient(), slope, B, T, False)
        if slope is not whole and self.renews(run, parts, state, at):
            anchor = self.make(run, parts, whole)
            B, T = B if anchor.B is None else whole, T if anchor.T is None else whole
            at = expansion(run, parts, state, anchor.g, whole, B, T, False)
            state = replace(state, memory=replace(state.memory, stuck=0, noisy=False))  # g is exact now
        return judged(run, parts, replace(state, stream=stream, extra=Kept(anchor)), at, whole)

    def renews(self, run: Run, parts: Parts, state: State, at: Expansion) -> bool:
        """Whether the sample tells too little of g."""
        memory, model = state.memory, at.model
        if memory.noisy:
            return True
        model.workspace.solve(replace(asked(parts, state, at), buy_third=False))  # errors are measured with its shift
        errors = sampling_errors(at.slope, run.n, parts.sizes.replacement)
        return noise_share(model.workspace, model.taylor.g, model.frame.slope(errors)) > self.anchor

    def make(self, run: Run, parts: Parts, point: MeteredPoint) -> Anchor:
        """An anchor at a point over all terms."""
        B = point.hessian().copy() if 2 in self.orders and parts.forms_hessian else None
        T = point.third_tensor(np.eye(run.d)) if 3 in self.orders and parts.order >= 3 and parts.forms_third else None
        return Anchor(point.x, point.gradient().copy(), B, T)


def draw(run: Run, parts: Parts, stream: Stream, sizes: Sizes) -> tuple[dict[int, Sample | None], Stream]:
    """By their size, beginnings of one draw; None stands for all terms."""
    replacement, every = parts.sizes.replacement, (sizes.gradient, sizes.hessian, sizes.third)
    some = [m for m in every if m < run.n or replacement]
    rows, stream = stream.draw(run.n, max(some), replacement)
    assert rows is not None
    return {m: Sample(run.objective, rows[:m]) if m in some else None for m in every}, stream


def points(
    whole: MeteredPoint, samples: dict[int, Sample | None], sizes: Sizes, anchor: Anchor | None, order: int
) -> tuple[Any, Any, Any]:
    """x over the samples of g, B and T; equal sizes share a point."""
    made: dict[int, Any] = {}
    for m, wanted in ((sizes.gradient, "g"), (sizes.hessian, "B"), (sizes.third, "T")):
        sample = samples[m]
        if m in made or (wanted == "T" and order < 3):
            continue
        if sample is None:
            made[m] = whole
            continue
        own = None if anchor is None or getattr(anchor, wanted) is None else anchor
        if own is not None and (wanted != "g" or own.slopes is None):
            own = own.of_sample(sample, wanted == "g")
        made[m] = ReducedView(sample, own).at(whole.x)
    return made[sizes.gradient], made[sizes.hessian], made.get(sizes.third)


def judged(run: Run, parts: Parts, state: State, at: Expansion, whole: MeteredPoint) -> tuple[State, Expansion]:
    """With the terms that judge the step: all of them, or the sample that is drawn next, at the level of the last."""
    f, anchor = state.point.value(), kept(state).anchor
    if state.sizes.value >= run.n:
        return replace(state, point=whole, views=Views.alone(run.full)), replace(at, point=whole, f=whole.value())
    sample = draw(run, parts, state.stream, state.sizes)[0][state.sizes.gradient]
    assert sample is not None
    anchor = anchor and anchor.of_sample(sample)
    raw = ReducedView(sample, anchor).at(whole.x).value()
    if not np.isfinite(raw):
        raise NotFiniteError("value")
    view: Any = ReducedView(sample, anchor, f - raw)
    point = view.at(whole.x)
    point.known.value = f
    state = replace(state, point=point, views=Views.alone(view), extra=Kept(anchor, f - raw))
    return state, replace(at, point=point, f=f)


def again(run: Run, state: State, at: Expansion) -> tuple[State, Expansion]:
    """What is kept; a way down that was seen over all terms is gone over all terms."""
    if not state.phase.order or at.point.terms >= run.n:
        return state, at
    whole = run.full.at(at.point.x)
    at = replace(at, point=whole, f=whole.value())
    return replace(state, point=whole, views=Views.alone(run.full), kept=at), at
