"""A problem at its start, between its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tercet.domain import EVERYWHERE, Domain, domain_of
from tercet.objectives.base import Bound, Problem, check_length
from tercet.objectives.transformed import Transformed

MOVED = " x0 was outside its bounds at {} and was moved to the nearest point inside."
NAMED = 6  # coordinates in that note


def bind_within(call: str, target: Problem, x0: Any, bounds: Any) -> tuple[Bound, Domain, str]:
    """The problem at x0, where it may be asked, and a note where x0 had to be moved there; all checks come first.

    A vector is moved before the problem sees it, which may look at its functions there.
    """
    if bounds is None:
        return target.bind(x0), EVERYWHERE, ""
    if isinstance(target, Transformed):
        raise ValueError(f"{call}(bounds=...): Transformed(...) keeps x in its intervals; give one of the two.")
    note = ""
    if isinstance(x0, list | tuple | np.ndarray) and np.ndim(x0) == 1:
        start = check_length("x0", x0, np.size(x0))
        inside = domain_of(call, bounds, len(start)).project(start)
        note = noted(start, inside)
        x0 = inside if note else x0
    bound = target.bind(x0)
    domain = domain_of(call, bounds, bound.objective.d)
    own: Any = bound.objective
    if domain.bounded and hasattr(own, "within"):
        bound = replace(bound, objective=own.within(domain))
    inside = domain.project(bound.x0).astype(bound.x0.dtype)
    note = note or noted(bound.x0, inside)
    return replace(bound, x0=inside), domain, note


def noted(start: Any, inside: Any) -> str:
    """Where x0 was moved, as a sentence; empty where it was not."""
    moved = np.flatnonzero(start != inside)
    if not len(moved):
        return ""
    names = ", ".join(f"x[{j}]" for j in moved[:NAMED]) + (", ..." if len(moved) > NAMED else "")
    return MOVED.format(names)
