"""A little arithmetic on vectors of length d, which are long or many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import sqrt
from typing import Any

import numpy as np

from tercet.records import Matrix, Vector


def length(v: Vector) -> float:
    """|v|; for short vectors faster than NumPy's general norm."""
    return sqrt(v.dot(v))


def largest(v: Vector) -> float:
    """max |v_i|; of a nan another one may be named."""
    return abs(float(v[blas().idamax(v)]))


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


@lru_cache(maxsize=16)
def signs(d: int, seed: int) -> Vector:
    """d random signs, the same for a seed; drawn once, since a generator takes longer than a short product."""
    drawn = np.random.default_rng(seed).choice([-1.0, 1.0], size=d)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=16)
def shares(d: int, rows: int) -> Matrix:
    """Rows of d numbers between -1 and 1, drawn once."""
    drawn = np.random.default_rng(d).uniform(-1.0, 1.0, size=(rows, d))
    drawn.flags.writeable = False
    return drawn


@cache
def blas() -> Any:
    """scipy.linalg.blas, imported when it is first used."""
    import scipy.linalg.blas

    return scipy.linalg.blas
