"""All cases, in one process or several; results are stored with what they were measured with."""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed import store
from benchmarks.suite.cases import Case, all_cases
from benchmarks.suite.measure import FULL, QUICK, run_case

FOLDER = store.FOLDER / "suite"
REFERENCES = FOLDER / "references.json"


@dataclass(frozen=True)
class Choice:
    """Which cases, which contenders, how many processes."""

    quick: bool = False
    only: str = ""
    split: str = ""
    contenders: tuple[str, ...] = ()
    jobs: int = 1

    def cases(self) -> list[Case]:
        """The cases asked for, in their order."""
        return [
            case
            for case in all_cases()
            if (case.quick or not self.quick)
            and re.search(self.only, case.name)
            and (not self.split or case.split == self.split)
        ]


def references() -> dict[str, float]:
    """The lowest values of earlier runs, so that gaps of two runs are taken to the same f*."""
    return json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}


def remember(results: Iterable[dict[str, Any]]) -> None:
    """Keep what is lower than before."""
    known = references()
    for result in results:
        name, lowest = result["case"], result["lowest"]
        if lowest is not None and lowest < known.get(name, float("inf")):
            known[name] = lowest
    FOLDER.mkdir(parents=True, exist_ok=True)
    REFERENCES.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")


def bundles(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases of one source together: they share data and compiled functions."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.source, []).append(case)
    return list(found.values())


def run_bundle(names: list[str], quick: bool, chosen: tuple[str, ...], known: dict[str, float]) -> list[dict[str, Any]]:
    """The cases of these names, in this process."""
    wanted, results = {case.name: case for case in all_cases()}, []
    for name in names:
        begin = time.process_time()
        result = run_case(wanted[name], QUICK if quick else FULL, chosen, known.get(name))
        results.append(store.plain({**result, "seconds": time.process_time() - begin}))
    return results


def each(work: Callable[[list[str]], Any], jobs: int, parts: list[list[str]]) -> Iterator[Any]:
    """The results of all parts as they come."""
    if jobs == 1:
        yield from map(work, parts)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=60) as pool:
        yield from pool.imap_unordered(work, parts)


def run(choice: Choice, path: Path) -> dict[str, Any]:
    """Measure what was chosen; what is there is stored as it comes."""
    begin, cases = time.perf_counter(), choice.cases()
    if not cases:
        raise SystemExit("no case is left; see `python -m benchmarks.suite list`.")
    parts = [[case.name for case in bundle] for bundle in bundles(cases)]
    work = partial(run_bundle, quick=choice.quick, chosen=choice.contenders, known=references())
    order, results = {case.name: i for i, case in enumerate(cases)}, []
    whole: dict[str, Any] = {"quick": choice.quick, "environment": store.environment()}
    for some in each(work, choice.jobs, parts):
        results = sorted([*results, *some], key=lambda result: order[result["case"]])
        whole |= {"seconds": time.perf_counter() - begin, "cases": results}
        write(whole, path)
        line = f"[{len(results)}/{len(cases)}] {whole['seconds']:.0f} s  {some[-1]['case']}"
        print(line, file=sys.stderr, flush=True)
    remember(results)
    return whole


def write(whole: dict[str, Any], path: Path) -> None:
    """One line for each case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(store.laid_out(whole))
