"""The 35 problems of More, Garbow and Hillstrom: function and derivative evaluations to |g| <= 1e-8.

    python -m benchmarks.mgh

A derivative evaluation is one point at which g, B and T are taken (for ARC: g and B). The sums leave out the numbers
3, 10, 18 and 24, as published comparisons do.
"""

from __future__ import annotations

import tercet
from benchmarks.problems.mgh import PROBLEMS

LEFT_OUT = (3, 10, 18, 24)
METHODS = {"AR3 (STM, full samples)": tercet.STM(tercet.Full()), "ARC (SCR, full samples)": tercet.SCR(tercet.Full())}


def main() -> None:
    """One line per problem, then the sums."""
    sums = {name: [0, 0, 0] for name in METHODS}
    print(f"{'':<4}{'problem':<44}" + "".join(f"{name:>36}" for name in METHODS))
    for problem in PROBLEMS:
        cells = []
        for name, method in METHODS.items():
            r = tercet.minimize(problem.fun, problem.x0, method=method, tol=1e-8, order=1, max_iterations=500)
            solved = r.certificate.chi1 <= 1e-8
            sums[name][2] += solved
            if problem.number not in LEFT_OUT:
                sums[name][0] += r.counts.value
                sums[name][1] += r.counts.gradient
            verdict = "" if solved else f" {r.status.name.lower()}"
            cells.append(f"{r.counts.value} f, {r.counts.gradient} derivatives{verdict}")
        print(f"{problem.number:<4}{problem.name:<44}" + "".join(f"{cell:>36}" for cell in cells), flush=True)
    for name, (values, derivatives, solved) in sums.items():
        print(f"{name}: {solved} of 35 solved; {values} function and {derivatives} derivative evaluations over 31")
    stm, scr = sums.values()
    print(f"function evaluations, AR3 / ARC: {stm[0] / scr[0]:.2f}")


if __name__ == "__main__":
    main()
