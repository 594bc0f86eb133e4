"""Compiled kernels behind plain formulas. Each has a NumPy/SciPy twin in the tests."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def csr_gram(data: Any, indices: Any, indptr: Any, weights: Any, d: int) -> Any:
    """A' diag(weights) A for CSR rows with sorted column indices; one visit per pair of entries of a row."""
    B = np.zeros((d, d))
    for i in range(len(indptr) - 1):
        w = weights[i]
        if w == 0.0:
            continue
        for j in range(indptr[i], indptr[i + 1]):
            a = w * data[j]
            row = B[indices[j]]
            for k in range(j, indptr[i + 1]):
                row[indices[k]] += a * data[k]
    for i in range(d):
        for j in range(i):
            B[i, j] = B[j, i]
    return B
