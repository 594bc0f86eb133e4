"""The speed benchmark: ours and the peers in one process, on one thread, on the same data and derivative code.

    python -m benchmarks.speed [--quick] [--cases a9a,covtype] [--render]

`cases` has the data, `oracles` the derivative code (ours and plain SciPy's), `contenders` the methods, `paths` finds
when a run crossed a gap, `measure` runs everything on a case, `sums` (JAX), `scaling`, `memory` and `startup` are the
cases of another kind, `store` keeps the raw numbers, `figures` and `table` read them.
"""

import os
import sys

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

if "numpy" not in sys.modules:  # later it has no effect; `store.environment` writes down what holds in the end
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, "1"))
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
