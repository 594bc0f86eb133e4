"""`Reduced`: samples whose error shrinks with the distance from an anchor at which all terms were looked at.

    g = g_S(x) - g_S(a) + grad f(a),   B = B_S(x) - B_S(a) + hess f(a),   T likewise,

each over a sample S of its own. The error of g is that of the differences grad f_i(x) - grad f_i(a), at most
L |x - a| each, so that samples of a fixed size lead to the minimizer and not to their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tercet.checks import positive
from tercet.methods.policy import Independent, expansion
from tercet.methods.run import Run
from tercet.methods.saved import need, vector
from tercet.methods.state import Expansion, Memory, State, Views
from tercet.objectives.metered import NOTHING, Carry, Known, MeteredPoint, MeteredView
from tercet.records import Matrix, Sizes, Step, Tensor, Vector
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts

PLAIN = Independent()


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where all terms were looked at: the gradient there, and B and T where these are formed."""

    x: Vector
    g: Vector
    B: Matrix | None = None
    T: Tensor | None = None

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def of(arrays: Any, d: int) -> Anchor | None:
        """From a checkpoint; ValueError where it cannot be one."""
        if arrays is None:
            return None
        need(set(arrays) == {each.name for each in fields(Anchor)}, "its anchor has other parts")
        for name, shape in (("x", (d,)), ("g", (d,)), ("B", (d, d)), ("T", (d, d, d))):
            if arrays[name] is not None or name in ("x", "g"):
                vector(f"the {name} of its anchor", arrays[name], *shape)
        return Anchor(**arrays)


class Difference:
    """A sample at x and at the anchor, as the point that it stands for."""

    def __init__(self, here: MeteredPoint, there: MeteredPoint, anchor: Anchor):
        self.here, self.there, self.anchor = here, there, anchor
        self.x, self.terms, self.able, self.view = here.x, here.terms, here.able, here.view
        self.known, self.borrowed, self.inexact, self.carry = Known(), None, 4, NOTHING

    def gradient(self) -> Vector:
        """g_S(x) - g_S(a) + grad f(a)."""
        if self.known.gradient is None:
            self.known.gradient = self.here.gradient() - self.there.gradient() + self.anchor.g
        return self.known.gradient

    def errors(self) -> Matrix:
        """Of the difference, from the same groups of terms at x and at the anchor."""
        return self.here.errors() - self.there.errors()

    def hessian(self) -> Matrix:
        """B_S(x) - B_S(a) + hess f(a), where that is known; else B_S(x)."""
        if self.known.hessian is None:
            B = self.here.hessian()
            self.known.hessian = B if self.anchor.B is None else B - self.there.hessian() + self.anchor.B
        return self.known.hessian

    def hessian_product(self, v: Vector) -> Vector:
        """The same, times v."""
        if self.known.hessian is None and self.anchor.B is None:
            return self.here.hessian_product(v)
        return self.hessian() @ v

    def third_tensor(self, V: Matrix) -> Tensor:
        """T_S(x) - T_S(a) + third f(a) over the columns of V, where that is known; else T_S(x)."""
        T = self.here.third_tensor(V)
        if self.anchor.T is None:
            return T
        rest = np.einsum("abc,ai,bj,ck->ijk", self.anchor.T, V, V, V, optimize=True)
        return T - self.there.third_tensor(V) + cast(Tensor, rest)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """T_S(x)[u, v]: a product with all terms would cost what the sample saves."""
        return self.here.third_product(u, v)

    def third_square(self, s: Vector) -> Vector:
        """T_S(x)[s, s]."""
        return self.here.third_square(s)


@dataclass(frozen=True)
class Reduced:
    """Variance reduction, `STM(sizes=Fixed(), policy=Reduced())`: independent samples at x and at an anchor.

    Samples are plain ones until the sampling error of g (two standard deviations, from the gradients of groups) exceeds
    the fraction `anchor` of |g|, or noise explains a rejection. Then the anchor is made at x, with the gradient over
    all terms, and it is renewed where that holds of the differences. `orders` says which derivatives are reduced: 1
    always; 2 where B is formed and 3 where T is, which takes them over all terms at each new anchor, and without which
    they are those of the sample.

    A sampled B need not see every direction in which the reduced g has a slope. With 2 in `orders` hess f(a) is part of
    it; without, sigma holds the step, as f over all terms says: no step is accepted that raises it.
    """

    anchor: float = 0.5
    orders: tuple[int, ...] = field(default=(1, 2, 3))

    def __post_init__(self) -> None:
        positive("Reduced", "anchor", self.anchor)
        given = self.orders
        good = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        if not (good and 1 in given and all(type(each) is int and each in (1, 2, 3) for each in given)):
            raise ValueError(f"Reduced(orders={given!r}): give a tuple of 1, 2 and 3 that has 1, such as (1, 2).")

    def check(self, rule: Any, run: Run) -> None:
        """ValueError where the size rule or the objective cannot serve it."""
        name = type(rule).__name__
        if rule.nested:
            raise ValueError(
                f"Reduced() with sizes={name}(): its samples are nested and f is over them, but an anchor goes with "
                "samples that are drawn afresh and f over all terms; use Fixed, Growing or Adaptive with nested=False."
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

    def renews(self, state: State, g: Vector, errors: Matrix) -> bool:
        """Whether the sample tells too little of g."""
        memory = state.memory
        return memory.noisy or memory.stuck > 0 or 2.0 * float(np.linalg.norm(errors)) > self.anchor * length(g)

    def make(self, run: Run, parts: Parts, point: MeteredPoint) -> Anchor:
        """An anchor at a point over all terms."""
        B = point.hessian().copy() if 2 in self.orders and parts.forms_hessian else None
        T = point.third_tensor(np.eye(run.d)) if 3 in self.orders and parts.order >= 3 and parts.forms_third else None
        return Anchor(point.x, point.gradient().copy(), B, T)

    def views(self, run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """The terms of f."""
        return PLAIN.views(run, sizes, old)

    def look(self, view: MeteredView, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """f."""
        return PLAIN.look(view, x, given)

    def sizes(self, run: Run, parts: Parts, state: State) -> Sizes:
        """What the rule says of the last iteration."""
        return PLAIN.sizes(run, parts, state)

    def grow(self, run: Run, state: State, sizes: Sizes) -> State:
        """Other samples, the same anchor."""
        return PLAIN.grow(run, state, sizes)

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """Three draws as long as they tell enough, then differences over them, or a new anchor at x."""
        point, sizes, replacement = state.point, state.sizes, parts.sizes.replacement
        if state.kept is not None or sizes.is_full(run.n) or not np.isfinite(point.value()):
            return PLAIN.expand(run, parts, state)
        anchor, stream, made = cast(Anchor | None, state.extra), state.stream, list[Any]()
        for m in (sizes.gradient, sizes.hessian, sizes.third):
            rows, stream = stream.draw(run.n, m, replacement)
            view = run.full if rows is None else run.objective.over(rows)
            whole = rows is None and not replacement
            made.append(point if whole else view)
        state = replace(state, stream=stream)
        if anchor is None:
            slope, B, T = (each if each is point else each.at(point.x) for each in made)
            g = slope.gradient()
            if not self.renews(state, g, slope.errors()):
                return state, expansion(run, parts, state, g, slope, B, T, False)
        elif not np.array_equal(anchor.x, point.x):
            slope, B, T = (each if each is point else self.difference(each, point.x, anchor) for each in made)
            g = slope.gradient()
            if slope is point or not self.renews(state, g, slope.errors()):
                return state, expansion(run, parts, state, g, slope, B, T, False)
        if anchor is None or not np.array_equal(anchor.x, point.x):
            anchor = self.make(run, parts, point)
            state = replace(state, extra=anchor)
        B, T = (each if each is point else self.difference(each, point.x, anchor) for each in made[1:])
        B = point if anchor.B is not None else B
        T = point if anchor.T is not None else T
        # Where nothing but rounding is left of f, the gradient over all terms decides.
        return state, expansion(run, parts, state, anchor.g, point, B, T, state.memory.stuck > 0)

    def difference(self, view: MeteredView, x: Vector, anchor: Anchor) -> Any:
        """A sample at x and at the anchor, as a point."""
        return Difference(view.at(x), view.at(anchor.x), anchor)

    def trial(self, state: State, at: Expansion, step: Step) -> MeteredPoint:
        """f alone."""
        return PLAIN.trial(state, at, step)

    def share(self, run: Run, at: Expansion, trial: MeteredPoint, memory: Memory) -> float:
        """As it was measured for the step."""
        return memory.noise_share

    def keeps(self, run: Run, sizes: Sizes) -> bool:
        """Where all terms are used."""
        return sizes.is_full(run.n)
