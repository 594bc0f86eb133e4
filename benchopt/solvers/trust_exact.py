"""SciPy's trust-exact."""

from benchmark_utils.peers import run_scipy
from benchmark_utils.sums import SigmoidSquares
from benchopt import BaseSolver


class Solver(BaseSolver):
    """`scipy.optimize.minimize(method="trust-exact")`, with its tolerances as low as they go."""

    name = "trust-exact"
    requirements = ["scipy"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, l2):
        """The sum and its derivatives."""
        self.problem = SigmoidSquares(X, y, l2)

    def run(self, callback):
        """One run."""
        options = {"maxiter": 10**6, "gtol": 1e-15}
        run_scipy(self, self.problem, callback, "trust-exact", hess=self.problem.hessian, options=options)

    def get_result(self):
        """The last point."""
        return {"x": self.x}
