"""The problems: a residual of one example, its data, starts, and what a point is worth.

Every problem is a sum of squares f(x) = 1/2n sum r_i(x)^2 over a flat x. Of a differential equation each example is a
point with a mark: inside it gives the equation, elsewhere, times a factor, the boundary or initial values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Network = Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """residual(x, *example) with its data; `error` is what is compared, `None` for the loss itself."""

    name: str
    residual: Callable[..., Any]
    data: tuple[np.ndarray, ...]
    widths: tuple[int, ...]  # of the network's layers
    error: Callable[[np.ndarray], float] | None = None
    l2: np.ndarray | None = None  # of each parameter

    @property
    def d(self) -> int:
        """Parameters."""
        return sum((a + 1) * b for a, b in pairwise(self.widths))

    def start(self, seed: int) -> np.ndarray:
        """Weights of variance 2 / (fan in + fan out), no offsets."""
        rng, parts = np.random.default_rng(seed), []
        for a, b in pairwise(self.widths):
            parts += [rng.standard_normal(a * b) * np.sqrt(2 / (a + b)), np.zeros(b)]
        return np.concatenate(parts)

    def vector(self, x: Any, *data: Any) -> Any:
        """All residuals, scaled so that f is half of their sum of squares."""
        r = jax.vmap(lambda *e: self.residual(x, *e))(*data)
        r = jnp.ravel(r) / np.sqrt(len(self.data[0]))
        return r if self.l2 is None else jnp.concatenate([r, np.sqrt(self.l2) * x])


def perceptron(widths: tuple[int, ...]) -> Network:
    """Layers with tanh between them, of a flat x; one number comes out."""

    def net(x: Any, point: Any) -> Any:
        at, z = 0, point
        for k, (a, b) in enumerate(pairwise(widths)):
            W, c = x[at : at + a * b].reshape(a, b), x[at + a * b : at + a * b + b]
            at += a * b + b
            z = z @ W + c
            z = z if k == len(widths) - 2 else jnp.tanh(z)
        return z[0]

    return net


def slope(u: Callable[[Any], Any], p: Any, k: int) -> Any:
    """The k-th partial derivative of u at p."""
    return jax.jvp(u, (p,), (jnp.eye(len(p), dtype=p.dtype)[k],))[1]


def bend(u: Callable[[Any], Any], p: Any, k: int) -> Any:
    """The second one."""
    return slope(lambda q: slope(u, q, k), p, k)


def laplace(u: Callable[[Any], Any], p: Any, axes: range) -> Any:
    """The sum of the second ones over some axes, all at once."""
    E = jnp.eye(len(p), dtype=p.dtype)[jnp.array(axes)]

    def along(e: Any) -> Any:
        return jax.jvp(lambda q: jax.jvp(u, (q,), (e,))[1], (p,), (e,))[1]

    return jnp.sum(jax.vmap(along)(E))


def faces(rng: np.random.Generator, n: int, d: int, first: int = 0) -> np.ndarray:
    """Points on the faces of the cube along the axes from `first` on."""
    p = rng.random((n, d))
    p[np.arange(n), rng.integers(first, d, n)] = rng.integers(0, 2, n)
    return p


def relative(net: Network, u: Callable[[Any], Any], points: np.ndarray) -> Callable[[np.ndarray], float]:
    """The relative L2 error on points that no one was trained on."""
    with jax.enable_x64(True):
        exact = jnp.asarray(jax.vmap(u)(points))
        call = jax.jit(lambda x: jnp.linalg.norm(jax.vmap(net, (None, 0))(x, points) - exact) / jnp.linalg.norm(exact))

    def error(x: np.ndarray) -> float:
        with jax.enable_x64(True):
            return float(call(x))

    return error


def marked(
    inside: np.ndarray, beside: np.ndarray, force: Callable[[Any], Any], value: Callable[[Any], Any]
) -> tuple[np.ndarray, ...]:
    """Points, what is asked there, and the mark, 1 inside and 0 elsewhere."""
    with jax.enable_x64(True):
        asked = np.concatenate([np.asarray(jax.vmap(force)(inside)), np.asarray(jax.vmap(value)(beside))])
    return np.concatenate([inside, beside]), asked, np.repeat([1.0, 0.0], [len(inside), len(beside)])


def poisson(d: int, widths: tuple[int, ...], n: int, beside: int, waves: bool) -> Problem:
    """-laplace u = force on the cube, with the values of u on its faces."""
    net, rng = perceptron(widths), np.random.default_rng(d)

    def exact(p: Any) -> Any:
        return jnp.prod(jnp.sin(jnp.pi * p)) if waves else jnp.sum(jnp.cos(jnp.pi * p))

    def force(p: Any) -> Any:
        return (d if waves else 1) * jnp.pi**2 * exact(p)

    def residual(x: Any, p: Any, asked: Any, mark: Any) -> Any:
        u = net(x, p)
        equation = -laplace(lambda q: net(x, q), p, range(d)) - asked
        return jnp.where(mark > 0, equation, 10.0 * (u - asked))

    data = marked(rng.random((n, d)), faces(rng, beside, d), force, exact)
    return Problem(f"Poisson {d}d", residual, data, widths, relative(net, exact, rng.random((2000, d))))


def heat(widths: tuple[int, ...] = (5, 64, 1)) -> Problem:
    """u_t = laplace u / 10 in four dimensions and time, from a sum of waves."""
    net, rng = perceptron(widths), np.random.default_rng(41)

    def exact(p: Any) -> Any:
        return jnp.exp(-0.1 * jnp.pi**2 * p[0]) * jnp.sum(jnp.sin(jnp.pi * p[1:]))

    def residual(x: Any, p: Any, asked: Any, mark: Any) -> Any:
        u = partial(net, x)
        equation = slope(u, p, 0) - 0.1 * laplace(u, p, range(1, 5))
        return jnp.where(mark > 0, equation, 10.0 * (u(p) - asked))

    first = np.concatenate([np.zeros((400, 1)), rng.random((400, 4))], axis=1)
    beside = np.concatenate([first, faces(rng, 600, 5, 1)])
    data = marked(rng.random((1500, 5)), beside, lambda p: 0.0 * p[0], exact)
    return Problem("heat 4+1", residual, data, widths, relative(net, exact, rng.random((2000, 5))))


def burgers(widths: tuple[int, ...] = (2, 30, 30, 30, 1)) -> Problem:
    """u_t + u u_x = (0.01/pi) u_xx on (-1, 1) from -sin(pi x), of which a steep front comes; u(t, -1) = u(t, 1) = 0.

    The exact solution is by Cole and Hopf, with Gauss-Hermite quadrature.
    """
    core, rng, nu = perceptron(widths), np.random.default_rng(1), 0.01 / np.pi
    nodes, weights = np.polynomial.hermite.hermgauss(100)

    def net(x: Any, p: Any) -> Any:  # the initial and boundary values are built in
        return -jnp.sin(jnp.pi * p[1]) + p[0] * (1 - p[1] ** 2) * core(x, p)

    def exact(p: Any) -> Any:
        y = p[1] - jnp.sqrt(4 * nu * p[0]) * nodes
        logs = -jnp.cos(jnp.pi * y) / (2 * jnp.pi * nu)
        w = weights * jnp.exp(logs - jnp.max(logs))
        return -(w @ jnp.sin(jnp.pi * y)) / jnp.sum(w)

    def residual(x: Any, p: Any) -> Any:
        u = partial(net, x)
        return slope(u, p, 0) + u(p) * slope(u, p, 1) - nu * bend(u, p, 1)

    def points(n: int) -> np.ndarray:  # a third of them about the front
        x = np.where(rng.random(n) < 1 / 3, 0.1 * rng.standard_normal(n).clip(-3, 3), rng.uniform(-1, 1, n))
        return np.stack([rng.random(n), x], axis=1)

    tested = np.stack([rng.random(4000), rng.uniform(-1, 1, 4000)], axis=1)
    return Problem("Burgers", residual, (points(4000),), widths, relative(net, exact, tested))


def allen_cahn_exact(t: np.ndarray, x: np.ndarray, modes: int = 512, steps: int = 4000) -> np.ndarray:
    """u_t = 1e-4 u_xx + 5 u - 5 u^3 on the circle (-1, 1) from x^2 cos(pi x), at points.

    By Fourier modes in x and exponential Runge-Kutta steps of fourth order in t (Kassam and Trefethen), and cubic
    splines between steps.
    """
    from scipy.interpolate import RectBivariateSpline

    grid = -1 + 2 * np.arange(modes) / modes
    k = np.pi * np.fft.fftfreq(modes, 1 / modes)
    h, L = 1 / steps, -1e-4 * k**2 + 5.0
    circle = np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    z = h * L[:, None] + circle
    E, half = np.exp(h * L), np.exp(h * L / 2)
    Q = h * np.mean((np.exp(z / 2) - 1) / z, axis=1).real
    f1 = h * np.mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3, axis=1).real
    f2 = h * np.mean((2 + z + np.exp(z) * (z - 2)) / z**3, axis=1).real
    f3 = h * np.mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3, axis=1).real

    def N(v: np.ndarray) -> np.ndarray:
        return -5 * np.fft.fft(np.fft.ifft(v).real ** 3)

    v = np.fft.fft(grid**2 * np.cos(np.pi * grid))
    rows = [np.fft.ifft(v).real]
    for _ in range(steps):
        n0 = N(v)
        a = half * v + Q * n0
        n1 = N(a)
        b = half * v + Q * n1
        n2 = N(b)
        n3 = N(half * a + Q * (2 * n2 - n0))
        v = E * v + n0 * f1 + 2 * (n1 + n2) * f2 + n3 * f3
        rows.append(np.fft.ifft(v).real)
    known = np.stack(rows)[:: steps // 500]
    known = np.concatenate([known, known[:, :1]], axis=1)
    return RectBivariateSpline(np.linspace(0, 1, len(known)), np.append(grid, 1.0), known).ev(t, x)


def allen_cahn(widths: tuple[int, ...] = (3, 30, 30, 30, 1)) -> Problem:
    """The equation of `allen_cahn_exact`; the network sees t and the place on the circle."""
    core, rng = perceptron(widths), np.random.default_rng(2)

    def net(x: Any, p: Any) -> Any:
        on = jnp.stack([p[0], jnp.cos(jnp.pi * p[1]), jnp.sin(jnp.pi * p[1])])
        return p[1] ** 2 * jnp.cos(jnp.pi * p[1]) + p[0] * core(x, on)

    def residual(x: Any, p: Any) -> Any:
        u = partial(net, x)
        v = u(p)
        return slope(u, p, 0) - 1e-4 * bend(u, p, 1) + 5 * (v**3 - v)

    def points(n: int) -> np.ndarray:
        return np.stack([rng.random(n), rng.uniform(-1, 1, n)], axis=1)

    tested = points(4000)
    exact = allen_cahn_exact(tested[:, 0], tested[:, 1])

    def error(x: np.ndarray) -> float:
        with jax.enable_x64(True):
            u = np.asarray(jax.vmap(net, (None, 0))(x, tested))
        return float(np.linalg.norm(u - exact) / np.linalg.norm(exact))

    return Problem("Allen-Cahn", residual, (points(4000),), widths, error)


def regression(widths: tuple[int, ...] = (10, 16, 18, 1), n: int = 2000) -> Problem:
    """A network fitted to y = sin(a'x) + cos(b'x)/2 + noise; what is compared is the loss."""
    net, rng = perceptron(widths), np.random.default_rng(5)
    X = rng.standard_normal((n, widths[0]))
    a, b = rng.standard_normal((2, widths[0]))
    y = np.sin(X @ a) + 0.5 * np.cos(X @ b) + 0.01 * rng.standard_normal(n)
    return Problem("regression", lambda x, p, target: net(x, p) - target, (X, y), widths)


def classifier(n: int = 50_000) -> Problem:
    """The network of `benchmarks.speed.sums`: squared error of a sigmoid over noisy labels, weight decay 1e-4."""
    widths, rng = (10, 8, 1), np.random.default_rng(3)
    net, X = perceptron(widths), rng.standard_normal((n, 10))
    y = (np.sin(X @ rng.standard_normal(10)) + 0.3 * rng.standard_normal(n) > 0).astype(float)
    l2 = 1e-4 * np.repeat([1.0, 0.0, 1.0, 0.0], [80, 8, 8, 1])
    return Problem("classifier", lambda x, p, t: jax.nn.sigmoid(net(x, p)) - t, (X, y), widths, None, l2)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "classifier": classifier,
    "regression": regression,
    "poisson2": lambda: poisson(2, (2, 64, 1), 900, 120, waves=True),
    "poisson3": lambda: poisson(3, (3, 32, 32, 1), 2000, 500, waves=True),
    "poisson5": lambda: poisson(5, (5, 64, 1), 1500, 500, waves=False),
    "heat": heat,
    "burgers": burgers,
    "allen-cahn": allen_cahn,
}
