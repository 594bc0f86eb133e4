"""The functions of the suite: More, Garbow and Hillstrom, singular minima, NIST sums of squares, JAX finite sums."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

import tercet
from benchmarks.suite.cases import Case, Instance, start_at
from tercet.objectives.functions import Function


def mgh(index: int, factor: float) -> Instance:
    """A problem of the collection from its standard start, or from a multiple of it."""
    from benchmarks.problems.mgh import PROBLEMS

    problem = PROBLEMS[index]
    x0 = factor * np.array(problem.x0)
    return Instance(compiled_mgh(index), x0, x0)


@lru_cache(maxsize=2)
def compiled_mgh(index: int) -> Any:
    """The objective, compiled once for both starts."""
    from benchmarks.problems.mgh import PROBLEMS

    return Function(PROBLEMS[index].fun).bind(np.array(PROBLEMS[index].x0)).objective


def singular(index: int) -> Instance:
    """A function with a singular minimum."""
    from benchmarks.problems.singular import PROBLEMS

    problem = PROBLEMS[index]
    return Instance(Function(problem.fun).bind(problem.x0).objective, problem.x0, problem.x0, problem.minimum)


@lru_cache(maxsize=2)
def compiled_nist(name: str) -> Any:
    """The regression and its sum of squares as an objective."""
    from benchmarks.nist_models import read

    regression = read(name)
    return regression, Function(regression.sum_of_squares).bind(regression.starts[0]).objective


def nist(name: str, start: int) -> Instance:
    """The sum of squares from the first (hard) or the second start."""
    regression, objective = compiled_nist(name)
    x0 = np.array(regression.starts[start])
    return Instance(objective, x0, x0, None, regression)


SUMS = {  # name: the maker in the speed benchmark, n, d
    "linear": ("linear", 20_000, 50),
    "skew-normal": ("skew_normal", 20_000, 23),
    "mixture": ("mixture", 20_000, 22),
    "network": ("network", 5_000, 97),
}


@lru_cache(maxsize=1)
def compiled_sum(name: str) -> Any:
    """A finite sum by JAX."""
    from benchmarks.speed import sums

    maker, n, d = SUMS[name]
    loss, data = getattr(sums, maker)(n)
    return tercet.FiniteSum(loss, data).bind(np.zeros(d)).objective


def finite_sum(name: str, start: str) -> Instance:
    """One of the sums, from 0 or N(0, I)."""
    objective = compiled_sum(name)
    x0 = start_at(start, objective.d)
    return Instance(objective, x0, x0)


def cases() -> list[Case]:
    """All functions; without JAX there are none."""
    from benchmarks.nist_models import MODELS
    from benchmarks.problems.mgh import PROBLEMS as COLLECTION
    from benchmarks.problems.singular import PROBLEMS as FLAT

    found = []
    for name in SUMS:
        for start in ("normal",) if name in ("mixture", "network") else ("zero", "normal"):
            quick = (name, start) in (("linear", "normal"), ("skew-normal", "zero"))
            found.append(Case(f"sums/{name}-{start}", "sums", f"sum-{name}", partial(finite_sum, name, start), quick))
    for i, problem in enumerate(COLLECTION):
        word = f"{problem.number:02d}-{problem.name.lower().replace(' ', '-').replace(',', '')}"
        for group, factor in (("mgh", 1.0), ("mgh10", 10.0)):
            found.append(Case(f"{group}/{word}", group, f"mgh-{i}", partial(mgh, i, factor), True))
    found += [Case(f"singular/{p.name}", "singular", p.name, partial(singular, i), True) for i, p in enumerate(FLAT)]
    for name in MODELS:
        found += [Case(f"nist/{name}-{k + 1}", "nist", f"nist-{name}", partial(nist, name, k), True) for k in (0, 1)]
    return found
