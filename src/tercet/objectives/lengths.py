"""Over which lengths differences are taken: the unit of each x_j, told by f or its gradient where 1 is none.

Central differences reach EPS^(1/3) of max(u_j, |x_j|), with u_j = 1 where that tells anything. It does not where the
difference is lost in rounding (too short) or another one at another length (too long); u_j is then searched for, so
that an x_j in other units is measured over a length in those units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.records import Flags, Vector

EPS = float(np.finfo(float).eps)
CENTRAL = EPS ** (1 / 3)  # of a unit: where the truncation of central differences of f is what rounding does to them
SHORT, LONG = 1e-2, 1e-8  # of a second difference, what rounding makes of it: between these it tells
BEST = 2e-5  # as it is over EPS^(1/3) of a length over which f changes by its size
SAME = 0.1  # differences over other lengths that differ by more tell nothing
AGREED = 1e-5  # two differences of a gradient that differ by less
STRIDE = 1e3  # from one length to the next
SEARCHED = (0, -1, 1, -2, 2, -3, 3)  # powers of it
BELIEVED = 1e3  # units that are no further apart are taken as given
LOST = 1e4  # slopes, in units, further apart than this: they cannot all be units


@dataclass(frozen=True, eq=False)
class Units:
    """What a point tells to those beside it, which owes nothing to it: the units of the variables."""

    units: Vector
    sure: bool = False  # differences over other lengths told the same

    def arrays(self) -> dict[str, Any]:
        """As they are."""
        return {"units": self.units, "sure": np.array(self.sure)}

    @staticmethod
    def recalled(arrays: dict[str, Any]) -> Units | None:
        """Those that gave these arrays."""
        return Units(arrays["units"], bool(arrays["sure"])) if "units" in arrays else None

    def exact(self) -> Units:
        """All of it."""
        return self

    def tell(self, view: Any) -> Any:
        """The view that knows them."""
        return view.knowing(self)


def alike(sizes: Vector) -> bool:
    """Whether units are so close that they are believed."""
    return bool(np.max(sizes) <= BELIEVED * np.min(sizes))


def suspects(f: float, slopes: Vector) -> Flags:
    """Along which x_j a unit may be none, from |g_j| times it: by far more or less than along others, or than f is."""
    some = slopes[slopes > 0.0]
    if not some.size or not np.all(np.isfinite(slopes)):
        return np.zeros(len(slopes), dtype=bool)
    typical = abs(f) or float(np.max(some))
    return (slopes > 0.0) & ((slopes > LOST * typical) | (slopes < typical / LOST))


def by_values(
    change: Callable[[float], tuple[float, float]], f: float, h: float, least: float
) -> tuple[float, tuple[float, float]]:
    """A length over which the second difference of f tells how it bends, begun with h and not below `least`, and f to
    both sides there; `change` gives these for a length. h where none tells, or where f is like x^2 and each tells as
    much."""
    first = pair = change(h)
    start, longest, before = h, np.inf, 0.0
    for _ in SEARCHED:
        second = abs(pair[0] + pair[1] - 2.0 * f)
        rounded = 4.0 * EPS * max(abs(f), abs(pair[0]), abs(pair[1])) / second if second else np.inf
        if not np.isfinite(second):
            longest, h = h, h / STRIDE
        elif rounded > SHORT:
            h = STRIDE * h
        elif (h == start and rounded >= LONG) or abs(np.log10(rounded / BEST)) <= 1.0:
            return h, pair
        else:
            if 0.5 <= rounded / max(before, EPS * EPS) <= 2.0:
                break
            h, before = h * max(float(np.sqrt(rounded / BEST)), STRIDE**-2), rounded
        if not least <= h < longest:
            break
        pair = change(h)
    return start, first


def by_slopes(bend: Callable[[float], float], h: float) -> tuple[float, float]:
    """A length over which the difference of g_j along x_j, `bend` of it, is the same as over a tenth of it, begun with
    h, and that; the one where it differs least where it is nowhere, and h where that tells nothing either."""
    best, told, least = h, np.nan, SAME
    for power in SEARCHED:
        t = h * STRIDE**power
        wide, close = bend(t), bend(0.1 * t)
        off = abs(wide - close) / max(abs(wide), abs(close)) if np.isfinite(wide) and wide * close > 0.0 else np.inf
        if off <= AGREED:
            return t, wide
        best, told, least = (t, wide, off) if off < least else (best, told, least)
    return best, told
