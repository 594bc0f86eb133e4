"""Was it a good step? rho = (f(x) - f(x+s)) / (phi(0) - phi(s)), and what rounding lets it tell."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Score:
    """The ratio of achieved and predicted decrease, and whether the prediction is lost in the rounding of f."""

    ratio: float
    rounding: bool


def judge(f: float, decrease: float, after: float, rounding: float = 0.0) -> Score:
    """A step from f to `after` for which a decrease was predicted; `rounding` is that of f, where it is known."""
    ratio = (f - after) / decrease if decrease > 0 and isfinite(after) else -inf
    return Score(ratio, rounded(f, decrease, rounding) and not after - f > jump(f, rounding))


def highest(f: float, decrease: float, least: float, rounding: float = 0.0) -> float:
    """The largest value after a step whose ratio is at least `least`, or where rounding hides whether it is lower."""
    enough = f - least * decrease if decrease > 0 else -inf
    return max(enough, f + jump(f, rounding)) if rounded(f, decrease, rounding) else enough


def jump(f: float, rounding: float) -> float:
    """Half of the digits of f: no rounding hides that."""
    return max(sqrt(EPS) * abs(f), 16.0 * rounding)


def rounded(f: float, decrease: float, rounding: float = 0.0) -> bool:
    """Whether a decrease is lost in the rounding of f: eps |f|, or more where that was seen."""
    return abs(decrease) <= max(64 * EPS * abs(f), 4 * rounding)
