"""Who runs: each takes compiled functions, a start and a watch, and goes on until the watch ends it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import tercet
from benchmarks.networks.problems import Problem

STEPS = 10**7  # more than any budget allows


class EnoughError(Exception):
    """The time is up."""


class Watch:
    """Keeps the lowest point at each of the given processor seconds, and ends the run at the last."""

    def __init__(self, marks: tuple[float, ...], x0: np.ndarray):
        self.marks, self.began, self.x = marks, time.process_time(), x0
        self.kept: list[tuple[float, np.ndarray]] = []
        self.best, self.looks = np.inf, 0

    def begin(self) -> None:
        """What is compiled in this run has been compiled now."""
        self.began = time.process_time()

    def see(self, x: Any, value: float) -> None:
        """A point and its f; what looking takes is not counted."""
        now, self.looks = time.process_time() - self.began, self.looks + 1
        while len(self.kept) < len(self.marks) and now > self.marks[len(self.kept)]:
            self.kept.append((self.best, self.x))
        if len(self.kept) == len(self.marks):
            raise EnoughError
        if value < self.best:
            self.best, self.x = value, np.array(x, dtype=float)

    def fill(self) -> None:
        """A run that ended early stays where it is."""
        self.kept += [(self.best, self.x)] * (len(self.marks) - len(self.kept))


class Functions:
    """f with its gradient, the residuals and their Jacobian, compiled."""

    def __init__(self, problem: Problem):
        self.problem, self.data = problem, tuple(jnp.asarray(part) for part in problem.data)
        n = np.sqrt(len(problem.data[0]))

        def half(x: Any, *d: Any) -> Any:
            return 0.5 * jnp.sum(problem.vector(x, *d) ** 2)

        def rows(x: Any, *d: Any) -> Any:
            J = jax.vmap(lambda *e: jax.grad(problem.residual)(x, *e))(*d) / n
            return J if problem.l2 is None else jnp.concatenate([J, jnp.diag(np.sqrt(problem.l2))])

        self.both_, self.vector_, self.rows_ = jax.jit(jax.value_and_grad(half)), jax.jit(problem.vector), jax.jit(rows)

    def both(self, x: Any) -> tuple[float, np.ndarray]:
        """f and its gradient."""
        f, g = self.both_(x, *self.data)
        return float(f), np.asarray(g)

    def vector(self, x: Any) -> np.ndarray:
        """The residuals."""
        return np.asarray(self.vector_(x, *self.data))

    def rows(self, x: Any) -> np.ndarray:
        """Their Jacobian, by one reverse pass for each."""
        return np.asarray(self.rows_(x, *self.data))


Run = Callable[[Functions, np.ndarray, Watch], None]


def ours(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
    """`minimize` on `Residuals`, with its defaults but for the tolerance."""
    p = functions.problem
    problem = tercet.Residuals(p.residual, p.data, l2=0.0 if p.l2 is None else p.l2, chunk=8192)

    def callback(info: tercet.Info) -> bool:
        try:
            watch.see(info.x, info.row.f)
        except EnoughError:
            return True
        return False

    tercet.minimize(problem, x0, order=1, tol=1e-14, max_iterations=STEPS, callback=callback)


def by_scipy(method: str, **options: Any) -> Run:
    """A method of `scipy.optimize.minimize`, begun again where its line search gives up."""

    def run(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
        def both(x: np.ndarray) -> tuple[float, np.ndarray]:
            f, g = functions.both(x)
            watch.see(x, f)
            return f, g

        start, last = x0, -1
        while watch.looks != last:
            last = watch.looks
            scipy.optimize.minimize(both, start, jac=True, method=method, options={"maxiter": STEPS, **options})
            start = watch.x

    return run


def least_squares(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
    """`scipy.optimize.least_squares`, trf with exact steps."""

    def vector(x: np.ndarray) -> np.ndarray:
        r = functions.vector(x)
        watch.see(x, 0.5 * float(r @ r))
        return r

    scipy.optimize.least_squares(vector, x0, functions.rows, method="trf", ftol=1e-15, xtol=1e-15, gtol=1e-15,
                                 max_nfev=STEPS)  # fmt: skip


def by_torch(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
    """torch.optim.LBFGS with its strong Wolfe search and a memory of 50, over the same compiled gradient."""
    import torch

    x = torch.tensor(x0, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=1000, max_eval=STEPS, history_size=50, line_search_fn="strong_wolfe",
                                  tolerance_grad=0.0, tolerance_change=0.0)  # fmt: skip

    def closure() -> Any:
        f, g = functions.both(x.detach().numpy())
        watch.see(x.detach().numpy(), f)
        x.grad = torch.from_numpy(g.copy())
        return torch.tensor(f, dtype=torch.float64)

    last = -1
    while watch.looks != last:
        last = watch.looks
        optimizer.step(closure)


def by_optimistix(kind: str) -> Run:
    """Its Levenberg-Marquardt (`LevenbergMarquardt`) or `BFGS`, step by step, each step compiled."""

    def run(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
        import equinox
        import optimistix

        solver, data, least = getattr(optimistix, kind)(rtol=1e-14, atol=1e-14), functions.data, kind != "BFGS"

        def fn(x: Any, args: Any) -> Any:
            r = functions.problem.vector(x, *args)
            return (r if least else 0.5 * jnp.sum(r * r)), None

        x = jnp.asarray(x0)
        shape = jax.eval_shape(lambda: fn(x, data))
        tags: frozenset[Any] = frozenset()
        options: dict[str, Any] = {} if least else {"autodiff_mode": "bwd"}
        state = solver.init(fn, x, data, options, shape[0], shape[1], tags)
        step = equinox.filter_jit(lambda y, state: solver.step(fn, y, data, options, state, tags))
        step(x, state)
        watch.begin()
        while True:
            x, state, _ = step(x, state)
            at = np.asarray(x)
            watch.see(at, float(0.5 * np.sum(functions.vector(at) ** 2)))

    return run


def by_nlls_gram(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
    """nlls-gram's LevenbergMarquardt, step by step, with its Cholesky factorization."""
    import nlls_gram

    solver = nlls_gram.LevenbergMarquardt(
        lambda x, args: functions.problem.vector(x, *args), linear_solver=nlls_gram.Cholesky()
    )
    x = jnp.asarray(x0)
    state = solver.init(x, functions.data)
    step = jax.jit(lambda x, state: solver.update(x, state, functions.data))
    step(x, state)
    watch.begin()
    while True:
        x, state, *_ = step(x, state)
        at = np.asarray(x)
        watch.see(at, float(0.5 * np.sum(functions.vector(at) ** 2)))


def adam(functions: Functions, x0: np.ndarray, watch: Watch) -> None:
    """Adam with a step of 1e-3, a hundred at a time."""
    gradient = jax.value_and_grad(lambda x, *d: 0.5 * jnp.sum(functions.problem.vector(x, *d) ** 2))

    @jax.jit
    def hundred(k: Any, state: Any, *data: Any) -> Any:
        def once(j: Any, state: Any) -> Any:
            x, m, v, _ = state
            f, g = gradient(x, *data)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            return x - 1e-3 * (m / (1 - 0.9 ** (j + 1))) / (jnp.sqrt(v / (1 - 0.999 ** (j + 1))) + 1e-8), m, v, f

        return jax.lax.fori_loop(k, k + 100, once, state)

    state, k = (jnp.asarray(x0), jnp.zeros(x0.size), jnp.zeros(x0.size), jnp.zeros(())), 0
    hundred(k, state, *functions.data)
    watch.begin()
    while True:
        state, k = hundred(k, state, *functions.data), k + 100
        watch.see(np.asarray(state[0]), float(state[3]))


CONTENDERS: dict[str, Run] = {
    "tercet": ours,
    "L-BFGS-B": by_scipy("L-BFGS-B", maxcor=50, ftol=0.0, gtol=0.0, maxfun=STEPS),
    "BFGS": by_scipy("BFGS", gtol=0.0),
    "least_squares": least_squares,
    "torch LBFGS": by_torch,
    "optimistix LM": by_optimistix("LevenbergMarquardt"),
    "optimistix BFGS": by_optimistix("BFGS"),
    "nlls-gram": by_nlls_gram,
    "Adam": adam,
}


def compete(
    name: str, functions: Functions, x0: np.ndarray, marks: tuple[float, ...]
) -> list[tuple[float, np.ndarray]]:
    """The lowest f, and where, at each of the marks; what is compiled was compiled by a short run before."""
    for seconds in ((0.01,), marks):
        watch = Watch(seconds, x0)
        with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(EnoughError):
            warnings.simplefilter("ignore")
            CONTENDERS[name](functions, x0, watch)
        watch.fill()
    return watch.kept
