"""`curve_fit_many`: thousands of curves of one model in one call, each with its certificate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.checks import flag, whole
from tercet.fitting.batch import ROUND, BatchKernels
from tercet.fitting.curve import Difference, Fit, covariance, curve_fit, data, numbers, parameters, tree_map
from tercet.objectives.jaxtools import import_jax
from tercet.objectives.programs import compiled, traced
from tercet.records import Matrix, Tensor, Vector

RELATIVE = float(np.sqrt(np.finfo(float).eps))  # of each parameter, to which a curve has to be certified
DIGITS = 16.0
WELL = 1e-3  # a pivot of J'J with its diagonal scaled to 1: no more than six of sixteen digits are lost


@dataclass(frozen=True, eq=False)
class Fits:
    """Many fitted curves, one row for each.

    `success` says of which the certificate holds, `digits` how many digits of every parameter are right, `alone` which
    were fitted one by one because the common steps did not certify them. `fit(k)` is the `Fit` of a curve, with all of
    its certificate.
    """

    popt: Matrix
    pcov: Tensor
    success: NDArray[np.bool_]
    digits: Vector
    cost: Vector  # 1/2 |r|^2
    iterations: NDArray[np.intp]
    alone: NDArray[np.intp]
    names: tuple[str, ...]
    again: Callable[[int, Vector], Fit]

    @property
    def errors(self) -> Matrix:
        """The standard errors of the parameters."""
        return np.sqrt(np.einsum("kii->ki", self.pcov))

    def __len__(self) -> int:
        return len(self.popt)

    def fit(self, k: int) -> Fit:
        """One curve, from where it was fitted to."""
        return self.again(k, self.popt[k])


def curve_fit_many(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    *,
    max_iterations: int = 200,
) -> Fits:
    """Fit f(x, *params) to every row of ydata, as `curve_fit` does to one: all at once where f is a JAX function.

    `xdata` is shared, `p0` and `sigma` too, unless they have a row for each curve. A curve is certified where Newton's
    step, with all second derivatives, leaves each parameter within sqrt(eps) of its size, and B is positive definite;
    one that is not so after `max_iterations` common steps is fitted on its own by `curve_fit`.
    """
    flag("curve_fit_many", "absolute_sigma", absolute_sigma)
    whole("curve_fit_many", "max_iterations", max_iterations)
    y = data("ydata", ydata)
    if y.ndim != 2 or y.size == 0:
        raise ValueError(f"curve_fit_many(ydata=...): ydata has shape {y.shape}; give a row for each curve.")
    K, m = y.shape
    names, start = starts(f, p0, K)
    x = tree_map(lambda leaf: data("xdata", leaf), xdata)
    weigh = spreads(sigma, K, m)

    def again(k: int, p: Vector) -> Fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a covariance that is not known is inf
            return curve_fit(f, x, y[k], p, 1.0 / weigh[k], absolute_sigma, max_iterations=max_iterations)

    found = Batch.of(f, x, y, weigh, start)
    p, good, wrong, cost, count = (
        (start.copy(), np.zeros(K, bool), np.zeros_like(start), np.zeros(K), np.zeros(K, np.intp))
        if found is None
        else found.run(start, max_iterations)
    )
    success, digits = good & np.all(wrong <= RELATIVE * np.abs(p), axis=1), right_digits(p, wrong)
    pcov = np.full((K, p.shape[1], p.shape[1]), np.inf)
    if found is not None:
        pcov[success] = found.covariances(p[success], np.flatnonzero(success), absolute_sigma)
    alone = np.flatnonzero(~success)
    for k in alone:
        fit = again(int(k), start[k])
        p[k], pcov[k], success[k] = fit.popt, fit.pcov, fit.success
        digits[k], cost[k], count[k] = fit.digits, fit.result.fun, count[k] + fit.result.nit
    return Fits(p, pcov, success, digits, cost, count, alone, names, again)


def right_digits(p: Matrix, wrong: Matrix) -> Vector:
    """-log10 of the worst error beside its parameter."""
    with np.errstate(all="ignore"):
        worst = np.max(wrong / np.abs(p), axis=1)
        return np.where(np.isfinite(worst), np.clip(-np.log10(worst), 0.0, DIGITS), np.nan)


def starts(f: Callable[..., Any], p0: Any, K: int) -> tuple[tuple[str, ...], Matrix]:
    """The names of the parameters, and a start for each curve."""
    rows = None if p0 is None else data("p0", p0)
    names, first = parameters(f, rows if rows is None or rows.ndim < 2 else rows[0])
    if rows is not None and rows.ndim == 2 and len(rows) != K:
        raise ValueError(f"curve_fit_many(p0=...): p0 has {len(rows)} rows for {K} curves; give one, or one for each.")
    return names, np.array(rows) if rows is not None and rows.ndim == 2 else np.tile(first, (K, 1))


def spreads(sigma: Any, K: int, m: int) -> Matrix:
    """1 / sigma for every point of every curve."""
    given = np.ones(m) if sigma is None else data("sigma", sigma)
    if given.shape not in ((), (m,), (K, m)) or not np.all(given > 0):
        raise ValueError(
            f"curve_fit_many(sigma=...): sigma has shape {given.shape}; give positive numbers, {m} for all curves or "
            f"({K}, {m})."
        )
    return np.broadcast_to(1.0 / given, (K, m)).copy()


@dataclass(frozen=True, eq=False)
class Batch:
    """A JAX model with many curves."""

    jax: Any
    kernels: BatchKernels
    x: Any
    y: Matrix
    weigh: Matrix

    @staticmethod
    def of(f: Callable[..., Any], x: Any, y: Matrix, weigh: Matrix, start: Matrix) -> Batch | None:
        """None where JAX is absent or cannot trace f."""
        if not numbers(x):
            return None
        try:
            jax = import_jax("curve_fit_many")
            with jax.enable_x64(True):
                one = jax.ShapeDtypeStruct(start.shape[1:], np.float64)
                program = traced(jax, Difference(f), one, x, y[0], weigh[0])
        except Exception:
            return None
        if [shape.shape for shape in program.closed.out_avals] != [y.shape[1:]]:
            return None
        run, consts, d = program.runner(jax), program.consts, start.shape[1]
        key = None if program.key is None else ("many", program.key)
        kernels = compiled(key, lambda: BatchKernels(jax, lambda p, *e: run(consts, p, *e), d))
        return Batch(jax, kernels, x, y, weigh)

    def examples(self, rows: Any) -> Any:
        """The data of some curves; x is repeated, which takes no memory."""
        k = len(rows)
        shared = tree_map(lambda leaf: np.broadcast_to(leaf, (k, *leaf.shape)), self.x)
        return shared, self.y[rows], self.weigh[rows]

    def run(self, start: Matrix, most: int) -> tuple[Matrix, NDArray[np.bool_], Matrix, Vector, NDArray[np.intp]]:
        """Parameters, whether they are certain, their errors, the cost and the steps of each curve."""
        K = len(start)
        with self.jax.enable_x64(True):
            rows = np.arange(K)
            examples = self.examples(rows)
            states = self.kernels.begin(start, examples)
            p, count = np.array(states[0]), np.zeros(K, dtype=np.intp)
            for _ in range(-(-most // ROUND)):
                states = self.kernels.rounds(states, examples)
                p[rows], count[rows], done = np.asarray(states[0]), np.asarray(states[-1]), np.asarray(states[-2])
                left = np.flatnonzero(~done)
                if not left.size:
                    break
                size = fitting(len(left), len(rows))
                if size < len(rows):  # those that are done fill up
                    some = np.concatenate([left, np.flatnonzero(done)[: size - len(left)]])
                    rows, states = rows[some], self.jax.tree_util.tree_map(lambda a, s=some: a[s], states)
                    examples = self.examples(rows)
            examples = self.examples(np.arange(K))
            signs = np.random.default_rng(0).choice([-1.0, 1.0], size=p.shape[1])
            p, cost, good, wrong = (np.array(part) for part in self.kernels.finish(p, examples, signs))
            for _ in range(2):  # some were not as close as that
                near = np.flatnonzero(good & ~np.all(wrong <= RELATIVE * np.abs(p), axis=1))
                if not near.size:
                    break
                some = np.resize(near, fitting(near.size, K))
                again = self.kernels.finish(p[some], self.examples(some), signs)
                p[some], cost[some], good[some], wrong[some] = (np.asarray(part) for part in again)
        return p, good, wrong, cost, count

    def covariances(self, p: Matrix, rows: NDArray[np.intp], absolute: bool) -> Tensor:
        """s^2 (J'J)^-1; by the singular values of J where J'J would lose more than a few digits."""
        (K, d), m = p.shape, self.y.shape[1]
        with self.jax.enable_x64(True):
            squares, inverse, least = (np.asarray(part) for part in self.kernels.inverse(p, self.examples(rows)))
            weak = np.flatnonzero(~(least > WELL))
            r, J = (np.asarray(part) for part in self.kernels.jacobian(p[weak], self.examples(rows[weak])))
        if K == 0 or m < d or (m == d and not absolute):
            return np.full((K, d, d), np.inf)
        s2 = np.ones(K) if absolute else squares / (m - d)
        out = inverse * s2[:, None, None]
        out[weak] = [covariance(*each, absolute) for each in zip(J, r, strict=True)] or np.zeros((0, d, d))
        return out


def fitting(left: int, now: int) -> int:
    """A quarter of the rows, again and again, as long as what is left fits: few sizes are compiled."""
    while now >= 64 and left <= now // 4:
        now //= 4
    return now
