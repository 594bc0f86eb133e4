"""The stored runs as they are read: each with its gap along the path and its costs, gathered by problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tercet.experiments import store
from tercet.once import once
from tercet.records import ORDERS, Vector

FLOOR = 1e-16  # what a gap of zero or below, which a logarithm cannot take, is read as
FAMILIES = ("STM", "SCR", "reduced", "AR3", "ARC", "others", "SVRC", "SGD", "SVRG", "SAGA", "SciPy", "own")
NOT_CLOSE = 1e-6  # a certified end further than this from every known minimum, relative to 1 + |f*|, is another one

PAPER_ORDERS = tuple(f"paper_{order}" for order in ORDERS)
# a cost: the columns of the trace that are added up
COSTS: dict[str, tuple[str, ...]] = {
    "ours": ORDERS,
    "paper": PAPER_ORDERS,
    "paper_derivatives": PAPER_ORDERS[1:],
    "seconds": ("seconds",),
    "iteration": ("iteration",),
    **{order: (order,) for order in (*ORDERS, *PAPER_ORDERS)},
}
AXES = ("ours", "paper", "paper_derivatives", "seconds", "iteration")
LABELS = {
    "ours": "epochs, every product counted (ours)",
    "paper": "epochs, each drawn sample counted once (the paper's)",
    "paper_derivatives": "epochs as the paper counts, function values left out",
    "seconds": "seconds",
    "iteration": "iterations",
}


@dataclass(frozen=True, eq=False)
class Run:
    """One stored run with its gap along the path, against the minimum at place `basin` (0 is the lowest)."""

    record: dict[str, Any]
    minimum: float
    basin: int = 0

    @property
    def method(self) -> str:
        """The method's label."""
        return str(self.record["key"]["method"])

    @property
    def family(self) -> str:
        """STM, SCR, AR3, ARC, SGD, SciPy or own."""
        return str(self.record.get("family") or "own")

    @property
    def begins(self) -> tuple[str, str]:
        """Start and seed: what two runs must share to be compared one to one."""
        return str(self.record["key"]["start"]), str(self.record["key"]["seed"])

    @property
    def failed(self) -> bool:
        """True when the method raised an exception or left no path."""
        return bool(self.record.get("error")) or len(self.gap) == 0

    def column(self, name: str) -> Vector:
        """One column of the trace; what was not stored is nan."""
        trace = self.record.get("trace") or {}
        values = trace.get(name)
        if values is None:
            return np.full(len(trace.get("f") or ()), np.nan)
        return np.array(values, dtype=float)  # None becomes nan

    @once
    def gap(self) -> Vector:
        """f over all data above the minimum, row by row, at least `FLOOR`."""
        return np.maximum(self.column("f") - self.minimum, FLOOR)

    def cost(self, name: str) -> Vector:
        """A cost of `COSTS` so far, row by row; what was not stored counts nothing."""
        if name not in self._costs:
            self._costs[name] = np.sum([np.nan_to_num(self.column(column)) for column in COSTS[name]], axis=0)
        return self._costs[name]

    @once
    def _costs(self) -> dict[str, Vector]:
        return {}

    def place(self, gap: float) -> int | None:
        """The first row within the gap, or None."""
        inside = np.flatnonzero(self.gap <= gap)
        return int(inside[0]) if inside.size else None

    def cost_to(self, gap: float, name: str) -> float:
        """The cost at the first row within the gap; nan where the run never got there."""
        place = self.place(gap)
        return float("nan") if place is None else float(self.cost(name)[place])


@dataclass(frozen=True, eq=False)
class Problem:
    """All runs on one data set with one l2."""

    dataset: str
    l2: float
    runs: tuple[Run, ...]
    minima: tuple[dict[str, Any], ...]
    text: str = ""

    @property
    def methods(self) -> list[str]:
        """Labels, by family, then by name."""
        family = {run.method: run.family for run in self.runs}
        return sorted(family, key=lambda label: (family_place(family[label]), natural(label)))

    @property
    def starts(self) -> list[str]:
        """The kinds of start."""
        return sorted({run.begins[0] for run in self.runs}, key=natural)

    @property
    def name(self) -> str:
        """The problem in words."""
        return f"{self.dataset}, l2 = {power(self.l2)}"

    def of(self, method: str, start: str | None = None) -> list[Run]:
        """The runs of one method, from all starts or one kind of start, in the order of start and seed."""
        chosen = [run for run in self.runs if run.method == method and start in (None, run.begins[0])]
        return sorted(chosen, key=lambda run: tuple(map(natural, run.begins)))

    def first(self, field: str) -> Any:
        """A field that all records of the problem share."""
        return next((run.record[field] for run in self.runs if run.record.get(field) is not None), None)


@dataclass(frozen=True, eq=False)
class Records:
    """A store as it is on disk: settings, runs and reference minima."""

    settings: dict[str, Any]
    runs: list[dict[str, Any]]
    references: list[dict[str, Any]]

    @property
    def paper(self) -> bool:
        """Whether this is the paper's experiment."""
        return self.settings.get("paper") is True

    @once
    def problems(self) -> list[Problem]:
        """One problem per data set and l2."""
        keys = {(str(r["key"]["dataset"]), float(r["key"]["l2"])) for r in self.runs}
        return [self._problem(*key) for key in sorted(keys)]

    def _problem(self, dataset: str, l2: float) -> Problem:
        records = [r for r in self.runs if (str(r["key"]["dataset"]), float(r["key"]["l2"])) == (dataset, l2)]
        reference = [r for r in self.references if (str(r["dataset"]), float(r["l2"])) == (dataset, l2)]
        known = [m for r in reference for m in r.get("minima") or () if m.get("f") is not None]
        text = " ".join(str(r["text"]) for r in reference if r.get("text"))
        if not known:
            values = [f for r in records for f in (r.get("trace") or {}).get("f") or () if f is not None]
            known = [{"f": min(values, default=0.0), "found_by": []}]
            text = f"{text} No reference run is stored: the lowest value that any run saw stands in for f*.".strip()
        minima = tuple(sorted(known, key=lambda m: float(m["f"])))
        runs = tuple(place_run(record, minima) for record in records)
        return Problem(dataset, l2, runs, minima, text)


def read(folder: Path) -> Records:
    """The store in a folder, which may be in use: a last line that is not whole is passed over."""
    settings = store.read_settings(folder)
    latest = {store.key_of(record): record for record in store.read(folder)}
    return Records(settings, list(latest.values()), store.read(folder, "references.jsonl"))


def place_run(record: dict[str, Any], minima: tuple[dict[str, Any], ...]) -> Run:
    """The run measured from the minimum it ended in if that is certified, else from the lowest."""
    stored, fun = record.get("basin"), record.get("fun")
    certified = bool((record.get("certificate") or {}).get("holds"))
    values = [float(m["f"]) for m in minima]
    basin = 0
    if isinstance(stored, int) and 0 <= stored < len(values):
        basin = stored
    elif certified and fun is not None:
        nearest = int(np.argmin(np.abs(np.array(values) - fun)))
        basin = nearest if abs(values[nearest] - fun) <= NOT_CLOSE * (1 + abs(values[nearest])) else 0
    return Run(record, values[basin], basin)


def power(value: float) -> str:
    """A small number as people write it: 1e-3, 3.07e-8."""
    return f"{value:.3g}" if value == 0 or abs(value) >= 0.01 else tidy(f"{value:.2e}")


def tidy(text: str) -> str:
    """1.00e-03 as 1e-3."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def family_place(family: str) -> int:
    """The place of a family in every list."""
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)


def natural(text: str) -> tuple[Any, ...]:
    """A sort key that puts seed 2 before seed 10."""
    return (0, float(text), "") if text.replace(".", "", 1).isdigit() else (1, 0.0, text)
