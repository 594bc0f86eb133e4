"""Compiled kernels behind plain formulas. Each has a NumPy/SciPy twin in the tests.

CSR kernels take `rows`, the rows to visit; an empty array stands for all rows, in order. Indices are read as unsigned
numbers, which spares the test for negative ones in the innermost loop.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def csr_times(data: Any, indices: Any, indptr: Any, rows: Any, x: Any, z: Any) -> None:
    """z = A x over the rows."""
    for q in range(len(z)):
        i = rows[q] if len(rows) else q
        total = 0.0
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[j] * x[np.uint64(indices[j])]
        z[q] = total


@numba.njit(cache=True)
def csr_forms(data: Any, indices: Any, indptr: Any, rows: Any, P: Any, forms: Any) -> None:
    """forms = a_i'P a_i of the rows, for a symmetric P; an empty P stands for the identity."""
    for q in range(len(forms)):
        i = rows[q] if len(rows) else q
        start, total = np.uint64(indptr[i]), 0.0
        for j in range(start, np.uint64(indptr[i + 1])):
            if len(P) == 0:
                total += data[j] * data[j]
                continue
            line, part = P[np.uint64(indices[j])], 0.0
            for k in range(start, j):
                part += line[np.uint64(indices[k])] * data[k]
            total += data[j] * (2.0 * part + line[np.uint64(indices[j])] * data[j])
        forms[q] = total


@numba.njit(cache=True)
def csr_weigh(data: Any, indices: Any, indptr: Any, rows: Any, c: Any, labels: Any, sums: Any) -> None:
    """sums[k] += sum of c_i a_i over the rows with label k; without labels all rows have label 0."""
    for q in range(len(c)):
        i = rows[q] if len(rows) else q
        w = c[q]
        if w == 0.0:
            continue
        total = sums[np.uint64(labels[q]) if len(labels) else np.uint64(0)]
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total[np.uint64(indices[j])] += w * data[j]


@numba.njit(cache=True)
def csr_gram(data: Any, indices: Any, indptr: Any, rows: Any, c: Any, B: Any) -> None:
    """Add the lower triangle of A' diag(c) A to the flat B, for rows with sorted columns; c = 0 costs nothing."""
    d = np.uint64(np.sqrt(len(B)))
    for q in range(len(c)):
        w = c[q]
        if w == 0.0:
            continue
        i = rows[q] if len(rows) else q
        start = np.uint64(indptr[i])
        for j in range(start, np.uint64(indptr[i + 1])):
            a, line = w * data[j], np.uint64(indices[j]) * d
            for k in range(start, j + np.uint64(1)):
                B[line + np.uint64(indices[k])] += a * data[k]


@numba.njit(cache=True)
def keep(c: Any, past: Any, stale: float) -> int:
    """Put past_i back where c_i is no further from it than the fraction `stale`, and count these."""
    count = 0
    for i in range(len(c)):
        if abs(c[i] - past[i]) <= stale * abs(past[i]):
            c[i] = past[i]
            count += 1
    return count


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


@numba.njit(cache=True)
def gained(c: Any, past: Any) -> Any:
    """c - past, and c where past is nan."""
    out = np.empty_like(c)
    for i in range(len(c)):
        out[i] = c[i] if np.isnan(past[i]) else c[i] - past[i]
    return out


@numba.njit(cache=True, error_model="numpy")
def sigmoid_squares(order: int, tails: Any, y: Any, out: Any) -> None:
    """l^(order) of the sigmoid's squared error from `losses.SigmoidSquares.pack`, in one pass without branches."""
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
