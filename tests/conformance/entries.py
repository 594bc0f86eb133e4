"""The one list of objectives, sub-solvers, size rules and methods. Every entry passes every test in this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet
from tests.conformance.own import Localization

N, D = 240, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
LABELS = (X @ RNG.standard_normal(D) + RNG.standard_normal(N) > 0).astype(float)
TARGETS = X @ RNG.standard_normal(D) + 0.3 * RNG.standard_t(3, N)
ANCHORS = RNG.standard_normal((N, 3))
DISTANCES = np.linalg.norm(ANCHORS - np.array([0.5, -0.2, 0.1]), axis=1) + 0.05 * RNG.standard_normal(N)
START = np.array([0.3, -0.4, 0.2, 0.5])


@dataclass(frozen=True)
class Entry:
    """A problem with a start."""

    make: Callable[[], Any]  # what `minimize` takes first, or that and the derivatives that go with it
    x0: Any
    sum: bool = True  # it has terms that can be sampled
    digits: float = 1e-9  # how exact its derivatives are; differences of differences are not
    needs: str | None = None  # a library

    def problem(self) -> tuple[Any, dict[str, Any]]:
        """What `minimize` takes first, and the derivatives that go with it."""
        made = self.make()
        return made if isinstance(made, tuple) else (made, {})

    def bound(self) -> Any:
        """The objective of a flat vector."""
        from tercet.methods.minimize import as_problem

        problem, derivatives = self.problem()
        return as_problem(problem, derivatives).bind(self.x0)


def linear(loss: str, **options: Any) -> Callable[[], Any]:
    return lambda: tercet.LinearModel(
        options.pop("X", X), LABELS if loss in ("sigmoid_squares", "logistic") else TARGETS, loss, **options
    )


def jax_sum() -> Any:
    import jax

    return tercet.FiniteSum(lambda w, x, y: 0.5 * (jax.nn.sigmoid(x @ w) - y) ** 2 + 5e-4 * w @ w, (X, LABELS))


def torch_sum() -> Any:
    import torch

    import tercet.torch

    def loss(w: Any, x: Any, y: Any) -> Any:
        return 0.5 * (torch.sigmoid(x @ w) - y) ** 2 + 5e-4 * (w @ w)

    return tercet.torch.FiniteSum(loss, (torch.tensor(X), torch.tensor(LABELS)))


def quartic(x: Any) -> Any:
    return ((x - 0.5) ** 2).sum() + 0.3 * (x**4).sum() + 0.2 * x[0] * x[1] * x[2]


def quartic_gradient(x: np.ndarray) -> np.ndarray:
    g = 2 * (x - 0.5) + 1.2 * x**3
    g[:3] += 0.2 * np.array([x[1] * x[2], x[0] * x[2], x[0] * x[1]])
    return g


def quartic_hessian(x: np.ndarray) -> np.ndarray:
    H = np.diag(2 + 3.6 * x**2)
    for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        H[i, j] += 0.2 * x[k]
        H[j, i] += 0.2 * x[k]
    return H


def numpy_only(x: np.ndarray) -> float:
    return float(quartic(np.asarray(x, dtype=float)))  # float() keeps JAX from tracing it


OBJECTIVES: dict[str, Entry] = {
    "linear, dense": Entry(linear("sigmoid_squares", l2=1e-2), START),
    "linear, logistic": Entry(linear("logistic", l2=1e-2), START),
    "linear, squares with intercept": Entry(linear("squares", l2=1e-3, intercept=True), np.append(START, 0.1)),
    "linear, weights and both penalties": Entry(
        linear("cauchy", l2=1e-2, alpha=1e-2, weights=np.linspace(0.1, 2.0, N)), START
    ),
    "linear, sparse": Entry(linear("sigmoid_squares", l2=1e-2, X=sp.csr_array(X * (np.abs(X) > 0.5))), START),
    "linear, one's own loss": Entry(
        lambda: tercet.LinearModel(X, TARGETS, loss=LogCosh(), l2=1e-2),
        START,
    ),
    "JAX sum": Entry(jax_sum, START, needs="jax"),
    "PyTorch sum": Entry(torch_sum, START, needs="torch"),
    "one's own, eight members": Entry(lambda: Localization(ANCHORS, DISTANCES), START[:3]),
    "JAX function": Entry(lambda: quartic, START, sum=False, needs="jax"),
    "callables f, g, H": Entry(
        lambda: (numpy_only, {"grad": quartic_gradient, "hess": quartic_hessian}), START, sum=False, digits=1e-5
    ),
    "callables f, g": Entry(lambda: (numpy_only, {"grad": quartic_gradient}), START, sum=False, digits=1e-3),
    "callable f alone": Entry(lambda: numpy_only, START, sum=False, digits=0.05),
}


class LogCosh:
    """l = log cosh(z - y)."""

    def derivatives(self, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        t = np.tanh(z - y)
        s = 1 - t * t
        return np.logaddexp(z - y, y - z) - np.log(2), t, s, -2 * t * s

    def __repr__(self) -> str:
        return "LogCosh()"


SUBSOLVERS: dict[str, Any] = {
    "Dense": tercet.Dense(),
    "Dense, two products": tercet.Dense(products=2),
    "Krylov": tercet.Krylov(),
    "GradientDescent": tercet.GradientDescent(step=0.5),
    "Accelerated": tercet.Accelerated(step=0.5),
    "Subspace": tercet.Subspace(),
}
RULES: dict[str, Any] = {
    "Full": tercet.Full(),
    "Progressive": tercet.Progressive(multiple=3),
    "Progressive that lags": tercet.Progressive(multiple=3, lag=1.0),
    "Fixed": tercet.Fixed(0.5, 0.4, 0.3),
    "Fixed with replacement": tercet.Fixed(0.5, 0.4, 0.3, replacement=True),
    "Growing": tercet.Growing(start=0.1),
    "Adaptive": tercet.Adaptive(start=0.1),
    "Theory": tercet.Theory(0.5, 0.1, tercet.Ranges(1.0, 1.0, 1.0)),
    "Theory, Bernstein": tercet.Theory(0.5, 0.1, tercet.Ranges(1.0, 1.0, 1.0), bound="bernstein"),
}
METHODS: dict[str, Any] = {
    "STM": tercet.STM(),
    "STM, always T": tercet.STM(worth=np.inf),
    "SCR": tercet.SCR(),
    "STM of the paper": tercet.STM.paper(),
    "SCR of the paper": tercet.SCR.paper(),
    "SGD": tercet.SGD(batch=0.1, step=0.3),
    **{f"STM, {name}": tercet.STM(sizes=rule) for name, rule in RULES.items()},
    **{
        f"STM, PaperSigma, {name}": tercet.STM(sizes=RULES[name], sigma=tercet.PaperSigma())
        for name in ("Full", "Fixed")
    },
}
