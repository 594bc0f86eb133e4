"""`curve_fit`: SciPy's contract, and the fit with its certificate, standard errors, residuals and a plot."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tercet.checks import flag, plain_array
from tercet.domain import EVERYWHERE, Domain
from tercet.fitting.small import Small
from tercet.fitting.squares import Ready, pairs_of, tolerance
from tercet.inference.spread import free_of
from tercet.methods.binding import bind_within
from tercet.methods.minimize import Tolerance, minimize
from tercet.objectives.base import Bound, digest, name_of
from tercet.objectives.residuals import Residuals
from tercet.objectives.residuals.problem import ResidualVector
from tercet.records import Certificate, Matrix, Vector
from tercet.result import Result

EPS = float(np.finfo(float).eps)
DIFFERENCED = EPS ** (2 / 3)  # to which central differences are good


@dataclass(frozen=True)
class Difference:
    """(f(x, *p) - y) / sigma as one example, equal for equal f, so that other data compile nothing."""

    f: Callable[..., Any]
    means: ClassVar[tuple[str, ...]] = ("f",)  # what it is made of (`tercet.objectives.meaning`)

    def __call__(self, p: Any, x: Any, y: Any, weigh: Any) -> Any:
        """Of one vector of parameters."""
        gap = self.f(x, *p) - y
        return weigh * gap if weigh.ndim == 1 else weigh @ gap


def evaluated(f: Callable[..., Any], x: Any, p: Any) -> Vector:
    """f(x, *p) as NumPy, in double precision also where f is a JAX function."""
    jax = sys.modules.get("jax")
    with contextlib.nullcontext() if jax is None else jax.enable_x64(True):
        return np.asarray(f(x, *p), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Curve:
    """A model with its data, as a problem for `minimize`."""

    f: Callable[..., Any]
    x: Any
    y: Vector
    weigh: Matrix  # 1 / sigma, or a root of the inverse covariance
    jac: Callable[..., Any] | None = None

    def fingerprint(self) -> dict[str, str]:
        """The model's name and code, and the data."""
        return {"f": name_of(self.f), "y": digest(self.y), "sigma": digest(self.weigh)}

    def apply(self, v: Any) -> Any:
        """v / sigma."""
        weigh = self.weigh
        return weigh @ v if weigh.ndim == 2 else (weigh * v.T).T

    def residuals(self, p: Vector) -> Vector:
        """(f(x, *p) - y) / sigma by NumPy."""
        made = evaluated(self.f, self.x, p)
        if made.shape != self.y.shape:
            raise ValueError(f"f(xdata, *params) has shape {made.shape}, but ydata has {self.y.shape}")
        return self.apply(made - self.y)

    def gap(self, r: Vector, p: Vector) -> Vector:
        """f(x, *p) - y, read off the residuals r where each has a weight of its own."""
        return r / self.weigh if self.weigh.ndim == 1 else evaluated(self.f, self.x, p) - self.y

    def jacobian(self, p: Vector) -> Matrix:
        """The Jacobian of the same, as given."""
        assert self.jac is not None
        return self.apply(np.asarray(self.jac(self.x, *p), dtype=np.float64))

    def bind(self, x0: Any) -> Bound:
        """By JAX where the model can be traced and no Jacobian is given, else by calls and differences."""
        if self.jac is None and numbers(self.x):
            try:
                one = tree_map(lambda leaf: np.asarray(leaf, dtype=np.float64)[None], self.x)
                data = (one, self.y[None], self.weigh[None])
                return Residuals(Difference(self.f), data).bind(np.asarray(x0, dtype=np.float64))
            except (ImportError, ValueError):
                pass  # not a JAX function; if it is broken otherwise, its first call will tell
        return ResidualVector(
            self.residuals, None if self.jac is None else self.jacobian, "squares", 1.0, traced=False
        ).bind(x0)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted curve. It unpacks as SciPy's does, `popt, pcov = fit`; one that is not certified raises there.

    `errors` are the standard errors sqrt(diag(pcov)), `residuals` f(xdata, *popt) - ydata, `names` those of the
    parameters; `result` is that of `minimize`, with the certificate.
    """

    popt: Vector
    pcov: Matrix
    names: tuple[str, ...]
    residuals: Vector
    result: Result
    curve: Curve
    domain: Domain = EVERYWHERE

    def __iter__(self) -> Iterator[Any]:
        if not self.result.success:
            raise RuntimeError(f"curve_fit: {self.result.message} The best point so far is fit.popt.")
        return iter((self.popt, self.pcov))

    @property
    def success(self) -> bool:
        """Whether the certificate holds."""
        return self.result.success

    @property
    def certificate(self) -> Certificate:
        """Of popt."""
        return self.result.certificate

    @property
    def digits(self) -> float:
        """How many digits of every parameter are right, estimated."""
        return self.certificate.digits

    @property
    def errors(self) -> Vector:
        """The standard errors of the parameters."""
        return np.sqrt(np.diag(self.pcov))

    def predict(self, x: Any) -> Vector:
        """f(x, *popt)."""
        return evaluated(self.curve.f, x, self.popt)

    def band(self, x: Any, width: float = 1.96) -> tuple[Vector, Vector]:
        """The curve less and plus `width` standard errors of it, sqrt(j' pcov j) with j its slope in the parameters."""
        spread = width * deviation(self.curve.f, x, self.popt, self.pcov, self.domain)
        here = self.predict(x)
        return here - spread, here + spread

    def plot(self, ax: Any = None, points: int = 400, width: float = 1.96) -> Any:
        """Data, curve and band over a model of one variable; the axes."""
        import matplotlib.pyplot as plt

        if np.ndim(self.curve.x) != 1:
            raise ValueError("Fit.plot(): only a curve over one variable can be drawn; plot fit.residuals instead.")
        ax = plt.figure().subplots() if ax is None else ax
        x = np.linspace(np.min(self.curve.x), np.max(self.curve.x), points)
        low, high = self.band(x, width)
        ax.plot(self.curve.x, self.curve.y, "o", color="#7F7F7F", ms=4, label="data")
        ax.plot(x, self.predict(x), color="#0072B2", label="fit")
        ax.fill_between(x, low, high, color="#0072B2", alpha=0.2, lw=0, label=f"{width:g} standard errors")
        ax.legend()
        return ax

    def __str__(self) -> str:
        rows = [
            f"{name:>10} = {value: .12g} +- {error:.3g}"
            for name, value, error in zip(self.names, self.popt, self.errors, strict=True)
        ]
        return "\n".join([*rows, self.certificate.verdict])


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    *,
    jac: Callable[..., Any] | None = None,
    tol: Tolerance = None,
    seed: int = 0,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
) -> Fit:
    """Fit f(x, *params) to data by least squares, as SciPy's `curve_fit` does: `popt, pcov = curve_fit(f, x, y)`.

    `f` is written in NumPy or in JAX; a JAX function is differentiated, for another the derivatives are differences of
    `jac(x, *params)`, or of f. `p0` is all ones by default. `sigma` are standard deviations of ydata, or their
    covariance matrix; pcov = s^2 (J'J)^-1, where s^2 = |r|^2 / (m - d), or 1 with `absolute_sigma`. `bounds` are
    (low, high), each a number or one for each parameter, or a `scipy.optimize.Bounds`; without p0 the start is then
    inside, as SciPy has it. A parameter on a bound has no standard error: its rows of pcov are nan, and the others vary
    as if it were known. The `Fit` has the certificate, the digits of popt, standard errors, residuals and a plot. A
    parameter is asked to ten digits, or as close as rounding lets it come.
    """
    flag("curve_fit", "absolute_sigma", absolute_sigma)
    if not callable(f):
        raise ValueError(f"curve_fit(f={f!r}): f is a function f(x, *params).")
    names, start = parameters(f, p0)
    pairs = pairs_of("curve_fit", bounds, len(start))
    if pairs is not None and p0 is None:
        start = inside(pairs)
    x, y = tree_map(lambda leaf: data("xdata", leaf), xdata), data("ydata", ydata)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"curve_fit(ydata=...): ydata has shape {y.shape}; give a vector with at least one entry.")
    curve = Curve(f, x, y, weights(sigma, len(y)), jac)
    bound, domain, note = bind_within("curve_fit", curve, start, pairs)
    budgets: Any = {"max_iterations": max_iterations, "max_seconds": max_seconds, "seed": seed}
    chosen = tolerance(tol, bound.objective)
    result = minimize(Ready(curve, bound), bound.x0, method=Small(), tol=chosen, bounds=pairs, **budgets)
    popt = np.asarray(result.x, dtype=np.float64)
    point: Any = bound.objective.over(None).at(popt)
    J, r = point.J, point.r  # J first: with it comes r
    free = free_of(result.certificate, len(popt))
    pcov = np.full((len(popt), len(popt)), np.nan)
    if len(free):
        made = getattr(bound.objective, "jac", True) is None  # of differences
        found = covariance(J[:, free], r, absolute_sigma, DIFFERENCED if made else EPS)
        pcov[np.ix_(free, free)] = found
    result = replace(result, message=result.message + note)
    return Fit(popt, pcov, names, curve.gap(r, popt), result, curve, domain)


def inside(pairs: list[tuple[float, float]]) -> Vector:
    """Where SciPy's curve_fit starts: in the middle of two bounds, one beside a single bound, at 1 without."""
    low, high = (np.array(end) for end in zip(*pairs, strict=True))
    with np.errstate(invalid="ignore"):
        middle, one = 0.5 * (low + high), np.where(np.isfinite(low), low + 1.0, high - 1.0)
    either = np.where(np.isfinite(low) | np.isfinite(high), one, 1.0)
    return np.where(np.isfinite(low) & np.isfinite(high), middle, either)


def deviation(f: Callable[..., Any], x: Any, p: Vector, pcov: Matrix, domain: Domain = EVERYWHERE) -> Vector:
    """The standard error of f(x, *p): sqrt(j' pcov j), with the slope j in the parameters by differences in the domain.

    Parameters without a variance, those on a bound, count as known."""
    errors = np.sqrt(np.diag(pcov))
    step = np.where(np.isfinite(errors) & (errors > 0), 1e-3 * errors, 1e-6 * np.abs(p) + 1e-9)
    free = np.flatnonzero(~np.isnan(errors))

    def at(q: Vector) -> Vector:
        return evaluated(f, x, q)

    columns = [domain.difference(at, p, np.eye(1, len(p), j)[0], float(step[j])) for j in free.tolist()]
    J = np.stack(columns, axis=-1) if columns else np.zeros((*np.shape(at(p)), 0))
    with np.errstate(invalid="ignore"):  # 0 times inf, where nothing is known of a parameter
        return np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", J, pcov[np.ix_(free, free)], J), 0.0))


def parameters(f: Callable[..., Any], p0: Any) -> tuple[tuple[str, ...], Vector]:
    """The names of the parameters from the signature, and where they start: at p0, or at one."""
    try:
        given = list(inspect.signature(f).parameters.values())[1:]
    except (TypeError, ValueError):
        given = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in given if p.kind in plain]
    starred = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in given)
    if p0 is None:
        if starred or not names:
            raise ValueError("curve_fit(p0=None): the signature of f does not tell the parameters; pass p0.")
        return tuple(names), np.ones(len(names))
    try:
        start = np.atleast_1d(plain_array(p0)).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"curve_fit(p0=...): p0 is no array of real numbers ({error}).") from error
    if start.ndim != 1 or start.size == 0 or not np.all(np.isfinite(start)):
        raise ValueError(f"curve_fit(p0=...): p0 has shape {start.shape}; give a vector of finite numbers.")
    if not starred and names and len(names) < start.size:
        raise ValueError(f"curve_fit(p0=...): p0 has {start.size} entries, but f takes {len(names)} parameters.")
    names = names[: start.size] if len(names) >= start.size and not starred else []
    return tuple(names or (f"p{k}" for k in range(start.size))), start


def data(name: str, values: Any) -> Any:
    """An array of finite floats, or a ValueError; what holds no numbers goes to f as it is where that is xdata."""
    try:
        array = plain_array(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        if name == "xdata" and not np.ma.is_masked(values):
            return values
        raise ValueError(f"curve_fit({name}=...): {name} is no array of real numbers ({error}).") from error
    if not np.all(np.isfinite(array)):
        raise ValueError(f"curve_fit({name}=...): {name} holds nan or inf; drop or fill those entries first.")
    return array


def weights(sigma: Any, m: int) -> Matrix:
    """1 / sigma, or L^-1 for a covariance LL'."""
    if sigma is None:
        return np.ones(m)
    given = data("sigma", sigma)
    given = np.full(m, float(given)) if given.ndim == 0 or given.shape == (1,) else given
    if given.shape == (m,) and np.all(given > 0):
        return 1.0 / given
    if given.shape == (m, m):
        try:
            root = np.linalg.cholesky(given)
        except np.linalg.LinAlgError as error:
            raise ValueError("curve_fit(sigma=...): the covariance is not positive definite.") from error
        return np.linalg.solve(root, np.eye(m))
    raise ValueError(
        f"curve_fit(sigma=...): sigma has shape {given.shape}; give {m} positive standard deviations, or a covariance "
        f"matrix of shape ({m}, {m})."
    )


def covariance(J: Matrix, r: Vector, absolute: bool, epsilon: float = EPS) -> Matrix:
    """s^2 (J'J)^-1 by the singular values of J, which is good to `epsilon`, with its columns scaled; inf where the data
    do not identify it."""
    from scipy.optimize import OptimizeWarning

    m, d = J.shape
    scale = np.linalg.norm(J, axis=0)
    good = bool(np.all(np.isfinite(J))) and bool(np.all(scale > 0.0)) and m >= d
    if good:
        _, q, Vt = np.linalg.svd(J / scale, full_matrices=False)
        good = bool(q[-1] > epsilon * max(m, d) * q[0])
    if not good or (m <= d and not absolute):
        warnings.warn("curve_fit: the covariance of the parameters cannot be estimated", OptimizeWarning, stacklevel=3)
        return np.full((d, d), np.inf)
    W = Vt.T / q / scale[:, None]
    return (W @ W.T) * (1.0 if absolute else float(r @ r) / (m - d))


def numbers(tree: Any) -> bool:
    """Whether all leaves are arrays of floats."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float64 for leaf in leaves)


def tree_map(call: Callable[[Any], Any], tree: Any) -> Any:
    """call on every leaf of tuples, lists of arrays and dicts; a list of numbers is an array."""
    if isinstance(tree, tuple) and all(np.ndim(leaf) > 0 for leaf in tree):
        return tuple(tree_map(call, leaf) for leaf in tree)
    if isinstance(tree, dict):
        return {name: tree_map(call, leaf) for name, leaf in tree.items()}
    return call(tree)
