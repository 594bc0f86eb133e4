"""SciPy's L-BFGS."""

from benchmark_utils.peers import run_scipy
from benchmark_utils.sums import SigmoidSquares
from benchopt import BaseSolver


class Solver(BaseSolver):
    """`scipy.optimize.minimize(method="L-BFGS-B")`, with its tolerances as low as they go."""

    name = "L-BFGS"
    requirements = ["scipy"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, l2):
        """The sum and its derivatives."""
        self.problem = SigmoidSquares(X, y, l2)

    def run(self, callback):
        """One run."""
        options = {"maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0}
        run_scipy(self, self.problem, callback, "L-BFGS-B", options=options)

    def get_result(self):
        """The last point."""
        return {"x": self.x}
