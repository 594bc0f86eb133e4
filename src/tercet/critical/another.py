"""Of many minimizers with the same f, one may be none: further along a direction in which f is flat B bends down.

Where two terms of a model have become the same, f does not tell their shares. With one share positive and the other
negative x may be a minimizer, and with both positive f falls when the terms part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tercet.critical.errors import RESOLVED
from tercet.critical.looks import NEAR, PAIRED, Sight, WayDown
from tercet.objectives.metered import MeteredPoint
from tercet.records import Vector

ALONG = (0.1, 10**-0.5, 1.0, 10**0.5)  # spans of x, to both sides
SAME = 1e-6  # a B that changes by less, beside its size, is the same all along a direction


def from_another(sight: Sight, point: MeteredPoint, free: tuple[Vector, ...]) -> WayDown | None:
    """A way down from x + tv, where f is f(x) and B has a negative eigenvalue; up to eleven Hessians for each v along
    which B is not the same, a product with T where it is."""
    D = sight.spans
    for v in free[:PAIRED]:
        v = v / float(np.max(np.abs(v) / D))
        if np.max(D * np.abs(point.third_product(v, D))) <= SAME * np.max(D * (np.abs(point.hessian()) @ D)):
            continue
        for t in places(sight.x, v, D):
            if not abs(sight.change(t * v)) <= sight.noise or sight.domain.room(sight.x, np.sign(t) * v) < abs(t):
                continue
            H = point.view.at(sight.x + t * v).hessian() * np.outer(D, D)
            if not np.all(np.isfinite(H)):
                continue
            values, V = np.linalg.eigh((H + H.T) / 2)
            if not values[0] < -RESOLVED * len(D) * sight.epsilon * np.max(np.abs(values)):
                continue
            w = D * V[:, 0] / np.max(np.abs(V[:, 0]))
            there = replace(sight, x=sight.x + t * v)
            for way in (there.domain.inward(there.x, w), there.domain.inward(there.x, -w)):
                side = there.side(way, NEAR, 1.0)
                if side.fall > 0.0:
                    return WayDown(t * v + side.lowest * way, side.fall, 2)
    return None


def places(x: Vector, v: Vector, D: Vector) -> list[float]:
    """Where along v to look: some spans of x to both sides, and midway between where two x_j change their signs, of the
    few that v moves most."""
    most = np.argsort(-np.abs(v) / D, kind="stable")[:PAIRED]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        zeros = np.sort(-x[most] / v[most])
    zeros = zeros[np.abs(zeros) <= ALONG[-1]]
    return [*(sign * t for t in ALONG for sign in (1.0, -1.0)), *(0.5 * (zeros[1:] + zeros[:-1])).tolist()]
