"""Tercet's tensor method and cubic regularization."""

import numpy as np
from benchopt import BaseSolver

import tercet


class Solver(BaseSolver):
    """`tercet.minimize` from 0, with the default size rule."""

    name = "tercet"
    requirements = ["pip::tercet"]
    parameters = {"method": ["stm", "scr"]}
    sampling_strategy = "callback"

    def set_objective(self, X, y, l2):
        """The linear model; X is checked and kept as it is."""
        self.problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=l2)
        self.start = np.zeros(X.shape[1])
        self.parts = {"stm": tercet.STM, "scr": tercet.SCR}[self.method]()

    def warm_up(self):
        """Numba compiles before the clock starts."""
        tercet.minimize(self.problem, self.start, max_iterations=3)

    def run(self, callback):
        """One run; benchopt's clock stands still in the callback."""
        self.x = self.start

        def see(info):
            self.x = info.x
            return not callback()

        if callback():
            result = tercet.minimize(
                self.problem, self.start, method=self.parts, tol=1e-12, order=1, callback=see, seed=self.get_seed()
            )
            self.x = result.x

    def get_result(self):
        """The last point."""
        return {"x": self.x}
