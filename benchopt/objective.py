"""The objective: squares of sigmoids, a smooth and non-convex loss for classes 0 and 1."""

import numpy as np
from benchmark_utils.sums import SigmoidSquares
from benchopt import BaseObjective
from benchopt.stopping_criterion import SufficientProgressCriterion


class Objective(BaseObjective):
    """(1/n) sum 1/2 (p_i - y_i)^2 + l2/2 |x|^2."""

    name = "Sigmoid squares"
    min_benchopt_version = "1.7"
    requirements = ["numpy", "scipy"]
    parameters = {"l2": [1e-3, 1e-6]}
    sampling_strategy = "callback"
    stopping_criterion = SufficientProgressCriterion(eps=1e-13, patience=10, strategy="callback")

    def set_data(self, X, y):
        """Keep the data."""
        self.sums = SigmoidSquares(X, y, self.l2)

    def skip(self, X, y):
        """Other labels than 0 and 1 are not for this loss."""
        other = np.setdiff1d(y, (0.0, 1.0))
        return (True, f"labels {other[:3].tolist()} are not 0 and 1") if other.size else (False, None)

    def evaluate_result(self, x):
        """The value, and how large the gradient is."""
        return {"value": self.sums.value(x), "gradient": float(np.linalg.norm(self.sums.gradient(x)))}

    def get_one_result(self):
        """A point for benchopt's own tests."""
        return {"x": np.zeros(self.sums.d)}

    def get_objective(self):
        """What a solver is given."""
        return {"X": self.sums.X, "y": self.sums.y, "l2": self.l2}
