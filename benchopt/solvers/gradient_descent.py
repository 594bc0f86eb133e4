"""Gradient descent with a fixed step."""

import numpy as np
from benchmark_utils.sums import SigmoidSquares
from benchopt import BaseSolver


class Solver(BaseSolver):
    """x <- x - grad f(x) / L, where L bounds the Hessian."""

    name = "gradient-descent"
    requirements = ["scipy"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, l2):
        """The sum and its bound."""
        self.problem = SigmoidSquares(X, y, l2)
        self.step = 1.0 / self.problem.lipschitz()

    def run(self, callback):
        """Until the callback has enough."""
        self.x = np.zeros(self.problem.d)
        while callback():
            self.x = self.x - self.step * self.problem.gradient(self.x)

    def get_result(self):
        """The last point."""
        return {"x": self.x}
