"""SciPy's Newton-CG."""

from benchmark_utils.peers import run_scipy
from benchmark_utils.sums import SigmoidSquares
from benchopt import BaseSolver


class Solver(BaseSolver):
    """`scipy.optimize.minimize(method="Newton-CG")`, with its tolerances as low as they go."""

    name = "Newton-CG"
    requirements = ["scipy"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, l2):
        """The sum and its derivatives."""
        self.problem = SigmoidSquares(X, y, l2)

    def run(self, callback):
        """One run."""
        options = {"maxiter": 10**6, "xtol": 1e-15}
        run_scipy(self, self.problem, callback, "Newton-CG", hessp=self.problem.hessian_product, options=options)

    def get_result(self):
        """The last point."""
        return {"x": self.x}
