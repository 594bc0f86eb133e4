"""`Inference`: an estimate with its covariance, standard errors, intervals, functions of it, and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tercet.checks import plain_array, probability
from tercet.inference.spread import Spread
from tercet.objectives.transforms import Elementwise
from tercet.records import Matrix, Vector

STEP = float(np.finfo(float).eps) ** 0.2  # of differences of fourth order
NAMED = 40  # names of coordinates without a variance that a note has


@dataclass(frozen=True, eq=False)
class Inference:
    """An estimate x and how it varies.

    `kind` says how: "hessian" (the inverse of the observed information), "sandwich" or "bootstrap". `why` has for each
    coordinate why its variance is not known, and is empty where it is; `notes` are what a reader of the table has to
    know. Intervals and p-values are those of the normal distribution; those of the bootstrap are quantiles of its
    draws. Where `x` has a structure, standard errors and intervals have the same; the covariance and the draws are in
    the order of `names`.
    """

    x: Any
    flat: Vector  # x as a vector
    names: tuple[str, ...]
    kind: str
    spread: Spread
    restore: Callable[[Vector], Any]  # a vector in the structure of x
    facts: tuple[tuple[str, str], ...] = ()  # the head of the table
    notes: tuple[str, ...] = ()
    draws: Matrix | None = None  # of the bootstrap, one estimate a row
    phi_factor: float = 1.0  # of the variance, where the likelihood has one
    phi: Elementwise | None = None  # of parameters that live in intervals; their limits are mapped back from free ones

    @property
    def covariance(self) -> Matrix:
        """The covariance matrix; rows and columns of what is not identified are nan."""
        return self.spread.covariance()

    @property
    def why(self) -> tuple[str, ...]:
        """Why the variance of a coordinate is not known; empty where it is."""
        return self.spread.why

    @property
    def deviations(self) -> Vector:
        """The standard errors as a vector."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def standard_errors(self) -> Any:
        """The roots of the diagonal of the covariance, in the structure of x."""
        return self.restore(self.deviations)

    def limits(self, level: float = 0.95) -> Matrix:
        """Lower and upper limits as two columns."""
        tail = 0.5 * (1.0 - probability("confidence_intervals", "level", level))
        if self.draws is None:
            reach = -float(ndtri(tail)) * self.deviations
            if self.phi is None:
                return np.column_stack([self.flat - reach, self.flat + reach])
            u = self.phi.inverse(self.flat)
            step = reach / self.phi.derivatives(u)[1]
            return np.column_stack([self.phi.derivatives(u - step)[0], self.phi.derivatives(u + step)[0]])
        quantiles = np.quantile(self.draws, [tail, 1.0 - tail], axis=0).T
        return np.where(self.spread.known[:, None], quantiles, np.nan)

    def confidence_intervals(self, level: float = 0.95) -> tuple[Any, Any]:
        """The lower and the upper limits, each in the structure of x."""
        lower, upper = self.limits(level).T
        return self.restore(lower), self.restore(upper)

    def delta(self, function: Callable[[Any], Any], names: Sequence[str] | None = None) -> Inference:
        """function(x), a number or a vector, with its covariance J C J' (the delta method), J by differences.

        With the bootstrap the function of each draw. A combination that is identified has a variance also where its
        coordinates have none. For a function that bends much within a standard error use a profile or the bootstrap.
        """

        def at(x: Vector) -> Vector:
            try:
                values = np.atleast_1d(plain_array(function(self.restore(x)))).astype(np.float64)
            except ValueError as error:
                raise ValueError(f"delta(function=...): it did not give a number or a vector ({error}).") from error
            if values.ndim != 1 or not np.all(np.isfinite(values)):
                raise ValueError(
                    f"delta(function=...): at x it gives {values!r}; give a function with finite numbers there."
                )
            return values

        value = at(self.flat)
        if names is not None and len(names) != len(value):
            raise ValueError(f"delta(names=...): {len(names)} names for {len(value)} values.")
        J = jacobian(at, self.flat, np.nan_to_num(self.deviations), len(value))
        C = self.spread.along(J)
        why = tuple("it depends on what is not identified" * bool(np.isnan(v)) for v in np.diag(C))
        draws = None if self.draws is None else np.stack([at(draw) for draw in self.draws])
        known = np.nan_to_num(C) if draws is None else np.atleast_2d(np.cov(draws.T))
        told = tuple(names) if names is not None else tuple(f"g[{k}]" for k in range(len(value)))
        spread = Spread(known, np.zeros((len(value), 0)), why)
        shown = value[0] if np.ndim(function(self.restore(self.flat))) == 0 else value
        return Inference(shown, value, told, self.kind, spread, restorer(shown), (), (), draws)

    def table(self, level: float = 0.95) -> dict[str, Any]:
        """The columns of the summary: name, estimate, standard_error, z, p, lower, upper."""
        errors, (lower, upper) = self.deviations, self.limits(level).T
        with np.errstate(divide="ignore", invalid="ignore"):
            z = self.flat / errors
        p = 2.0 * ndtr(-np.abs(z))
        columns = ("estimate", "standard_error", "z", "p", "lower", "upper")
        return {"name": self.names, **dict(zip(columns, (self.flat, errors, z, p, lower, upper), strict=True))}

    def summary(self, level: float = 0.95, names: Sequence[str] | None = None) -> Summary:
        """The table that statisticians expect; `print` it, or show it in a notebook."""
        if names is not None and len(names) != len(self.names):
            raise ValueError(f"summary(names=...): {len(names)} names for {len(self.names)} coefficients.")
        told = self if names is None else replace(self, names=tuple(str(name) for name in names))
        return Summary(told, probability("summary", "level", level))

    def __str__(self) -> str:
        """The table."""
        return str(self.summary())


@dataclass(frozen=True, eq=False)
class Summary:
    """The table of an inference; `str` of it is the text."""

    inference: Inference
    level: float

    def __str__(self) -> str:
        own, tail = self.inference, 0.5 * (1.0 - self.level)
        columns = own.table(self.level)
        wide = max(9, *(len(name) for name in own.names))
        heads = ("coef", "std err", "z", "P>|z|", f"[{tail:.3g}", f"{1 - tail:.3g}]")
        lines = [f"{'':<{wide}}" + "".join(f"{head:>12}" for head in heads)]
        for k, name in enumerate(own.names):
            estimate, error, z, p, lower, upper = (list(columns.values())[c][k] for c in range(1, 7))
            numbers = (f"{estimate:.5g}", f"{error:.4g}", f"{z:.3f}", f"{p:.3f}", f"{lower:.5g}", f"{upper:.5g}")
            lines.append(f"{name:<{wide}}" + "".join(f"{number:>12}" for number in numbers))
        rule = "-" * max(len(line) for line in lines)
        head = [f"{name + ':':<16} {text}" for name, text in own.facts]
        return "\n".join([*head, rule, lines[0], rule, *lines[1:], rule, *self.remarks()])

    def remarks(self) -> list[str]:
        """Below the table: notes, and once for each reason the names to which it belongs."""
        own, reasons = self.inference, dict[str, list[str]]()
        for name, reason in zip(own.names, own.why, strict=True):
            if reason:
                reasons.setdefault(reason, []).append(name)
        of = [f"nan for {', '.join(names[:NAMED])}: {reason}." for reason, names in reasons.items()]
        return [*own.notes, *of]

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    __repr__ = __str__


def restorer(shown: Any) -> Callable[[Vector], Any]:
    """From a vector to a number where the function gave one."""
    return (lambda v: float(v[0])) if np.ndim(shown) == 0 else (lambda v: v)


def jacobian(at: Callable[[Vector], Vector], x: Vector, errors: Vector, k: int) -> Matrix:
    """d at / dx by central differences of fourth order, each x_j moved by a small part of its size."""
    J = np.empty((k, len(x)))
    for j, size in enumerate(np.maximum(np.abs(x), errors)):
        h = STEP * (size if size > 0.0 else 1.0)
        e = np.zeros_like(x)
        e[j] = h
        near, far = at(x + e) - at(x - e), at(x + 2 * e) - at(x - 2 * e)
        J[:, j] = (8.0 * near - far) / (12.0 * h)
    return J
