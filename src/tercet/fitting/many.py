"""`curve_fit_many`: thousands of curves of one model in one call, each with its certificate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.checks import flag, whole
from tercet.fitting.curve import Fit, curve_fit, data, parameters, tree_map
from tercet.records import Matrix, Status, Tensor, Vector


@dataclass(frozen=True, eq=False)
class Fits:
    """Many fitted curves, one row for each.

    `success` says of which the certificate holds, `status` what happened to the others, `digits` how many digits of
    every parameter are right, `cost` 1/2 |r|^2, `alone` which were fitted one by one. `fit(k)` is the `Fit` of a curve
    from there, with all of its certificate.
    """

    popt: Matrix
    pcov: Tensor
    status: NDArray[np.object_]
    digits: Vector
    cost: Vector
    iterations: NDArray[np.intp]
    alone: NDArray[np.intp]
    names: tuple[str, ...]
    again: Callable[[int, Vector], Fit]

    @property
    def success(self) -> NDArray[np.bool_]:
        """Of which curves the certificate holds."""
        return np.array([status is Status.CERTIFIED for status in self.status])

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
    max_iterations: int = 100,
    alone: bool = False,
) -> Fits:
    """Fit f(x, *params) to every row of ydata, as `curve_fit` does to one: all at once where f is a JAX function.

    `xdata` is shared, `p0` and `sigma` too, unless they have a row for each curve. Levenberg-Marquardt steps are taken
    over all curves, and Newton's at the end. A curve is certified where Newton's step, with all second derivatives,
    leaves each parameter within 1e-10 of its size, or as close as rounding lets it come, B is positive definite, and
    the third derivative along that step is small beside B. Of one that is not, `status` says why. With `alone` it is
    fitted again by `curve_fit`, which looks further, and takes as long as some hundred others. Curves of a NumPy model
    are all fitted alone.
    """
    flag("curve_fit_many", "absolute_sigma", absolute_sigma)
    flag("curve_fit_many", "alone", alone)
    whole("curve_fit_many", "max_iterations", max_iterations)
    y = data("ydata", ydata)
    if y.ndim != 2 or y.size == 0:
        raise ValueError(f"curve_fit_many(ydata=...): ydata has shape {y.shape}; give a row for each curve.")
    from tercet.fitting.together import Batch, Found  # Numba is loaded

    K, m = y.shape
    names, start = starts(f, p0, K)
    x = tree_map(lambda leaf: data("xdata", leaf), xdata)
    weigh = spreads(sigma, K, m)

    def again(k: int, p: Vector) -> Fit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a covariance that is not known is inf
            each = np.broadcast_to(weigh[k] if weigh.ndim == 2 else weigh, (m,))
            return curve_fit(f, x, y[k], p, 1.0 / each, absolute_sigma, max_iterations=max_iterations)

    out, together = Found.blank(start), Batch.of(f, x, y, weigh, start)
    rows, whole_way = np.arange(K), True
    if together is not None:
        whole_way = together.run(out, max_iterations, absolute_sigma)
        rows = np.flatnonzero(out.status != Status.CERTIFIED) if alone and whole_way else rows[:0]
    for done, k in enumerate(rows):
        out.one(k, again(int(k), start[k]))
        if out.status[k] is Status.INTERRUPTED:
            rows = rows[: done + 1]
            break
    return Fits(out.popt, out.pcov, out.status, out.digits, out.cost, out.iterations, rows, names, again)


def starts(f: Callable[..., Any], p0: Any, K: int) -> tuple[tuple[str, ...], Matrix]:
    """The names of the parameters, and a start for each curve."""
    rows = None if p0 is None else data("p0", p0)
    names, first = parameters(f, rows if rows is None or rows.ndim < 2 else rows[0])
    if rows is not None and rows.ndim == 2 and len(rows) != K:
        raise ValueError(f"curve_fit_many(p0=...): p0 has {len(rows)} rows for {K} curves; give one, or one for each.")
    return names, np.array(rows) if rows is not None and rows.ndim == 2 else np.tile(first, (K, 1))


def spreads(sigma: Any, K: int, m: int) -> Matrix:
    """1 / sigma: one for all, for every point, or for every point of every curve."""
    given = np.ones(1) if sigma is None else np.atleast_1d(data("sigma", sigma))
    if given.shape not in ((1,), (m,), (K, m)) or not np.all(given > 0):
        raise ValueError(
            f"curve_fit_many(sigma=...): sigma has shape {given.shape}; give positive numbers, {m} for all curves or "
            f"({K}, {m})."
        )
    return 1.0 / given
