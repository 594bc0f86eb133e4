"""Rows of a small linear model, all loops compiled by Numba: f, g, B and T[s, s] from margins, without a vector more.

Losses are known by their place in `losses.LOOPED`; each formula is that of `tercet.objectives.losses`, for one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from tercet.objectives.linear.point import STRAIGHT, LinearView
from tercet.objectives.losses import LOOPED
from tercet.objectives.tables import DenseTable

SIGMOID, LOGISTIC, SQUARES, CAUCHY, WELSCH, GEMAN = range(len(LOOPED))
PLAIN: Any = ("C", "A", "W")
INNER: dict[str, Any] = {"cache": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """For calls from compiled functions only: what it would take to be called from Python takes long to compile."""
    return cast(F, numba.njit(**INNER)(function))


def summed(function: F) -> F:
    """The same, with sums in any order."""
    return cast(F, numba.njit(**INNER, fastmath={"reassoc", "contract"})(function))


class Data(NamedTuple):
    """A, dense (else 0 x d) or as CSR (else empty), with its targets, weights (none: all one), loss and penalty."""

    A: Any
    entries: Any
    columns: Any
    ends: Any
    y: Any
    w: Any
    mask: Any  # 1 where a coordinate is penalized
    loss: int
    scale: float
    l2: float
    alpha: float


def data_of(view: LinearView) -> Data:
    """The rows of a view as compiled loops read them: writable arrays in one piece, copied where they are not."""
    table, loss, penalty, none = cast(Any, view.table), view.loss, view.penalty, np.empty(0)
    A = table.A
    dense = isinstance(table, DenseTable)
    parts = (A, none, none, none) if dense else (np.empty((0, A.shape[1])), A.data, A.indices, A.indptr)
    kinds = (np.float64, np.float64, np.int64, np.int64)
    A, entries, columns, ends = (np.require(part, kind, PLAIN) for part, kind in zip(parts, kinds, strict=True))
    y, w, mask = (np.require(none if v is None else v, np.float64, PLAIN) for v in (view.y, view.w, penalty.mask))
    scale = float(getattr(loss, "scale", 1.0))
    return Data(A, entries, columns, ends, y, w, mask, LOOPED.index(type(loss)), scale, penalty.l2, penalty.alpha)


@compiled
def loss_of(number: int, c: float, z: float, y: float) -> float:
    """l(z, y)."""
    if number <= LOGISTIC:
        v = z if y < 0.5 else -z
        tail = np.exp(-abs(v))
        if number == LOGISTIC:
            return max(v, 0.0) + np.log1p(tail)
        P = 1.0 / (1.0 + tail) if v >= 0.0 else tail / (1.0 + tail)
        return 0.5 * P * P
    u = (z - y) / c
    if number == SQUARES:
        return 0.5 * u * u
    if number == CAUCHY:
        return 0.5 * c * c * np.log1p(u * u)
    if number == WELSCH:
        return -0.5 * c * c * np.expm1(-u * u)
    return 0.5 * c * c * u * u / (1.0 + u * u)


@compiled
def slopes_of(number: int, c: float, z: float, y: float) -> tuple[float, float, float]:
    """l', l'' and l''' in z."""
    if number <= LOGISTIC:
        sign = 1.0 if y < 0.5 else -1.0
        v = sign * z
        tail = np.exp(-abs(v))
        high = 1.0 / (1.0 + tail)
        low = tail * high
        P, Q = (high, low) if v >= 0.0 else (low, high)
        if number == LOGISTIC:
            return sign * P, P * Q, sign * P * Q * (Q - P)
        base = P * P * Q
        return sign * base, base * (2.0 * Q - P), sign * base * (4.0 * Q * Q - 7.0 * P * Q + P * P)
    u = (z - y) / c
    if number == SQUARES:
        return u, 1.0, 0.0
    if number == WELSCH:
        e = np.exp(-u * u)
        return c * u * e, (1.0 - 2.0 * u * u) * e, 2.0 * u * (2.0 * u * u - 3.0) * e / c
    w = 1.0 / (1.0 + u * u)
    if number == CAUCHY:
        return c * u * w, (1.0 - u * u) * w * w, 2.0 * u * (u * u - 3.0) * w * w * w / c
    return c * u * w * w, (1.0 - 3.0 * u * u) * w * w * w, 12.0 * u * (u * u - 1.0) * w * w * w * w / c


@compiled
def dot(u: Any, v: Any) -> float:
    """u'v."""
    total = 0.0
    for j in range(len(u)):
        total += u[j] * v[j]
    return total


@summed
def dense_times(A: Any, x: Any, z: Any) -> None:
    """z = Ax."""
    for i in range(len(z)):
        total = 0.0
        for j in range(len(x)):
            total += A[i, j] * x[j]
        z[i] = total


@compiled
def times(data: Data, x: Any, z: Any) -> None:
    """z = Ax."""
    if len(data.A):
        dense_times(data.A, x, z)
        return
    for i in range(len(z)):
        total = 0.0
        for k in range(data.ends[i], data.ends[i + 1]):
            total += data.entries[k] * x[data.columns[k]]
        z[i] = total


@compiled
def weigh(data: Data, c: Any, out: Any) -> None:
    """out = A'c / m, by four dense rows at once."""
    m, d = len(c), len(out)
    for j in range(d):
        out[j] = 0.0
    if not len(data.A):
        for i in range(m):
            for k in range(data.ends[i], data.ends[i + 1]):
                out[data.columns[k]] += c[i] * data.entries[k]
    else:
        A, whole = data.A, m - m % 4
        for i in range(0, whole, 4):
            p, q, r, s = c[i], c[i + 1], c[i + 2], c[i + 3]
            for j in range(d):
                out[j] += p * A[i, j] + q * A[i + 1, j] + r * A[i + 2, j] + s * A[i + 3, j]
        for i in range(whole, m):
            for j in range(d):
                out[j] += c[i] * A[i, j]
    for j in range(d):
        out[j] /= m


@compiled
def gram(data: Data, c: Any, B: Any) -> None:
    """B = A' diag(c) A / m, by four dense rows at once."""
    m, d = len(c), len(B)
    for j in range(d):
        for k in range(d):
            B[j, k] = 0.0
    if not len(data.A):
        for i in range(m):
            for j in range(data.ends[i], data.ends[i + 1]):  # columns are sorted
                for k in range(data.ends[i], j + 1):
                    B[data.columns[j], data.columns[k]] += c[i] * data.entries[j] * data.entries[k]
    else:
        A, whole = data.A, m - m % 4
        for i in range(0, whole, 4):
            for j in range(0, d - 1, 2):  # two rows of B at once read those of A half as often
                p, q, r, s = c[i] * A[i, j], c[i + 1] * A[i + 1, j], c[i + 2] * A[i + 2, j], c[i + 3] * A[i + 3, j]
                h = j + 1
                t, u, v, w = c[i] * A[i, h], c[i + 1] * A[i + 1, h], c[i + 2] * A[i + 2, h], c[i + 3] * A[i + 3, h]
                for k in range(h + 1):
                    B[j, k] += p * A[i, k] + q * A[i + 1, k] + r * A[i + 2, k] + s * A[i + 3, k]
                    B[h, k] += t * A[i, k] + u * A[i + 1, k] + v * A[i + 2, k] + w * A[i + 3, k]
            if d % 2:
                j = d - 1
                p, q, r, s = c[i] * A[i, j], c[i + 1] * A[i + 1, j], c[i + 2] * A[i + 2, j], c[i + 3] * A[i + 3, j]
                for k in range(d):
                    B[j, k] += p * A[i, k] + q * A[i + 1, k] + r * A[i + 2, k] + s * A[i + 3, k]
        for i in range(whole, m):
            for j in range(d):
                for k in range(j + 1):
                    B[j, k] += c[i] * A[i, j] * A[i, k]
    for j in range(d):
        for k in range(j + 1):
            B[j, k] /= m
            B[k, j] = B[j, k]


@compiled
def value(data: Data, z: Any, Az: Any, t: float, x: Any) -> tuple[float, float]:
    """f where the margins are z + t Az and the coefficients x, and the largest of these margins."""
    total, largest, m = 0.0, 0.0, len(z)
    for i in range(m):
        margin = z[i] + t * Az[i]
        weight = data.w[i] if len(data.w) else 1.0
        total += weight * loss_of(data.loss, data.scale, margin, data.y[i])
        largest = max(largest, abs(margin))
    penalty = 0.0
    for j in range(len(x)):
        q = data.mask[j] * x[j] * x[j]
        penalty += 0.5 * data.l2 * q + data.alpha * q / (1.0 + q)
    return total / m + penalty, largest


@compiled
def gradient(data: Data, z: Any, x: Any, c: Any, g: Any) -> None:
    """g; c are numbers for each row."""
    for i in range(len(z)):
        weight = data.w[i] if len(data.w) else 1.0
        c[i] = weight * slopes_of(data.loss, data.scale, z[i], data.y[i])[0]
    weigh(data, c, g)
    for j in range(len(x)):
        q = 1.0 + x[j] * x[j]
        g[j] += data.mask[j] * (data.l2 * x[j] + 2.0 * data.alpha * x[j] / (q * q))


@compiled
def hessian(data: Data, z: Any, x: Any, c: Any, B: Any) -> None:
    """B; c are numbers for each row."""
    for i in range(len(z)):
        weight = data.w[i] if len(data.w) else 1.0
        c[i] = weight * slopes_of(data.loss, data.scale, z[i], data.y[i])[1]
    gram(data, c, B)
    for j in range(len(x)):
        q = x[j] * x[j]
        B[j, j] += data.mask[j] * (data.l2 + data.alpha * (2.0 - 6.0 * q) / (1.0 + q) ** 3)


@compiled
def third_square(data: Data, z: Any, As: Any, x: Any, s: Any, c: Any, out: Any) -> int:
    """out = T[s, s] over the rows that bend along s, and how many they are."""
    count = 0
    for i in range(len(z)):
        _, second, third = slopes_of(data.loss, data.scale, z[i], data.y[i])
        weight = data.w[i] if len(data.w) else 1.0
        bends = 0.5 * abs(weight * third * As[i]) > STRAIGHT * abs(weight * second)
        count += bends
        c[i] = weight * third * As[i] * As[i] if bends else 0.0
    weigh(data, c, out)
    for j in range(len(x)):
        q = x[j] * x[j]
        out[j] += data.mask[j] * data.alpha * 24.0 * x[j] * (q - 1.0) / (1.0 + q) ** 4 * s[j] * s[j]
    return count
