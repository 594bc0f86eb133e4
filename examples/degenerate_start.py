"""Two fits that start at zero: a deep linear network and a symmetric tensor decomposition.

    python examples/degenerate_start.py [--quick] [--out FOLDER]

    network   f(W1, W2, W3) = 1/(2n) sum_i |W3 W2 W1 x_i - y_i|^2
    tensor    f(u_1 ... u_r) = 1/2 |sum_k u_k (x) u_k (x) u_k - A|^2

In both the parameters enter the fit as products of three. At zero the gradient and the whole Hessian vanish, and the
first derivative that says anything is the third:

    T[W]^3 = -6 <W3 W2 W1, mean y x'>,   T[u]^3 = -6 sum_k <A, u_k (x) u_k (x) u_k>.

Every method of first or second order stays at zero and reports success. A small random start is the usual way around,
and the table shows what it takes: 1e-6 beside zero all of SciPy's methods still stay, nearly all with success; 1e-3
beside it some do, some give up on the way, and others arrive; from 1e-1 beside it nearly all arrive.

With a depth of four or more the third derivative vanishes at zero as well, and all three measures are zero there. Then
f itself is looked at along the flat directions; the last lines that are printed show what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from present import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, panels, run, save, table

import tercet

METHODS = ("BFGS", "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-exact")
STYLES = ("--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)))
RADII = (0.0, 1e-6, 1e-3, 1e-1)  # how far from zero the starts are, in the norm of all parameters


@dataclass(frozen=True)
class Fit:
    """A sum over examples in d parameters, and the value of its minimum."""

    name: str
    loss: Callable[..., Any]
    data: tuple[np.ndarray, ...]
    d: int
    lowest: float

    def f(self, x: Any) -> Any:
        """The mean over all examples."""
        return jnp.mean(jax.vmap(self.loss, (None, *(0 for _ in self.data)))(x, *self.data))


def network(depth: int, dimension: int, rank: int, n: int, seed: int) -> Fit:
    """y = M x + noise with M of a given rank, by a product of `depth` square matrices.

    Its minimum is that of least squares, since the product can be any matrix.
    """
    rng = np.random.default_rng(seed)
    target = rng.standard_normal((dimension, rank)) @ rng.standard_normal((rank, dimension)) / np.sqrt(rank)
    inputs = rng.standard_normal((n, dimension))
    outputs = inputs @ target.T + 0.1 * rng.standard_normal((n, dimension))

    def loss(x: Any, a: Any, y: Any) -> Any:
        for W in x.reshape(depth, dimension, dimension):
            a = W @ a
        return 0.5 * jnp.sum((a - y) ** 2)

    residual = outputs - inputs @ np.linalg.lstsq(inputs, outputs)[0]
    lowest = 0.5 * float(np.mean(np.sum(residual**2, axis=1)))
    return Fit(f"linear network, depth {depth}", loss, (inputs, outputs), depth * dimension**2, lowest)


def decomposition(dimension: int, rank: int, seed: int) -> Fit:
    """A = sum_k c_k u_k (x) u_k (x) u_k with orthogonal u_k, one term of the sum for each slice of A.

    Orthogonal factors keep the problem well posed; the minimum is 0.
    """
    rng = np.random.default_rng(seed)
    factors = np.linalg.qr(rng.standard_normal((dimension, rank)))[0].T * np.linspace(1.3, 0.8, rank)[:, None]
    A = np.einsum("ri,rj,rk->ijk", factors, factors, factors)

    def loss(x: Any, place: Any, piece: Any) -> Any:
        u = x.reshape(rank, dimension)
        return 0.5 * dimension * jnp.sum((jnp.einsum("r,rj,rk->jk", u @ place, u, u) - piece) ** 2)

    return Fit("symmetric CP", loss, (np.eye(dimension), A), rank * dimension, 0.0)


def beside_zero(fit: Fit, radius: float, seed: int) -> np.ndarray:
    """A random point at this distance from zero."""
    y = np.random.default_rng(seed).standard_normal(fit.d)
    return radius * y / np.linalg.norm(y)


def compiled(fit: Fit) -> dict[str, Callable[[Any], np.ndarray]]:
    """f, its gradient and its Hessian for SciPy."""
    calls = {"fun": jax.jit(fit.f), "jac": jax.jit(jax.grad(fit.f)), "hess": jax.jit(jax.hessian(fit.f))}
    return {name: lambda x, call=call: np.asarray(call(x)) for name, call in calls.items()}


def scipy_run(calls: dict[str, Any], x0: np.ndarray, method: str) -> scipy.optimize.OptimizeResult:
    """A method of SciPy with the derivatives that it takes, and a tolerance of 1e-8 on the gradient."""
    options = {"options": {"ftol": 1e-15, "gtol": 1e-8}} if method == "L-BFGS-B" else {"tol": 1e-8}
    used = {name: call for name, call in calls.items() if name != "hess" or method[0] in "Nt"}
    return scipy.optimize.minimize(x0=x0, method=method, **options, **used)


def word(run: Any, f0: float, lowest: float) -> str:
    """Where a run ended: at the minimum, where it began, or between; a * says that it does not call this a success."""
    part = (run.fun - lowest) / (f0 - lowest)
    where = "minimum" if part < 1e-6 else ("stays" if part > 1 - 1e-6 else f"{part:.0e} of f0")
    return where if run.success else f"{where} *"


def compare(fit: Fit, calls: dict[str, Any], total: tercet.FiniteSum) -> dict[str, list[str]]:
    """The words of each method, for each radius."""
    words: dict[str, list[str]] = {name: [] for name in ("tercet", *METHODS)}
    for radius in RADII:
        x0 = beside_zero(fit, radius, seed=1)
        f0 = float(calls["fun"](x0))
        for method, said in words.items():
            run = tercet.minimize(total, x0) if method == "tercet" else scipy_run(calls, x0, method)
            said.append(word(run, f0, fit.lowest))
    return words


def derivatives_at_zero(fit: Fit) -> tuple[float, float, float]:
    """|gradient|, |Hessian|, and the largest |T[y]^3| over some random unit y, all at zero."""
    zero = np.zeros(fit.d)
    y = np.random.default_rng(0).standard_normal((200, fit.d))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    cubic = jax.jit(jax.vmap(lambda v: jax.grad(jax.grad(jax.grad(lambda t: fit.f(t * v))))(0.0)))(y)
    first, second = jax.jit(jax.grad(fit.f))(zero), jax.jit(jax.hessian(fit.f))(zero)
    return float(jnp.linalg.norm(first)), float(jnp.linalg.norm(second)), float(jnp.max(jnp.abs(cubic)))


def curve(calls: dict[str, Any], x0: np.ndarray, method: str) -> list[float]:
    """The lowest f so far after each evaluation of f, in a run of SciPy."""
    seen: list[float] = []

    def fun(x: np.ndarray) -> float:
        seen.append(float(calls["fun"](x)))
        return seen[-1]

    scipy_run({**calls, "fun": fun}, x0, method)
    return list(np.minimum.accumulate(seen))


def picture(fits: list[tuple[Fit, dict[str, Any], tercet.FiniteSum]], radius: float, path: Path) -> Path:
    """f above its minimum against evaluations of f: SciPy from beside zero, ours from zero itself."""
    figure, axes = panels(len(fits))
    for ax, (fit, calls, total) in zip(axes, fits, strict=True):
        x0 = beside_zero(fit, radius, seed=1)
        for method, color, style in zip(METHODS, (ORANGE, SKY, GREEN, PURPLE, VERMILION), STYLES, strict=True):
            gap = np.maximum(np.array(curve(calls, x0, method)) - fit.lowest, 1e-12)
            ax.loglog(1 + np.arange(len(gap)), gap, ls=style, color=color, label=method)
            ax.plot(len(gap), gap[-1], "x", color=color)
        ours = np.array([float(calls["fun"](np.zeros(fit.d))), *tercet.minimize(total, np.zeros(fit.d)).trace["f"]])
        ax.loglog(
            1 + np.arange(len(ours)), np.maximum(ours - fit.lowest, 1e-12), color=BLUE, lw=2, label="tercet, from 0"
        )
        ax.set(xlabel="evaluations of f", ylabel="f above its minimum", title=fit.name)
    axes[-1].legend(frameon=False, title=f"SciPy from {radius:g} beside 0", loc="lower left")
    return save(figure, path)


def report(fit: Fit, calls: dict[str, Any], total: tercet.FiniteSum, seeds: int) -> tuple[dict[str, list[str]], Any]:
    """The derivatives at zero, the words of all methods, and tercet from zero with several seeds."""
    g, B, T = derivatives_at_zero(fit)
    print(f"{fit.name}, {fit.d} parameters; at zero |gradient| {g:.1e}, |Hessian| {B:.1e}, |T[y]^3| {T:.2f}")
    words = compare(fit, calls, total)
    table(("method, by distance from 0", *(f"{r:g}" for r in RADII)), [(m, *w) for m, w in words.items()])
    f0 = float(calls["fun"](np.zeros(fit.d)))
    runs = [tercet.minimize(total, np.zeros(fit.d), seed=seed) for seed in range(seeds)]
    there = [word(run, f0, fit.lowest) for run in runs].count("minimum")
    print(f"tercet from zero, {seeds} seeds: {sum(r.success for r in runs)} certified, {there} at the minimum")
    print(f"{runs[0]}\n")
    assert g == B == 0.0 < T
    assert all(words[method][0] == "stays" for method in METHODS)
    assert all(run.fun < 0.9 * f0 for run in runs)
    assert all(run.success for run in runs)
    return words, runs


def main(quick: bool, out: Path) -> dict[str, Any]:
    """Run everyone from zero and from beside it, show what is seen at depth four, and draw."""
    size, n, seeds = (3, 100, 3) if quick else (5, 400, 20)
    with jax.enable_x64(True):
        both = network(3, size, 2, n, 0), decomposition(size + 1, 3, 0)
        fits = [(fit, compiled(fit), tercet.FiniteSum(fit.loss, fit.data)) for fit in both]
        found = {fit.name: report(fit, calls, total, seeds) for fit, calls, total in fits}
        # Every local minimum of a deep linear network is global, so that a certified point has to be the minimum.
        assert set(found[both[0].name][0]["tercet"]) == {"minimum"}

        deep = network(4, size, 2, n, 0)
        looked = tercet.minimize(tercet.FiniteSum(deep.loss, deep.data), np.zeros(deep.d))
        print(f"{deep.name}: no third derivative shows the way out of zero, values of f do")
        print(f"f {looked.fun:.3f}, at the minimum {deep.lowest:.3f}\n{looked.certificate}\n")
        assert looked.success
        assert looked.fun < deep.lowest + 1e-9
        path = picture(fits, 1e-3, out / "degenerate_start.png")
    words, results = ({name: pair[k] for name, pair in found.items()} for k in range(2))
    return {"words": words, "results": results, "deep": looked, "picture": path}


if __name__ == "__main__":
    run(main, __doc__)
