"""Where a step ends: at one look at f, or where f was found lowest by a few.

The second-order step comes first. Where f is not there what was promised, a third derivative is bought that corrects
it, and a linear model is looked at along the better of the two: with As known a look takes no product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tercet.control.judge import rounded
from tercet.control.ray import Ray, first_root
from tercet.objectives.base import NotFiniteError
from tercet.objectives.line import along
from tercet.objectives.metered import MeteredPoint
from tercet.records import Forecast, Step
from tercet.subsolvers.base import Ask
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.parts import Parts
    from tercet.methods.state import Expansion, State


Found = tuple[Step, MeteredPoint, float]  # a step as far as it is gone, the point there, and f


class Search(Protocol):
    """From a direction to a trial."""

    def look(self, parts: Parts, state: State, at: Expansion, move: Step, ask: Ask) -> Found:
        """Where the step ends."""
        ...


def fell(at: Expansion, after: float) -> float:
    """f(x) - f at a point, -inf outside the domain of f."""
    return at.f - after if isfinite(after) else -inf


def corrected(parts: Parts, state: State, at: Expansion, move: Step, ask: Ask, fall: float) -> Step | None:
    """The step with its third-order correction, where f fell so that it is worth its price; else None."""
    promised, sizes = move.quadratic.decrease, state.sizes
    if not parts.third.buys(fall, promised, sizes.hessian < sizes.value):
        return None
    if rounded(at.f, promised, state.memory.rounding):
        return None
    try:
        other = at.model.workspace.solve(replace(ask, buy_third=True))
    except NotFiniteError as error:
        if error.order != "third":
            raise
        return None
    return None if other.cubic is None else other


@dataclass(frozen=True)
class OneLook:
    """The step as the sub-solver gives it, or its correction, if that is lower."""

    def look(self, parts: Parts, state: State, at: Expansion, move: Step, ask: Ask) -> Found:
        """f at x + s."""
        trial = parts.policy.trial(state, at, move)
        after = trial.value()
        if state.phase.order or move.trial is not None:
            return move, trial, after
        other = corrected(parts, state, at, move, ask, fell(at, after))
        if other is None:
            return move, trial, after
        there = parts.policy.trial(state, at, other)
        bent = there.value()
        if fell(at, bent) > fell(at, after):
            move, trial, after = other, there, bent
        return replace(move, looks=2), trial, after


@dataclass(frozen=True)
class AlongStep:
    """A few looks, for a linear model: at the step, at its correction, and along the lower of the two.

    Along a step the next look is where the polynomial through those before is lowest (`tercet.control.ray`).
    """

    looks: int = 3

    def look(self, parts: Parts, state: State, at: Expansion, move: Step, ask: Ask) -> Found:
        """The lowest point that was seen."""
        if state.phase.order or move.trial is not None:
            trial = parts.policy.trial(state, at, move)
            return move, trial, trial.value()
        lift, looks = at.model.frame.lift, 1
        line = along(at.point, lift(move.s))
        first, after = line.at(1.0)
        fall = fell(at, after)
        held = move.sigma > 0.0  # by the radius: along the step f tells as much as T, and costs no product
        bought = held or parts.buys_first
        other = None if bought else corrected(parts, state, at, move, ask, fall)
        if other is not None:
            bent = bend_of(at, move, other, fall)
            another = along(at.point, lift(bent.s))
            (there, lower), looks = another.at(1.0), 2
            if fell(at, lower) > fall:
                move, line, first, after, fall = bent, another, there, lower, fell(at, lower)
        seen, found = [(1.0, -fall)], [(first, after)]
        sampled = state.views.value.rows is not None  # where longer steps fit the sample, and no more
        promised = (move.cubic or move.quadratic).decrease
        if not sampled:
            ray = Ray.of(at.model.taylor.g, move)
            while looks < self.looks and (t := ray.next(seen)) is not None:
                if rounded(at.f, promised, state.memory.rounding):
                    break
                found.append(line.at(t))
                seen.append((t, -fell(at, found[-1][1])))
                looks += 1
        lowest = min(range(len(seen)), key=lambda k: seen[k][1])
        return gone(at, move, seen[lowest][0], looks), *found[lowest]


def bend_of(at: Expansion, move: Step, other: Step, fall: float) -> Step:
    """a s + b u over the plane of a step s and its correction u, where f is lowest by what is known of it:

    g, B and T[s, s] at x, and f(x + s), which gives a term in a^4
    """
    g, s, u = at.model.taylor.g, move.s, other.s - move.s
    Bs, Bu = move.quadratic.gradient - g, other.quadratic.gradient - move.quadratic.gradient
    bend = 2.0 * (other.forecast.gradient - other.quadratic.gradient)  # T[s, s]
    w, p, q, r = float(u @ Bu), float(g @ u), float(u @ Bs), float(u @ bend)
    ray = Ray(float(g @ s), float(s @ Bs), float(s @ bend))
    looks = [(1.0, -fall)]
    c4 = ray.through(looks)[0] if np.isfinite(fall) else np.inf
    if not (w > 0.0 and np.isfinite(c4)):
        return other
    a = first_root(
        ray.c1 - p * q / w,
        ray.c2 - (q * q + p * r) / w,
        (ray.c3 - 3 * q * r / w) / 2,
        4 * c4 - r * r / (2 * w),
        0.0,
        0.1,
        3.0,
    )
    most = 0.5 * a * length(s) / max(length(u), 1e-300)
    b = float(np.clip(-(p + a * q + a * a * r / 2) / w, -most, most))
    c = a * s + b * u
    gradient = g + a * Bs + b * Bu
    quadratic = Forecast(-float(g @ c + 0.5 * c @ (gradient - g)), gradient)
    cubic = Forecast(quadratic.decrease - a * a * float(c @ bend) / 6, gradient + a * a * bend / 2)
    return replace(other, s=c, quadratic=quadratic, cubic=cubic)


def gone(at: Expansion, move: Step, t: float, looks: int) -> Step:
    """t of a step; it is still judged by what the whole of it promised."""
    g, looked = at.model.taylor.g, replace(move, looks=looks)
    if t == 1.0:
        return looked
    bend = move.forecast.gradient - move.quadratic.gradient
    slope = g + t * (move.quadratic.gradient - g)
    quadratic = Forecast(move.quadratic.decrease, slope)
    cubic = None if move.cubic is None else Forecast(move.cubic.decrease, slope + t * t * bend)
    return replace(looked, s=t * move.s, quadratic=quadratic, cubic=cubic)
