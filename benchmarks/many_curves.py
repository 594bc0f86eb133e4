"""Many curves: `curve_fit_many` against a loop over SciPy's curve_fit with the model in NumPy, its best.

    python -m benchmarks.many_curves [10000]

A Gaussian peak on a line: 5 parameters, 50 points, noise of 0.1, starts read off each curve. SciPy fits every twentieth
curve, and its processor seconds are multiplied; ours are the mean of ten calls in between, when nothing is compiled.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import scipy
import scipy.optimize

import tercet

ROUNDS = 10


def peak(xp: Any) -> Any:
    """The model over an array library."""

    def f(x: Any, a: Any, m: Any, s: Any, b: Any, c: Any) -> Any:
        return a * xp.exp(-0.5 * ((x - m) / s) ** 2) + b + c * x

    return f


def main(K: int) -> None:
    """Both, and their ratio."""
    import jax.numpy as jnp

    rng, x = np.random.default_rng(0), np.linspace(0.0, 10.0, 50)
    low, high = [1.0, 3.0, 0.5, 0.2, -0.2], [5.0, 7.0, 1.5, 1.0, 0.2]
    Y = np.stack([peak(np)(x, *p) for p in rng.uniform(low, high, (K, 5))]) + 0.1 * rng.standard_normal((K, 50))
    base = np.median(Y, axis=1)
    p0 = np.stack([Y.max(axis=1) - base, x[Y.argmax(axis=1)], np.ones(K), base, np.full(K, 0.01)], axis=1)
    ours = peak(jnp)
    tercet.curve_fit_many(ours, x, Y, p0)
    seconds = loop = 0.0
    theirs, apart = peak(np), 0
    for first in range(ROUNDS):  # turn by turn, so that both meet the same machine
        begun = time.process_time()
        fits = tercet.curve_fit_many(ours, x, Y, p0)
        seconds += (time.process_time() - begun) / ROUNDS
        begun, those = time.process_time(), range(first, K, 20 * ROUNDS)
        for k in those:
            try:
                popt = scipy.optimize.curve_fit(theirs, x, Y[k], p0[k])[0]
            except RuntimeError:  # not found
                continue
            apart += bool(np.any(np.abs(popt - fits.popt[k]) > 1e-4 * np.abs(popt) + 1e-6))
        loop += (time.process_time() - begun) * K / len(those) / ROUNDS
    certified = int(fits.success.sum())
    print(f"{K} curves: ours {seconds:.3f} s of processor time, {certified} certified,")
    print(
        f"{len(fits.alone)} of them fitted alone, at least {np.nanmin(fits.digits[fits.success]):.1f} digits, in the "
    )
    print(f"median {np.nanmedian(fits.digits):.1f}; SciPy {scipy.__version__} {loop:.2f} s, {apart} differ;")
    print(f"{loop / seconds:.1f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
