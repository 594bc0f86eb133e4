"""Peak memory beyond the data, each run in a fresh process that has everything loaded and compiled before.

python -m benchmarks.speed.memory FOLDER METHOD ORACLE        (what `run_memory` starts)
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet
from benchmarks.speed.cases import FULL, QUICK, Data, penalty, start_at, subset_of
from benchmarks.speed.contenders import Task, run_ours, run_scipy
from benchmarks.speed.measure import data_bytes, model, prepared
from benchmarks.speed.oracles import PlainModel
from benchmarks.speed.progress import Progress

WHO = (
    ("STM", "tercet"),
    ("SCR", "tercet"),
    ("L-BFGS-B", "tercet"),
    ("L-BFGS-B", "scipy"),
    ("trust-exact", "tercet"),
    ("trust-exact", "scipy"),
)
CASES, QUICK_CASES, L2, SECONDS = ("a9a", "covtype", "dense"), ("a9a", "covtype"), "1e-6", 10.0


def run_memory(quick: bool, progress: Progress) -> dict[str, Any]:
    """Peak extra bytes of every method on every case, one process each."""
    progress.begin("memory")
    begin, runs = time.perf_counter(), []
    cases = {case.name: case for case in (QUICK if quick else FULL)}
    for name in QUICK_CASES if quick else CASES:
        data = prepared(cases[name].make())
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder), data)
            for method, oracle in WHO[:2] if quick else WHO:
                progress.show(f"{name}  {method} ({oracle})")
                measured = in_fresh_process(folder, method, oracle)
                about = {"data": name, "n": data[0].shape[0], "d": data[0].shape[1], "data_bytes": data_bytes(*data)}
                runs.append({**about, "method": method, "oracle": oracle, **measured})
    return {
        "case": "memory",
        "title": "peak memory beyond the data",
        "l2": L2,
        "runs": runs,
        "seconds": time.perf_counter() - begin,
    }


def in_fresh_process(folder: str, method: str, oracle: str) -> dict[str, Any]:
    """What the child prints."""
    command = [sys.executable, "-m", "benchmarks.speed.memory", folder, method, oracle]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def save(folder: Path, data: Data) -> None:
    """The arrays as files that are read back without any memory beside them."""
    X, y = data
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr} if sp.issparse(X) else {"X": X}
    for name, array in {**parts, "y": y, "shape": np.array(X.shape)}.items():
        np.save(folder / f"{name}.npy", array)


def restore(folder: Path) -> Data:
    """The data that `save` wrote."""
    parts = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    if "X" in parts:
        return parts["X"], parts["y"]
    X = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    X.has_canonical_format = True
    return X, parts["y"]


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def solve(data: Data, method: str, oracle: str, seconds: float) -> None:
    """Make the problem and run the method, as a user would."""
    X, y = data
    l2, x0 = penalty(L2, len(y)), start_at("normal", X.shape[1], 0)
    if oracle == "scipy":
        problem, plain = None, PlainModel(X, y, l2)
    else:
        problem, plain, _ = model(data, l2, "sigmoid_squares")
    own = {"STM": tercet.STM, "SCR": tercet.SCR}
    run = run_ours(own[method]()) if method in own else run_scipy(method, oracle == "tercet")
    run(Task(problem, plain, x0, 0, -np.inf, seconds))


def child(folder: str, method: str, oracle: str) -> None:
    """Read, warm up on a few rows, and print the peak beyond what was resident before the problem was made."""
    data = restore(Path(folder))
    solve(subset_of(data, 15_000), method, oracle, 2.0)  # enough rows for samples and compiled formulas
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what the run takes
    before = resident("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    except OSError:
        print(json.dumps({"extra_bytes": None, "note": "the peak cannot be set back here"}))
        return
    solve(data, method, oracle, SECONDS)
    print(json.dumps({"extra_bytes": resident("VmHWM") - before, "resident_before": before}))


if __name__ == "__main__":
    child(*sys.argv[1:])
