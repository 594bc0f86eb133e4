"""What an adaptor costs over the native call, on a problem of a9a's size; at most 5 % is asked for.

    python -m benchmarks.adaptors [--repeats 15] [--rows scipy sklearn]

Each row is (name, native call, adapted call). Both calls give x, and have to give the same; they take turns in one
process, on one thread, and the medians of their processor seconds are compared. The last row is another kind of thing:
the optimistix solver is a method of its own, compiled beforehand, beside `tercet.minimize` on the same JAX function.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

if "numpy" not in sys.modules:  # later it has no effect
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np
import scipy
import scipy.optimize
import scipy.sparse as sp
from scipy.special import expit

import tercet
import tercet.scipy

ASKED = 0.05
Row = tuple[str, Callable[[], np.ndarray], Callable[[], np.ndarray]]


def data(n: int = 32_561, d: int = 123, filled: int = 14, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows of a9a's shape, with ones in `filled` random columns, and labels that a logistic model draws for them."""
    rng = np.random.default_rng(seed)
    columns = np.argsort(rng.random((n, d)), axis=1)[:, :filled]
    X = sp.csr_array((np.ones(n * filled), np.sort(columns, axis=1).ravel(), np.arange(n + 1) * filled), shape=(n, d))
    return X, (rng.random(n) < expit(X @ rng.standard_normal(d))).astype(float)


def calls(view: Any) -> tuple[Callable[..., Any], ...]:
    """Value, gradient, Hessian and product with the third derivative, as functions of x."""
    return (
        lambda x: view.at(x).value(),
        lambda x: view.at(x).gradient(),
        lambda x: view.at(x).hessian(),
        lambda x, u, v: view.at(x).product(3, u, v),
    )


def scipy_rows() -> list[Row]:
    """`scipy.optimize.minimize` against `tercet.minimize` with the same callables, and the same method and seed."""
    rows = []
    for l2 in (1e-3, 1e-6):
        value, grad, hess, tvp = calls(tercet.LinearModel(*data(), l2=l2).over(None))
        x0 = np.zeros(123)
        for name, given, method in (
            ("stm", {"tvp": tvp}, tercet.STM()),
            ("scr", {}, tercet.SCR()),
        ):
            native = {"grad": grad, "hess": hess, **given, "method": method}
            adapted = {"jac": grad, "hess": hess, "options": given, "method": getattr(tercet.scipy, name)}
            rows.append(
                (
                    f"scipy {name} l2={l2:g}",
                    lambda f=value, k=native, x0=x0: tercet.minimize(f, x0, **k).x,
                    lambda f=value, k=adapted, x0=x0: scipy.optimize.minimize(f, x0, **k).x,
                )
            )
    return rows


def optimistix_rows() -> list[Row]:
    """`optimistix.minimise` with its solver, compiled, beside `tercet.minimize` on the same function of JAX."""
    import jax
    import jax.numpy as jnp
    import optimistix as optx

    import tercet.optimistix

    jax.config.update("jax_enable_x64", True)
    X, y = data()
    A, b = jnp.asarray(X.toarray()), jnp.asarray(y)

    def f(x: Any, args: Any = None) -> Any:
        return jnp.mean((jax.nn.sigmoid(A @ x) - b) ** 2) / 2 + 5e-4 * (x @ x)

    solver = tercet.optimistix.STM(rtol=1e-8, atol=1e-8)
    solve = jax.jit(lambda x0: optx.minimise(f, solver, x0).value)
    x0 = np.zeros(123)
    return [("optimistix STM", lambda: tercet.minimize(f, x0).x, lambda: np.asarray(solve(x0)))]


def sklearn_rows() -> list[Row]:
    """`fit` of the estimators against `tercet.minimize`, on a9a itself."""
    from benchmarks.adaptor_sklearn import rows

    return rows()


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "scipy": scipy_rows,
    "sklearn": sklearn_rows,
    "optimistix": optimistix_rows,
}


def medians(calls: tuple[Callable[[], Any], ...], repeats: int) -> list[float]:
    """The median processor seconds of each call, over runs that take turns and begin in turn."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats):
        for k in np.roll(range(len(calls)), turn):
            begin = time.process_time()
            calls[k]()
            seconds[k].append(time.process_time() - begin)
    return [median(s) for s in seconds]


def main(arguments: list[str] | None = None) -> None:
    """A line for each row: milliseconds of both, and the overhead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rows", choices=list(GROUPS), nargs="+", default=list(GROUPS))
    options = parser.parse_args(arguments)
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    versions = f"tercet {tercet.__version__}, SciPy {scipy.__version__}, NumPy {np.__version__}"
    print(f"{versions}, Python {platform.python_version()}, threads {threads}")
    print(f"processor time, medians of {options.repeats}")
    print(f"{'':34} {'native ms':>10} {'adapted ms':>11} {'overhead':>9}")
    for group in options.rows:
        for name, native, adapted in GROUPS[group]():
            if not np.allclose(native(), adapted(), rtol=0, atol=1e-4 if group == "optimistix" else 0):
                raise SystemExit(f"{name}: the two ended at different points")
            first, second = medians((native, adapted), options.repeats)
            over = second / first - 1
            note = "  more than asked" if group != "optimistix" and over > ASKED else ""
            print(f"{name:34} {1e3 * first:10.1f} {1e3 * second:11.1f} {over:9.1%}{note}", flush=True)


if __name__ == "__main__":
    main()
