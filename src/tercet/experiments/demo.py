"""`make demo`: STM, SCR, SGD and SciPy's L-BFGS and trust-exact from the same start, on data that needs no download.

Three problems that show what third order is good for, and what it is not: scikit-learn's breast cancer data with the
paper's non-convex loss, where the methods of second and third order are even; a likelihood that is started at the
fitted normal model, a degenerate saddle (gradient zero, Hessian positive semidefinite), where only third derivatives
show the way down; and Powell's singular function, where third derivatives save steps and evaluations.
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
from tercet.objectives.functions import Function
from tercet.objectives.metered import Meter, Metered
from tercet.records import ORDERS, Counts, Vector

FOLDER = Path("demo")
LEAST = 1e-16  # a gap below is drawn here
EPOCHS, CALLS = "epochs: all evaluations over n", "evaluations of f and of its gradient"
COSTS: dict[str, Callable[[Counts], float]] = {
    EPOCHS: lambda c: c.epochs,
    CALLS: lambda c: (c.value + c.gradient) / c.n,
}


@dataclass(frozen=True, eq=False)
class Job:
    """A problem with its start, what is to be seen, and the cost that shows it."""

    name: str
    problem: Any
    x0: Vector
    seen: str
    cost: str = EPOCHS
    step: float = 0.1  # of SGD: of 1, 0.1, 0.01, ... the largest that does not blow up


@dataclass(eq=False)
class Outcome:
    """What one method made of a job: its points with their counts, the time, and the certificate of the last."""

    method: str
    seconds: float
    counts: Counts
    certificate: tercet.Certificate
    path: list[tuple[Counts, float]] = field(default_factory=list)  # counts, full objective


def breast_cancer() -> Job:
    """569 tumours, 30 standardized features: sigmoid squares with l2 = 1e-3 from a random start."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3, intercept=True)
    x0 = np.random.default_rng(0).standard_normal(problem.d)
    return Job("breast cancer, sigmoid squares, l2 = 1e-3", problem, x0, "even: second order does as well")


def skew_normal(n: int = 2000) -> Job:
    """Maximum likelihood of the skew-normal, started where one does: at mean and deviation of the data, without skew.

    There the score of the shape is a multiple of the mean's: the gradient is 0 and the Hessian singular, for any data.
    """
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    u, v = np.random.default_rng(3).standard_normal((2, n))
    data = 0.9 * np.abs(u) + np.sqrt(1 - 0.9**2) * v

    def negative_log_likelihood(x: Any, t: Any) -> Any:
        location, log_scale, shape = x
        z = (t - location) * jnp.exp(-log_scale)
        return log_scale - jnp.log(2.0) - norm.logpdf(z) - norm.logcdf(shape * z)

    start = np.array([data.mean(), np.log(data.std()), 0.0])
    problem = tercet.FiniteSum(negative_log_likelihood, data)
    return Job("skew-normal likelihood, from the normal model", problem, start, "won: only third order shows the way")


def powell_singular() -> Job:
    """Powell's function of four variables, whose Hessian at the minimum has rank 2; JAX differentiates it."""

    def fun(x: Any) -> Any:
        a, b, c, d = x
        return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4

    start = np.array([3.0, -1.0, 0.0, 1.0])
    seen = "won in steps and in evaluations of all orders"
    return Job("Powell's singular function", Function(fun), start, seen, CALLS, step=1e-3)


def solve(job: Job, name: str, method: Any, **budget: Any) -> Outcome:
    """One of our own methods; the path is watched through the callback and not counted."""
    bound = job.problem.bind(job.x0)
    full = bound.objective.over(None)
    path: list[tuple[Counts, float]] = [(Counts(), full.at(bound.x0).value())]

    def watch(info: tercet.Info) -> None:
        path.append((info.row.counts, full.at(np.asarray(info.x)).value()))

    tercet.minimize(job.problem, job.x0, method=method, callback=watch, **budget)
    started = time.perf_counter()  # the watched run has compiled what there is to compile; this one is timed
    result = tercet.minimize(job.problem, job.x0, method=method, **budget)
    seconds = time.perf_counter() - started
    path.append((result.counts, result.fun))
    return Outcome(name, seconds, result.counts, result.certificate, path)


def solve_with_scipy(job: Job, name: str, method: str, options: dict[str, Any]) -> Outcome:
    """A method of SciPy with our derivatives, counted the same way, and certified by us."""
    bound = job.problem.bind(job.x0)
    meter = Meter(bound.objective.n)
    view, full = Metered.of(bound.objective, meter).over(None), bound.objective.over(None)
    path: list[tuple[Counts, float]] = [(Counts(), full.at(bound.x0).value())]

    def watch(intermediate_result: Any) -> None:
        path.append((meter.counts(), float(intermediate_result.fun)))

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
    path.append((meter.counts(), float(run.fun)))
    certificate = tercet.minimize(job.problem, run.x, method=tercet.STM(tercet.Full()), max_iterations=0).certificate
    return Outcome(name, seconds, meter.counts(), certificate, path)


def compare(job: Job) -> list[Outcome]:
    """All methods from the same start."""
    return [
        solve(job, "STM", tercet.STM()),
        solve(job, "SCR", tercet.SCR()),
        solve(job, "SGD", tercet.SGD(batch=0.05, step=job.step), max_epochs=100, max_iterations=10**6),
        solve_with_scipy(job, "SciPy L-BFGS", "L-BFGS-B", {"gtol": 1e-8, "ftol": 0.0, "maxiter": 1000}),
        solve_with_scipy(job, "SciPy trust-exact", "trust-exact", {"gtol": 1e-8, "maxiter": 500}),
    ]


def table(job: Job, outcomes: list[Outcome]) -> str:
    """Gap, what it took to come within 1e-8, evaluations over n by order, seconds and certificate, a line a method."""
    lowest = min(f for outcome in outcomes for _, f in outcome.path)
    head = (
        f"{'method':<18}{'gap':>9}{'to 1e-8':>9}{'epochs':>8}  "
        + "".join(f"{order:>9}" for order in ORDERS)
        + f"{'seconds':>9}  certificate"
    )
    lines = [f"{job.name} ({job.seen})", head, "-" * len(head)]
    for o in outcomes:
        by_order = "".join(f"{getattr(o.counts, order) / o.counts.n:>9.1f}" for order in ORDERS)
        c = o.certificate
        verdict = "holds" if c.holds else f"fails: chi1 {c.chi1:.0e}, chi2 {c.chi2:.0e}, chi3 {c.chi3:.0e}"
        within = next((f"{counts.epochs:.1f}" for counts, f in o.path if f - lowest <= 1e-8), "never")
        gap = o.path[-1][1] - lowest
        lines.append(
            f"{o.method:<18}{gap:>9.1e}{within:>9}{o.counts.epochs:>8.1f}  {by_order}{o.seconds:>9.3f}  {verdict}"
        )
    return "\n".join(lines)


def picture(results: list[tuple[Job, list[Outcome]]], path: Path) -> None:
    """Gap against cost, one panel per problem; each method has its own line style as well as its color.

    A run ends in a dot where the certificate holds and in a cross where it does not. What a run still spends once it
    is within rounding, on its certificate, is not drawn.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(4.6 * len(results), 4.2), constrained_layout=True)
    styles = (("-", "#0072B2"), ("--", "#D55E00"), (":", "#7F7F7F"), ("-.", "#009E73"), ((0, (5, 1, 1, 1)), "#AA4499"))
    for ax, (job, outcomes) in zip(np.atleast_1d(axes), results, strict=True):
        lowest = min(f for outcome in outcomes for _, f in outcome.path)
        for outcome, (line, color) in zip(outcomes, styles, strict=True):
            cost, gap = np.array([(COSTS[job.cost](counts), f - lowest) for counts, f in outcome.path]).T
            last = int(np.argmax(gap <= LEAST)) if np.any(gap <= LEAST) else len(gap) - 1
            cost, gap = cost[: last + 1], np.maximum(gap[: last + 1], LEAST)
            ax.semilogy(cost, gap, linestyle=line, color=color, lw=2, label=outcome.method)
            ax.plot(cost[-1], gap[-1], marker="o" if outcome.certificate.holds else "X", ms=9, color=color)
        ax.set_title(f"{job.name}\n{job.seen}", fontsize=11)
        ax.set(xlabel=job.cost)
        ax.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set_ylabel("f - lowest f")
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    ends = {"o": "ends certified", "X": "ends, not certified"}
    handles += [plt.Line2D([], [], color="black", marker=marker, ls="", ms=8) for marker in ends]
    figure.legend(handles, [*labels, *ends.values()], loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})
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
    """Solve the problems with every method, print the tables, write the picture."""
    FOLDER.mkdir(exist_ok=True)
    results = []
    for make in (breast_cancer, skew_normal, powell_singular):
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
