"""Linear models with known data, the plain formula under JAX, and what an answer took."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tercet.objectives.linear import LinearModel
from tercet.objectives.metered import Meter, Metered

LOSSES = {
    "sigmoid_squares": lambda z, y: 0.5 * (1 / (1 + jnp.exp(-z)) - y) ** 2,
    "logistic": lambda z, y: jnp.log(1 + jnp.exp(z)) - y * z,
    "squares": lambda z, y: 0.5 * (z - y) ** 2,
    "cauchy": lambda z, y: 0.5 * 1.7**2 * jnp.log(1 + ((z - y) / 1.7) ** 2),
}
N, D = 47, 5


def data(seed=0, n=N, d=D, density=0.6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    y = (rng.random(n) < 0.5).astype(float)
    return X, y, rng


def build(loss="sigmoid_squares", *, sparse=False, weighted=False, intercept=False, l2=0.0, alpha=0.0, **sizes):
    X, y, rng = data(**sizes)
    weights = rng.random(len(y)) + 0.1 if weighted else None
    model = LinearModel(
        sp.csr_array(X) if sparse else X,
        y,
        loss,
        l2=l2,
        alpha=alpha,
        scale=1.7 if loss == "cauchy" else None,
        weights=weights,
        intercept=intercept,
    )
    return model, (X, y, weights)


def metered(model):
    """The model with every evaluation counted."""
    return Metered.of(model, Meter(model.n))


def paid(point, ask, order="hessian"):
    """How many evaluations of single terms of one order an answer took."""
    meter = point.view.meter
    before = getattr(meter.counts(), order)
    ask(point)
    return getattr(meter.counts(), order) - before


def hessian_price(point):
    """How many terms the Hessian took, which was not asked for before."""
    return paid(point, lambda p: p.hessian())


def third_price(point, s):
    """How many terms T[s, s] took."""
    return paid(point, lambda p: p.third_square(s), "third")


@partial(jax.jit, static_argnums=0)
def automatic(loss, A, y, w, mask, l2, alpha, x):
    """(1/m) sum w_i l(a_i'x, y_i) + penalty and its first three derivatives."""

    def f(x):
        penalty = l2 / 2 * jnp.sum(mask * x**2) + alpha * jnp.sum(mask * x**2 / (1 + x**2))
        return jnp.sum(w * LOSSES[loss](A @ x, y)) / len(y) + penalty

    return f(x), jax.grad(f)(x), jax.hessian(f)(x), jax.jacfwd(jax.hessian(f))(x)


def plain(loss, X, y, weights, l2, alpha, intercept, rows=None):
    """The derivatives of the plain formula over some rows, with weights of mean one over all rows."""
    w = np.ones(len(y)) if weights is None else weights * len(y) / weights.sum()
    A = np.column_stack([X, np.ones(len(y))]) if intercept else X
    index = np.arange(len(y)) if rows is None else rows
    mask = np.ones(A.shape[1])
    mask[-1] = 0.0 if intercept else 1.0

    def at(x):
        with jax.enable_x64(True):
            parts = automatic(loss, A[index], y[index], w[index], mask, float(l2), float(alpha), x)
            return [np.asarray(part) for part in parts]

    return at
