"""NIST StRD nonlinear regression: `Residuals`, `curve_fit`, MINPACK and trf with the same compiled functions.

    python -m benchmarks.nist            # all 27 problems from both starts
    python -m benchmarks.nist MGH10      # some of them

Digits are those of the worst parameter (11 are certified); a false success is one that is claimed with fewer than 6.
Evaluations are those of all residuals and of all Jacobians. Processor seconds are of a second run: nothing is compiled.
MINPACK and trf are asked for all digits (ftol = xtol = 1e-15, gtol = 0 or 3e-16) and, beside that, by their defaults.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import scipy.optimize

import tercet
from benchmarks.nist_models import Regression, problems

FINE = tercet.Tolerances(relative=1e-10)


@dataclass(frozen=True)
class Outcome:
    """One run."""

    digits: float
    success: bool
    values: int
    jacobians: int
    seconds: float
    errors: float  # right digits of the worst standard error; nan where it gives none

    @property
    def evaluations(self) -> int:
        """Of residuals and Jacobians."""
        return self.values + self.jacobians


def agreement(found: np.ndarray, certified: np.ndarray) -> float:
    """Right digits of the worst entry, at most 11."""
    with np.errstate(all="ignore"):
        worst = np.max(np.abs(found / certified - 1))
    return float(np.clip(-np.log10(worst), 0.0, 11.0)) if np.isfinite(worst) else 0.0


def difference(p: Regression) -> Callable[..., Any]:
    """The residual of one example."""
    model = p.model
    return lambda b, x, y: model(b, x) - y


def positional(p: Regression) -> Callable[..., Any]:
    """The model as `curve_fit` takes it."""
    import jax.numpy as jnp

    model = p.model
    return lambda x, *b: model(jnp.stack(b), x)


def ours(p: Regression) -> Callable[[np.ndarray], Outcome]:
    """`minimize` on `Residuals`."""
    problem, n = tercet.Residuals(difference(p), (p.x, p.y)), len(p.y)

    def run(start: np.ndarray) -> Outcome:
        r = tercet.minimize(problem, start, tol=FINE)
        return Outcome(p.digits(r.x), r.success, r.counts.value // n, r.counts.gradient // n, 0.0, np.nan)

    return run


def fitted(p: Regression) -> Callable[[np.ndarray], Outcome]:
    """`curve_fit`."""
    f = positional(p)

    def run(start: np.ndarray) -> Outcome:
        fit = tercet.curve_fit(f, p.x, p.y, start)
        counts, off = fit.result.counts, agreement(fit.errors, p.deviations)
        return Outcome(p.digits(fit.popt), fit.success, counts.value, counts.gradient, 0.0, off)

    return run


def minpack(p: Regression, tight: bool) -> Callable[[np.ndarray], Outcome]:
    """SciPy's leastsq with the exact Jacobian."""
    r, J = p.compiled()
    options = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 0.0, "maxfev": 5000} if tight else {}

    def run(start: np.ndarray) -> Outcome:
        x, _, info, _, status = scipy.optimize.leastsq(r, start, Dfun=J, full_output=True, **options)
        return Outcome(p.digits(x), status in (1, 2, 3, 4), info["nfev"], info["njev"], 0.0, np.nan)

    return run


def trf(p: Regression, tight: bool) -> Callable[[np.ndarray], Outcome]:
    """SciPy's least_squares, scaled by the columns of J."""
    r, J = p.compiled()
    tol = 3e-16 if tight else 1e-8

    def run(start: np.ndarray) -> Outcome:
        o = scipy.optimize.least_squares(
            r, start, jac=J, method="trf", x_scale="jac", ftol=tol, xtol=tol, gtol=tol, max_nfev=5000
        )
        return Outcome(p.digits(o.x), o.success, o.nfev, o.njev, 0.0, np.nan)

    return run


CONTENDERS: dict[str, Callable[[Regression], Callable[[np.ndarray], Outcome]]] = {
    "Residuals": ours,
    "curve_fit": fitted,
    "MINPACK": lambda p: minpack(p, True),
    "trf": lambda p: trf(p, True),
    "MINPACK, defaults": lambda p: minpack(p, False),
    "trf, defaults": lambda p: trf(p, False),
}


def measure(run: Callable[[np.ndarray], Outcome], start: np.ndarray) -> Outcome:
    """The outcome, with the processor seconds of another run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(np.array(start))
        begun = time.process_time()
        outcome = run(np.array(start))
        spent = time.process_time() - begun
    return Outcome(**{**outcome.__dict__, "seconds": spent})


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))


def main(names: list[str]) -> None:
    """Every contender on every problem, and the sums."""
    found: dict[str, list[Outcome]] = {name: [] for name in CONTENDERS}
    for p in problems():
        if names and p.name not in names:
            continue
        runs = {name: make(p) for name, make in CONTENDERS.items()}
        for k, start in enumerate(p.starts):
            cells = []
            for name, run in runs.items():
                outcome = measure(run, start)
                found[name].append(outcome)
                wrong = "!" if outcome.success and outcome.digits < 6 else "" if outcome.success else "-"
                cells.append(f"{outcome.digits:5.1f}{wrong:1} {outcome.values:4}+{outcome.jacobians:<4}")
            print(f"{p.name:9}{k + 1} " + " | ".join(cells), flush=True)
    print(
        f"\nSciPy {scipy.__version__}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads, {len(found['MINPACK'])} runs"
    )
    for name, outcomes in found.items():
        six, nine = (sum(o.digits >= least for o in outcomes) for least in (6, 9))
        false = sum(o.success and o.digits < 6 for o in outcomes)
        claimed = sum(o.success for o in outcomes)
        effort = mean([o.evaluations / q.evaluations for o, q in zip(outcomes, found["MINPACK"], strict=True)])
        pace = mean([o.seconds / q.seconds for o, q in zip(outcomes, found["trf"], strict=True)])
        worst = min(o.errors for o in outcomes)
        print(
            f"{name:18} >= 6 digits {six:2}, >= 9 {nine:2}, success {claimed:2}, false {false:2}; "
            f"evaluations / MINPACK's {effort:.2f}; seconds {sum(o.seconds for o in outcomes):.2f}, / trf's {pace:.2f}"
            + ("" if np.isnan(worst) else f"; standard errors to {worst:.1f} digits at worst")
        )


if __name__ == "__main__":
    main(sys.argv[1:])
