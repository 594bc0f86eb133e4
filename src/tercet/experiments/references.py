"""The minima that gaps are measured from: long certified runs from every start, and the ends of the stored runs.

Different starts may end in different minima. Each is kept with its value, its certificate and the starts that found it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tercet
from tercet.experiments import runs
from tercet.experiments.traces import certificate_at, certificate_json, unpack
from tercet.records import Certificate, Vector

SAME_F = 1e-9  # two points are one minimum when f differs by less than this, relative, and x by less than SAME_X
SAME_X = 1e-2
TIGHT = 1e-12
MOST = 50  # minima that are kept apart; a continuum of them is told as such


@dataclass(eq=False)
class Minimum:
    """A certified point, and who found it."""

    x: Vector
    f: float
    certificate: Certificate
    found_by: list[str] = field(default_factory=list)

    def is_near(self, x: Vector, f: float) -> bool:
        """The same minimum, by value and place."""
        close = float(np.linalg.norm(x - self.x)) <= SAME_X * (1 + float(np.linalg.norm(self.x)))
        return close and abs(f - self.f) <= SAME_F * max(abs(self.f), 1e-3)


def request(dataset: str, l2: float, loss: str, starts: list[tuple[str, int]], ends: list[dict[str, Any]]) -> Any:
    """The task of a worker; the ends are sorted, so that the answer does not depend on the order of the runs."""
    fields = ("start", "seed", "method")
    plain = [
        {**{name: end["key"][name] for name in fields}, **{name: end[name] for name in ("fun", "success", "x")}}
        for end in ends
        if end["x"] is not None and end["fun"] is not None
    ]
    plain.sort(key=lambda end: (str(end["start"]), end["seed"], end["method"]))
    return {"dataset": dataset, "l2": l2, "loss": loss, "starts": [list(start) for start in starts], "ends": plain}


def find(task: dict[str, Any], problem: tercet.LinearModel) -> dict[str, Any]:
    """The minima of a data set and penalty, as a line of references.jsonl."""
    minima: list[Minimum] = []
    certified = [end for end in task["ends"] if end["success"]]
    for end in certified:
        add(minima, problem, unpack(end["x"]), f"{end['start']} seed {end['seed']}")
    there = {(end["start"], end["seed"]) for end in certified}
    for start, seed in task["starts"]:
        if (start, seed) not in there:
            x0 = runs.start_of(start, seed, problem.d)
            with np.errstate(all="ignore"):
                result = tercet.minimize(problem, x0, seed=seed)
            add(minima, problem, result.x, f"{start} seed {seed}")
    for end in task["ends"]:  # an end that is lower than all of these lies in a basin of its own
        if not end["success"] and end["fun"] < min((m.f for m in minima), default=np.inf) - 1e-12:
            add(minima, problem, unpack(end["x"]), f"{end['start']} seed {end['seed']} ({end['method']})")
    minima.sort(key=lambda m: m.f)
    lowest_seen = min((end["fun"] for end in task["ends"]), default=None)
    return {
        "dataset": task["dataset"],
        "l2": task["l2"],
        "minima": [as_json(m) for m in minima],
        "text": text(minima, lowest_seen, len(task["starts"])),
    }


def add(minima: list[Minimum], problem: tercet.LinearModel, x: Vector, found_by: str) -> None:
    """Polish a point over all data; a new minimum, or one more start that found a known one."""
    f = problem.over(None).at(x).value()
    known = next((m for m in minima if m.is_near(x, f)), None)
    if known is None:
        polished = polish(problem, x)
        if not polished.certificate.holds:
            return
        known = next((m for m in minima if m.is_near(polished.x, polished.f)), None)
        if known is None:
            if len(minima) >= MOST:
                return
            minima.append(polished)
            known = polished
    if found_by not in known.found_by:
        known.found_by.append(found_by)


def polish(problem: tercet.LinearModel, x: Vector) -> Minimum:
    """As far down as rounding lets AR3 go, with the tightest certificate that holds."""
    with np.errstate(all="ignore"):
        result = tercet.minimize(problem, x, method=tercet.STM(tercet.Full()), tol=TIGHT, max_iterations=500)
    certificate = result.certificate
    for tol in (1e-11, 1e-10, 1e-9, 1e-8):
        if certificate.holds:
            break
        certificate = certificate_at(problem, result.x, tol)
    return Minimum(np.asarray(result.x), float(result.fun), certificate)


def as_json(m: Minimum) -> dict[str, Any]:
    """A minimum for the file."""
    digest = hashlib.sha256(np.round(m.x, 6).astype("<f8").tobytes()).hexdigest()[:16]
    certificate = certificate_json(m.certificate)
    return {"f": m.f, "certificate": certificate, "x_digest": digest, "found_by": m.found_by}


def text(minima: list[Minimum], lowest_seen: float | None, starts: int) -> str:
    """What was found, in words."""
    if not minima:
        seen = (
            "no run ended at a finite point" if lowest_seen is None else f"the lowest value seen is {lowest_seen:.12g}"
        )
        return f"No certified minimum was found from {starts} starts; {seen}, and gaps are to that."
    chi1 = minima[0].certificate.chi1
    if len(minima) == 1:
        return (
            f"One minimum was found, f = {minima[0].f:.12g}, certified to order {minima[0].certificate.order} with "
            f"|gradient| = {chi1:.1e}; {len(minima[0].found_by)} start(s) lead there."
        )
    each = "; ".join(f"f = {m.f:.12g} from {named(m.found_by)}" for m in minima)
    more = f" More than {MOST} were found; the others are not listed." if len(minima) >= MOST else ""
    return (
        f"Different runs end in different minima, by their start and by their method: {len(minima)} were found, each "
        f"certified. {each}.{more} "
        "The gap of a run is to the minimum that it ended in, where it ended certified, else to the lowest."
    )


def named(found_by: list[str]) -> str:
    """Up to four starts by name."""
    more = f" and {len(found_by) - 4} more" if len(found_by) > 4 else ""
    return ", ".join(found_by[:4]) + more
