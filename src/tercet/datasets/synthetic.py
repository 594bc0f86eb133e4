"""Generated finite sums that are hard in one way each: degenerate, ill-conditioned, sparse, huge.

Always the same numbers: the generators are seeded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Four = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
Generated = tuple[Any, NDArray[np.float64]]


@dataclass(frozen=True)
class CubicValley:
    """l = z^3 + z^4 + y z: at z = 0 flat up to second order but for its tilt y, and lowest at z < 0."""

    def derivatives(self, z: Any, y: Any) -> Four:
        """l, l', l'', l'''."""
        return z**3 + z**4 + y * z, 3 * z**2 + 4 * z**3 + y, 6 * z + 12 * z**2, 6 + 24 * z


def degenerate(n: int = 2048, d: int = 10) -> Generated:
    """Rows a_i and tilts y_i in pairs (a, y), (a, -y), so that the mean gradient at 0 is exactly zero.

    All numbers are multiples of 2^-10, which makes every sum exact. The Hessian at 0 is zero, the third derivative
    6 mean a (x) a (x) a is not: rows lean to the positive side of one axis each.
    """
    rng = np.random.default_rng(0)
    half = n // 2
    A = 0.2 * rng.standard_normal((half, d))
    A[np.arange(half), np.arange(half) % d] += 1.0
    tilt = 0.3 * rng.standard_normal(half)
    A, tilt = np.round(A * 1024) / 1024, np.round(tilt * 1024) / 1024
    order = rng.permutation(n)
    return np.concatenate([A, A])[order], np.concatenate([tilt, -tilt])[order]


def ill_conditioned(n: int = 5000, d: int = 40) -> Generated:
    """Gaussian columns whose scales fall from 1 to 1e-4: the Hessian has a condition number of about 1e8."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) * np.logspace(0, -4, d)
    return X, classes(X @ (rng.standard_normal(d) / np.logspace(0, -4, d)) / np.sqrt(d), rng)


def sparse(n: int = 20000, d: int = 1000, entries: int = 10) -> Generated:
    """At most `entries` ones a row in columns whose frequency falls like 1/j, as words in texts do."""
    rng = np.random.default_rng(2)
    weights = 1.0 / np.arange(1, d + 1)
    columns = rng.choice(d, size=(n, entries), p=weights / weights.sum())
    rows = np.repeat(np.arange(n), entries)
    X = sp.csr_array((np.ones(n * entries), (rows, columns.ravel())), shape=(n, d))
    X.sum_duplicates()
    X.data[:] = 1.0
    return X, classes(X @ rng.standard_normal(d), rng)


def huge(n: int = 1000000, d: int = 20) -> Generated:
    """A million Gaussian rows."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    return X, classes(X @ rng.standard_normal(d), rng)


def classes(margins: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """0 and 1 with P(1) = 1 / (1 + exp(-margin))."""
    return (rng.random(len(margins)) < 1.0 / (1.0 + np.exp(-margins))).astype(np.float64)


GENERATORS: dict[str, Callable[[], Generated]] = {
    "degenerate": degenerate,
    "ill-conditioned": ill_conditioned,
    "sparse": sparse,
    "huge": huge,
}
