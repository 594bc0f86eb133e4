"""Digits, ten classes: multinomial logistic regression against every solver of scikit-learn that minimizes it.

    python -m benchmarks.classes

Processor seconds, best of three in turn, until f is within 1e-8 of its minimum. scikit-learn's solvers are given the
loosest of their tolerances 1e-2, 1e-3, ... that reaches it. Of tercet two numbers: until the gap is reached, and the
whole call, which ends later (half of the digits of x) and certifies the point. One thread: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from time import process_time

import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss

import tercet

GAP = 1e-8
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "sag")
METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "STM, Krylov": tercet.STM(subsolver=tercet.Krylov()),
    "SCR, Krylov": tercet.SCR(subsolver=tercet.Krylov()),
}


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = process_time()
    made = work()
    return process_time() - start, made


def to_the_gap(model: tercet.ClassModel, method: object, lowest: float) -> tuple[float, float]:
    """Processor seconds until the gap is reached, and of the whole call."""
    start, reached = process_time(), []
    result = tercet.minimize(
        model,
        method=method,
        callback=lambda info: reached.append(process_time() - start) if info.fun - lowest <= GAP else None,
    )
    whole = process_time() - start
    assert result.success
    assert result.fun - lowest <= GAP
    return (reached or [whole])[0], whole


def loosest(
    solver: str, X: np.ndarray, y: np.ndarray, l2: float, model: tercet.ClassModel, lowest: float
) -> float | None:
    """The loosest tolerance with which a solver reaches the gap; None where none of those tried does."""
    for tol in 10.0 ** -np.arange(2, 11):
        fitted = estimator(solver, tol, len(y), l2).fit(X, y)
        if value(model, fitted) - lowest <= GAP:
            return float(tol)
    return None


def estimator(solver: str, tol: float, n: int, l2: float) -> LogisticRegression:
    return LogisticRegression(C=1 / (n * l2), tol=tol, solver=solver, max_iter=300 if solver == "sag" else 5000)


def value(model: tercet.ClassModel, fitted: LogisticRegression) -> float:
    U = model.Q.T @ np.column_stack([fitted.coef_, fitted.intercept_])
    return float(model.over(None).at(U.ravel()).value())


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"digits, {X.shape[0]} x {X.shape[1]}, 10 classes; scikit-learn {sklearn.__version__}, threads: {threads}")
    for l2 in (1e-2, 1e-3, 1e-4):
        model = tercet.ClassModel(X, y, l2=l2, intercept=True)
        best = tercet.minimize(model)
        tolerances = {solver: loosest(solver, X, y, l2, model, best.fun) for solver in SOLVERS}
        ours: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
        theirs: dict[str, list[float]] = {solver: [] for solver, tol in tolerances.items() if tol is not None}
        for _ in range(3):
            for name, method in METHODS.items():
                ours[name].append(to_the_gap(model, method, best.fun))
            for solver in theirs:
                fresh = estimator(solver, tolerances[solver], len(y), l2)
                theirs[solver].append(timed(lambda fresh=fresh: fresh.fit(X, y))[0])
        report(l2, X, y, model, best, ours, theirs)


def report(l2, X, y, model, best, ours, theirs) -> None:
    peer = estimator("newton-cg", 1e-10, len(y), l2).fit(X, y)
    p, q = model.probabilities(X, best.x), peer.predict_proba(X)
    losses, hits = [log_loss(y, each) for each in (p, q)], [accuracy_score(y, each.argmax(axis=1)) for each in (p, q)]
    print(f"l2 = {l2:g}: log-loss {losses[0]:.8f} and theirs {losses[1]:.8f}, accuracy {hits[0]:.4f} and {hits[1]:.4f}")
    fastest = min(min(times) for times in theirs.values())
    for solver, times in theirs.items():
        print(f"  sklearn {solver:<16} {min(times):7.3f} s")
    for name, times in ours.items():
        gap, whole = min(t[0] for t in times), min(t[1] for t in times)
        print(
            f"  tercet  {name:<16} {gap:7.3f} s to the gap ({gap / fastest:.2f} of their best), {whole:.3f} s certified"
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
