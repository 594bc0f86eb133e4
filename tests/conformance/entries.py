"""The one list of objectives, sub-solvers, size rules and methods. Every entry passes every test in this folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet
from tercet.experiments import methods as compared
from tercet.experiments.averaged import Averaged
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


COUNTS = np.floor(np.exp(0.5 * TARGETS.clip(-4, 4)) + RNG.random(N))
KINDS = np.digitize(TARGETS, [-0.7, 0.7])
OF_LABELS, OF_COUNTS = ("sigmoid_squares", "logistic"), ("poisson", "negative_binomial")


def linear(loss: str, **options: Any) -> Callable[[], Any]:
    y = LABELS if loss in OF_LABELS else COUNTS if loss in OF_COUNTS else COUNTS + 0.5 if loss == "gamma" else TARGETS
    return lambda: tercet.LinearModel(options.pop("X", X), y, loss, **options)


CUTS = (0, 50, 51, 130, N)


def cut(values: Any) -> list[Any]:
    return [values[a:b] for a, b in itertools.pairwise(CUTS)]


def sharded(loss: str, table: Any = X, weights: Any = None, **options: Any) -> Callable[[], Any]:
    y = LABELS if loss in ("sigmoid_squares", "logistic") else TARGETS

    def make() -> Any:
        shards = tercet.Shards(cut(table), cut(y), weights=None if weights is None else cut(weights))
        return tercet.LinearModel(shards, loss=loss, **options)

    return make


def jax_sum(shards: Any = None, **options: Any) -> Any:
    import jax

    def loss(w: Any, x: Any, y: Any, weight: Any = 1.0) -> Any:
        return 0.5 * weight * (jax.nn.sigmoid(x @ w) - y) ** 2 + 5e-4 * w @ w

    return tercet.FiniteSum(loss, (X, LABELS) if shards is None else shards, **options)


def jax_residuals(loss: str, weights: Any = None, pairs: bool = False, shards: Any = None, **options: Any) -> Any:
    import jax.numpy as jnp

    def residual(w: Any, x: Any, y: Any) -> Any:
        r = jnp.tanh(x @ w) - 0.3 * y
        return jnp.stack([r, 0.1 * w[0] * x[1]]) if pairs else r

    return tercet.Residuals(residual, (X, TARGETS) if shards is None else shards, loss, weights, **options)


def whole_residuals(w: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(X @ w) - 0.3 * TARGETS


def numpy_residuals(w: np.ndarray) -> np.ndarray:
    return np.tanh(X @ np.asarray(w, dtype=float)) - 0.3 * TARGETS  # float keeps JAX from tracing it


def numpy_jacobian(w: np.ndarray) -> np.ndarray:
    return (1 - np.tanh(X @ w) ** 2)[:, None] * X


def torch_residuals(loss: str, weights: Any = None, batched: bool = False) -> Any:
    import torch

    import tercet.torch

    def residual(w: Any, x: Any, y: Any) -> Any:
        r = torch.tanh(x @ w) - 0.3 * y
        return torch.stack([r, 0.1 * w[0] * x[..., 1]], dim=-1) if batched else r

    data = (torch.tensor(X), torch.tensor(TARGETS))
    return tercet.torch.Residuals(residual, data, loss, weights, batched=batched)


def on_device(library: str, loss: str, **given: Any) -> Callable[[], Any]:
    def make() -> Any:
        import importlib

        options = dict(given)

        place = importlib.import_module({"jax": "jax.numpy"}.get(library, library)).asarray
        A = place(X * (np.abs(X) > 0.5)).to_sparse_csr() if options.pop("csr", False) else place(X)
        return tercet.LinearModel(
            A, place(LABELS if loss in ("sigmoid_squares", "logistic") else TARGETS), loss, **options
        )

    return make


def jax_has_float64() -> bool:
    """JAX computes in float64 only where it was told to; `tests/objectives/device` runs these entries there."""
    return os.environ.get("JAX_ENABLE_X64", "0") not in ("0", "")


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
    "linear, Poisson": Entry(linear("poisson", intercept=True), np.append(START, 0.1)),
    "linear, negative binomial, sparse": Entry(
        linear("negative_binomial", l2=1e-2, X=sp.csr_array(X * (np.abs(X) > 0.5))), START
    ),
    "linear, gamma": Entry(linear("gamma", l2=1e-2), START),
    "linear, smooth quantile": Entry(linear("smooth_quantile", l2=1e-2, scale=0.5), START),
    "linear, one's own loss": Entry(
        lambda: tercet.LinearModel(X, TARGETS, loss=LogCosh(), l2=1e-2),
        START,
    ),
    "shards, dense": Entry(sharded("sigmoid_squares", l2=1e-2), START),
    "shards, a sample in memory": Entry(sharded("sigmoid_squares", l2=1e-2, sample_bytes=100 * 8 * (D + 2)), START),
    "shards, weights, penalties and intercept": Entry(
        sharded("cauchy", weights=np.linspace(0.1, 2.0, N), l2=1e-2, alpha=1e-2, intercept=True), np.append(START, 0.1)
    ),
    "shards, sparse": Entry(sharded("logistic", sp.csr_array(X * (np.abs(X) > 0.5)), l2=1e-2), START),
    "classes, softmax": Entry(
        lambda: tercet.ClassModel(X, KINDS, l2=1e-2, intercept=True, weights=np.linspace(0.1, 2.0, N)),
        np.linspace(-0.5, 0.7, 10).reshape(2, 5),
    ),
    "classes, Brier, sparse": Entry(
        lambda: tercet.ClassModel(sp.csr_array(X * (np.abs(X) > 0.5)), KINDS, "brier", l2=1e-2),
        np.linspace(-0.5, 0.7, 8).reshape(2, 4),
    ),
    "linear, PyTorch tensors": Entry(on_device("torch", "sigmoid_squares", l2=1e-2), START, needs="torch"),
    "linear, PyTorch tensors, all options": Entry(
        on_device("torch", "cauchy", l2=1e-2, alpha=1e-2, weights=np.linspace(0.1, 2.0, N), intercept=True),
        np.append(START, 0.1),
        needs="torch",
    ),
    "linear, PyTorch tensors, CSR": Entry(
        on_device("torch", "sigmoid_squares", l2=1e-2, csr=True), START, needs="torch"
    ),
    "linear, array API": Entry(
        on_device("array_api_strict", "logistic", l2=1e-2, intercept=True),
        np.append(START, 0.1),
        needs="array_api_strict",
    ),
    **(
        {"linear, JAX arrays": Entry(on_device("jax", "sigmoid_squares", l2=1e-2), START, needs="jax")}
        if jax_has_float64()
        else {}
    ),
    "transformed, linear": Entry(
        lambda: tercet.Transformed(
            tercet.LinearModel(X, COUNTS, "poisson", l2=1e-2), {0: tercet.positive, 2: (-1.0, 2.0), 3: (None, 3.0)}
        ),
        START,
    ),
    "JAX sum": Entry(jax_sum, START, needs="jax"),
    "shards, JAX sum": Entry(lambda: jax_sum(tercet.Shards(cut(X), cut(LABELS))), START, needs="jax"),
    "shards, JAX sum, weights, a sample in memory": Entry(
        lambda: jax_sum(
            tercet.Shards(cut(X), cut(LABELS), weights=cut(np.linspace(0.1, 2.0, N))), sample_bytes=100 * 8 * (D + 2)
        ),
        START,
        needs="jax",
    ),
    "PyTorch sum": Entry(torch_sum, START, needs="torch"),
    "PyTorch residuals": Entry(lambda: torch_residuals("squares"), START, needs="torch"),
    "PyTorch residuals, two for an example, batched, weights, soft_l1": Entry(
        lambda: torch_residuals("soft_l1", np.linspace(0.1, 2.0, N), batched=True), START, needs="torch"
    ),
    "JAX residuals": Entry(lambda: jax_residuals("squares"), START, needs="jax"),
    "JAX residuals, two for an example, weights, cauchy": Entry(
        lambda: jax_residuals("cauchy", np.linspace(0.1, 2.0, N), pairs=True), START, needs="jax"
    ),
    "shards, JAX residuals": Entry(
        lambda: jax_residuals("squares", shards=tercet.Shards(cut(X), cut(TARGETS))), START, needs="jax"
    ),
    "shards, JAX residuals, two for an example, weights, cauchy, a sample in memory": Entry(
        lambda: jax_residuals(
            "cauchy",
            pairs=True,
            shards=tercet.Shards(cut(X), cut(TARGETS), weights=cut(np.linspace(0.1, 2.0, N))),
            sample_bytes=100 * 8 * (D + 2),
        ),
        START,
        needs="jax",
    ),
    "JAX residuals of the whole vector": Entry(
        lambda: tercet.Residuals.of(whole_residuals, loss="soft_l1"), START, sum=False, needs="jax"
    ),
    "residuals and Jacobian as callables": Entry(
        lambda: tercet.Residuals.of(numpy_residuals, numpy_jacobian), START, sum=False, digits=1e-4
    ),
    "residuals alone": Entry(lambda: tercet.Residuals.of(numpy_residuals), START, sum=False, digits=0.05),
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
COMPARED: dict[str, Any] = {  # those of a comparison are no parts that a checkpoint could make again
    "AR3, interpolation": compared.make(compared.plan("AR3-interpolation")),
    "hybrid": compared.make(compared.plan("hybrid")),
    "STM, dynamic accuracy": compared.make(compared.plan("STM-dynamic")),
    "STM, momentum": Averaged(batch=0.1, momentum=0.2, sigma=1.0),
}
METHODS: dict[str, Any] = {
    "STM": tercet.STM(),
    "STM, always T": tercet.STM(worth=np.inf),
    "SCR": tercet.SCR(),
    "STM of the paper": tercet.STM.paper(),
    "SCR of the paper": tercet.SCR.paper(),
    "SGD": tercet.SGD(batch=0.1, step=0.3),
    "AcceleratedTensor": tercet.AcceleratedTensor(),
    "AcceleratedTensor, estimate sequence": tercet.AcceleratedTensor(tercet.EstimateSequence()),
    "AcceleratedTensor, unaccelerated": tercet.AcceleratedTensor(tercet.Unaccelerated()),
    "AcceleratedCubic": tercet.AcceleratedCubic(restart=False),
    "STM, reduced": tercet.STM(tercet.Fixed(0.2, 0.2, 0.2), policy=tercet.Reduced()),
    "SCR, reduced": tercet.SCR(tercet.Growing(), sigma=tercet.PaperSigma(), policy=tercet.Reduced(orders=(1,))),
    **COMPARED,
    **{f"STM, {name}": tercet.STM(sizes=rule) for name, rule in RULES.items()},
    **{
        f"STM, PaperSigma, {name}": tercet.STM(sizes=RULES[name], sigma=tercet.PaperSigma())
        for name in ("Full", "Fixed")
    },
}
