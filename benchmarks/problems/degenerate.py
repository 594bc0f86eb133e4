"""Problems that start at a degenerate critical point: zero gradient, singular positive semidefinite Hessian.

Where ``degenerate`` is true, the third derivative T is not zero on the kernel of the Hessian: for some y in the kernel,

    f(start + t y) = f(start) + t^3 T[y, y, y] / 6 + O(t^4),

so the start satisfies the second-order necessary conditions and is not a minimum. Every problem comes as a
deterministic function and as a finite sum, mean_i loss(x, data_i); the two are equal up to a constant.

The data are float64; enable ``jax_enable_x64`` before evaluating anything here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import log_ndtr

Objective = Callable[[Array], Array]

# Here the third derivatives of both branches of log_normal_cdf have relative errors of about 1e-9.
_TAIL = -8.0
_TAIL_TERMS = 10


@dataclass(frozen=True)
class Degenerate:
    """A function and a finite sum which are both degenerate at ``start``.

    Attributes:
        name: identifier of the problem.
        fun: the deterministic objective, a traceable function of a flat vector.
        loss: one term of the finite sum, ``loss(x, *example)``.
        data: float64 arrays with a common leading axis n; the finite sum is mean_i loss(x, *data_i).
        start: the critical point of ``fun`` and of the finite sum.
        degenerate: true if the start is not a minimum, false if it is a flat minimum.
    """

    name: str
    fun: Objective
    loss: Callable[..., Array]
    data: tuple[np.ndarray, ...]
    start: np.ndarray
    degenerate: bool


def finite_sum(loss: Callable[..., Array], data: tuple[np.ndarray, ...]) -> Objective:
    """Return x -> mean_i loss(x, *data_i)."""
    terms = jax.vmap(loss, in_axes=(None, *(0 for _ in data)))
    return lambda x: jnp.mean(terms(x, *data))


def _centred(rng: np.random.Generator, n: int, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Draw n noise arrays (n even) of standard deviation ``scale`` whose sum is exactly zero.

    The draws come in pairs +e, -e, and are multiples of 2^-20: their sums are then exact in every order.
    """
    half = np.round(scale * rng.standard_normal((n // 2, *shape)) * 2.0**20) * 2.0**-20
    return rng.permutation(np.concatenate([half, -half]))


def _perturbed(name: str, fun: Objective, dim: int, degenerate: bool, seed: int, n: int = 256) -> Degenerate:
    """Make ``fun`` the finite sum of fun(x) + a_i . x + x' diag(b_i) x with sum_i a_i = 0 and sum_i b_i = 0.

    For n a power of two, the weights 1/n of the mean are exact too, and so is the zero gradient.
    """
    rng = np.random.default_rng(seed)

    def loss(x: Array, a: Array, b: Array) -> Array:
        return fun(x) + jnp.dot(a, x) + jnp.dot(b, x * x)

    data = (_centred(rng, n, (dim,), 0.3), _centred(rng, n, (dim,), 0.3))
    return Degenerate(name, fun, loss, data, np.zeros(dim), degenerate)


def monkey_saddle(x: Array) -> Array:
    """x^3 - 3 x y^2 + (x^2 + y^2)^2; the Hessian at 0 is 0, the minima have the value -27/256."""
    r = jnp.dot(x, x)
    return x[0] ** 3 - 3.0 * x[0] * x[1] ** 2 + r * r


def cubic_valley(x: Array) -> Array:
    """x^2 + y^3 + y^4; the Hessian at 0 is diag(2, 0), the minimum is -27/256 at (0, -3/4)."""
    return x[0] ** 2 + x[1] ** 3 + x[1] ** 4


def quartic_bowl(x: Array) -> Array:
    """sum_i x_i^4; the Hessian at 0 is 0, and 0 is the minimum."""
    return jnp.sum(x**4)


def _network_loss(widths: tuple[int, ...]) -> Callable[[Array, Array, Array], Array]:
    """Loss |W_L ... W_1 x - y|^2 / 2 of a linear network; theta holds W_1, ..., W_L, each in row-major order."""

    def loss(theta: Array, x: Array, y: Array) -> Array:
        begin = 0
        for fan_in, fan_out in itertools.pairwise(widths):
            end = begin + fan_in * fan_out
            x = theta[begin:end].reshape(fan_out, fan_in) @ x
            begin = end
        return 0.5 * jnp.sum((x - y) ** 2)

    return loss


def linear_network(name: str, target: np.ndarray, width: int, seed: int, n: int = 200) -> Degenerate:
    """Fit y = target x + noise by W3 W2 W1 x from zero weights.

    With f = mean_i |W3 W2 W1 x_i - y_i|^2 / 2, at 0 the first two derivatives vanish and
    T[W, W, W] = -6 <W3 W2 W1, mean_i y_i x_i'>.
    """
    rng = np.random.default_rng(seed)
    dim_out, dim_in = target.shape
    inputs = rng.standard_normal((n, dim_in))
    data = (inputs, inputs @ target.T + 0.1 * rng.standard_normal((n, dim_out)))
    loss = _network_loss((dim_in, width, width, dim_out))
    size = dim_in * width + width * width + width * dim_out
    return Degenerate(name, finite_sum(loss, data), loss, data, np.zeros(size), True)


def _cubes(u: Array) -> Array:
    """Sum over the rows u_r of u of the tensor cube u_r (x) u_r (x) u_r."""
    return jnp.einsum("ri,rj,rk->ijk", u, u, u)


def _symmetrized(t: np.ndarray) -> np.ndarray:
    """Mean over the six permutations of the last three axes."""
    orders = ("ijk", "ikj", "jik", "jki", "kij", "kji")
    return np.asarray(sum(np.einsum(f"...ijk->...{order}", t) for order in orders)) / len(orders)


def symmetric_cp(dim: int = 4, rank: int = 2, seed: int = 5, n: int = 200) -> Degenerate:
    """Symmetric CP decomposition |sum_r u_r^(x)3 - A|^2 / 2 of a tensor A with ``rank`` orthogonal factors, from u = 0.

    Orthogonal factors keep the problem well posed: with others, pairs of diverging factors lower the objective forever.
    At 0 the first two derivatives vanish and T[u, u, u] = -6 sum_r <A, u_r^(x)3>. The terms of the finite sum see
    A + E_i with symmetric noise of mean 0, which adds the constant mean_i |E_i|^2 / 2 to the objective.
    """
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((dim, rank)))
    factors = basis.T * np.linspace(1.1, 0.9, rank)[:, None]
    target = np.einsum("ri,rj,rk->ijk", factors, factors, factors)

    def loss(x: Array, observed: Array) -> Array:
        return 0.5 * jnp.sum((_cubes(x.reshape(rank, dim)) - observed) ** 2)

    data = (target + _symmetrized(_centred(rng, n, (dim, dim, dim), 0.3)),)
    return Degenerate("symmetric_cp", lambda x: loss(x, target), loss, data, np.zeros(rank * dim), True)


def log_normal_cdf(z: Array) -> Array:
    """Return log Phi(z), accurate with its derivatives up to order 3 at least.

    Below -8: log Phi(z) = -z^2/2 - log(2 pi)/2 - log c(-z), with the continued fraction
    c(x) = x + 1/(x + 2/(x + 3/(x + ...))), the reciprocal of Mills' ratio.
    """
    # log_ndtr changes at -20 to a short asymptotic series, and its third derivative is then wrong by 13 % at -20 and
    # 6 % at -30: it is obtained by cancellation of much larger terms. Here z^2 is split off before differentiating.
    far = z < _TAIL
    x = jnp.where(far, -z, -_TAIL)
    fraction = x
    for k in range(_TAIL_TERMS, 0, -1):
        fraction = x + k / fraction
    tail = -0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - jnp.log(fraction)
    return jnp.where(far, tail, log_ndtr(jnp.where(far, _TAIL, z)))


def skew_normal_loss(x: Array, observation: Array) -> Array:
    """Return -log of the skew-normal density 2/omega phi(z) Phi(alpha z), z = (observation - mu)/omega.

    The parameters are x = (mu, log omega, alpha).
    """
    z = (observation - x[0]) * jnp.exp(-x[1])
    return x[1] + 0.5 * z * z + 0.5 * math.log(0.5 * math.pi) - log_normal_cdf(x[2] * z)


def skew_normal(alpha: float = 4.0, seed: int = 6, n: int = 300) -> Degenerate:
    """Maximum likelihood in the skew-normal model, from the maximum likelihood estimate of the normal model.

    At mu = mean, omega = standard deviation, alpha = 0, the gradient of the negative mean log-likelihood is 0, the
    Hessian is positive semidefinite with the kernel spanned by y = (-b omega, 0, 1), b = sqrt(2/pi), and
    T[y, y, y] = -b (4/pi - 1) (sample skewness).
    """
    rng = np.random.default_rng(seed)
    delta = alpha / math.sqrt(1.0 + alpha * alpha)
    normal = rng.standard_normal((2, n))
    sample = 1.0 + 2.0 * (delta * np.abs(normal[0]) + math.sqrt(1.0 - delta * delta) * normal[1])
    start = np.array([np.mean(sample), np.log(np.std(sample)), 0.0])
    data = (sample,)
    return Degenerate("skew_normal", finite_sum(skew_normal_loss, data), skew_normal_loss, data, start, True)


PROBLEMS: tuple[Degenerate, ...] = (
    _perturbed("monkey_saddle", monkey_saddle, 2, True, seed=1),
    _perturbed("cubic_valley", cubic_valley, 2, True, seed=2),
    linear_network("linear_chain", np.array([[1.5]]), 1, seed=3),
    linear_network("linear_network", np.array([[1.5, 0.5], [-0.5, 1.0]]), 2, seed=4),
    symmetric_cp(),
    skew_normal(),
    _perturbed("quartic_bowl", quartic_bowl, 5, False, seed=7),
)
