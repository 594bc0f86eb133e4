"""`certify`: how good is a point, wherever it comes from?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tercet.critical.bounded import certify_in
from tercet.methods.binding import bind_within
from tercet.methods.minimize import (
    THIRD_ORDER_LIMIT,
    Tolerance,
    as_problem,
    check_budgets,
    check_choices,
    minimize,
    tolerances_of,
)
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import EvaluationError, Meter, Metered
from tercet.objectives.own import OwnObjective
from tercet.records import Certificate

STEPS = 3  # of `minimize`, in search of a way down


def certify(
    problem: Any,
    x: Any,
    *,
    tol: Tolerance = None,
    order: int | None = None,
    bounds: Any = None,
    seed: int = 0,
    args: Any = (),
    **derivatives: Callable[..., Any],
) -> Certificate:
    """The certificate of a point from anywhere: of SciPy, of EM, of a table in a paper.

        chi_1 = |grad f(x)|,  chi_2 = max(0, -lambda_min(hess f(x))),  chi_3 over the near-kernel,

    how many digits of x are right, and which of its combinations are not identified. `problem`, `tol`, `order`,
    `bounds`, `args` and the derivatives are those of `minimize`; an x_j is on a bound where it equals it. Where x is no
    minimizer, `way_down` is a step to a lower point, and `minimize(problem, x)` goes on from there. Nothing is known of
    how x was reached, so an x_j that is 0 is measured against what the others tell of the units.
    """
    check_budgets(tol=tol)
    check_choices(None, order, seed, None)
    bound, domain, outside = bind_within("certify", as_problem(problem, derivatives, args), x, bounds)
    if outside:
        raise ValueError(f"certify(x=...): x is outside its bounds; give a point inside.{outside}")
    meter = Meter(bound.objective.n)
    metered = Metered.of(bound.objective, meter)
    asked = order or (3 if bound.objective.d <= THIRD_ORDER_LIMIT else 2)
    tolerances = tolerances_of(tol, asked, metered.traits.epsilon)
    point = metered.over(None).at(bound.x0)
    try:
        if not np.isfinite(point.value()):
            raise NotFiniteError("value")
        found, _ = certify_in(domain, point, bound.objective.n, tolerances, metered.traits, int(seed))
    except NotFiniteError as error:
        raise ValueError(
            f"certify(x=...): the {error.order} of f is not finite at x, or a rounding error beside it; "
            "give a point inside its domain."
        ) from None
    except EvaluationError as error:
        cause = error.__cause__ or error
        cause.add_note("tercet: the objective raised this at x; give a point where it can be evaluated.")
        raise cause from None
    if found.holds or found.way_down is not None or found.ray is not None:
        return found
    asks: Any = {"tol": tol, "order": asked, "bounds": bounds, "seed": seed, "max_iterations": STEPS}
    ahead = minimize(OwnObjective(bound.objective), bound.x0, **asks)
    fall = point.value() - ahead.fun
    return replace(found, way_down=tuple((ahead.x - bound.x0).tolist()), fall=fall) if fall > 0.0 else found


def assert_minimizer(
    problem: Any,
    x: Any,
    *,
    alone: bool = False,
    digits: float = 0.0,
    tol: Tolerance = None,
    order: int | None = None,
    seed: int = 0,
    **derivatives: Callable[..., Any],
) -> Certificate:
    """For tests: AssertionError, with the certificate, where `certify` does not find x to be a minimizer.

    `alone` asks that no other minimizer is connected with it, `digits` how many digits of x have to be right. The other
    arguments are those of `certify`, whose certificate it returns.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    own: dict[str, Any] = dict(derivatives)
    found = certify(problem, x, tol=tol, order=order, seed=seed, **own)
    if not found.holds:
        raise AssertionError(f"x is not certified as a minimizer: {found}")
    if alone and not found.strict:
        raise AssertionError(f"x is not the only minimizer nearby: {found}")
    if digits and not found.digits >= digits:
        raise AssertionError(f"{digits:g} digits of x were asked, {found.digits:.1f} are right: {found}")
    return found
