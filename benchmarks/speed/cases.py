"""The problems of the benchmark: which data, how many seeds, and how long the peers may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from benchmarks.data import load

Data = tuple[Any, np.ndarray]
PENALTIES = ("1e-3", "1e-6", "1e-3/n")
STARTS = ("zero", "normal")
GAPS = ("1e-4", "1e-6", "1e-8", "1e-10")


@dataclass(frozen=True)
class Case:
    """One data set with a loss, and how much of everything is run on it.

    A run of a peer ends after `patience` times the seconds of the whole STM run beside it (`lbfgs_patience` for
    L-BFGS-B with our oracle, of which the figures ask more), within `shortest` and `longest` seconds (three times that
    for L-BFGS-B with our oracle). A run is repeated at most `repeats` times, and no more once it took `enough` seconds.
    After `budget` seconds no peer is run for further seeds, and peers are given three times the seconds of STM only.
    """

    name: str
    title: str
    make: Callable[[], Data]
    seeds: int
    budget: float
    loss: str = "sigmoid_squares"
    penalties: tuple[str, ...] = PENALTIES  # or other names of what is solved on the data
    starts: tuple[str, ...] = STARTS
    repeats: int = 3
    enough: float = 1.0
    patience: float = 10.0
    lbfgs_patience: float = 25.0
    shortest: float = 2.0
    longest: float = 15.0
    peers: tuple[str, ...] = ()  # which methods of SciPy; all of them where none is named


def penalty(name: str, n: int) -> float:
    """The number behind the name of an l2, which may be relative to n."""
    return 1e-3 / n if name == "1e-3/n" else float(name)


def start_at(name: str, d: int, seed: int) -> np.ndarray:
    """Zero, or a standard normal point that the seed determines."""
    return np.zeros(d) if name == "zero" else np.random.default_rng([seed, 7]).standard_normal(d)


def dense_data(n: int, d: int = 50, seed: int = 0) -> Data:
    """Standard normal rows and labels that a logistic model draws for them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    truth = rng.standard_normal(d) * (3.0 / np.sqrt(d))
    return X, (rng.random(n) < expit(X @ truth)).astype(float)


def sparse_data(n: int = 20_000, d: int = 50_000, filled: float = 1e-3, seed: int = 0) -> Data:
    """Rows with the same number of standard normal entries in random columns, and labels of a logistic model."""
    rng = np.random.default_rng(seed)
    k = max(1, round(filled * d))
    columns = np.sort(rng.integers(0, d, (n, k)), axis=1)
    X = sp.csr_array((rng.standard_normal(n * k), columns.ravel(), np.arange(n + 1) * k), shape=(n, d))
    X.sum_duplicates()
    truth = rng.standard_normal(d) * (3.0 / np.sqrt(k))
    return X, (rng.random(n) < expit(X @ truth)).astype(float)


def subset(name: str, rows: int, seed: int = 0) -> Data:
    """Random rows of a LIBSVM file."""
    X, y = load(name)
    chosen = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:rows])
    return sp.csr_array(X)[chosen], y[chosen]


def subset_of(data: Data, rows: int) -> Data:
    """The first rows, to warm everything up with."""
    X, y = data
    return X[:rows], y[:rows]


FULL = (
    Case("a9a", "a9a", lambda: load("a9a"), seeds=5, budget=240),
    Case("covtype", "covtype, scaled", lambda: load("covtype"), seeds=3, budget=240),
    Case("covtype_raw", "covtype, raw (badly conditioned)", lambda: load("covtype_raw"), seeds=3, budget=150, repeats=2,
         patience=3.0, longest=6.0),
    Case("sparse", "generated sparse, 20000 x 50000, 0.1 % filled", sparse_data, seeds=3, budget=180,
         longest=6.0),
    Case("dense", "generated dense, 10^6 x 50", lambda: dense_data(10**6), seeds=2, budget=150, repeats=2,
         enough=2.0, patience=5.0, lbfgs_patience=6.0),
    Case("logistic", "a9a, logistic loss (convex)", lambda: load("a9a"), seeds=3, budget=60, loss="logistic",
         starts=("zero",), longest=5.0),
)  # fmt: skip

SHORT = {"patience": 3.0, "lbfgs_patience": 12.0, "shortest": 0.3, "longest": 1.2, "enough": 0.2, "repeats": 2}
QUICK = (
    replace(FULL[0], seeds=2, budget=45, **SHORT),
    Case("covtype", "covtype, scaled, 50000 of its rows", lambda: subset("covtype", 50_000), seeds=2, budget=50,
         **SHORT),
    Case("dense", "generated dense, 10^5 x 50", lambda: dense_data(10**5), seeds=1, budget=20, peers=("L-BFGS-B",
         "trust-exact"), **SHORT),
    replace(FULL[5], seeds=1, budget=10, peers=("L-BFGS-B", "trust-exact"), **SHORT),
)  # fmt: skip
