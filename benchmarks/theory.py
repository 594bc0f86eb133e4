"""The figures of docs/theory.md: looseness over 10^5 draws, a9a sizes and errors (with the plot), the slope.

    python -m benchmarks.theory draws [--repeats 100000]
    python -m benchmarks.theory a9a
    python -m benchmarks.theory slope

`a9a` writes docs/theory_errors.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tercet
from benchmarks.data import load
from benchmarks.problems import draws as sampler
from benchmarks.problems.draws import NAMES, N, slope, tail_of
from tercet import theory
from tercet.critical.measures import largest_cubic
from tercet.objectives.linear.bounds import variance

RARE = 1e-6  # at this failure probability 10^5 draws should show no violation
DELTA = 0.05
L2 = 1e-3


def draws(repeats: int, names: list[str]) -> None:
    """Violations and looseness: the accuracy at RARE over the largest error that was drawn."""
    print(f"N = {N} terms of norm 1, {repeats} draws each; accuracy at failure {RARE}")
    print(f"{'terms':<18} {'sampling':<8} {'n':>4} {'violations':>10} {'sharp':>6} {'corrected':>9} {'at 1e-3':>14}")
    for name in names:
        for replacement in (False, True):
            for n in (30, 150):
                rng = np.random.default_rng([NAMES.index(name), replacement, n])
                terms, norms = sampler.populations(rng, N)[name]
                sizes = np.concatenate(
                    [norms(sampler.errors(rng, terms, n, 5000, replacement)) for _ in range(repeats // 5000)]
                )
                sharp, cited = (tail_of(name, replacement, which) for which in ("sharp", "corrected"))
                bad, top = np.count_nonzero(sizes >= sharp.accuracy(n, RARE)), np.max(sizes)
                tight = sharp.accuracy(n, 1e-3) / np.quantile(sizes, 1 - 1e-3)
                kind = "with" if replacement else "without"
                print(
                    f"{name:<18} {kind:<8} {n:>4} {bad:>10} {sharp.accuracy(n, RARE) / top:>6.2f} "
                    f"{cited.accuracy(n, RARE) / top:>9.2f} {tight:>14.2f}"
                )


def tails(ranges: theory.Ranges, d: int, **how: Any) -> list[tuple[theory.Hoeffding, theory.Bernstein]]:
    """The worst-case and the Bernstein bound of each order."""
    return [
        (theory.vector_tail(d, ranges.gradient, **how), theory.vector_bernstein(d, ranges.gradient, **how)),
        (
            theory.matrix_tail(d, width=ranges.hessian, **how),
            theory.matrix_bernstein(d, width=ranges.hessian, **how),
        ),
        (
            theory.tensor_tail(d, ranges.third, rank_one=True, **how),
            theory.tensor_bernstein(d, ranges.third, rank_one=True, **how),
        ),
    ]


def sizes_at(problem: tercet.LinearModel, x: np.ndarray, ranges: theory.Ranges, where: str) -> None:
    """Sizes for an error of 1e-2 of the largest derivative that one term can have."""
    point, n, d = problem.over(None).at(x), problem.n, problem.d
    largest = (ranges.gradient, ranges.hessian / 2, ranges.third / 2)
    found = zip(tails(ranges, d, N=n), tails(ranges, d, replacement=True), largest, (1, 2, 3), strict=True)
    for without, again, top, order in found:
        t, seen = 1e-2 * top, variance(point, order)
        a, b = without[0].size(t, DELTA), without[1].size(t, DELTA, seen)
        c, e = again[0].size(t, DELTA), again[1].size(t, DELTA, seen)
        print(f"{where:<10} order {order}: {a:>6} {b:>6} {b / a:6.2f}    with replacement {c:>8} {e:>8} {e / c:6.2f}")


def actual_errors(problem: tercet.LinearModel, x: np.ndarray, n: int, repeats: int) -> np.ndarray:
    """|g - grad f|, |B - hess f| and, from below, |T - third f| over some samples of n terms."""
    full, rng = problem.over(None).at(x), np.random.default_rng(n)
    g, B, found = full.gradient(), full.hessian(), []
    for _ in range(repeats):
        part = problem.over(rng.choice(problem.n, n, replace=False)).at(x)

        def square(y: np.ndarray, part: Any = part) -> np.ndarray:
            return part.product(3, y, y) - full.product(3, y, y)

        third, _ = largest_cubic(square, problem.d, starts=3, seed=0, iterations=15)
        found.append((np.linalg.norm(part.gradient() - g), np.linalg.norm(part.hessian() - B, 2), third))
    return np.array(found)


def a9a() -> None:
    """Sizes at 0 and at the minimizer, and the plot of bounds and errors against n."""
    X, y = load("a9a")
    problem = tercet.LinearModel(X, y, l2=L2)
    found = theory.constants(problem)
    print(f"a9a, sigmoid_squares, l2 = {L2}: {found}")
    x = tercet.minimize(problem).x
    print("n for an error of 1e-2 of the largest term, delta = 0.05: worst case, Bernstein, ratio")
    sizes_at(problem, np.zeros(problem.d), found.ranges, "x = 0")
    sizes_at(problem, x, found.ranges, "minimizer")
    for eps in (0.3, 0.1, 0.01):
        for bound in ("hoeffding", "bernstein"):
            rule = theory.Theory(eps, DELTA, found.ranges, bound=bound, iterations=100)
            run = tercet.minimize(problem, method=tercet.STM(rule, worth=np.inf), tol=eps, max_iterations=100)
            last = run.trace.rows[-1].sizes
            print(
                f"Theory(eps={eps}, {bound}): last sizes {last.gradient}, {last.hessian}, {last.third} of {problem.n}"
            )
            print(f"  {run.nit} iterations, {run.status.name}; {run.certificate.sampling}")
    plot(problem, x, found.ranges)


def plot(problem: tercet.LinearModel, x: np.ndarray, ranges: theory.Ranges) -> None:
    """docs/theory_errors.png: one panel per order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n, bounds = problem.n, tails(ranges, problem.d, N=problem.n)
    some = [100, 400, 1600, 6400, 16000, 26000, 31000]
    errors = np.array([np.max(actual_errors(problem, x, m, 10), axis=0) for m in some])
    order_of = np.random.default_rng(0).permutation(n)
    grid = np.unique(np.concatenate([np.geomspace(30, n / 2, 40), n - np.geomspace(n / 2, 100, 25)]).astype(int))
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    names = ("gradient", "Hessian", "third derivative")
    for order, (ax, name, (worst, bernstein)) in enumerate(zip(axes, names, bounds, strict=True), start=1):
        ax.loglog(grid, [worst.accuracy(int(m), DELTA) for m in grid], label="worst case (Hoeffding-Serfling)")
        seen = [variance(problem.over(order_of[:m]).at(x), order) for m in grid]
        values = [bernstein.accuracy(int(m), DELTA, v) for m, v in zip(grid, seen, strict=True)]
        ax.loglog(grid, values, label="empirical Bernstein")
        how = "largest of 10 draws" + (", from below" if order == 3 else "")
        ax.loglog(some, errors[:, order - 1], "o-", label=f"actual ({how})")
        ax.set_title(name)
        ax.set_xlabel("n")
        ax.legend(fontsize=8)
        print(
            f"order {order}: Bernstein over actual",
            np.round(
                [
                    bernstein.accuracy(m, DELTA, variance(problem.over(order_of[:m]).at(x), order)) / e
                    for m, e in zip(some, errors[:, order - 1], strict=True)
                ],
                1,
            ),
        )
    axes[0].set_ylabel("error in the spectral norm")
    figure.suptitle(f"a9a at the minimizer, N = {n}, delta = {DELTA}")
    target = Path(__file__).resolve().parents[1] / "docs" / "theory_errors.png"
    figure.savefig(target, dpi=110)
    print("wrote", target.name)


def slopes() -> None:
    """Iterations against 1/eps on f = 1.5 eps sqrt(1 + x^2) from eps^-reach, and the bound."""
    levels = (0.1, 0.03, 0.01, 0.003)
    for reach in (0.5, 0.75, 1.0):
        runs = [slope(eps, reach) for eps in levels]
        counts = [run.nit for run, _, _ in runs]
        totals = [
            theory.complexity(eps, gap, L, kappa=(0, 0, 0), theta=1.0, sigma_min=1.0).total
            for eps, (_, gap, L) in zip(levels, runs, strict=True)
        ]
        fitted = -np.polyfit(np.log(levels), np.log(counts), 1)[0]
        print(f"reach {reach}: iterations {counts}, bounds {totals}, slope {fitted:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draws", "a9a", "slope"))
    parser.add_argument("--repeats", type=int, default=100_000)
    parser.add_argument("--terms", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args()
    if options.what == "draws":
        draws(options.repeats, options.terms)
    elif options.what == "a9a":
        a9a()
    else:
        slopes()


if __name__ == "__main__":
    main()
