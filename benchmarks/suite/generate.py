"""Generated data of many shapes. Each maker gives X and margins of about unit size; targets are drawn from those."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

Maker = Callable[[np.random.Generator, int, int], Any]


def gauss(rng: np.random.Generator, n: int, d: int) -> Any:
    """Independent standard normal entries."""
    return rng.standard_normal((n, d))


def units(rng: np.random.Generator, n: int, d: int) -> Any:
    """Columns in units from 1 to 1e5."""
    return rng.standard_normal((n, d)) * rng.permutation(np.geomspace(1.0, 1e5, d))


def correlated(rng: np.random.Generator, n: int, d: int) -> Any:
    """Three factors and a little of each column's own: correlations of about 0.99."""
    return rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + 0.1 * rng.standard_normal((n, d))


def onehot(rng: np.random.Generator, n: int, d: int) -> Any:
    """Categories: one entry of 1 for each of about d / 8 variables, some values far more frequent than others."""
    variables = max(1, d // 8)
    edges = np.linspace(0, d, variables + 1).astype(int)
    columns = np.column_stack([low + (rng.random(n) ** 2 * (high - low)).astype(int) for low, high in pairwise(edges)])
    return from_columns(columns, np.ones(columns.size), d)


def rare(rng: np.random.Generator, n: int, d: int) -> Any:
    """Words: 20 entries a row, columns drawn with frequencies 1/k, values 1 + log counts scaled to unit rows."""
    weights = 1.0 / np.arange(1, d + 1)
    columns = rng.choice(d, size=(n, 20), p=weights / weights.sum())
    X = from_columns(columns, np.ones(columns.size), d)
    X.data = 1.0 + np.log(X.data)
    return sp.csr_array(X.multiply(1.0 / np.sqrt(X.multiply(X).sum(axis=1))[:, None]))


def wide(rng: np.random.Generator, n: int, d: int) -> Any:
    """Sparse normal entries, 30 a row."""
    return from_columns(rng.integers(0, d, (n, 30)), rng.standard_normal(30 * n), d)


def heavy(rng: np.random.Generator, n: int, d: int) -> Any:
    """Student's t with two degrees of freedom: no variance."""
    return rng.standard_t(2.0, (n, d))


def outliers(rng: np.random.Generator, n: int, d: int) -> Any:
    """One row in a hundred is a hundred times as long."""
    return rng.standard_normal((n, d)) * np.where(rng.random(n) < 0.01, 100.0, 1.0)[:, None]


def duplicates(rng: np.random.Generator, n: int, d: int) -> Any:
    """Each row ten times, and the second half of the columns equal to the first: a singular Hessian but for l2."""
    rows = rng.standard_normal((-(-n // 10), -(-d // 2)))
    return np.tile(np.repeat(rows, 10, axis=0)[:n], 2)[:, :d]


def counts(rng: np.random.Generator, n: int, d: int) -> Any:
    """Raw counts with means from 0.1 to 1000, not centered."""
    return rng.poisson(np.geomspace(0.1, 1000.0, d), (n, d)).astype(float)


def shifted(rng: np.random.Generator, n: int, d: int) -> Any:
    """Every column has mean 10 and variance 1."""
    return 10.0 + rng.standard_normal((n, d))


def binary(rng: np.random.Generator, n: int, d: int) -> Any:
    """Sparse entries of 1, a fifth of them filled."""
    return sp.csr_array((rng.random((n, d)) < 0.2).astype(float))


def decaying(rng: np.random.Generator, n: int, d: int) -> Any:
    """Singular values that fall like 1/k, in a random basis."""
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return (rng.standard_normal((n, d)) / np.arange(1, d + 1)) @ basis


MAKERS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        gauss, units, correlated, onehot, rare, wide, heavy, outliers, duplicates, counts, shifted, binary, decaying,
    )
}  # fmt: skip


def from_columns(columns: np.ndarray, values: np.ndarray, d: int) -> Any:
    """A CSR array with the same number of entries in each row; equal places add up."""
    n, k = columns.shape
    X = sp.csr_array((values, columns.ravel(), np.arange(n + 1) * k), shape=(n, d))
    X.sum_duplicates()
    return X


def margins(rng: np.random.Generator, X: Any) -> np.ndarray:
    """X w + b for a random w in the units of the columns, of variance 4 and mean 0."""
    squares = X.multiply(X) if sp.issparse(X) else X**2
    scales = np.sqrt(np.asarray(squares.mean(axis=0)).ravel())
    z = X @ (rng.standard_normal(X.shape[1]) / np.where(scales > 0, scales, 1.0))
    return 2.0 * (z - z.mean()) / (z.std() or 1.0)


def labels(rng: np.random.Generator, z: np.ndarray, separable: bool = False) -> np.ndarray:
    """0 or 1, by the sign of z or drawn by a logistic model."""
    return (z > 0 if separable else rng.random(len(z)) < expit(z)).astype(float)


def responses(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
    """z with noise of variance 1/4, and one in twenty far off."""
    return z + 0.5 * rng.standard_normal(len(z)) + np.where(rng.random(len(z)) < 0.05, 10.0, 0.0)
