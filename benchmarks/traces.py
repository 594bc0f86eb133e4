"""Runs of fixed seeds over every objective, size rule, sub-solver and method, to compare two versions bit for bit.

    python -m benchmarks.traces store FILE [--cases a9a,jax]      # with the version to compare with
    python -m benchmarks.traces compare FILE [--cases a9a,jax]    # with another: which runs differ, and their counts

A file holds each run's iterations (all columns but the seconds), its last point, value, status and certificate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tercet
from benchmarks.data import folder, load
from tercet.result import COLUMNS

Runs = Iterator[tuple[str, Callable[[], tercet.Result]]]
STARTS = {"0": 0.0, "N": 1.0, "3N": 3.0}


def start(d: int, scale: float, seed: int = 0) -> np.ndarray:
    """scale N(0, I)."""
    return scale * np.random.default_rng(seed + 7).standard_normal(d)


def linear(name: str, problem: Any, starts: tuple[str, ...], methods: dict[str, Any], seeds: int = 1) -> Runs:
    """A linear model from some starts by some methods."""
    for where in starts:
        for label, method in methods.items():
            for seed in range(seeds):
                x0 = start(problem.d, STARTS[where])
                yield (
                    f"{name} from {where}, {label}, seed {seed}",
                    lambda x0=x0, method=method, seed=seed: tercet.minimize(
                        problem, x0, method=method, seed=seed, max_iterations=300
                    ),
                )


BOTH = {"STM": tercet.STM(), "SCR": tercet.SCR()}


def a9a() -> Runs:
    """a9a, sparse."""
    X, y = load("a9a")
    for l2 in (1e-3, 1e-6):
        yield from linear(f"a9a {l2:g}", tercet.LinearModel(X, y, l2=l2), ("0", "N", "3N"), BOTH, seeds=2)


def covtype() -> Runs:
    """covtype, where B lags."""
    X, y = load("covtype")
    for l2 in (1e-3, 1e-6):
        yield from linear(f"covtype {l2:g}", tercet.LinearModel(X, y, l2=l2), ("0", "N"), BOTH)


def splice() -> Runs:
    """splice, dense and unscaled."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(folder() / "splice"))
    for loss in ("sigmoid_squares", "logistic"):
        problem = tercet.LinearModel(X.toarray(), (y > 0).astype(float), loss, l2=1e-3)
        yield from linear(f"splice {loss}", problem, ("0", "N", "3N"), BOTH)


def cancer() -> Runs:
    """Breast cancer: every loss, penalty, weights, and every rule and sub-solver."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    raw, X = X, (X - X.mean(axis=0)) / X.std(axis=0)
    rng = np.random.default_rng(0)
    target, weights = X @ rng.standard_normal(30) + rng.standard_t(2, len(y)), rng.random(len(y))
    for loss in ("sigmoid_squares", "logistic", "squares", "cauchy", "welsch", "geman_mcclure"):
        labels = y if loss in ("sigmoid_squares", "logistic") else target
        problem = tercet.LinearModel(X, labels, loss, l2=1e-4, intercept=True)
        yield from linear(f"cancer {loss}", problem, ("0", "N"), BOTH)
    problem = tercet.LinearModel(X, y, l2=1e-4, alpha=1e-2, weights=weights)
    yield from linear("cancer penalty and weights", problem, ("0", "N"), BOTH)
    yield from linear("cancer raw", tercet.LinearModel(raw, y, l2=1e-3), ("0",), BOTH)


def rules() -> Runs:
    """All size rules and sub-solvers on generated data."""
    from tercet.theory import constants

    rng = np.random.default_rng(1)
    n, d = 4000, 6
    X = rng.standard_normal((n, d))
    y = (X @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
    problem = tercet.LinearModel(X, y, l2=1e-2)
    ranges = constants(problem).ranges
    sizes = {
        "Full": tercet.Full(),
        "Fixed": tercet.Fixed(0.2, 0.1, 0.05),
        "Fixed with replacement": tercet.Fixed(0.2, 0.1, 0.05, replacement=True),
        "Fixed all": tercet.Fixed(1.0, 1.0, 1.0),
        "Fixed gradient": tercet.Fixed(1.0, 0.1, 0.1),
        "Growing": tercet.Growing(),
        "Adaptive": tercet.Adaptive(),
        "Progressive": tercet.Progressive(multiple=5),
        "Progressive that lags": tercet.Progressive(multiple=5, lag=1.0),
        "Theory": tercet.Theory(0.3, 0.1, ranges),
        "Theory, Bernstein": tercet.Theory(0.3, 0.1, ranges, bound="bernstein"),
    }
    for name, rule in sizes.items():
        for kind in (tercet.STM, tercet.SCR):
            methods = {kind.__name__: kind(sizes=rule)}
            yield from linear(f"rule {name}", problem, ("0", "N"), methods, seeds=2)
    solvers = {
        "Dense": tercet.Dense(),
        "Krylov": tercet.Krylov(),
        "Subspace": tercet.Subspace(),
        "GradientDescent": tercet.GradientDescent(),
        "Accelerated": tercet.Accelerated(),
    }
    for name, solver in solvers.items():
        for rule in (tercet.Progressive(multiple=5), tercet.Full(), tercet.Fixed(0.2, 0.1, 0.1)):
            if name == "Subspace" and not rule.nested:
                continue
            methods = {
                "STM": tercet.STM(sizes=rule, subsolver=solver),
                "STM always": tercet.STM(sizes=rule, subsolver=solver, worth=np.inf),
            }
            yield from linear(f"solver {name}, {type(rule).__name__}", problem, ("N",), methods)
    others = {
        "STM paper": tercet.STM.paper(),
        "SCR paper": tercet.SCR.paper(),
        "STM PaperSigma": tercet.STM(sigma=tercet.PaperSigma()),
        "STM not noise aware": tercet.STM(tercet.Fixed(0.05, 0.05, 0.05), noise_aware=False),
        "SGD": tercet.SGD(step=1.0),
    }
    yield from linear("method", problem, ("0", "N"), others)
    yield from linear("noise", tercet.LinearModel(X, y * 0 + (X[:, 0] > 0), l2=0.0), ("N",), BOTH)
    exact = tercet.LinearModel(X, X @ np.ones(d), "cauchy")
    yield from linear("exact fit", exact, ("0", "N"), BOTH)


def wide() -> Runs:
    """More variables than a Hessian is formed in: Subspace, Krylov."""
    import scipy.sparse as sp

    rng = np.random.default_rng(2)
    n, d = 3000, 4000
    X = sp.random_array((n, d), density=0.004, rng=rng, format="csr")
    y = (X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0).astype(float)
    for l2 in (1e-2, 1e-4):
        problem = tercet.LinearModel(X, y, l2=l2)
        methods = {**BOTH, "Krylov": tercet.STM(subsolver=tercet.Krylov())}
        yield from linear(f"wide {l2:g}", problem, ("0", "N"), methods)


def mgh() -> Runs:
    """Plain functions by JAX."""
    from benchmarks.problems.mgh import PROBLEMS

    for problem in PROBLEMS:
        for name, method in {"STM": tercet.STM(), "SCR": tercet.SCR()}.items():
            for order in (1, 3) if name == "STM" else (1,):
                yield (
                    f"mgh {problem.number} {name} order {order}",
                    lambda p=problem, m=method, o=order: tercet.minimize(
                        p.fun, p.x0, method=m, order=o, max_iterations=200
                    ),
                )


def degenerate() -> Runs:
    """Degenerate starts, as functions and as sums."""
    from benchmarks.problems.degenerate import PROBLEMS

    for problem in PROBLEMS:
        beside = problem.start + 1e-6 * start(len(problem.start), 1.0)
        for where, x0 in (("at", problem.start), ("beside", beside)):
            for kind in ("function", "sum"):
                target = problem.fun if kind == "function" else tercet.FiniteSum(problem.loss, problem.data)
                yield (
                    f"degenerate {problem.name} {kind} {where}",
                    lambda t=target, x=x0: tercet.minimize(t, x, max_iterations=300),
                )


def callables() -> Runs:
    """NumPy functions with more and fewer derivatives."""
    from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod

    given = {
        "f": {},
        "f, g": {"grad": rosen_der},
        "f, g, H": {"grad": rosen_der, "hess": rosen_hess},
        "f, g, Hv": {"grad": rosen_der, "hvp": rosen_hess_prod},
    }
    for name, derivatives in given.items():
        for d in (2, 6, 20):
            if name == "f" and d > 6:
                continue
            for label, method in {**BOTH, "Krylov": tercet.STM(subsolver=tercet.Krylov())}.items():
                x0 = np.tile([-1.2, 1.0], d // 2)
                yield (
                    f"callables {name}, d = {d}, {label}",
                    lambda x0=x0, m=method, g=derivatives: tercet.minimize(
                        lambda x: float(rosen(np.asarray(x))), x0, method=m, tol=1e-6, max_iterations=200, **g
                    ),
                )


def jax_sums() -> Runs:
    """JAX finite sums, where Hessians are used again and lag."""
    from benchmarks.speed.sums import linear as linear_sum
    from benchmarks.speed.sums import mixture, network, skew_normal

    for name, (loss, data), d in (
        ("linear", linear_sum(30_000), 50),
        ("scaled", linear_sum(30_000, 0.01), 50),
        ("skew-normal", skew_normal(20_000), 23),
        ("mixture", mixture(20_000), 22),
        ("network", network(3_000), 97),
    ):
        problem = tercet.FiniteSum(loss, data)
        for label, method in {**BOTH, "Fixed": tercet.STM(tercet.Fixed(0.5, 0.2, 0.1))}.items():
            for seed in range(2):
                yield (
                    f"jax {name}, {label}, seed {seed}",
                    lambda p=problem, d=d, m=method, s=seed: tercet.minimize(
                        p, start(d, 1.0), method=m, seed=s, tol=1e-7, max_iterations=60
                    ),
                )


def torch_sums() -> Runs:
    """PyTorch finite sums."""
    import torch

    import tercet.torch

    rng = np.random.default_rng(5)
    X = torch.tensor(rng.standard_normal((3000, 8)))
    y = torch.tensor((rng.random(3000) < 0.5).astype(float))

    def loss(w: Any, x: Any, label: Any) -> Any:
        return 0.5 * (torch.sigmoid(x @ w) - label) ** 2 + 1e-4 * (w @ w)

    problem = tercet.torch.FiniteSum(loss, (X, y))
    for label, method in {**BOTH, "Full": tercet.STM(tercet.Full())}.items():
        yield (
            f"torch {label}",
            lambda m=method: tercet.minimize(problem, torch.tensor(start(8, 1.0)), method=m, tol=1e-7),
        )


def checkpoints() -> Runs:
    """A run that is interrupted at each of its iterations and resumed equals the run in one piece."""
    rng = np.random.default_rng(1)
    n, d = 3000, 5
    X = rng.standard_normal((n, d))
    y = (X @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
    problem = tercet.LinearModel(X, y, l2=1e-2)
    methods = {
        "Progressive": tercet.STM(),
        "lags": tercet.STM(tercet.Progressive(multiple=5, lag=1.0)),
        "Fixed": tercet.STM(tercet.Fixed(0.5, 0.2, 0.1)),
        "SGD": tercet.SGD(step=1.0),
    }

    def resumed(method: Any, stop: int) -> tercet.Result:
        with tempfile.TemporaryDirectory() as where:
            path = Path(where) / "run.ckpt"
            tercet.minimize(problem, start(d, 3.0), method=method, checkpoint=path, max_iterations=stop)
            return tercet.resume(path, problem, max_iterations=40)

    for name, method in methods.items():
        for stop in (1, 3, 6):
            yield f"checkpoint {name} at {stop}", lambda m=method, k=stop: resumed(m, k)


CASES: dict[str, Callable[[], Runs]] = {
    "a9a": a9a, "covtype": covtype, "splice": splice, "cancer": cancer, "rules": rules, "wide": wide, "mgh": mgh,
    "degenerate": degenerate, "callables": callables, "jax": jax_sums, "torch": torch_sums, "checkpoints": checkpoints,
}  # fmt: skip


def record(result: tercet.Result) -> dict[str, np.ndarray]:
    """All that a run shows, but its seconds."""
    kept = [name for name in COLUMNS if name != "seconds"]
    trace = {name: np.array([np.nan if v is None else float(v) for v in result.trace[name]]) for name in kept}
    x = result.x
    c, n = result.certificate, result.counts
    return {
        **{f"trace_{name}": column for name, column in trace.items()},
        "x": np.asarray(x.detach().numpy() if hasattr(x, "detach") else x, dtype=float).ravel(),
        "last": np.array([result.fun, c.chi1, c.chi2, c.chi3, n.value, n.gradient, n.hessian, n.third, result.nit]),
        "status": np.array(result.status.name),
    }


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Equal in every bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)


def differ(name: str, old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> str:
    """One line on how two runs differ."""
    rows = min(len(old["trace_f"]), len(new["trace_f"]))
    columns = [k for k in old if k.startswith("trace_")]
    off = [
        (i, k.removeprefix("trace_"))
        for i in range(rows)
        for k in columns
        if not np.array_equal(old[k][i], new[k][i], equal_nan=True)
    ]
    first = f"row {off[0][0]}: {', '.join(k for i, k in off if i == off[0][0])}" if off else "rows equal"
    before, after = old["last"], new["last"]
    counts = [f"{int(b)}->{int(a)}" for b, a in zip(before[4:8], after[4:8], strict=True)]
    return (
        f"{name}: {old['status']}->{new['status']}, f {after[0] - before[0]:+.1e}, "
        f"nit {int(before[8])}->{int(after[8])}, counts {' '.join(counts)} "
        f"({sum(after[4:8]) / max(1.0, sum(before[4:8])):.3f}); {first}"
    )


def main() -> None:
    """Store or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("store", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    arrays: dict[str, np.ndarray] = {}
    stored = dict(np.load(options.file)) if options.what == "compare" else {}
    equal = total = 0
    for case in options.cases.split(","):
        begin, ratios = time.perf_counter(), []
        for name, run in CASES[case]():
            new = record(run())
            total += 1
            if options.what == "store":
                arrays |= {f"{name}|{key}": value for key, value in new.items()}
                continue
            old = {key.split("|")[1]: value for key, value in stored.items() if key.split("|")[0] == name}
            if same(old, new):
                equal += 1
            else:
                print(differ(name, old, new) if old else f"{name}: not stored", flush=True)
            if old:
                ratios.append(sum(new["last"][4:8]) / max(1.0, sum(old["last"][4:8])))
        mean = f", counts {np.exp(np.mean(np.log(ratios))):.4f} in the mean" if ratios else ""
        print(f"{case}: {time.perf_counter() - begin:.0f} s{mean}", file=sys.stderr, flush=True)
    if options.what == "store":
        np.savez_compressed(options.file, **arrays)
        print(f"{total} runs stored")
    else:
        print(f"{equal} of {total} runs equal")


if __name__ == "__main__":
    main()
