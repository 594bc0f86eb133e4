"""Two stored runs side by side: for each case new over old, geometric means by group, the worst and the best."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.figures import geometric_mean, taken

QUANTITIES = ("seconds", "epochs", "iterations", "value")
GAP = "1e-8"


def pairs(old: dict[str, Any], new: dict[str, Any], contender: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The cases that both have run with a contender."""
    before = {result["case"]: result for result in old["cases"]}
    both = ((before.get(result["case"]), result) for result in new["cases"])
    return [(a, b) for a, b in both if a is not None and contender in a["runs"] and contender in b["runs"]]


def lines(old: dict[str, Any], new: dict[str, Any], contender: str, against: str, gap: str, show: int) -> list[str]:
    """The report. `against` is the contender of the old runs, usually the same one."""
    found = [(a, b) for a, b in pairs(old, new, contender) if against in a["runs"]]
    names = contender if contender == against else f"{contender} (new) / {against} (old)"
    text = [f"{names}: new / old to {gap}, geometric means over cases that both reach", ""]
    text += [f"{'group':<12}{'cases':>6}" + "".join(f"{q:>12}" for q in QUANTITIES) + f"{'lost':>6}{'won':>6}"]
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for a, b in found:
        for key in (a["group"] if a["split"] == "seen" else "held", "all"):
            groups.setdefault(key, []).append((a, b))
    for key, some in groups.items():
        cells = []
        for q in QUANTITIES:
            ratio = [
                taken(b, contender, q, gap) / taken(a, against, q, gap)
                for a, b in both_reach(some, contender, against, gap)
            ]
            cells.append(f"{geometric_mean(ratio):>12.3f}")
        before = [np.isfinite(taken(a, against, "value", gap)) for a, _ in some]
        after = [np.isfinite(taken(b, contender, "value", gap)) for _, b in some]
        lost, won = (sum(x and not y for x, y in zip(*p, strict=True)) for p in ((before, after), (after, before)))
        text.append(f"{key:<12}{len(some):>6}{''.join(cells)}{lost:>6}{won:>6}")
    return text + details(found, contender, against, gap, show)


def both_reach(some: Any, contender: str, against: str, gap: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The pairs in which the gap is reached before and after."""
    return [
        (a, b)
        for a, b in some
        if np.isfinite(taken(a, against, "value", gap)) and np.isfinite(taken(b, contender, "value", gap))
    ]


def details(found: Any, contender: str, against: str, gap: str, show: int) -> list[str]:
    """Lost and won cases, then the worst and the best by epochs; cases that are held back are not named."""
    seen = [(a, b) for a, b in found if a["split"] == "seen"]
    both = {id(b) for _, b in both_reach(seen, contender, against, gap)}
    text = [""]
    for a, b in seen:
        if id(b) not in both:
            before, after = taken(a, against, "value", gap), taken(b, contender, "value", gap)
            if np.isfinite(before) or np.isfinite(after):
                word = "LOST" if np.isfinite(before) else "won "
                text.append(f"{word} {b['case']}  ({b['runs'][contender]['ended']})")
    rows = []
    for a, b in seen:
        if id(b) in both:
            numbers = [(taken(a, against, q, gap), taken(b, contender, q, gap)) for q in QUANTITIES]
            rows.append((numbers[1][1] / numbers[1][0], b["case"], numbers))
    rows.sort(reverse=True)
    chosen = rows if len(rows) <= 2 * show else [*rows[:show], None, *rows[-show:]]
    text += ["", f"{'seen cases, by epochs':<64}" + "".join(f"{q:>24}" for q in QUANTITIES)]
    for row in chosen:
        if row is None:
            text.append("...")
            continue
        cells = "".join(f"{f'{x:.4g} > {y:.4g} ({y / x:.2f})':>24}" for x, y in row[2])
        text.append(f"{row[1]:<64}{cells}")
    return text


def main(arguments: list[str]) -> None:
    """Print the comparison of two files; of one file with itself, of two contenders."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.suite compare", description=__doc__)
    p.add_argument("old", type=Path)
    p.add_argument("new", type=Path)
    p.add_argument("--contender", default="STM", help="whose runs (STM)")
    p.add_argument("--against", help="the contender of the old runs, where it is another one")
    p.add_argument("--gap", default=GAP, choices=["1e-4", "1e-8", "gradient"])
    p.add_argument("--show", type=int, default=15, help="how many of the worst and of the best cases")
    args = p.parse_args(arguments)
    old, new = (json.loads(path.read_text()) for path in (args.old, args.new))
    print("\n".join(lines(old, new, args.contender, args.against or args.contender, args.gap, args.show)))
