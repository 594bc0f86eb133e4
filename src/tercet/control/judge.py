"""Was it a good step? rho = (f(x) - f(x+s)) / (phi(0) - phi(s)), and what rounding lets it tell."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Score:
    """The ratio of achieved and predicted decrease, and whether the prediction is lost in the rounding of f."""

    ratio: float
    rounding: bool


def judge(f: float, decrease: float, after: float) -> Score:
    """A step from f to `after` for which a decrease was predicted."""
    ratio = (f - after) / decrease if decrease > 0 and isfinite(after) else -inf
    return Score(ratio, abs(decrease) <= 64 * EPS * abs(f))
