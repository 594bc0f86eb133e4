"""Hostile functions: does a success ever mean less than it says?

    python -m benchmarks.hostile                   # all of them
    python -m benchmarks.hostile saddles edges     # some families
    python -m benchmarks.hostile --out runs.json   # and each run, to compare

Each function (`benchmarks.problems.hostile`) comes with its truth and is given as values only, with its gradient, with
its Hessian too, and as a JAX function, also in single precision. A success is false where there is no minimizer or x is
none; claimed digits are false where they are more than one above the true ones; an exception is a crash.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tercet
from benchmarks.problems.hostile import FAMILIES, Hostile

ITERATIONS = 300
SINGLE = ("valleys", "heights", "saddles", "without end", "many")  # families that are asked in single precision, too
COARSE = 3e-2  # how close a minimizer is in single precision


@dataclass(frozen=True)
class Outcome:
    """What a run said, and what is true."""

    family: str
    name: str
    way: str
    status: str
    false: bool
    claimed: float
    true: float
    evaluations: float

    @property
    def boasts(self) -> bool:
        """More digits are claimed than are right, by more than one."""
        return self.claimed > self.true + 1.0


def calls(problem: Hostile, way: str) -> tuple[Callable[[Any], Any], dict[str, Callable[[Any], Any]]]:
    """The function and its derivatives as NumPy callables, wrong where they are to be."""
    jitted: dict[str, Any] = {
        "fun": jax.jit(problem.fun), "grad": jax.jit(jax.grad(problem.fun)), "hess": jax.jit(jax.hessian(problem.fun)),
    }  # fmt: skip
    names = {"values": (), "jac": ("grad",), "jac+hess": ("grad", "hess")}[way]

    def call(name: str) -> Callable[[Any], Any]:
        right, bad = jitted[name], problem.wrong.get(name)
        return lambda x: (np.asarray(right(x)) if bad is None else bad(x, np.asarray(right(x)))).astype(float)

    return lambda x: float(jitted["fun"](x)), {name: call(name) for name in names}


def run(problem: Hostile, way: str) -> Outcome:
    """`minimize` as it comes."""
    single = way == "single"
    x0 = problem.x0.astype(np.float32) if single else problem.x0
    fun, given = (problem.fun, {}) if way in ("JAX", "single") else calls(problem, way)
    key = problem.family, problem.name, way
    try:
        r = tercet.minimize(fun, x0, max_iterations=ITERATIONS, **given)
    except Exception as error:  # what is counted here
        return Outcome(*key, type(error).__name__, False, np.nan, np.nan, 0.0)
    x, c = np.asarray(r.x, dtype=float), r.certificate
    good = problem.good(x, float(problem.fun(x)))
    if single and not good:
        near = problem.minimizer is not None and problem.away(x) <= max(COARSE, problem.close)
        good = near or float(problem.fun(x)) <= problem.lowest + COARSE * abs(problem.lowest) + 1e-6
    claimed = c.digits if r.success and c is not None and c.strict is not False else np.nan
    return Outcome(*key, r.status.name, bool(r.success and not good), claimed, problem.digits(x), r.counts.epochs)


def runs(names: list[str]) -> Iterator[Outcome]:
    """Of the families that are named, or all."""
    for family in FAMILIES:
        for problem in family():
            if names and problem.family not in names:
                continue
            single = ("single",) if problem.family in SINGLE and "JAX" in problem.ways else ()
            for way in (*problem.ways, *single):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield run(problem, way)


def main() -> None:
    """A line for each family, then every run that was not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    told = list(runs(asked.families))
    known = {status.name for status in tercet.Status}
    print(f"tercet {tercet.__version__}, {len({(o.family, o.name) for o in told})} functions, {len(told)} runs")
    print("| family | runs | successes | false | false digits | crashes |")
    print("|---" * 6 + "|")
    for family in [*dict.fromkeys(o.family for o in told), "all"]:
        own = [o for o in told if family in (o.family, "all")]
        count = Counter[str]()
        for o in own:
            count.update(s=o.status == "CERTIFIED", f=o.false, d=o.boasts, c=o.status not in known)
        print(f"| {family} | {len(own)} | {count['s']} | {count['f']} | {count['d']} | {count['c']} |")
    for o in told:
        if o.false or o.boasts or o.status not in known:
            print(f"{o.family}, {o.name}, {o.way}: {o.status}, claims {o.claimed:.1f} of {o.true:.1f}")
    if asked.out:
        asked.out.write_text(json.dumps([vars(o) for o in told], indent=1))


if __name__ == "__main__":
    main()
