"""Minimizing between bounds: STM against SciPy's L-BFGS-B and trust-constr, all with exact derivatives.

    python -m benchmarks.bounds

Counted are calls of the functions that are given: values, gradients, Hessians and, for STM, the third derivative (as an
array up to 16 variables, where STM forms it, beyond that products with it). A problem is solved where f comes within
1e-6 max(1, |f|) of a minimum, at a point that is no further than 1e-6 outside (trust-constr goes outside): the lowest
that any of them found or, where f has several, a higher one that is certified where the run ended (marked h). Each cell
has the calls of the whole run and, in brackets, what had been called when f first came that close, which asks the same
of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from scipy.optimize import Bounds, OptimizeResult, minimize

import tercet.scipy
from benchmarks.problems.bounded import Bounded, problems

CLOSE = 1e-6
FORMED = 16  # variables
METHODS = ("STM", "trust-constr", "L-BFGS-B")


@dataclass(eq=False)
class Calls:
    """The derivatives of a problem by JAX, with every call counted; f may be asked between its bounds only."""

    problem: Bounded
    made: int = 0
    seen: list[tuple[int, float, float]] = field(default_factory=list)  # calls, f, and how far outside, at each look
    outside: int = 0

    def __post_init__(self) -> None:
        fun = self.problem.fun
        grad = jax.grad(fun)

        def along(x: Any, u: Any, v: Any) -> Any:
            return jax.jvp(lambda z: jax.jvp(grad, (z,), (u,))[1], (x,), (v,))[1]

        self.programs: dict[str, Callable[..., Any]] = {
            "third": jax.jit(jax.jacfwd(jax.hessian(fun))),
            "fun": jax.jit(fun), "jac": jax.jit(grad), "hess": jax.jit(jax.hessian(fun)), "tvp": jax.jit(along),
        }  # fmt: skip

    def ask(self, name: str, x: Any, *more: Any) -> Any:
        """One call."""
        self.made += 1
        beyond = float(np.max(np.maximum(self.problem.low - x, x - self.problem.high)))
        self.outside += beyond > 0.0
        answer = np.asarray(self.programs[name](x, *more))
        if name != "fun":
            return answer
        self.seen.append((self.made, float(answer), beyond))
        return float(answer)

    def fun(self, x: Any) -> Any:
        """f."""
        return self.ask("fun", x)

    def jac(self, x: Any) -> Any:
        """Its gradient."""
        return self.ask("jac", x)

    def hess(self, x: Any) -> Any:
        """Its Hessian."""
        return self.ask("hess", x)

    def third(self, x: Any) -> Any:
        """Its third derivative."""
        return self.ask("third", x)

    def tvp(self, x: Any, u: Any, v: Any) -> Any:
        """Products with its third derivative."""
        return self.ask("tvp", x, u, v)


def run(problem: Bounded, name: str) -> tuple[Calls, OptimizeResult]:
    """One method on one problem."""
    calls, box = Calls(problem), Bounds(problem.low, problem.high)
    same: dict[str, Any] = {"jac": calls.jac, "bounds": box}
    if name == "STM":
        options = {"third": calls.third} if len(problem.x0) <= FORMED else {"tvp": calls.tvp}
        return calls, minimize(calls.fun, problem.x0, hess=calls.hess, method=tercet.scipy.stm, options=options, **same)
    if name == "trust-constr":
        options = {"gtol": 1e-8, "xtol": 1e-12, "barrier_tol": 1e-10, "maxiter": 3000}
        return calls, minimize(calls.fun, problem.x0, hess=calls.hess, method="trust-constr", options=options, **same)
    options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 20000, "maxfun": 40000}
    return calls, minimize(calls.fun, problem.x0, method="L-BFGS-B", options=options, **same)


def lowest(calls: Calls) -> float:
    """The lowest f that was seen between the bounds."""
    return min((f for _, f, beyond in calls.seen if np.isfinite(f) and beyond <= 0.0), default=np.inf)


def when(calls: Calls, best: float) -> int | None:
    """How many calls it took to come close to the best f; None: it never did."""
    limit = best + CLOSE * max(1.0, abs(best))
    return next((made for made, f, beyond in calls.seen if f <= limit and beyond <= CLOSE), None)


def nearest(problem: Bounded, x: Any) -> float:
    """The certified minimum to which a descent from where a run ended leads, inf where there is none; not counted."""
    start = np.clip(x, problem.low, problem.high)
    end = tercet.minimize(problem.fun, start, bounds=Bounds(problem.low, problem.high))
    return end.fun if end.success else np.inf


def main() -> None:
    """One line per problem, then the sums over those that STM and trust-constr both solved."""
    jax.config.update("jax_enable_x64", True)
    sums = {name: [0, 0, 0, 0] for name in METHODS}
    ratios, certified, outside = [], 0, 0
    every = problems()
    print(f"{'':<34}" + "".join(f"{name:>22}" for name in METHODS) + "   f")
    for problem in every:
        found = {name: run(problem, name) for name in METHODS}
        best = min(lowest(calls) for calls, _ in found.values())
        close = {name: when(calls, best) for name, (calls, _) in found.items()}
        cells = []
        for name, (calls, outcome) in found.items():
            higher = close[name] is None
            if higher:
                close[name] = when(calls, nearest(problem, outcome.x))
            sums[name][0] += close[name] is not None
            sums[name][3] += higher and close[name] is not None
            cells.append(f"{calls.made} ({'not solved' if close[name] is None else f'{close[name]}' + 'h' * higher})")
        result = found["STM"][1]
        certified += result.success
        outside += found["STM"][0].outside
        both = close["STM"], close["trust-constr"]
        if None not in both:
            for name in ("STM", "trust-constr"):
                sums[name][1] += found[name][0].made
                sums[name][2] += close[name] or 0
            ratios.append([found["STM"][0].made / found["trust-constr"][0].made, both[0] / both[1]])
        verdict = "" if result.success else f"  {result.tercet.status.name.lower()}"
        print(f"{problem.name:<34}" + "".join(f"{cell:>22}" for cell in cells) + f"   {best:.9g}{verdict}", flush=True)
    for name in METHODS:
        solved, made, first, higher = sums[name]
        solves = f"{solved} of {len(every)} solved, {higher} at a higher minimum"
        print(f"{name}: {solves}; {made} calls, {first} until close")
    print(f"STM: {certified} certified; f or a derivative asked {outside} times outside the bounds")
    calls, until = np.exp(np.mean(np.log(ratios), axis=0))
    ours, theirs = sums["STM"], sums["trust-constr"]
    print(
        f"calls, STM / trust-constr, where both solved: {ours[1] / theirs[1]:.3f} of the sums, {calls:.3f} in the mean"
    )
    print(f"until close: {ours[2] / theirs[2]:.3f} of the sums, {until:.3f} in the (geometric) mean")


if __name__ == "__main__":
    main()
