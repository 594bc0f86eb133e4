"""What a run of the line carries from one iteration to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.criticality import Escape
from tercet.methods.sigma import Control
from tercet.objectives.counting import AnyPoint
from tercet.records import Certificate, Forecast, Sizes, Step, Vector
from tercet.subsolvers.base import Workspace


@dataclass(eq=False)
class Expansion:
    """f, g, B and T at x over the samples of one iteration, and the sub-solver that is ready there."""

    value: AnyPoint
    first: AnyPoint
    second: AnyPoint
    third: AnyPoint
    workspace: Workspace


@dataclass
class Memory:
    """What the next iteration needs to know of the past."""

    control: Control
    sizes: Sizes
    iteration: int = 0
    length: float = np.nan  # |s| of the last accepted step
    unexplained: float = 1.0  # |grad f+ - (g + Bs)| / |g| at the last accepted step: what a quadratic left over
    noisy: bool = False
    blur: float = 0.0
    stuck: int = 0
    escape_sigma: float = 1.0
    hopeless: bool = False  # no escape direction led down
    certificate: Certificate | None = None
    spreads: tuple[float, float, float] = (1.0, 1.0, 1.0)


def escape_step(escape: Escape, sigma: float, g: Vector) -> Step:
    """The step along an escape direction, as long as the model in that direction says."""
    t = escape.length(sigma)
    s = t * escape.y
    forecast = Forecast(escape.fall(t), g)
    return Step(s, forecast, forecast, 1, sigma)
