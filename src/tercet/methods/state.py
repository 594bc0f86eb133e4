"""What a run of the line carries from one iteration to the next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tercet.criticality import Escape
from tercet.methods.run import Run
from tercet.methods.sigma import Control
from tercet.objectives.counting import CountedPoint
from tercet.records import Certificate, Forecast, Sizes, Step, Vector
from tercet.sampling.draws import Draws
from tercet.subsolvers.base import Workspace


@dataclass(eq=False)
class Expansion:
    """f, g, B and T at x over the samples of one iteration, and the sub-solver that is ready there."""

    value: CountedPoint
    first: CountedPoint
    second: CountedPoint
    third: CountedPoint
    workspace: Workspace


@dataclass
class Memory:
    """What the next iteration needs to know of the past."""

    control: Control
    sizes: Sizes
    iteration: int = 0
    length: float = np.nan  # |s| of the last accepted step
    unexplained: float = 1.0  # |grad f+ - (g + Bs)| / |g| at the last accepted step: what a quadratic left over
    missed: float = 0.0  # the same of the last step over these samples; inf where it was rejected
    noisy: bool = False
    blur: float = 0.0
    stuck: int = 0
    escape_sigma: float = 1.0
    hopeless: bool = False  # no escape direction led down
    reach: float = 1.0  # the certificate is asked for where |g| is at most this fraction of eps1
    certificate: Certificate | None = None
    spreads: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint, which is taken after an accepted step, where there is no certificate yet."""
        return {name: value for name, value in asdict(self).items() if name != "certificate"}

    @staticmethod
    def from_dict(saved: dict[str, Any]) -> Memory:
        """The memory of a checkpoint."""
        parts = {
            "control": Control(**saved["control"]),
            "sizes": Sizes(**saved["sizes"]),
            "spreads": tuple(saved["spreads"]),
        }
        return Memory(**{**saved, **parts})


def escape_step(escape: Escape, sigma: float, g: Vector) -> Step:
    """The step along an escape direction, as long as the model in that direction says."""
    t = escape.length(sigma)
    s = t * escape.y
    forecast = Forecast(escape.fall(t), g)
    return Step(s, forecast, forecast, 1, sigma)


def run_state(run: Run, draws: Draws) -> dict[str, Any]:
    """What a run knows beside its method: the counts, the random stream, and f(x0) where it was taken."""
    start = run.__dict__.get("start")
    known = {} if start is None else {"start": start.value()}
    return {"tally": dict(run.meter.tally), "rng": draws.rng.bit_generator.state, "scale": run.scale, **known}


def restore_run(run: Run, draws: Draws, state: dict[str, Any]) -> None:
    """Put it back."""
    run.meter.tally.update(state["tally"])
    run.scale = float(state["scale"])
    draws.rng.bit_generator.state = state["rng"]
    if "start" in state:
        run.start = run.objective.over(None).recall(run.x0, {"value": state["start"], "memento": {}})
