"""What comes back from a run: the result, its trace, and what a callback sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np

from tercet.records import ORDERS, Certificate, Counts, Sizes, Status

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

COLUMNS = (
    "iteration", "seconds", "value", "gradient", "hessian", "third", "epochs", "f", "gradient_norm", "sigma", "ratio",
    "accepted", "step_norm", "size_value", "size_gradient", "size_hessian", "size_third", "inner", "third_bought",
    "escape", "meets_1", "meets_2", "meets_3", "predicted", "guaranteed_1", "guaranteed_2", "guaranteed_3", "failure",
)  # fmt: skip
LATER = COLUMNS[-4:]  # columns that files of earlier versions do not have


@dataclass(frozen=True)
class Row:
    """One iteration as an observer sees it. `f` is over `sizes.value` terms."""

    iteration: int
    f: float
    gradient_norm: float
    sigma: float
    ratio: float
    accepted: bool
    step_norm: float
    sizes: Sizes
    inner: int
    third_bought: bool = False
    escape: int = 0  # 2 or 3: the step followed negative curvature or a third-order direction
    meets: tuple[bool | None, bool | None, bool | None] = (None, None, None)
    seconds: float = np.nan
    counts: Counts = field(default_factory=Counts)
    predicted: float = np.nan  # the decrease that the model promised for this step: an estimate of the gap near the end
    guaranteed: tuple[bool | None, bool | None, bool | None] = (None, None, None)  # Condition 1 for g, B, T
    failure: float = np.nan  # the probability that one of those that are guaranteed fails in this iteration

    @property
    def third(self) -> bool:
        """The former name of `third_bought`."""
        warn("Row.third is called Row.third_bought now; the old name goes in 0.3.", DeprecationWarning, stacklevel=2)
        return self.third_bought

    def as_dict(self) -> dict[str, Any]:
        """The row under the names of `COLUMNS`."""
        s, c = self.sizes, self.counts
        values = (
            self.iteration, self.seconds, c.value, c.gradient, c.hessian, c.third, c.epochs, self.f, self.gradient_norm,
            self.sigma, self.ratio, self.accepted, self.step_norm, s.value, s.gradient, s.hessian, s.third, self.inner,
            self.third_bought, self.escape, *self.meets, self.predicted,
            *self.guaranteed, self.failure,
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


@dataclass(frozen=True, eq=False)
class Info:
    """What `callback` is given after an iteration: the point in the user's structure, its value, and the row."""

    x: Any
    fun: float
    row: Row

    def __getattr__(self, name: str) -> Any:
        if name in COLUMNS:
            return self.row.as_dict()[name]
        raise AttributeError(name)


@dataclass(frozen=True)
class Trace:
    """The iterations of a run, in order."""

    rows: tuple[Row, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        """One column as an array, by its name in `COLUMNS`."""
        if column not in COLUMNS:
            raise KeyError(f"Trace[{column!r}]: no such column; the columns are {', '.join(COLUMNS)}.")
        return np.array([row.as_dict()[column] for row in self.rows])

    def frame(self) -> pd.DataFrame:
        """The trace as a pandas frame, one row per iteration (needs pandas)."""
        import pandas as pd

        return pd.DataFrame([row.as_dict() for row in self.rows], columns=list(COLUMNS))

    def plot(self, against: str = "epochs", ax: Axes | None = None) -> Axes:
        """|g| and f above its lowest value, on a logarithmic axis, against any column (needs Matplotlib)."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        x, f = self[against], self["f"]
        ax.semilogy(x, self["gradient_norm"], label="|g|")
        if np.any(np.isfinite(f)):
            ax.semilogy(x, np.maximum(f - np.nanmin(f), 1e-17), label="f - lowest f")
        ax.set_xlabel(against)
        ax.legend()
        return ax


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of `minimize`: the best point, its full objective, why the run ended, how critical the point is."""

    x: Any
    fun: float
    status: Status
    message: str
    nit: int
    certificate: Certificate
    counts: Counts
    trace: Trace
    seconds: float
    method: str
    error: BaseException | None = None
    rounds: int = 0  # passes over data that is not in memory (`Shards`), the bytes read, and tasks that were done again
    bytes_read: int = 0
    retries: int = 0
    infers: Callable[..., Any] | None = field(default=None, repr=False)  # infer(result, ...) of its own problem

    @property
    def success(self) -> bool:
        """True when the certificate holds up to the order that was asked for, and only then."""
        return self.status is Status.CERTIFIED and self.certificate.holds

    @property
    def passes(self) -> str:
        """What was read of shards, in words."""
        again = f", {self.retries} tasks done again" if self.retries else ""
        return f"{self.rounds} over all shards, {self.bytes_read / 1e9:.3g} GB read{again}"

    def infer(self, kind: str | None = None, **options: Any) -> Any:
        """The `Inference` of x: `tercet.infer(problem, result, ...)` with the problem of the run.

        The problem is at hand in the process of the run only: it is neither saved nor pickled.
        """
        if self.infers is None:
            raise ValueError(
                "Result.infer: the problem of this result is not at hand; give it, tercet.infer(problem, result)."
            )
        return self.infers(self, kind, **options)

    def covariance(self, kind: str | None = None, **options: Any) -> Any:
        """The covariance matrix of x; see `tercet.infer` for kind="hessian", "sandwich", "bootstrap" and options."""
        return self.infer(kind, **options).covariance

    def standard_errors(self, kind: str | None = None, **options: Any) -> Any:
        """The standard errors of x, in its structure; see `tercet.infer`."""
        return self.infer(kind, **options).standard_errors()

    def confidence_intervals(self, level: float = 0.95, kind: str | None = None, **options: Any) -> tuple[Any, Any]:
        """Lower and upper limits of x, each in its structure; see `tercet.infer`."""
        return self.infer(kind, **options).confidence_intervals(level)

    def summary(self, kind: str | None = None, **options: Any) -> Any:
        """The table of coefficients, standard errors, z, p and intervals; see `tercet.infer`."""
        return self.infer(kind, **options).summary()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "infers": None}

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        c, found = self.counts, self.certificate
        bought = int(np.sum(self.trace["third_bought"])) if len(self.trace) else 0
        per_order = "  ".join(f"{order} {getattr(c, order) / c.n:.1f}" for order in ORDERS)
        work = f"{self.nit} iterations (third derivatives bought in {bought}), {self.seconds:.3g} s, "
        passes = f"; passes {self.passes}" if self.rounds else ""
        lines = (
            ("success", f"{self.success} ({self.status.name.lower()}): {found.headline}"),
            ("f", f"{self.fun:.12g}, {found.of_f}"),
            ("certificate", "; ".join([found.measures, found.shape, *found.remarks])),
            ("checked", found.how) if self.success else ("message", self.message),
            ("work", f"{work}{c.epochs:.1f} epochs  =  {per_order}{passes}; method {self.method}"),
        )
        return "\n".join(f"{name:<12} {text}" for name, text in lines)

    __repr__ = __str__
