"""The stop test: not finite, unbounded, stuck, or certified. It decides, and moves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from tercet.critical.certify import certify
from tercet.methods.parts import Parts
from tercet.methods.phases import DESCENT, PATIENCE, Leaving
from tercet.methods.run import Run
from tercet.methods.state import Expansion, State
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import exact
from tercet.records import Certificate, Status
from tercet.subsolvers.base import Ask


@dataclass(frozen=True, eq=False)
class End:
    """The run ends."""

    status: Status
    certificate: Certificate | None = None


@dataclass(frozen=True, eq=False)
class Turn:
    """The run goes on from another state."""

    state: State


def stop(run: Run, parts: Parts, state: State, at: Expansion, restart: Callable[[], State]) -> End | Turn | None:
    """What is to be done at x: end, stand elsewhere or look another way, or, None, take a step.

    NotFiniteError where f or its gradient is not finite.
    """
    memory = state.memory
    if not (isfinite(at.f) and (isfinite(at.norm) or np.isfinite(at.g).all())):
        raise NotFiniteError("value")
    if at.f < -1e20 * max(1.0, state.scale):  # only all terms together can tell
        return End(Status.UNBOUNDED) if at.point.terms >= run.n else Turn(restart())
    if memory.hopeless:
        return End(Status.NOT_CERTIFIED, state.certificate)
    if memory.stuck >= PATIENCE:
        return End(Status.NOISE if memory.noisy else Status.ROUNDING, state.certificate)
    if at.slope.terms < run.n or parts.sizes.replacement or state.phase is not DESCENT:
        return None
    if at.norm > memory.reach * run.tolerances.eps1:
        return None
    if at.slope.inexact == 0:
        return Turn(look_again(state, at))
    if run.tolerances.order >= 2 and unfinished(run, parts, state, at):
        return None
    return conclude(run, parts, state, at, restart)


def look_again(state: State, at: Expansion) -> State:
    """The same x, owing nothing to the steps that led to it."""
    fresh = exact(at.slope)
    if not (np.isfinite(fresh.value()) and np.isfinite(fresh.gradient()).all()):  # f was finite here before
        raise NotFiniteError("value")
    return replace(state, point=fresh, kept=None)


def unfinished(run: Run, parts: Parts, state: State, at: Expansion) -> bool:
    """A flat direction can hide a decrease behind a small gradient; go on while the model still promises one."""
    if state.memory.stuck > 0:
        return False
    c = state.memory.control
    step = at.workspace.solve(Ask(c.sigma2, c.sigma3, parts.power, c.radius, False, state.memory.unexplained))
    return step.quadratic.decrease > 1e-3 * run.tolerances.eps1 * max(1.0, abs(at.f))


def conclude(run: Run, parts: Parts, state: State, at: Expansion, restart: Callable[[], State]) -> End | Turn:
    """The certificate at x; where it fails for curvature or the third derivative, the way down."""
    try:
        certificate, escape = certify(exact(at.slope), run.n, run.tolerances, run.traits, run.seed)
    except NotFiniteError:  # there is no certificate here, and no better place to go to
        return End(Status.NOT_FINITE)
    # Sampled phases do not look at the full objective, so where they led has to be compared with x0 once.
    if certificate.holds and state.sampled and state.origin.value() < at.f:
        return Turn(restart())
    if certificate.holds:
        return End(Status.CERTIFIED, certificate)
    if escape is None:
        return End(Status.NOT_CERTIFIED, certificate)
    leaving = Leaving(escape, escape.most(parts.sigma.first().sigma3))
    return Turn(replace(state, phase=leaving, certificate=certificate, kept=at))
