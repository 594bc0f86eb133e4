"""Steps that no model can vouch for are not tried: sigma is raised before f is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tercet.records import Step, Vector
from tercet.subsolvers.base import Ask
from tercet.vectors import largest

TRIES = 60


def limit(solve: Callable[[Ask], Step], ask: Ask, x: Vector, f: float) -> tuple[Step, Ask]:
    """The step of the first sigma, raised tenfold as often as it takes, that can be trusted; and what was asked."""
    step = solve(ask)
    for _ in range(TRIES):
        if trusted(step, x, f):
            break
        ask = replace(ask, sigma2=10 * ask.sigma2, sigma3=10 * ask.sigma3)
        step = solve(ask)
    return step, ask


def trusted(step: Step, x: Vector, f: float) -> bool:
    """The step and its promise are within reason: |s| <= 3 max(1, |x|), phi(0) - phi(s) <= 1000 max(1, |f|).

    A step whose f was looked at needs no promise.
    """
    if step.trial is not None:
        return True
    reach = 3.0 * max(1.0, largest(x))
    forecast = step.cubic or step.quadratic
    return largest(step.s) <= reach and forecast.decrease <= 1e3 * max(1.0, abs(f))
