"""`infer`: from a minimizer to its covariance, by curvature, by the spread of the terms, or by resampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tercet.checks import flag, whole
from tercet.inference.estimates import Inference
from tercet.inference.likelihood import Likelihood, likelihood_of
from tercet.inference.resample import bootstrap
from tercet.inference.spread import Spread, free_of, hessian_of, inverted, reasons, spread_of, with_held
from tercet.methods.certifying import certify
from tercet.methods.minimize import as_problem, minimize
from tercet.methods.stm import STM
from tercet.objectives.base import Bound, traits_of
from tercet.objectives.capabilities import result_of
from tercet.objectives.own import OwnObjective
from tercet.objectives.structure import places
from tercet.objectives.transformed import Transformed
from tercet.objectives.transforms import Elementwise
from tercet.records import Certificate, Vector
from tercet.result import Result
from tercet.sampling import Full

KINDS = ("hessian", "sandwich", "bootstrap")
MOST = 3000  # coordinates, for which a Hessian is formed
STEPS = 200  # of the fit of one resample
SAME = 1e4  # f at x may differ from what the result says by this many units of rounding


def infer(
    problem: Any,
    result: Any,
    kind: str | None = None,
    *,
    names: Sequence[str] | None = None,
    draws: int = 200,
    seed: int = 0,
    force: bool = False,
    bounds: Any = None,
    **derivatives: Callable[..., Any],
) -> Inference:
    """The covariance of an estimate, its standard errors, intervals and table.

    `result` is what `minimize` gave for this problem, or a point from elsewhere, which is certified first. The terms of
    the problem are the observations, taken as independent, each the negative log-likelihood of one of them; a plain
    function is that of all of them. With H = hess f(x) and S the covariance of the terms' gradients `kind` is

        "hessian"    phi H^-1 / n, the inverse of the observed information; phi is 1, for squares and gamma estimated
        "sandwich"   H^-1 S H^-1 / n, which does not need the model to be true, only the rows to be independent
        "bootstrap"  the covariance of estimates from `draws` resamples of the rows

    By default the first for likelihoods, the second for losses that are none. A penalty is part of H; the covariance is
    then that about the minimizer of the expected objective. Weights say how much a row counts, not how often it came.

    What is not identified, or on one of the `bounds` of the run, is nan, and `Inference.why` says why; the others vary
    as if those on a bound were known. A point that is not certified is refused, and so is the inverse information of
    what is no likelihood; `force=True` insists.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"infer(kind={kind!r}): choose one of {', '.join(KINDS)}.")
    draws, seed = whole("infer", "draws", draws, 2), whole("infer", "seed", seed, 0)
    flag("infer", "force", force)
    is_result, phi, own = isinstance(result, Result), None, dict[str, Any](derivatives)
    certificate = result.certificate if is_result else certify(problem, result, bounds=bounds, **own)
    if isinstance(problem, Transformed):  # at a minimum inside, the derivatives in x are what counts
        phi = problem.maps(problem.problem.bind(result.x if is_result else result))
        problem = problem.problem
    bound = as_problem(problem, derivatives).bind(result.x if is_result else result)
    if bound.objective.d > MOST:
        raise ValueError(f"infer: {bound.objective.d} coordinates are too many to form the Hessian; at most {MOST}.")
    if is_result:
        check_same(bound, result)
    check_certified(certificate, force)
    likelihood = likelihood_of(bound.objective, bound.x0)
    chosen = check_kind(kind, bound.objective.n, likelihood, force)
    x = result.x if is_result else bound.restore(bound.x0.copy())
    told = tuple(check_names(names, problem, bound))
    task = Task(bound, x, certificate, likelihood or Likelihood(), told, phi, bounds)
    return task.by_resampling(draws, seed) if chosen == "bootstrap" else task.by_formula(chosen)


@dataclass(frozen=True, eq=False)
class Task:
    """A point whose covariance is asked for."""

    bound: Bound
    x: Any
    certificate: Certificate
    likelihood: Likelihood
    names: tuple[str, ...]
    phi: Elementwise | None = None  # of parameters that were transformed
    bounds: Any = None  # of the run

    @property
    def epsilon(self) -> float:
        """The precision of f."""
        return traits_of(self.bound.objective).epsilon

    def by_formula(self, kind: str) -> Inference:
        """The inverse Hessian, or the sandwich."""
        objective, x = self.bound.objective, self.bound.x0
        phi = self.likelihood.phi if kind == "hessian" else None
        return self.told(kind, spread_of(objective, x, phi, self.certificate, self.names, self.epsilon))

    def by_resampling(self, draws: int, seed: int) -> Inference:
        """The covariance of the estimates from resampled rows."""
        if self.bounds is None and (self.certificate.active or self.certificate.weak):
            raise ValueError(
                "infer(kind='bootstrap'): the estimate is on bounds; give them, bounds=..., for the resamples."
            )
        objective, x = self.bound.objective, self.bound.x0
        free = free_of(self.certificate, len(x))
        some, names = np.ix_(free, free), [self.names[j] for j in free]
        inverse = inverted(hessian_of(objective, x)[some], self.epsilon)
        estimates, failed = bootstrap(objective, x, partial(refit, self.phi, self.bounds), draws, seed)
        spread = Spread(
            np.atleast_2d(np.cov(estimates.T))[some], inverse.others, reasons(inverse, self.certificate, names)
        )
        notes = (f"{failed} of {draws} resamples had no certified minimizer and are left out.",) if failed else ()
        told = self.told("bootstrap", with_held(spread, free, len(x)))
        return replace(told, draws=estimates, notes=(*notes, *told.notes))

    def told(self, kind: str, spread: Spread) -> Inference:
        """With the head and the notes of the table."""
        penalty = ("The objective is penalized: these are errors about the penalized minimizer.",)
        notes = penalty if self.likelihood.penalized else ()
        told = Inference(self.x, self.bound.x0, self.names, kind, spread, self.bound.restore, self.facts(kind), notes)
        return replace(told, phi=self.phi, phi_factor=self.likelihood.phi)

    def facts(self, kind: str) -> tuple[tuple[str, str], ...]:
        """The head of the table."""
        n, d, own = self.bound.objective.n, self.bound.objective.d, self.likelihood
        value = float(result_of(self.bound.objective.over(None).at(self.bound.x0).value()))
        facts = [*([("loss", own.name)] if own.name else []), ("observations", f"{n}"), ("f", f"{value:.10g}")]
        if own.log is not None:
            facts.append(("log-likelihood", f"{own.log:.6f}"))
            if not own.penalized:
                facts.append(("AIC, BIC", f"{2 * d - 2 * own.log:.4f}, {d * np.log(n) - 2 * own.log:.4f}"))
        if own.estimated:
            facts.append(("phi", f"{own.phi:.6g} (estimated)"))
        return (*facts, ("covariance", kind), ("certificate", self.certificate.verdict))


def refit(phi: Elementwise | None, bounds: Any, objective: Any, x: Vector) -> Vector | None:
    """The certified minimizer of a resample that is found from x, or None."""
    problem: Any = OwnObjective(objective)
    if phi is not None:
        problem = Transformed(problem, phi.transforms)
    found = minimize(problem, x, method=STM(sizes=Full()), bounds=bounds, max_iterations=STEPS)
    return np.asarray(found.x) if found.success else None


def check_same(bound: Bound, result: Result) -> None:
    """ValueError where the result is not of this problem."""
    value = float(result_of(bound.objective.over(None).at(bound.x0).value()))
    rounding = max(traits_of(bound.objective).epsilon, np.finfo(float).eps) * max(abs(value), abs(result.fun))
    if not abs(value - result.fun) <= SAME * rounding + np.finfo(float).tiny:
        raise ValueError(
            f"infer(problem=..., result=...): f is {value:.9g} at the point of the result, which says "
            f"{result.fun:.9g}; give the problem of that run."
        )


def check_certified(certificate: Certificate, force: bool) -> None:
    """ValueError where the point is not known to be a minimizer."""
    if not certificate.holds and not force:
        raise ValueError(
            f"infer: the point is {certificate.verdict}; standard errors belong to a minimizer. Minimize on from "
            "there, or insist with force=True."
        )


def check_kind(kind: str | None, n: int, likelihood: Likelihood | None, force: bool) -> str:
    """The kind of covariance, where it makes sense."""
    if kind is None:
        return "sandwich" if likelihood is None and n > 1 else "hessian"
    if kind == "hessian" and likelihood is None and not force:
        raise ValueError(
            "infer(kind='hessian'): this loss is no likelihood, and the inverse of its Hessian no covariance; take "
            "'sandwich' or 'bootstrap', or insist with force=True."
        )
    if kind != "hessian" and n < 2:
        raise ValueError(
            f"infer(kind={kind!r}): the problem is one term, which has no rows that vary; give it as a sum "
            "(LinearModel, FiniteSum), or take 'hessian'."
        )
    return kind


def check_names(names: Sequence[str] | None, problem: Any, bound: Bound) -> list[str]:
    """One name for each coordinate: as given, those of the problem, or by its place in the structure of x."""
    d = bound.objective.d
    if names is not None:
        if len(names) != d:
            raise ValueError(f"infer(names=...): {len(names)} names for {d} coordinates.")
        return [str(name) for name in names]
    own = getattr(problem, "names", None)
    if own is not None and len(own) == d:
        return [str(name) for name in own]
    return places(bound.restore, d)
