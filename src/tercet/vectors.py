"""A little arithmetic on vectors of length d, which are long or many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from tercet.records import Vector


def length(v: Vector) -> float:
    """|v|; for short vectors faster than NumPy's general norm."""
    return sqrt(v.dot(v))


def largest(v: Vector) -> float:
    """max |v_i|."""
    return float(max(v.max(), -v.min()))


def fits(v: Vector) -> bool:
    """Whether v is a direction: not 0, and its square is a number."""
    with np.errstate(over="ignore"):
        return bool(1e-150 < length(v) < 1e150)


def combine(a: Vector, V: Sequence[Vector]) -> Vector:
    """The sum of a_k v_k; of arrays of another library, too."""
    if not isinstance(V[0], np.ndarray):
        return sum((float(weight) * v for weight, v in zip(a[1:], V[1:], strict=True)), float(a[0]) * V[0])
    total = a[0] * V[0]
    for weight, v in zip(a[1:], V[1:], strict=True):
        total = blas().daxpy(v, total, a=weight)  # in place
    return total


@cache
def blas() -> Any:
    """scipy.linalg.blas, imported when it is first used."""
    import scipy.linalg.blas

    return scipy.linalg.blas
