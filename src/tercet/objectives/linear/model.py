"""`LinearModel`: data, loss and penalty as a problem, checked."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from tercet.checks import flag, memory, number, plain_array, sparse_matrix
from tercet.objectives.base import Bound, Traits, check_length, digest, name_of
from tercet.objectives.device.arrays import library_of
from tercet.objectives.linear.point import LinearView, Penalty
from tercet.objectives.losses import Formula, as_loss
from tercet.objectives.tables import DenseTable, table_of
from tercet.records import Rows, Vector
from tercet.shards import Shards
from tercet.watch import Look

COMPILED = 10_000  # with fewer dense rows the compiled formulas do not repay their loading
DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored
DEVICE_DENSE_LIMIT = 1500  # the same beside a device, where passes over the data are cheap and factorizations are not
RATE = 8.0  # operations of dense algebra in the time of one of a loop over sparse entries
BESIDE = 2e5  # of the latter in the time that a product takes beside those on the data
LIGHT = 3e4  # entries of dense rows: all that an iteration makes of them takes as long as the rest of it
LARGEST = 1e90  # entries of X, and penalties: sums of their third powers are numbers
VECTORS = 16  # of the length of x, that a run keeps


class LinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2).

    X is a NumPy array or a SciPy sparse matrix with rows a_i. `loss` is a name (sigmoid_squares, logistic, squares;
    cauchy, welsch, geman_mcclure, smooth_quantile, with a `scale`; poisson, negative_binomial, gamma, with the log
    link), an object as `NegativeBinomial(0.5)` or one's own with `derivatives(z, y)` that gives l and its first three
    derivatives in z, or a scalar JAX function l(z, y). `weights` are normalized to mean one. With `intercept` a last
    coordinate is added to x that is not penalized.

    With `Shards` in place of X, and neither y nor weights, it runs out of core: `LinearModel(shards, loss=...)` is a
    `tercet.objectives.sharded.ShardedLinearModel`, which also takes `sample_bytes`.

    X may also be an array of PyTorch, JAX or CuPy, in float64 or float32, on any device. It stays there, and so does
    everything of its length. Sums are made in the precision `accumulate`, "float64" unless "float32" is asked for
    float32 data. The result's x is a NumPy array, or one of the library of X with `returns="device"`.
    """

    def __new__(cls, X: Any = None, y: Any = None, *settings: Any, **named: Any) -> Any:
        """Data in memory, or shards."""
        if not isinstance(X, Shards):
            return super().__new__(cls)
        if y is not None or named.get("weights") is not None:
            raise ValueError("LinearModel(shards, y=..., weights=...): shards have their own; leave both out.")
        from tercet.objectives.sharded.model import ShardedLinearModel

        return ShardedLinearModel(X, *settings, **{name: named[name] for name in named if name != "weights"})

    def __init__(
        self,
        X: Any,
        y: Any = None,
        loss: Any = "sigmoid_squares",
        *,
        l2: float = 0.0,
        alpha: float = 0.0,
        scale: float | None = None,
        weights: Any = None,
        intercept: bool = False,
        accumulate: str | None = None,
        returns: str = "numpy",
    ):
        if y is None:
            raise ValueError("LinearModel(y=None): give one target per row.")
        self.loss = as_loss(loss, scale)
        l2, alpha = check_penalty("LinearModel", "l2", l2), check_penalty("LinearModel", "alpha", alpha)
        self.intercept = flag("LinearModel", "intercept", intercept)
        self.known_scales, self.given, self.device = cast(Vector | None, None), loss, cast(Any, None)
        self.returns = check_returns(returns, accumulate, library_of(X) is not None)
        if library_of(X) is not None:
            self.lie_on_device(X, y, weights, l2, alpha, accumulate)
        else:
            self.lie_on_host(X, y, weights, l2, alpha)
        self.names = names_of(X, self.intercept)

    def lie_on_host(self, X: Any, y: Any, weights: Any, l2: float, alpha: float) -> None:
        """Rows in NumPy and SciPy."""
        A = check_matrix(X)
        targets = check_targets(y, A.shape[0])
        if hasattr(self.loss, "check"):
            self.loss.check(targets)
        if self.intercept:
            A = add_ones(A)
        w = None if weights is None else check_weights(weights, A.shape[0])
        self.A, d = A, A.shape[1]
        compiled = sp.issparse(A) or A.shape[0] >= COMPILED
        wide, penalty = d > DENSE_LIMIT, Penalty(l2, alpha, penalized(d, self.intercept))
        formula = Formula.of(self.loss, compiled)
        table = table_of(A)
        self.rows: Any = LinearView(table, targets, w, self.loss, formula, penalty, compiled, wide)
        entries = None if isinstance(table, DenseTable) else A.nnz
        self.traits = Traits(
            dense=not wide,
            hessian_products=hessian_products(A.shape[0], d, entries),
            images=True,
            fewest=LIGHT / d if entries is None else LIGHT / RATE * A.shape[0] / max(entries, 1),
            provenance="closed-form derivatives",
        )

    def lie_on_device(self, X: Any, y: Any, weights: Any, l2: float, alpha: float, accumulate: str | None) -> None:
        """Rows where they are."""
        from tercet.objectives.device.model import check_shape, device_data

        check_shape(X)
        d = int(X.shape[1]) + self.intercept
        wide, penalty = d > DEVICE_DENSE_LIMIT, Penalty(l2, alpha, penalized(d, self.intercept))
        data = device_data(X, y, weights, self.loss, self.given, penalty, self.intercept, accumulate, wide)
        self.A, self.rows, self.device = X, data.view, data
        self.traits = Traits(
            dense=not wide,
            images=True,
            scattered=data.view.table.scattered,
            on_device=data.view.table.arrays.accelerated,
            provenance=data.provenance,
            epsilon=data.epsilon,
        )

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.rows.table.shape[0]

    @property
    def d(self) -> int:
        """The number of coefficients, the intercept among them."""
        return self.rows.table.shape[1]

    @property
    def convex(self) -> bool | None:
        """False where the loss or the penalty is not."""
        return False if self.rows.penalty.alpha else getattr(self.loss, "convex", None)

    @property
    def scales(self) -> Vector:
        """1 / rms of a_ij over the rows where it is not 0: a step by which these margins change by one."""
        if self.known_scales is None:
            self.known_scales = self.rows.table.scales()
        return self.known_scales

    def over(self, rows: Rows | None) -> LinearView:
        """The model over the given rows; all of them without a copy."""
        return self.rows if rows is None else self.rows.take(rows)

    def clocked(self, look: Look) -> LinearModel:
        """The same model, that looks at the clock within Gram matrices and beside long factorizations."""
        other, table = copy(self), cast(Any, self.rows.table)
        other.rows = replace(self.rows, table=replace(table, look=look))
        return other

    def fingerprint(self) -> dict[str, str]:
        """Digests of X, y and the weights; the loss and the penalties by their values."""
        view, A = self.rows, self.A
        settings = {"l2": view.penalty.l2, "alpha": view.penalty.alpha, "intercept": self.intercept}
        if self.device is not None:
            data = self.device.fingerprint()
        else:
            X = digest(A.data, A.indices, A.indptr) if sp.issparse(A) else digest(A)
            weights = "none" if view.w is None else digest(view.w)
            data = {"X": f"{A.shape[0]} x {A.shape[1]} {X}", "y": digest(view.y), "weights": weights}
        return {
            **data,
            "loss": name_of(getattr(self.loss, "function", self.loss)),
            **{name: repr(value) for name, value in settings.items()},
        }

    def shuffle(self, seed: int) -> Any:
        """An order of the rows whose beginnings are samples, where it is better made on a device; None on the host."""
        return None if self.device is None else self.device.shuffle(seed)

    def bind(self, x0: Any) -> Bound:
        """Start at x0, by default at zero."""
        start = np.zeros(self.d) if x0 is None else check_length("problem", x0, self.d)
        return Bound(self, start) if self.returns == "numpy" else Bound(self, start, self.device.own)

    def margins(self, X: Any, x: Vector) -> Vector:
        """z = Ax for new rows, the intercept added if the model has one."""
        if library_of(X) is not None:
            from tercet.objectives.device.model import margins_of

            return margins_of(X, x, self.intercept)
        A = check_matrix(X)
        return (add_ones(A) if self.intercept else A) @ x


def hessian_products(n: int, d: int, entries: int | None = None) -> float:
    """How many products with B take as long as forming and factoring it, by their operations.

    A matrix with so many entries, or a dense one: its Gram matrix takes entries^2 / 2n or n d^2 operations, the
    factorizations 2 d^3 in the mean, a product 4 for each entry.
    """
    gram, product = (n * d * d / RATE, 4 * n * d / RATE) if entries is None else (entries**2 / (2 * n), 4 * entries)
    return (gram + 2 * d**3 / RATE) / (product + BESIDE)


def penalized(d: int, intercept: bool) -> Vector:
    """1 for each coordinate, 0 for an intercept."""
    mask = np.ones(d)
    if intercept:
        mask[-1] = 0.0
    return mask


def check_returns(returns: Any, accumulate: Any, on_device: bool) -> str:
    """What only data on a device lets choose."""
    if returns not in ("numpy", "device"):
        raise ValueError(f"LinearModel(returns={returns!r}): give 'numpy' or 'device'.")
    for name, value in (("returns", None if returns == "numpy" else returns), ("accumulate", accumulate)):
        if value is not None and not on_device:
            raise ValueError(
                f"LinearModel({name}={value!r}): this goes with X on a device, an array of PyTorch, JAX or CuPy; "
                "leave it out."
            )
    return returns


def check_matrix(X: Any) -> Any:
    """X as a float64 array or a canonical CSR array; ValueError for anything that is not a finite, non-empty table."""
    A = as_numbers("X", X, sparse=True)
    values = A.data if sp.issparse(A) else A
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"LinearModel(X=...): X has shape {A.shape}; give a non-empty table of rows and columns.")
    if 8 * VECTORS * A.shape[1] > memory():
        raise ValueError(
            f"LinearModel(X=...): X has {A.shape[1]} columns, and a run keeps some {VECTORS} vectors of that length, "
            f"{8e-9 * VECTORS * A.shape[1]:.0f} GB, more than the memory here; drop, number anew or hash the columns."
        )
    # A finite sum proves it without another array of the size of X.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.sum(values)))
    if not (finite or np.all(np.isfinite(values))):
        raise ValueError("LinearModel(X=...): X holds nan or inf; drop or fill those entries first.")
    size = max(float(np.max(values)), -float(np.min(values))) if values.size else 0.0
    if size > LARGEST:
        raise ValueError(
            f"LinearModel(X=...): X holds {size:.3g}, whose cube is beyond double precision; rescale its columns."
        )
    return A


def names_of(X: Any, intercept: bool) -> tuple[str, ...]:
    """The names of the coefficients: of the columns of a data frame, else x[j]."""
    columns = getattr(X, "columns", None)
    names = [f"x[{j}]" for j in range(X.shape[1])] if columns is None and hasattr(X, "shape") else []
    return (*(names if columns is None else map(str, columns)), *(("intercept",) if intercept else ()))


def as_numbers(name: str, values: Any, sparse: bool = False) -> Any:
    """An array of floats, or where that is allowed a CSR array, or a ValueError that names the argument."""
    try:
        if sparse and sp.issparse(values):
            return sparse_matrix(values)
        return plain_array(values).astype(np.float64, copy=False)
    except ValueError as error:
        raise ValueError(f"LinearModel({name}=...): {name} is not an array of real numbers ({error}).") from error


def check_penalty(call: str, name: str, weight: Any) -> float:
    """A weight of a penalty, a finite number that is at least 0."""
    if not 0 <= number(weight) <= LARGEST:
        raise ValueError(
            f"{call}({name}={weight!r}): a penalty is a finite number that is at least 0 and at most {LARGEST:g}."
        )
    return float(weight)


def check_targets(y: Any, n: int) -> Vector:
    """y as a finite float64 vector of length n."""
    targets = as_numbers("y", y)
    if targets.shape != (n,):
        raise ValueError(
            f"LinearModel(y=...): y has shape {targets.shape}, but X has {n} rows; give one target per row."
        )
    if not np.all(np.isfinite(targets)):
        raise ValueError(
            f"LinearModel(y=...): y[{int(np.argmin(np.isfinite(targets)))}] is not finite; drop that row or fill it."
        )
    return targets


def check_weights(weights: Any, n: int) -> Vector:
    """Weights of length n, at least 0 and not all 0, normalized to mean one."""
    w = as_numbers("weights", weights)
    if w.shape != (n,):
        raise ValueError(f"LinearModel(weights=...): weights have shape {w.shape}; give one per row, shape ({n},).")
    if not np.all(np.isfinite(w)) or np.any(w < 0) or not np.any(w > 0):
        raise ValueError("LinearModel(weights=...): weights must be finite, at least 0, and not all 0.")
    largest = float(np.max(w))
    if not 1e-100 < largest < 1e100:  # then their sum may be none
        w = w / largest
    return w / np.mean(w)


def add_ones(A: Any) -> Any:
    """A with a last column of ones."""
    ones = np.ones((A.shape[0], 1))
    return sp.csr_array(sp.hstack([A, sp.csr_array(ones)])) if sp.issparse(A) else np.hstack([A, ones])
