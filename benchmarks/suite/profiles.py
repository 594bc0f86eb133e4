"""Performance profiles of Dolan and More: for how many cases is a method within a factor of the best?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.cases import FUNCTIONS, LINEAR
from benchmarks.suite.contenders import OURS, SCIPY
from benchmarks.suite.figures import taken

MOST = 32.0  # the factor at which pictures end
PICTURES = {  # name: groups, quantity, title
    "linear-seconds": (LINEAR, "seconds", "linear models: processor seconds to 1e-8"),
    "linear-epochs": (LINEAR, "epochs", "linear models: epochs to 1e-8"),
    "functions-evaluations": (FUNCTIONS, "value", "functions: function evaluations to 1e-8"),
}


def unless_nan(costs: np.ndarray) -> np.ndarray:
    """Infinite where nothing was run."""
    return np.where(np.isnan(costs), np.inf, costs)


def factors(costs: Mapping[str, Iterable[float]]) -> dict[str, np.ndarray]:
    """Each method's cost over the best of all on the same case; infinite where it failed.

    Cases that no method solves say nothing and are left out; nan (not run) counts as not solved.
    """
    table = np.array([unless_nan(np.asarray(list(c), dtype=float)) for c in costs.values()])
    table = table.reshape(len(table), -1)
    best = np.min(table, axis=0)
    some = np.isfinite(best)
    return {name: row[some] / best[some] for name, row in zip(costs, table, strict=True)}


def profile(found: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """rho(tau): the share of cases in which the factor is at most tau."""
    return np.array([np.mean(found <= tau) if len(found) else np.nan for tau in taus])


def costs_of(results: Iterable[dict[str, Any]], quantity: str) -> dict[str, list[float]]:
    """By contender; `SciPy's best` is the lowest of SciPy's methods."""
    cases = list(results)
    names = [name for name in (*OURS, "plain", "L-BFGS-B", "trust-exact") if any(name in r["runs"] for r in cases)]
    costs = {name: [taken(r, name, quantity) for r in cases] for name in names}
    peers = [name for name in SCIPY if any(name in r["runs"] for r in cases)]
    if peers:
        table = np.array([[taken(r, name, quantity) for name in peers] for r in cases])
        costs["SciPy's best"] = list(np.min(unless_nan(table), axis=1))
    return costs


def draw(results: Iterable[dict[str, Any]], stem: Path) -> list[Path]:
    """The pictures, named after the file of the runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases, written = list(results), []
    for name, (groups, quantity, title) in PICTURES.items():
        some = [r for r in cases if r["group"] in groups]
        if not some:
            continue
        taus = np.geomspace(1.0, MOST, 400)
        figure, axes = plt.subplots(figsize=(6.4, 4.2))
        for label, found in factors(costs_of(some, quantity)).items():
            ours = label in OURS
            axes.step(taus, profile(found, taus), where="post", label=label, lw=2.0 if ours else 1.2,
                      ls="-" if ours else "--")  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set(xlim=(1.0, MOST), ylim=(0.0, 1.02), xlabel="factor of the best", ylabel="share of cases", title=title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
        figure.tight_layout()
        path = stem.with_name(f"{stem.name}.{name}.png")
        figure.savefig(path, dpi=110)
        plt.close(figure)
        written.append(path)
    return written
