"""First scripts of SciPy's users: functions with their gradient, or with nothing, against BFGS and L-BFGS-B.

    python -m benchmarks.secants               # with the gradient: gradients and processor time
    python -m benchmarks.secants --values      # with nothing: values

The 35 problems of More, Garbow and Hillstrom and Rosenbrock's function of 10 variables from three starts, through
`scipy.optimize.minimize` with default tolerances, certificates included. A function takes some 10 us (it is compiled by
JAX and called with NumPy), so that seconds are what the methods take. Methods are run in turn, the least time counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize

import tercet.scipy
from benchmarks.problems.mgh import PROBLEMS

METHODS = {"STM": tercet.scipy.stm, "BFGS": "BFGS", "L-BFGS-B": "L-BFGS-B"}
TURNS = 5


def cases() -> list[tuple[str, Callable[[Any], Any], Any]]:
    """Names, functions and starts."""

    def rosenbrock(x: Any) -> Any:
        return jax.numpy.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    starts = {"-1.2, 1": np.tile([-1.2, 1.0], 5), "0": np.zeros(10), "1.3": np.full(10, 1.3)}
    own = [(f"Rosenbrock, 10 variables, from {name}", rosenbrock, x0) for name, x0 in starts.items()]
    return own + [(f"{p.number} {p.name}", p.fun, np.asarray(p.x0, dtype=float)) for p in PROBLEMS]


def run(fun: Callable[[Any], Any], x0: Any, values: bool, turns: int) -> dict[str, tuple[int, float, Any]]:
    """Calls, the least processor time, and the result of each method."""
    f, g = jax.jit(fun), None if values else jax.jit(jax.grad(fun))
    f(x0)
    jac = None if g is None else (lambda x: np.asarray(g(x)))
    best: dict[str, tuple[int, float, Any]] = {}
    for _ in range(turns):
        for name, method in METHODS.items():
            begun = time.process_time()
            r = minimize(lambda x: float(f(x)), x0, jac=jac, method=method)
            took = time.process_time() - begun
            calls = r.nfev if values else r.njev
            best[name] = (calls, min(took, best[name][1] if name in best else np.inf), r)
    return best


def main() -> None:
    """One line a problem, then sums and geometric means."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", action="store_true", help="without the gradient")
    values = parser.parse_args().values
    what = "values" if values else "gradients"
    calls, seconds, certified = [], [], 0
    print(f"{'':<46}{what + ' (ms): STM':>22}{'BFGS':>18}{'L-BFGS-B':>18}{'calls':>8}{'time':>7}  f")
    for name, fun, x0 in cases():
        found = run(fun, x0, values, 1 if values else TURNS)
        (a, t, r), (b, u, other), (c, v, _) = found.values()
        calls.append(a / b)
        seconds.append(t / v)
        certified += r.success
        cells = [f"{calls} ({1e3 * took:.1f})" for calls, took in ((a, t), (b, u), (c, v))]
        ends = f"{r.fun:.3g} {other.fun:.3g}{'' if r.success else ' ' + r.tercet.status.name.lower()}"
        line = f"{name[:45]:<46}{cells[0]:>22}{cells[1]:>18}{cells[2]:>18}{a / b:>8.2f}{t / v:>7.1f}"
        print(f"{line}  {ends}", flush=True)
    mean, slow = np.exp(np.mean(np.log(calls))), np.exp(np.mean(np.log(seconds)))
    print(f"{certified} of {len(calls)} certified; {what}, STM / BFGS: {mean:.2f} in the geometric mean")
    print(f"processor time, STM / L-BFGS-B: {slow:.1f} in the geometric mean, {min(seconds):.1f} to {max(seconds):.1f}")


if __name__ == "__main__":
    main()
