"""`least_squares`: SciPy's contract, minimized by tercet and certified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tercet.critical.tolerances import Tolerances
from tercet.domain import Box, Domain, domain_of
from tercet.fitting.small import Small
from tercet.methods.binding import bind_within
from tercet.methods.minimize import Tolerance, minimize
from tercet.objectives.base import Bound
from tercet.objectives.residuals import Residuals
from tercet.records import Status, Vector
from tercet.result import Result

LOSSES = {"linear": "squares"}  # SciPy's name for what is called squares here
DIFFERENCES = ("2-point", "3-point", "cs", None)
FINE = Tolerances(relative=1e-10)  # of each x_j, where the Jacobian is exact
SPENT = (Status.MAX_ITERATIONS, Status.MAX_SECONDS, Status.MAX_EPOCHS)


@dataclass(frozen=True, eq=False)
class Ready:
    """A problem that is bound to its start already."""

    problem: Any
    bound: Bound

    def fingerprint(self) -> dict[str, str]:
        """That of the problem."""
        return self.problem.fingerprint()

    def bind(self, x0: Any) -> Bound:
        """As it is, from x0 on: that of the run, or of who asks for its standard errors."""
        return replace(self.bound, x0=np.array(x0, dtype=np.float64))


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = None,
    bounds: Any = (-np.inf, np.inf),
    *,
    loss: str = "linear",
    f_scale: float = 1.0,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    max_nfev: int | None = None,
    tol: Tolerance = None,
    seed: int = 0,
    max_seconds: float | None = None,
) -> Any:
    """Minimize 1/2 sum_i rho(r_i(x)^2) for a function `fun` of x that gives the residuals r, as SciPy's does.

    Returns SciPy's `OptimizeResult` (x, cost, fun, jac, grad, optimality, active_mask, nfev, njev, status, message,
    success) with `certificate` and `result`, which are tercet's, beside. `success` means that the certificate holds.
    `jac` is a function of x; without one (or with the name of one of SciPy's difference schemes) fun is differentiated
    by JAX where it can be traced, else by central differences. `loss` is linear, soft_l1, huber (smooth: c^2 log
    cosh(r/c)), cauchy, arctan, welsch or geman_mcclure, with the scale `f_scale`. fun is asked within `bounds` only; an
    x0 outside is moved to the nearest point inside, and the message says so.
    """
    pairs = pairs_of("least_squares", bounds, np.size(x0))
    if not (callable(jac) or jac in DIFFERENCES):
        raise ValueError(f"least_squares(jac={jac!r}): jac is a function of x, or None to have it made.")
    if isinstance(jac, str) or jac is None:
        jac = None
    named = kwargs or {}
    call = partial(with_arguments, fun, args, named) if args or named else fun
    slope = partial(with_arguments, jac, args, named) if jac is not None and (args or named) else jac
    problem = Residuals.of(call, slope, loss=LOSSES.get(loss, loss), scale=f_scale)
    bound, domain, note = bind_within("least_squares", problem, x0, pairs)
    budgets: Any = {"max_iterations": max_nfev, "max_seconds": max_seconds}
    chosen = tolerance(tol, bound.objective)
    budgets |= {"method": Small(), "tol": chosen, "bounds": pairs, "seed": seed}
    result = minimize(Ready(problem, bound), bound.x0, **budgets)
    return as_scipy(replace(result, message=result.message + note), bound.objective, domain)


def with_arguments(call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], x: Any) -> Any:
    """call(x, *args, **named)."""
    return call(x, *args, **named)


def pairs_of(call: str, bounds: Any, d: int) -> list[tuple[float, float]] | None:
    """Bounds as SciPy's fits take them, (low, high) with numbers or vectors, or an object with lb and ub, as pairs;
    None where none is finite."""
    if bounds is None:
        return None
    if not hasattr(bounds, "lb"):
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise ValueError(f"{call}(bounds={bounds!r}): give (low, high), each a number or {d} of them.")
        bounds = Ends(*bounds)
    domain = domain_of(call, bounds, d)
    if not isinstance(domain, Box):
        return None
    return list(zip(domain.low.tolist(), domain.high.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Ends:
    """Lower and upper bounds under SciPy's names."""

    lb: Any
    ub: Any


def tolerance(tol: Tolerance, objective: Any) -> Tolerance:
    """Ten digits of each x_j, where the Jacobian is not made of differences."""
    if tol is not None or getattr(objective, "jac", True) is None:
        return tol
    return FINE if objective.traits.epsilon < 1e-12 else None


def as_scipy(result: Result, objective: Any, domain: Domain) -> Any:
    """SciPy's record of a fit; r and J at x are evaluated once more, and counted."""
    from scipy.optimize import OptimizeResult

    x: Vector = np.atleast_1d(np.asarray(result.x, dtype=np.float64)).ravel()
    point = objective.over(None).at(x)
    J, r = point.J, point.r  # J first: with it comes r
    slope = J.T @ objective.loss.weights(r)[0]
    held = np.zeros(len(x), dtype=bool)
    held[[*result.certificate.active, *result.certificate.weak]] = True
    status = 1 if result.success else 0 if result.status in SPENT else -1
    return OptimizeResult(
        x=x,
        cost=float(np.sum(objective.loss.value(r))),
        fun=r,
        jac=J,
        grad=slope,
        optimality=float(np.max(np.abs(np.where(held, 0.0, slope)))),
        active_mask=np.where(held, -domain.sides(x), 0.0).astype(int),
        nfev=result.counts.value + 1,
        njev=result.counts.gradient + 1,
        nit=result.nit,
        status=status,
        message=result.message,
        success=result.success,
        certificate=result.certificate,
        result=result,
    )
