"""False successes: how often does a method say success where it has no minimizer?

    python -m benchmarks.false_success                # all methods
    python -m benchmarks.false_success tercet BFGS    # some of them

Every method has the same exact derivatives and its default settings. A success is false on NIST's sums of squares (27
problems, two starts) with fewer than six right digits of the worst parameter, elsewhere at a point that is no
minimizer: at a degenerate or a fourth-order saddle, and on functions that fall for ever.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import scipy.optimize

import tercet
from benchmarks import nist_models
from benchmarks.problems import degenerate

SCIPY = ("BFGS", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG", "trust-ncg", "trust-exact", "trust-krylov")
WITHOUT_HESSIAN = SCIPY[:4]
RIGHT = 6.0  # digits


@dataclass(frozen=True, eq=False)
class Case:
    """A function that JAX can trace, a start, and whether a point is a minimizer of it."""

    kind: str
    fun: Callable[[Any], Any]
    x0: np.ndarray
    good: Callable[[np.ndarray, float], bool]


def never(x: np.ndarray, f: float) -> bool:
    """There is no minimizer."""
    return False


def nist() -> Iterator[Case]:
    """Sums of squares."""
    for p in nist_models.problems():
        for start in p.starts:
            yield Case("NIST", p.sum_of_squares, start, lambda x, f, p=p: p.digits(x) >= RIGHT)


def saddles() -> Iterator[Case]:
    """From the degenerate points and beside them: a minimizer is lower."""
    for p in degenerate.PROBLEMS:
        if not p.degenerate:
            continue
        rng = np.random.default_rng(0)
        with jax.enable_x64(True):
            f0 = float(p.fun(p.start))
        for size in (0.0, 1e-6, 1e-6):
            start = p.start + size * rng.standard_normal(len(p.start))
            yield Case("degenerate saddles", p.fun, start, lambda x, f, f0=f0: f < f0 - 1e-6)


def fourth_order() -> Iterator[Case]:
    """x^2 - y^4 + y^6, with its minima at -4/27, rotated, from 22 starts."""
    c, s = np.cos(0.3), np.sin(0.3)
    starts = [(a, b) for a in (0.0, 1.0) for b in (0.0, 1e-9, -1e-6, 1e-5, 1e-4, -1e-3, 3e-3, -0.01, 0.03, 0.1, -0.2)]
    for start in starts:
        x0 = np.array([c * start[0] - s * start[1], s * start[0] + c * start[1]])

        def fun(x: Any) -> Any:
            u, v = c * x[0] + s * x[1], c * x[1] - s * x[0]
            return u**2 - v**4 + v**6

        yield Case("fourth-order saddles", fun, x0, lambda x, f: f < -4 / 27 + 1e-6)


def plateaus() -> Iterator[Case]:
    """Functions that fall for ever."""
    for scale in (1e-6, 1.0, 1e6):
        yield Case("plateaus", lambda x, s=scale: s * jnp.exp(-x[0]), np.zeros(1), never)
        yield Case("plateaus", lambda x, s=scale: s * (1.0 + 1.0 / (1.0 + x[0] ** 2)), np.ones(1), never)
    yield Case("plateaus", lambda x: jnp.exp(-x[0]) + (x[1] - 1.0) ** 2, np.zeros(2), never)
    yield Case("plateaus", lambda x: jnp.log1p(jnp.exp(x[0])) + 0.5 / (1.0 + jnp.exp(x[0])), np.array([0.7]), never)


def separable() -> Iterator[Case]:
    """Logistic regressions of classes that a hyperplane separates, without a penalty."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((60, 3))
        sign = np.sign(X @ rng.standard_normal(3))

        def fun(w: Any, A: Any = sign[:, None] * X) -> Any:
            return jnp.mean(jnp.logaddexp(0.0, -(A @ w)))

        yield Case("separable classes", fun, np.zeros(3), never)


FAMILIES = (nist, saddles, fourth_order, plateaus, separable)


def ours(case: Case) -> tuple[bool, np.ndarray, float]:
    """`minimize` as it comes."""
    r = tercet.minimize(case.fun, case.x0)
    return r.success, np.asarray(r.x), r.fun


def theirs(method: str) -> Callable[[Case], tuple[bool, np.ndarray, float]]:
    """SciPy's method as it comes, with the derivatives that it takes."""

    def run(case: Case) -> tuple[bool, np.ndarray, float]:
        with jax.enable_x64(True):
            f, g, h = jax.jit(case.fun), jax.jit(jax.grad(case.fun)), jax.jit(jax.hessian(case.fun))
            call = [lambda x, k=k: np.asarray(k(x), dtype=float) for k in (g, h)]
            more = {} if method in WITHOUT_HESSIAN else {"hess": call[1]}
            try:
                r = scipy.optimize.minimize(lambda x: float(f(x)), case.x0, method=method, jac=call[0], **more)
            except Exception:  # trust-krylov and trust-exact raise where a Hessian is not finite
                return False, case.x0, np.nan
            return bool(r.success), np.asarray(r.x, dtype=float), float(r.fun)

    return run


def main(names: list[str]) -> None:
    """One line per method: false successes and true ones, by kind."""
    jax.config.update("jax_enable_x64", True)
    cases = [case for family in FAMILIES for case in family()]
    kinds = list(dict.fromkeys(case.kind for case in cases))
    many = Counter(case.kind for case in cases)
    methods = {"tercet": ours, **{name: theirs(name) for name in SCIPY}}
    print(f"tercet {tercet.__version__}, SciPy {scipy.__version__}, {len(cases)} runs; false successes / right ones")
    print("| method | " + " | ".join(f"{kind} ({many[kind]})" for kind in kinds) + " | false in all |")
    print("|---" * (len(kinds) + 2) + "|")
    for name, run in methods.items():
        if names and name not in names:
            continue
        false, right = Counter[str](), Counter[str]()
        for case in cases:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                success, x, f = run(case)
            (right if case.good(x, f) else false)[case.kind] += success
        cells = [f"{false[kind]} / {right[kind]}" for kind in kinds]
        print(f"| {name} | " + " | ".join(cells) + f" | {false.total()} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
