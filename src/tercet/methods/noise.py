"""What sampling error does to a step: how much of the promised decrease it can pretend, and how far terms stray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Step, Vector
from tercet.subsolvers.base import Workspace
from tercet.vectors import length

if TYPE_CHECKING:
    from tercet.methods.state import Expansion, Three


@dataclass(frozen=True)
class Noise:
    """The share of the decrease that noise can pretend, what it lets f miss, and the spreads of single terms."""

    share: float
    allowance: float
    spreads: Three


def sampling_errors(point: MeteredPoint, n: int, replacement: bool) -> Matrix:
    """Rows e_k whose e_k e_k' sum to the covariance of the sampled gradient; zero when it is not sampled."""
    if point.terms >= n and not replacement:
        return np.zeros((1, len(point.x)))
    return point.errors() * np.sqrt(1.0 if replacement else 1.0 - point.terms / n)


def noise_share(workspace: Workspace, g: Vector, errors: Matrix) -> float:
    """The decrease that the sampling error of a gradient can pretend, over the one that the gradient promises.

    Both are 1/2 v'(B + mu I)^-1 v with this iteration's B; where B is not factored, squared norms stand in.
    """
    both = np.vstack([errors, g])
    each = workspace.decreases(both)
    if each is None:
        each = np.einsum("ij,ij->i", both, both)
    pretended, promised = float(np.sum(each[:-1])), float(each[-1])
    return pretended / promised if promised > 0 else np.inf


def noise_of(at: Expansion, step: Step, n: int, replacement: bool) -> Noise:
    """What the sample of g does to this step.

    The allowance is how much sampling error alone lets f miss the forecast: two standard deviations of the sampled
    g's, and the bias of a step that was chosen for the sampled g and takes its noise for slope: e'(B + mu I)^-1 e,
    twice what the noise can pretend. The spread of g is that of the sampled terms; for B and T the size of the
    derivative along the step stands in.
    """
    model = at.model
    errors, r = model.frame.slope(sampling_errors(at.slope, n, replacement)), max(length(step.s), 1e-150)
    share = noise_share(model.workspace, model.taylor.g, errors)
    bias = share * step.forecast.decrease
    bend = 0.0 if step.cubic is None else 2 * length(step.cubic.gradient - step.quadratic.gradient)
    return Noise(
        share,
        2.0 * (length(errors @ step.s) + (bias if np.isfinite(bias) else 0.0)),
        (
            float(np.sqrt(np.sum(errors**2) * at.slope.terms)),
            length(step.quadratic.gradient - model.taylor.g) / r,
            bend / r**2,
        ),
    )
