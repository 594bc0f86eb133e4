"""The array libraries that can be tested without a device."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

LIBRARIES = ["torch", "array_api_strict"]  # JAX needs float64 switched on before it starts: `test_jaxarrays.py`


def place(library: str) -> Any:
    """What makes an array of a library from one of NumPy."""
    return pytest.importorskip(library).asarray


def same(a: Any, b: Any, digits: float = 1e-11) -> None:
    """Equal up to rounding, beside the largest entry."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=digits * max(float(np.max(np.abs(b))), 1e-300))


def data(n: int = 700, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and real targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    z = X @ rng.standard_normal(d)
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float), z + 0.3 * rng.standard_normal(n)


def namespace(library: str) -> Any:
    return importlib.import_module({"jax": "jax.numpy"}.get(library, library))
