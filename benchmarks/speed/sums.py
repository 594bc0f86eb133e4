"""JAX functions of parameters and one example: `FiniteSum` against SciPy's methods with compiled JAX derivatives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tercet
from benchmarks.speed.cases import Case, start_at
from benchmarks.speed.contenders import PEERS, Contender, Task, peers, run_ours
from benchmarks.speed.measure import Setting, run_settings
from benchmarks.speed.paths import reference
from benchmarks.speed.progress import Progress

Example = tuple[Callable[..., Any], tuple[np.ndarray, np.ndarray]]


def linear(n: int, scales: float = 1.0) -> Example:
    """The paper's loss of a linear model with 50 columns, whose scales span the given factor; l2 = 1e-6."""
    import jax

    rng, d = np.random.default_rng(0), 50
    X = rng.standard_normal((n, d)) * np.geomspace(1.0, scales, d)
    z = X @ (rng.standard_normal(d) * 3.0 / np.linalg.norm(np.geomspace(1.0, scales, d)))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(float)
    return lambda w, x, label: 0.5 * (jax.nn.sigmoid(x @ w) - label) ** 2 + 0.5e-6 * (w @ w), (X, y)


def skew_normal(n: int) -> Example:
    """Regression on 20 columns with skew-normal errors: the likelihood in slopes, place, log scale and skewness."""
    import jax

    rng, p = np.random.default_rng(1), 20
    X = rng.standard_normal((n, p))
    y = X @ rng.standard_normal(p) + 0.8 * np.abs(rng.standard_normal(n)) + 0.6 * rng.standard_normal(n)

    def loss(w: Any, x: Any, target: Any) -> Any:
        z = (target - x @ w[:p] - w[p]) * jax.numpy.exp(-w[p + 1])
        return 0.5 * z * z + w[p + 1] - jax.scipy.special.log_ndtr(w[p + 2] * z)

    return loss, (X, y)


def mixture(n: int) -> Example:
    """Two regressions on 10 columns, of which each example follows one: slopes, log scale and log odds."""
    import jax

    rng, p = np.random.default_rng(2), 10
    X, slopes = rng.standard_normal((n, p)), rng.standard_normal((2, p))
    y = np.where(rng.random(n) < 0.4, X @ slopes[0], X @ slopes[1]) + 0.5 * rng.standard_normal(n)

    def loss(w: Any, x: Any, target: Any) -> Any:
        scale, odds = w[2 * p], w[2 * p + 1]

        def likelihood(slope: Any, log_weight: Any) -> Any:
            return -0.5 * ((target - x @ slope) * jax.numpy.exp(-scale)) ** 2 - scale + log_weight

        first = likelihood(w[:p], jax.nn.log_sigmoid(odds))
        return -jax.numpy.logaddexp(first, likelihood(w[p : 2 * p], jax.nn.log_sigmoid(-odds)))

    return loss, (X, y)


def network(n: int) -> Example:
    """A perceptron with 10 inputs and 8 hidden units, squared error of a sigmoid, weight decay 1e-4."""
    import jax

    rng, p, h = np.random.default_rng(3), 10, 8
    X = rng.standard_normal((n, p))
    y = (np.sin(X @ rng.standard_normal(p)) + 0.3 * rng.standard_normal(n) > 0).astype(float)

    def loss(w: Any, x: Any, label: Any) -> Any:
        W, b, v, c = w[: h * p].reshape(h, p), w[h * p : h * p + h], w[h * p + h : h * p + 2 * h], w[-1]
        output = jax.nn.sigmoid(jax.numpy.tanh(W @ x + b) @ v + c)
        return 0.5 * (output - label) ** 2 + 0.5e-4 * (jax.numpy.sum(W * W) + v @ v)

    return loss, (X, y)


# name: how it is made of n, n, and d
EXAMPLES: dict[str, tuple[Callable[[int], Example], int, int]] = {
    "linear": (linear, 100_000, 50),
    "linear, scales of 1 to 1/100": (lambda n: linear(n, 0.01), 100_000, 50),
    "skew-normal regression": (skew_normal, 200_000, 23),
    "mixture of two regressions": (mixture, 100_000, 22),
    "network with 8 hidden units": (network, 50_000, 97),
}
FULL = Case("sums", "JAX finite sums, start N(0, I)", tuple, seeds=3, budget=300, penalties=tuple(EXAMPLES),
            starts=("normal",), repeats=2, enough=0.5, patience=3.0, shortest=0.5, longest=5.0,
            peers=tuple(PEERS))  # fmt: skip
QUICK = replace(FULL, seeds=1, budget=10, penalties=("linear, scales of 1 to 1/100", "skew-normal regression"),
                longest=1.0, peers=("L-BFGS-B", "trust-exact"))  # fmt: skip


class Sum(tercet.FiniteSum):
    """A FiniteSum of a flat vector that also gives its points, as `LinearModel` does."""

    def __init__(self, loss: Callable[..., Any], data: tuple[np.ndarray, ...], d: int):
        super().__init__(loss, data)
        self.d = d

    @cached_property
    def objective(self) -> Any:
        """The compiled sums."""
        return self.bind(np.zeros(self.d)).objective

    def over(self, rows: Any) -> Any:
        """The mean over some examples."""
        return self.objective.over(rows)


class PlainSum:
    """The same as a user writes it: the mean over `vmap`, compiled with its gradient, Hessian and products."""

    l2 = float("nan")

    def __init__(self, loss: Callable[..., Any], data: tuple[np.ndarray, ...]):
        import jax

        self.jax = jax
        with jax.enable_x64(True):
            arrays = [jax.numpy.asarray(part) for part in data]

        def mean(w: Any, *parts: Any) -> Any:
            return jax.numpy.mean(jax.vmap(lambda *example: loss(w, *example))(*parts))

        def product(w: Any, v: Any, *parts: Any) -> Any:
            return jax.jvp(lambda q: jax.grad(mean)(q, *parts), (w,), (v,))[1]

        self.arrays = arrays
        self.first = jax.jit(jax.value_and_grad(mean))
        self.hessian, self.product = jax.jit(jax.hessian(mean)), jax.jit(product)

    def call(self, function: Callable[..., Any], *vectors: np.ndarray) -> Any:
        """In double precision, as NumPy."""
        with self.jax.enable_x64(True):
            return self.jax.tree_util.tree_map(np.asarray, function(*vectors, *self.arrays))

    def at(self, w: np.ndarray) -> PlainSumPoint:
        """The mean at w."""
        return PlainSumPoint(self, w)


@dataclass(eq=False)
class PlainSumPoint:
    """The mean at one w; value and gradient come together."""

    model: PlainSum
    w: np.ndarray

    @cached_property
    def first(self) -> Any:
        """f and its gradient."""
        return self.model.call(self.model.first, self.w)

    def value(self) -> float:
        """f."""
        return float(self.first[0])

    def gradient(self) -> np.ndarray:
        """Its gradient."""
        return self.first[1]

    def hessian(self) -> np.ndarray:
        """Its Hessian."""
        return self.model.call(self.model.hessian, self.w)

    def product(self, order: int, v: np.ndarray) -> np.ndarray:
        """A product with it."""
        return self.model.call(self.model.product, self.w, v)


def contenders(d: int, chosen: tuple[str, ...]) -> list[Contender]:
    """STM and SCR, sampled and full, and SciPy's methods with both oracles."""
    methods = {"STM": tercet.STM(), "SCR": tercet.SCR(), "STM full (AR3)": tercet.STM(tercet.Full())}
    return [Contender(name, "tercet", run_ours(m), ours=True) for name, m in methods.items()] + peers(d, chosen)


def set_up(case: Case, name: str) -> Setting:
    """One of the examples, compiled, with its minimum."""
    make, n, d = EXAMPLES[name]
    loss, data = make(n)
    begin = time.perf_counter()
    problem, plain = Sum(loss, data, d), PlainSum(loss, data)
    setup, x0, who = time.perf_counter() - begin, start_at("normal", d, 0), contenders(d, case.peers)
    for contender in who:  # all is compiled here
        contender.run(Task(problem, plain, x0, 0, -np.inf, 0.3))
    lowest = reference(problem, [x0], case.longest)
    return Setting(name, problem, plain, lowest, who, np.nan, setup)


def run_sums(quick: bool, progress: Progress) -> dict[str, Any]:
    """The raw numbers of all examples, on one core."""
    progress.begin("sums")
    begin, cores = time.perf_counter(), os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores is not None:  # XLA has threads that no setting takes away
        os.sched_setaffinity(0, {min(cores)})
    try:
        case, settings = QUICK if quick else FULL, []
        for name in case.penalties:
            progress.show(name)
            settings.append(set_up(case, name))
        found = run_settings(case, settings, progress)
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)
    sizes = {s.l2: {"n": s.problem.n, "d": s.problem.d} for s in settings}
    return {**found, "sizes": sizes, "seconds": time.perf_counter() - begin}
