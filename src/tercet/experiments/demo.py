"""`make demo`: STM, SCR, SGD and SciPy's L-BFGS and trust-exact from the same start, on data that needs no download.

Two problems: scikit-learn's breast cancer data with the paper's non-convex loss, and a generated finite sum whose start
is a degenerate saddle (gradient zero, Hessian positive semidefinite), where only third derivatives show the way down.
Then the paper's experiment on the breast cancer data, as `tercet reproduce` runs it on the paper's, with its report.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize

import tercet
from tercet.objectives.metered import Meter, Metered
from tercet.records import ORDERS, Counts, Vector

FOLDER = Path("demo")


@dataclass(frozen=True, eq=False)
class Job:
    """A problem with its start."""

    name: str
    problem: Any
    x0: Vector


@dataclass(eq=False)
class Outcome:
    """What one method made of a job: its points with their counts, the time, and the certificate of the last."""

    method: str
    seconds: float
    counts: Counts
    certificate: tercet.Certificate
    path: list[tuple[float, float]] = field(default_factory=list)  # epochs, full objective


def breast_cancer() -> Job:
    """569 tumours, 30 standardized features: sigmoid squares with l2 = 1e-3 from a random start."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3, intercept=True)
    return Job(
        "breast cancer, sigmoid squares, l2 = 1e-3", problem, np.random.default_rng(0).standard_normal(problem.d)
    )


def degenerate_saddle(n: int = 2000, pairs: int = 10) -> Job:
    """A sum of valleys u_j^2 + v_j^3 + v_j^4 seen through noise of mean zero, started at the saddle u = v = 0."""
    rng = np.random.default_rng(0)
    tilt = rng.standard_normal((n, 2 * pairs))
    tilt -= tilt.mean(axis=0)

    def loss(x: Any, a: Any) -> Any:
        u, v = x[:pairs], x[pairs:]
        return (u**2 + v**3 + v**4).sum() + 0.3 * (a * x).sum()

    return Job("degenerate saddle, 2000 noisy terms", tercet.FiniteSum(loss, tilt), np.zeros(2 * pairs))


def solve(job: Job, name: str, method: Any, **budget: Any) -> Outcome:
    """One of our own methods; the path is watched through the callback and not counted."""
    bound = job.problem.bind(job.x0)
    full = bound.objective.over(None)
    path: list[tuple[float, float]] = [(0.0, full.at(bound.x0).value())]

    def watch(info: tercet.Info) -> None:
        path.append((info.epochs, full.at(np.asarray(info.x)).value()))

    tercet.minimize(job.problem, job.x0, method=method, callback=watch, **budget)
    started = time.perf_counter()  # the watched run has compiled what there is to compile; this one is timed
    result = tercet.minimize(job.problem, job.x0, method=method, **budget)
    seconds = time.perf_counter() - started
    path.append((result.counts.epochs, result.fun))
    return Outcome(name, seconds, result.counts, result.certificate, path)


def solve_with_scipy(job: Job, name: str, method: str, options: dict[str, Any]) -> Outcome:
    """A method of SciPy with our derivatives, counted the same way, and certified by us."""
    bound = job.problem.bind(job.x0)
    meter = Meter(bound.objective.n)
    view, full = Metered.of(bound.objective, meter).over(None), bound.objective.over(None)
    path: list[tuple[float, float]] = [(0.0, full.at(bound.x0).value())]

    def watch(intermediate_result: Any) -> None:
        path.append((meter.counts().epochs, float(intermediate_result.fun)))

    hess: dict[str, Callable[[Vector], Any]] = (
        {"hess": lambda x: view.at(x).hessian()} if method == "trust-exact" else {}
    )
    started = time.perf_counter()
    run = scipy.optimize.minimize(
        lambda x: view.at(x).value(),
        bound.x0,
        jac=lambda x: view.at(x).gradient(),
        method=method,
        options=options,
        callback=watch,
        **hess,
    )
    seconds = time.perf_counter() - started
    path.append((meter.counts().epochs, float(run.fun)))
    certificate = tercet.minimize(job.problem, run.x, method=tercet.STM(tercet.Full()), max_iterations=0).certificate
    return Outcome(name, seconds, meter.counts(), certificate, path)


def compare(job: Job) -> list[Outcome]:
    """All methods from the same start."""
    return [
        solve(job, "STM", tercet.STM()),
        solve(job, "SCR", tercet.SCR()),
        solve(job, "SGD", tercet.SGD(batch=0.05, step=0.1), max_epochs=100, max_iterations=10**6),
        solve_with_scipy(job, "SciPy L-BFGS", "L-BFGS-B", {"gtol": 1e-8, "ftol": 0.0, "maxiter": 1000}),
        solve_with_scipy(job, "SciPy trust-exact", "trust-exact", {"gtol": 1e-8, "maxiter": 500}),
    ]


def table(job: Job, outcomes: list[Outcome]) -> str:
    """Gap, epochs by order, seconds and certificate, one line per method."""
    lowest = min(f for outcome in outcomes for _, f in outcome.path)
    head = (
        f"{'method':<18}{'gap':>9}{'epochs':>8}  "
        + "".join(f"{order:>9}" for order in ORDERS)
        + f"{'seconds':>9}  certificate"
    )
    lines = [job.name, head, "-" * len(head)]
    for o in outcomes:
        by_order = "".join(f"{getattr(o.counts, order) / o.counts.n:>9.1f}" for order in ORDERS)
        c = o.certificate
        verdict = "holds" if c.holds else f"fails: chi1 {c.chi1:.0e}, chi2 {c.chi2:.0e}, chi3 {c.chi3:.0e}"
        gap = o.path[-1][1] - lowest
        lines.append(f"{o.method:<18}{gap:>9.1e}{o.counts.epochs:>8.1f}  {by_order}{o.seconds:>9.3f}  {verdict}")
    return "\n".join(lines)


def picture(results: list[tuple[Job, list[Outcome]]], path: Path) -> None:
    """Gap against epochs, one panel per problem; each method has its own line style as well as its color."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(5.5 * len(results), 4), constrained_layout=True)
    for ax, (job, outcomes) in zip(np.atleast_1d(axes), results, strict=True):
        lowest = min(f for outcome in outcomes for _, f in outcome.path)
        for outcome, style in zip(outcomes, ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1))), strict=True):
            epochs, f = np.array(outcome.path).T
            ax.semilogy(epochs, np.maximum(f - lowest, 1e-16), linestyle=style, label=outcome.method)
        ax.set(title=job.name, xlabel="component evaluations / n (epochs)", ylabel="f - lowest f", xlim=(0, 100))
        ax.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def paper_experiment(folder: Path) -> Path:
    """The paper's experiment on embedded data: three random starts, its settings and ours; gives the page's path."""
    from tercet.experiments import report
    from tercet.experiments.compare import compare as run_all
    from tercet.experiments.reproduce import protocol

    shutil.rmtree(folder, ignore_errors=True)
    small = replace(
        protocol(quick=True), data=("breast-cancer",), seeds=3, title="The paper's experiment, embedded data"
    )
    run_all(small, folder, jobs=2)
    return report.write(folder)


def main() -> None:
    """Solve both problems with every method, print the tables, write the picture."""
    FOLDER.mkdir(exist_ok=True)
    results = []
    for make in (breast_cancer, degenerate_saddle):
        job = make()
        outcomes = compare(job)
        results.append((job, outcomes))
        print(table(job, outcomes), end="\n\n", flush=True)
    report = "\n\n".join(table(job, outcomes) for job, outcomes in results)
    (FOLDER / "report.txt").write_text(report + "\n", encoding="utf-8")
    picture(results, FOLDER / "demo.png")
    print(f"wrote {FOLDER / 'report.txt'} and {FOLDER / 'demo.png'}")
    print(f"report: {paper_experiment(FOLDER / 'comparison')}")


if __name__ == "__main__":
    main()
