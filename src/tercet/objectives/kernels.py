"""Compiled elementwise formulas. Each has a NumPy twin in the tests."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tercet.records import Vector


@numba.njit(cache=True)
def bend(As: Any, second: Any, third: Any, straight: float, out: Any) -> int:
    """Count the rows with |l''' a's| / 2 > straight |l''|; out is l''' (a's)^2 there and 0 elsewhere."""
    count = 0
    for i in range(len(As)):
        curved = third[i] * As[i]
        bends = 0.5 * abs(curved) > straight * abs(second[i])
        count += bends
        out[i] = As[i] * curved if bends else 0.0
    return count


@numba.njit(cache=True)
def sign_tails(tails: Any, z: Any, y: Any) -> None:
    """Make a tail negative where z has the wrong sign for y, in place."""
    for i in range(len(tails)):
        tails[i] = np.copysign(tails[i], (2.0 * y[i] - 1.0) * z[i])


@numba.njit(cache=True, error_model="numpy")
def sigmoid_squares(order: int, tails: Any, y: Any) -> Any:
    """l^(order) of the sigmoid's squared error from `pack_sigmoid_squares`, in one pass without branches."""
    out = np.empty_like(tails)
    for i in range(len(tails)):
        tail = abs(tails[i])
        high = 1.0 / (1.0 + tail)
        low = tail * high
        P, Q = (high, low) if np.copysign(1.0, tails[i]) < 0.0 else (low, high)  # -0.0 is a tail, too
        if order == 0:
            out[i] = 0.5 * P * P
        elif order == 2:
            out[i] = P * P * Q * (2.0 * Q - P)
        else:
            odd = (1.0 - 2.0 * y[i]) * P * P * Q
            out[i] = odd if order == 1 else odd * (4.0 * Q * Q - 7.0 * P * Q + P * P)
    return out


def pack_sigmoid_squares(z: Vector, y: Vector) -> Vector:
    """exp(-|z|), negative where z has the wrong sign for y: all that `sigmoid_squares` needs. The exp is NumPy's."""
    tails = np.abs(z)
    np.exp(np.negative(tails, out=tails), out=tails)
    sign_tails(tails, z, y)
    return tails
