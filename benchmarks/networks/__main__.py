"""Networks at equal processor seconds: ours beside SciPy, PyTorch, optimistix, nlls-gram and Adam.

    python -m benchmarks.networks                                  # all problems, two starts, 5, 10 and 20 s
    python -m benchmarks.networks poisson2 heat --seconds 10 --seeds 1 --who tercet,L-BFGS-B

The figure of a differential equation is the relative L2 error on points that no one was trained on, that of the
regression is the loss. All run in float64 on one thread, on the same compiled residual; compilation is not counted.
A contender whose package is not there is left out (`pip install nlls-gram`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

import jax  # noqa: E402 - after the threads are set
import numpy as np  # noqa: E402 - after the threads are set
import scipy  # noqa: E402 - after the threads are set

import tercet  # noqa: E402 - after the threads are set
from benchmarks.networks.contenders import CONTENDERS, Functions, compete  # noqa: E402 - after the threads are set
from benchmarks.networks.problems import PROBLEMS  # noqa: E402 - after the threads are set

PACKAGES = {"torch LBFGS": "torch", "optimistix LM": "optimistix", "optimistix BFGS": "optimistix",
            "nlls-gram": "nlls_gram"}  # fmt: skip


def main() -> None:
    """One line for each contender, start and problem, and the ratio to the best of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=[], help=", ".join(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--who", default=",".join(CONTENDERS))
    given = parser.parse_args()
    marks = (given.seconds / 4, given.seconds / 2, given.seconds)
    who = [w for w in given.who.split(",") if w not in PACKAGES or importlib.util.find_spec(PACKAGES[w])]
    print(
        f"tercet {tercet.__version__}, SciPy {scipy.__version__}, JAX {jax.__version__}; at {marks} processor seconds"
    )
    with jax.enable_x64(True):
        for name in given.problems or PROBLEMS:
            problem = PROBLEMS[name]()
            functions = Functions(problem)
            print(f"{problem.name}, {problem.d} parameters, {len(problem.data[0])} residuals", flush=True)
            for seed in range(given.seeds):
                last = {}
                for w in who:
                    kept = compete(w, functions, problem.start(seed), marks)
                    figures = [f if problem.error is None else problem.error(x) for f, x in kept]
                    last[w] = figures
                    cells = "".join(f"{figure:12.2e}" for figure in figures)
                    print(f"  start {seed}  {w:<16}{cells}   loss {kept[-1][0]:.2e}", flush=True)
                others = [last[w] for w in who if w != "tercet"]
                if "tercet" in last and others:
                    ratios = np.min(others, axis=0) / np.array(last["tercet"])
                    print(f"  start {seed}  best other / ours " + ", ".join(f"{r:.3g}" for r in ratios), flush=True)


if __name__ == "__main__":
    main()
