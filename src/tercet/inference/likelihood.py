"""What a linear model's loss says as a likelihood: the factor phi of the variance, and log L."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.linear import LinearModel
from tercet.objectives.losses import Squares
from tercet.records import Vector


@dataclass(frozen=True)
class Likelihood:
    """n f is phi times a negative log-likelihood, but for a constant; `log` is log L, where it is known."""

    phi: float = 1.0
    log: float | None = None
    estimated: bool = False  # phi is an estimate
    penalized: bool = False
    name: str = ""


def likelihood_of(objective: Any, x: Vector) -> Likelihood | None:
    """Of an objective at x; None where its loss is none.

    A function, a sum and a loss of the user's own are taken for negative log-likelihoods, each term that of one
    observation. For squares and gamma phi is Pearson's sum of w (y - mu)^2 / V(mu) over n - d.
    """
    if not isinstance(objective, LinearModel):
        if not hasattr(objective, "likelihood"):
            return Likelihood()
        own = objective.likelihood(x)
        return None if own is None else Likelihood(*own)
    loss: Any = getattr(objective.loss, "own", objective.loss)
    view = objective.rows
    penalized = view.penalty.l2 > 0.0 or view.penalty.alpha > 0.0
    name = type(loss).__name__
    if not hasattr(loss, "log_likelihood"):
        return Likelihood(penalized=penalized, name=name) if loss is not objective.loss or is_own(loss) else None
    z, y = view.at(x).margins.z, view.y
    w = np.ones_like(y) if view.w is None else view.w
    if loss.phi is not None:
        return Likelihood(loss.phi, float(w @ loss.log_likelihood(z, y, loss.phi)), False, penalized, name)
    mu = loss.mean(z)
    squares, degrees = float(w @ ((y - mu) ** 2 / loss.variance(mu))), objective.n - objective.d
    phi = squares / degrees if degrees > 0 else np.nan
    if not isinstance(loss, Squares):
        return Likelihood(phi, None, True, penalized, name)
    most = squares / objective.n  # where the normal likelihood is highest
    log = float(w @ loss.log_likelihood(z, y, most)) if most > 0.0 else None
    return Likelihood(phi, log, True, penalized, name)


def is_own(loss: Any) -> bool:
    """Whether a loss is the user's."""
    return not type(loss).__module__.startswith("tercet.") or hasattr(loss, "function")
