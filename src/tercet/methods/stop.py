"""The stop test: not finite, unbounded, stuck, flat, or certified. It decides, and moves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tercet.critical.bounded import certify_in
from tercet.critical.errors import Travelled, sizes
from tercet.critical.looks import VISIBLE
from tercet.methods.parts import Parts
from tercet.methods.phases import DESCENT, PATIENCE, Leaving
from tercet.methods.run import Run
from tercet.methods.state import Expansion, State
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint, exact
from tercet.records import Certificate, Status, Step, Vector
from tercet.subsolvers.base import Ask
from tercet.vectors import length

HELD = 0.9  # of the radius: a step this long is held back by it, and does not tell how far the minimizer is
AWAY = 1e-3  # a step this long beside x, while nothing more is to be gained, goes away with x
FAR_AHEAD = 10.0  # spans of x, as far as f is looked at where x may go away
NEARS = 0.9  # of the last step: along x^k, of which Newton's steps are (k - 2) / (k - 1), x nears its minimizer
CLOSER = 0.1  # what was asked for is asked this much closer, where the certificate found it not yet there
CLOSEST = 1e-8
STEEPER = 1e6  # a gradient that grew by this while f fell tells of an edge where f has no lower bound


@dataclass(frozen=True, eq=False)
class End:
    """The run ends."""

    status: Status
    certificate: Certificate | None = None
    point: MeteredPoint | None = None  # the same x as the certificate saw it, owing nothing to others


@dataclass(frozen=True, eq=False)
class Turn:
    """The run goes on from another state; x may be looked at once more there, unless a step is due."""

    state: State
    due: bool = False


def stop(
    run: Run, parts: Parts, state: State, at: Expansion, ask: Ask, restart: Callable[[], State]
) -> End | Turn | None:
    """What is to be done at x: end, stand elsewhere or look another way, or, None, take a step."""
    memory = state.memory
    if at.f < -1e20 * max(1.0, state.scale):  # only all terms together can tell
        return End(Status.UNBOUNDED) if at.point.terms >= run.n else Turn(restart())
    if memory.hopeless:
        return End(Status.NOT_CERTIFIED, state.certificate)
    if memory.stuck >= PATIENCE and at.point.terms < run.n:  # an edge of the sample, perhaps; all terms may have none
        return Turn(restart())
    sampled = at.slope.terms < run.n or (parts.sizes.replacement and not state.sizes.is_full(run.n))
    if memory.stuck >= PATIENCE and (sampled or memory.noisy):
        return End(Status.NOISE if memory.noisy else Status.ROUNDING, state.certificate)
    if sampled or state.phase is not DESCENT:
        return None
    # The step that the second-order model wants to take tells how far the minimizer is.
    plain = replace(ask, buy_third=False) if ask.buy_third else ask
    step = None if at.norm == 0.0 else at.model.workspace.solve(plain)
    away = step is not None and goes_away(run, state, at, step)
    if not (away or memory.stuck >= PATIENCE or is_due(run, state, at, step)):
        return None
    return conclude(run, state, at, restart, away, 0.0 if step is None else step.quadratic.decrease)


def again(at: Expansion) -> MeteredPoint:
    """The same x, owing nothing to the steps that led to it."""
    fresh = exact(at.slope)
    if fresh is not at.slope and not (np.isfinite(fresh.value()) and np.isfinite(fresh.gradient()).all()):
        raise NotFiniteError("value")  # f was finite here before
    return fresh


def is_due(run: Run, state: State, at: Expansion, step: Step | None) -> bool:
    """Whether x may be as close as it was asked for, so that a certificate is worth its price."""
    memory, t = state.memory, run.tolerances
    if step is None:
        return True
    if not t.relative:
        return at.norm <= memory.closer * t.eps1
    if memory.stuck > 0 and memory.missed == np.inf:  # rounding let no step through
        return memory.stuck == 1 and memory.closer == 1.0
    if length(step.s) >= HELD * memory.control.radius:
        return False
    if step.quadratic.decrease > t.relative * np.fmax(abs(at.f), gained(state, at)):
        return False
    closer = memory.closer * t.relative
    if step.quadratic.decrease <= closer**4 * gained(state, at):  # also along x^4, where steps tell nothing of x
        return True
    return within(at.model.frame.lift(step.s), closer, at, run.traits.dense)


def within(s: Vector, relative: float, at: Expansion, each: bool) -> bool:
    """Each |s_j| is at most `relative` of the size of x_j; where no certificate forms B, all of them in the mean."""
    x, reach = at.point.x, at.model.reach
    if each:
        return bool(np.all(np.abs(s) <= relative * sizes(x, s, reach.spans)))
    return float(np.linalg.norm(s / reach.spans)) <= relative * np.sqrt(len(s))


def gained(state: State, at: Expansion) -> float:
    """How far f fell since x0; what the first sample told stands in until a sampled run is compared with x0."""
    start = state.origin.known.value
    return (state.scale if start is None else start) - at.f


def goes_away(run: Run, state: State, at: Expansion, step: Step) -> bool:
    """Whether x goes away while nothing more is to be gained: what the model promises does not show in f, or is nothing
    beside how far f fell since x0. Where steps become shorter, as beside a minimum that is flat, f is looked at far
    ahead first: it does not go away where f is higher there."""
    if state.memory.looked or state.memory.iteration == 0:
        return False
    if step.quadratic.decrease > run.traits.epsilon * np.fmax(abs(at.f), gained(state, at)):
        return False
    s, spans = at.model.frame.lift(step.s), at.model.reach.spans
    share = float(np.max(np.abs(s) / spans))
    if share < AWAY or length(step.s) > NEARS * state.memory.length:
        return share >= AWAY
    return not rises(run, at, at.point.x + (FAR_AHEAD / share) * s)


def rises(run: Run, at: Expansion, x: Vector) -> bool:
    """Whether f is seen to be higher at another point."""
    f = at.point.view.at(run.domain.project(x)).value()
    return f - at.f > VISIBLE * run.traits.epsilon * max(abs(f), abs(at.f))


def conclude(
    run: Run, state: State, at: Expansion, restart: Callable[[], State], away: bool, promised: float
) -> End | Turn:
    """The certificate at x; where it fails for curvature or the third derivative, the way down.

    Where x goes away and f is flat that way as far as it can be seen, there is no minimizer: FLAT. A step that promises
    a visible decrease, as beside a minimum of 0 until numbers end, is taken.
    """
    if state.sampled:
        state.origin.value()  # samples were not compared with x0
    memory, way = state.memory, Travelled(state.memory.reach, gained(state, at), away)
    fresh = again(at)
    try:
        certificate, down = certify_in(run.domain, fresh, run.n, run.tolerances, run.traits, run.seed, way)
    except NotFiniteError:  # there is no certificate here, and no better place to go to
        return End(Status.UNBOUNDED if steeper(state, at) else Status.NOT_FINITE)
    anew = fresh is not at.slope
    dear = anew and at.B is at.slope and at.slope.inexact > 0  # B is made of what other points handed on
    end = partial(End, certificate=certificate, point=fresh)
    if certificate.holds and state.sampled and state.origin.value() < fresh.value():
        return Turn(restart())
    if certificate.holds:
        return end(Status.CERTIFIED)
    if down is not None:
        wide = replace(at, model=replace(at.model, frame=at.model.frame.whole))  # it may leave a bound
        later = replace(memory, closer=1.0)
        if dear:  # the next B is made of what was paid here, and the next certificate is asked for later
            wide, later = replace(wide, B=fresh), replace(memory, closer=max(CLOSER * memory.closer, CLOSEST))
        return Turn(replace(state, phase=Leaving(down), certificate=certificate, kept=wide, memory=later))
    if certificate.ray is not None and (away or certificate.converged or memory.stuck >= PATIENCE):
        return end(Status.FLAT)
    if memory.stuck >= PATIENCE:
        return end(Status.UNBOUNDED if steeper(state, at) else Status.ROUNDING)
    seen = promised > VISIBLE * certificate.rounding_f
    if certificate.converged or (memory.closer < CLOSEST and not seen):
        return end(Status.NOT_CERTIFIED)
    closer = memory.closer if away or memory.closer < CLOSEST else CLOSER * memory.closer
    later = replace(memory, closer=closer, looked=away or memory.looked, rounding=certificate.rounding_f)
    moved = replace(state, memory=later, kept=at)
    if anew:  # the step is made of what the certificate paid for
        moved = replace(moved, point=fresh, kept=None)
    return Turn(moved, due=True)


def steeper(state: State, at: Expansion) -> bool:
    """Whether f fell ever faster: its gradient grew beyond all measure on the way down from x0."""
    return gained(state, at) > 0.0 and at.norm > STEEPER * length(state.origin.gradient())
