"""Raw numbers as JSON files, one per case, with the versions and threads they were measured with."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numba
import numpy as np
import scipy
import sklearn
import threadpoolctl

import tercet
from benchmarks.speed import THREAD_SETTINGS

FOLDER = Path(__file__).resolve().parents[1] / "results"


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


@cache
def revision() -> str:
    """The commit that was measured, with a + where files differ from it; asked before results are written."""
    root = Path(__file__).resolve().parents[2]
    try:
        text = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=root, check=True,
                              capture_output=True, text=True).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return text.strip()


def environment() -> dict[str, Any]:
    """Versions, threads and machine."""
    modules = {"tercet": tercet, "NumPy": np, "SciPy": scipy, "Numba": numba, "scikit-learn": sklearn, "JAX": jax}
    pools = [f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpoolctl.threadpool_info()]
    return {
        "versions": {"Python": platform.python_version(), **{name: m.__version__ for name, m in modules.items()}},
        "threads": {"pools": sorted(set(pools)), **{name: os.environ.get(name, "") for name in THREAD_SETTINGS}},
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
        "commit": revision(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def plain(value: Any) -> Any:
    """What JSON can hold: NumPy numbers as Python's, None for nan and infinity."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(result: dict[str, Any], quick: bool, folder: Path = FOLDER) -> Path:
    """Keep the result of a case; a quick one never replaces a full one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['case']}{'.quick' if quick else ''}.json"
    whole = {**plain(result), "quick": quick, "environment": environment()}
    path.write_text(laid_out(whole))
    return path


def laid_out(whole: dict[str, Any]) -> str:
    """JSON with one line for each key and for each run, so that files stay small and differences readable."""
    lines = []
    for key, value in whole.items():
        long = isinstance(value, list) and value and isinstance(value[0], dict)
        text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]" if long else json.dumps(value)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(quick: bool, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The results that are there, by case."""
    files = sorted(path for path in folder.glob("*.json") if path.name.endswith(".quick.json") == quick)
    results = [json.loads(path.read_text()) for path in files]
    return {result["case"]: result for result in results}
