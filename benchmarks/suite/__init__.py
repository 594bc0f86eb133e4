"""The suite: many problems that nobody tuned on, our methods and their peers, counts and processor time to a gap.

    python -m benchmarks.suite [--quick] [--only PATTERN] [--split seen] [--contenders STM,plain] [--jobs 2]
    python -m benchmarks.suite compare OLD.json NEW.json
    python -m benchmarks.suite render RUNS.json

`cases` says what a case is and lists them (`linear`, `functions`); `plain` is a textbook method to compare with;
`contenders` run one case and leave a path; `measure` reads from the path when a gap was reached; `run` does so for all;
`figures`, `profiles`, `report` and `compare` read the stored runs.

The gap of x is (f(x) - f*) / (f(o) - f*), where o is 0 for a linear model and the start for a function: it does not
change with the units of f or of the columns, nor, for a linear model, with the start. f* is the lowest value that
anybody reached in long runs, or the known minimum.

Generated cases are split by a digest of their name: `seen` ones may be looked at one by one, `held` ones appear in
sums only.
"""

import os
import sys
from pathlib import Path

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

# JAX functions are compiled once for all runs of the suite; what is measured never includes compiling.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tercet-suite"
COMPILED = {
    "JAX_COMPILATION_CACHE_DIR": str(CACHE / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}

if "numpy" not in sys.modules:  # later it has no effect
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, "1"))
    os.environ.update({name: os.environ.get(name, value) for name, value in COMPILED.items()})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
