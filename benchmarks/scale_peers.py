"""For `benchmarks.scale`: scikit-learn's SGD by `partial_fit` over the same shards, dask-ml's L-BFGS on two workers.

dask-ml is used where it is installed: `pip install --target DIR --no-deps dask-ml dask-glm multipledispatch sparse`,
and DIR on PYTHONPATH.
"""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import numpy as np

import tercet
from benchmarks.scale_watch import ROUNDS, lbfgs, reached, recorded

RATES = itertools.product(("constant", "invscaling", "adaptive"), (1e-3, 1e-2, 1e-1), (False, True))
GRID: tuple[dict[str, Any], ...] = (
    *({"learning_rate": "optimal", "average": average} for average in (False, True)),
    *({"learning_rate": rate, "eta0": eta, "average": average} for rate, eta, average in RATES),
)


def sgd(data: tercet.Shards, l2: float, bytes_: int) -> dict[str, Any]:
    """The gap of SGD at its best of a grid, in the processor time in which ours reached its own."""
    from sklearn.linear_model import SGDClassifier

    model = tercet.LinearModel(data, loss="logistic", l2=l2, sample_bytes=bytes_)
    start = time.process_time()
    result = tercet.minimize(model, order=2)
    budget, view = time.process_time() - start, model.over(None)
    gaps: dict[str, float] = {}
    for settings in GRID:
        estimator = SGDClassifier("log_loss", alpha=l2, fit_intercept=False, random_state=0, **settings)
        start = time.process_time()
        for i in itertools.cycle(range(len(data))):
            X, y, _ = data.read(i)
            estimator.partial_fit(X, y, classes=[0.0, 1.0])
            if time.process_time() - start > budget:
                break
        gaps[" ".join(f"{key}={value}" for key, value in settings.items())] = (
            view.at(estimator.coef_[0]).value() - result.fun
        )
    best = min(gaps, key=lambda name: gaps[name])
    print(
        f"  SGD, l2 {l2:g}: best gap {gaps[best]:.1e} of {len(GRID)} settings ({best}) in {budget:.1f} s of processors,"
    )
    print(f"    in which ours is certified, f within {result.certificate.error_f:.1e} of its minimum")
    return {"seconds": budget, "gaps": gaps, "ours": result.certificate.error_f}


def dask_ml(client: Any, data: tercet.Shards, l2: float, bytes_: int, gap: float) -> dict[str, Any]:
    """Ours, SciPy's L-BFGS over our own Dask sums, and dask-ml's, on chunks that the workers hold."""
    import dask
    import dask.array as da

    import tercet.dask

    parts = [dask.delayed(data.read)(i) for i in range(len(data))]
    shapes = [(extent.rows, extent.columns) for extent in data.layout.extents]
    X, y = (
        da.concatenate([da.from_delayed(p[k], shape[: 2 - k], float) for p, shape in zip(parts, shapes, strict=True)])
        for k in (0, 1)
    )
    X, y = client.persist([X, y])
    model = tercet.dask.LinearModel(X, y, client=client, loss="logistic", l2=l2, sample_bytes=bytes_)
    tercet.minimize(model, order=2, max_iterations=2)  # imports and compiled loops are there
    model = tercet.dask.LinearModel(X, y, client=client, loss="logistic", l2=l2, sample_bytes=bytes_)
    with recorded() as seen:
        start = time.perf_counter()
        result = tercet.minimize(model, order=2)
    certified, target, view = time.perf_counter() - start, result.fun + gap, model.over(None)
    (passes, ours), peer = reached(seen, target, start), lbfgs(model, target)
    out: dict[str, Any] = {"ours": ours, "passes": passes, "certified": certified, "L-BFGS, our sums": peer}
    print(f"  Dask, l2 {l2:g}, to {gap:g}: ours {ours:.1f} s, {passes:g} passes (certificate {certified:.1f} s)")
    there = "" if peer[0] < np.inf else ", not there"
    print(f"    SciPy's L-BFGS over our sums {peer[1]:.1f} s, {min(peer[0], ROUNDS):g} passes{there}")
    try:
        from dask_glm.algorithms import lbfgs as theirs_lbfgs
        from dask_glm.families import Logistic
    except ModuleNotFoundError as error:
        print(f"    dask-ml's L-BFGS: not run, {error}")
        return out
    b = np.full(model.d, 0.1)
    theirs = float(Logistic.pointwise_loss(b, X, y).compute()) / data.n + 0.5 * l2 * float(b @ b)
    np.testing.assert_allclose(theirs, view.at(b).value(), rtol=1e-10)  # the same objective
    for name, settings in (("default", {}), ("tightest", {"tol": 0.0, "max_iter": 1000})):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            beta = theirs_lbfgs(X, y, regularizer="l2", lamduh=l2 * data.n, **settings)
        spent, left = time.perf_counter() - start, view.at(np.asarray(beta)).value() - result.fun
        out[f"dask-ml, {name}"] = (spent, left)
        print(f"    dask-ml's L-BFGS, {name}: {spent:.1f} s, gap {left:.1e}")
    return out
