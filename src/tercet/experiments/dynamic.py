"""`DynamicAccuracy`: samples that grow within an iteration until its step is told well enough.

Bellavia, Gurioli, Morini and Toint 2020 (ARqpDA): with a bound on the error of each derivative, a step s is tried only
where the Taylor decrease that it promises is right to a fraction omega,

    |g's - grad f's| + 1/2 |s'Bs - s'(hess f)s| + 1/6 |T[s]^3 - (third f)[s]^3| <= omega (phi(0) - phi(s)),

else the derivatives are taken more accurately, and the step is computed anew. Here samples are what makes them
accurate, two standard deviations stand for the bounds, and f is over all terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.checks import number
from tercet.methods.noise import noise_of
from tercet.methods.phases import asked
from tercet.methods.policy import Independent
from tercet.methods.run import Run
from tercet.methods.state import Expansion, State
from tercet.records import Matrix, Meets, Sizes, Step, Vector
from tercet.subsolvers.base import Ask, Workspace
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts

PLAIN = Independent()
GROWTH = 1.5  # at least: a sample that is a little too small is not drawn again for a little more
SIGMAS = 2.0


@dataclass(frozen=True)
class DynamicAccuracy:
    """The policy of independent samples that grow until the promised decrease is right to a fraction `omega`.

    The size rule gives the sizes to begin with. An iteration begins with those that the last one asked for.
    """

    omega: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < number(self.omega) < 1:
            raise ValueError(f"DynamicAccuracy(omega={self.omega!r}): omega is a fraction between 0 and 1.")

    def check(self, rule: Any, run: Run) -> None:
        """ValueError where the size rule or the objective cannot serve it."""
        name = type(rule).__name__
        if rule.nested or hasattr(rule, "guarantee") or rule.replacement:
            raise ValueError(
                f"DynamicAccuracy() with sizes={name}(): it sizes samples that are drawn afresh without replacement; "
                "use Fixed(), which says how large they are at first."
            )
        if run.traits.residuals or run.traits.in_memory is not None:
            raise ValueError(
                "DynamicAccuracy(): it is for sums whose terms are in memory and that are not given by residuals; "
                "leave the policy out."
            )

    def expand(self, run: Run, parts: Parts, state: State) -> tuple[State, Expansion]:
        """Draws that grow until the step is told well enough."""
        while True:
            state, at = PLAIN.expand(run, parts, state)
            if state.kept is not None or state.sizes.is_full(run.n):
                return state, at
            ask = asked(parts, state, at)
            step, ask = state.phase.solve(at, ask)
            wanted = self.wanted(run, at, step, state.sizes)
            at = replace(at, model=replace(at.model, workspace=Solved(at.model.workspace, ask, step)))
            if wanted == state.sizes:
                return state, at
            state = replace(state, sizes=wanted)

    def wanted(self, run: Run, at: Expansion, step: Step, sizes: Sizes) -> Sizes:
        """The sizes with which each derivative adds no more than its part of omega times the promised decrease."""
        r, n = length(step.s), run.n
        parts = 3.0 if step.cubic is not None else 2.0
        allowed = self.omega / parts * max(step.forecast.decrease, 0.0)
        spreads = noise_of(at, step, n, False).spreads
        fine = at.model.frame.slope(at.slope.errors()) @ step.s * np.sqrt(at.slope.terms)  # one term's g's, by groups
        each = (length(fine), spreads[1] * r**2 / 2, spreads[2] * r**3 / 6)
        old = (sizes.gradient, sizes.hessian, sizes.third)
        new = [needed(SIGMAS * spread, allowed, n) for spread in each]
        grown = [m if k <= m else min(n, max(k, ceil(GROWTH * m))) for m, k in zip(old, new, strict=True)]
        if step.cubic is None:
            grown[2] = old[2]
        return Sizes(sizes.value, *(grown if grown[0] < n else [n] * 3))


def needed(spread: float, allowed: float, n: int) -> int:
    """The m without replacement with spread sqrt(1/m - 1/n) <= allowed."""
    if not np.isfinite(spread) or allowed <= 0.0:
        return n
    return min(n, ceil(1.0 / ((allowed / spread) ** 2 + 1.0 / n))) if spread > 0.0 else 1


@dataclass(frozen=True, eq=False)
class Solved:
    """A workspace that has been asked already; the same question takes no work."""

    inner: Workspace
    ask: Ask
    step: Step

    def solve(self, ask: Ask) -> Step:
        """The step that is there, or another."""
        return self.step if ask == self.ask else self.inner.solve(ask)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """As the workspace says."""
        return self.inner.meets(step, ask)

    def decreases(self, vectors: Matrix) -> Vector | None:
        """As the workspace says."""
        return self.inner.decreases(vectors)
