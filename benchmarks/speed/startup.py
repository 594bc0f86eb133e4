"""The first call: `import tercet` and `tercet fit` on a9a, in fresh processes, with and without compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.data import FILES, folder
from benchmarks.speed.progress import Progress


def seconds_of(arguments: list[str], cache: str | None = None) -> float:
    """Wall-clock seconds of a Python process; its kernels are kept in `cache`."""
    environment = {**os.environ, **({} if cache is None else {"NUMBA_CACHE_DIR": cache})}
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: the certificate does not hold, which is no matter of speed
        raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr[-500:]}")
    return time.perf_counter() - begin


def run_startup(quick: bool, progress: Progress, file: Path | None = None) -> dict[str, Any]:
    """Repeated timings, oldest first: bare Python, NumPy and SciPy, the import, the first and the later fits."""
    progress.begin("startup")
    begin, times = time.perf_counter(), 3 if quick else 7
    path = file or folder() / FILES["a9a"][0]
    imports = {
        "python": ["-c", "pass"],
        "import numpy, scipy.sparse": ["-c", "import numpy, scipy.sparse"],
        "import tercet": ["-c", "import tercet"],
    }
    measured: dict[str, list[float]] = {}
    for name, arguments in imports.items():
        progress.show(name)
        seconds_of(arguments)  # so that files are read from memory by all of them
        measured[name] = [seconds_of(arguments) for _ in range(times)]
    fit = ["-m", "tercet.cli", "fit", str(path), "--loss", "sigmoid_squares", "--l2", "1e-3"]
    measured["fit, cold"], measured["fit, warm"] = [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as cache:
            progress.show("tercet fit")
            measured["fit, cold"].append(seconds_of(fit, cache))
            measured["fit, warm"] += [seconds_of(fit, cache) for _ in range(2)]
    return {
        "case": "startup",
        "title": "import tercet, and tercet fit a9a --l2 1e-3 in a fresh process",
        "measured": measured,
        "seconds": time.perf_counter() - begin,
    }
