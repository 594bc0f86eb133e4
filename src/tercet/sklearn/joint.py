"""Classifiers of all classes at once: `RobustClassifier(multi_class="multinomial")`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.methods.inferring import infer
from tercet.methods.minimize import minimize
from tercet.objectives.class_model import ClassModel
from tercet.records import Matrix, Vector
from tercet.result import Result

LOSS = {"logistic": "softmax", "sigmoid_squares": "brier"}  # of two classes, and its counterpart of many


def joint_model(estimator: Any, X: Any, y: NDArray[Any], w: Vector | None) -> ClassModel:
    """The objective of all classes."""
    intercept = estimator.fit_intercept
    return ClassModel(X, y, LOSS[estimator.loss], l2=estimator.l2, weights=w, intercept=intercept)


def solve_joint(estimator: Any, problem: ClassModel, past: Matrix | None, seed: int) -> Result:
    """`minimize` with an estimator's settings, from the last coefficients of all classes; it keeps no data."""
    found = minimize(
        problem,
        None if past is None else problem.Q.T @ past,
        method=estimator.method,
        tol=estimator.tol,
        order=estimator.order,
        seed=seed,
        max_iterations=estimator.max_iter,
        max_seconds=estimator.max_seconds,
    )
    return replace(found, infers=None)


def joint_errors(problem: ClassModel, result: Result) -> Matrix:
    """Standard errors of the coefficients of each class by the sandwich: those of Q U from those of U."""
    if not result.success:
        raise ValueError(f"standard_errors: the fit ended with status {result.status.name}; they need a certified one.")
    told = infer(problem, result, "sandwich")
    J = np.kron(problem.Q, np.eye(problem.A.shape[1]))
    return np.sqrt(np.maximum(np.diag(told.spread.along(J)), 0.0)).reshape(len(problem.classes), -1)
