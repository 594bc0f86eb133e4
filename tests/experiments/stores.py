"""Synthetic stores in the format of `tercet compare`, whose numbers are known in advance."""

import json

import numpy as np

ORDERS = ("value", "gradient", "hessian", "third")
FAMILIES = {"STM": "STM", "STM-paper": "STM", "SCR": "SCR", "SCR-paper": "SCR", "ARC": "ARC", "AR3": "AR3",
            "L-BFGS": "SciPy", "trust-exact": "SciPy"}  # fmt: skip
BASE = 0.125  # the minimum


def trace(rng, rate, rows=40, cost=(1.0, 1.0, 1.0, 0.5), n=1000, sgd=False):
    """A run that shrinks its gap by `rate` a row, down to 1e-12 (or, for SGD, to about 1e-5)."""
    k = np.arange(rows)
    floor = 1e-5 if sgd else 1e-12
    gap = np.maximum(0.4 * rate**k * np.exp(0.2 * rng.standard_normal(rows)), floor)
    gap = np.minimum.accumulate(gap)
    steps = {order: c * k * (1 + 0.1 * rng.random()) for order, c in zip(ORDERS, cost, strict=True)}
    columns = {
        "iteration": k, "seconds": 0.01 * k * (1 + rng.random()), "f": BASE + gap, **steps,
        **{f"paper_{order}": steps[order] * (0.3 if order in ("hessian", "third") else 1.0) for order in ORDERS},
        "sigma": None if sgd else 0.9**k, "ratio": None if sgd else 1 + 0.2 * rng.standard_normal(rows),
        "accepted": k >= 0, "size_gradient": np.minimum(n, 50 * 2**k.clip(max=20)),
        "size_hessian": None if sgd else np.minimum(n, 50 + 20 * k),
        "size_third": None if sgd else np.minimum(n, 50 + 10 * k), "chi1": np.sqrt(gap), "chi2": None, "chi3": None,
        "third_bought": k % 3 == 0,
    }  # fmt: skip
    out = {name: [None] * rows if v is None else np.asarray(v).tolist() for name, v in columns.items()}
    for place in (0, rows // 2, rows - 1):
        out["chi2"][place] = float(np.exp(-place))
        out["chi3"][place] = float(np.exp(-place / 2))
    return out


def record(dataset, l2, start, seed, method, n=1000, d=20, shift=0.0, **changes):
    """One line of runs.jsonl."""
    family = FAMILIES.get(method, "SGD" if method.startswith("SGD") else "own")
    rng = np.random.default_rng([seed, len(method), round(1e6 * l2), len(dataset), len(start)])
    rate = {"STM": 0.35, "SCR": 0.45, "AR3": 0.4, "ARC": 0.5, "SGD": 0.8, "SciPy": 0.6, "own": 0.7}[family]
    cost = {"STM": (1, 1, 1, 0.4), "AR3": (1, 1, 1, 1), "SGD": (0, 0.2, 0, 0)}.get(family, (1, 1, 1, 0))
    path = trace(rng, rate, cost=cost, n=n, sgd=family == "SGD", rows=200 if family == "SGD" else 40)
    path["f"] = [f + shift for f in path["f"]]
    return {
        "key": {"dataset": dataset, "l2": l2, "start": start, "seed": seed, "method": method},
        "n": n, "d": d, "loss": "sigmoid_squares", "lambda_note": f"{l2:g} on the mean", "family": family,
        "settings": {"seed": seed, "order": 3}, "counting_note": "", "status": "CERTIFIED", "success": family != "SGD",
        "message": "The certificate holds at the returned point.", "error": None, "fun": path["f"][-1],
        "seconds": path["seconds"][-1],
        "certificate": {"chi1": 1e-9, "chi2": 0.0, "chi3": 0.0, "eps1": 1e-8, "eps2": 1e-5, "eps3": 1e-3, "order": 3,
                        "holds": family != "SGD"},
        "basin": None, "trace": path, **changes,
    }  # fmt: skip


def write_store(folder, runs, references=None, settings=None):
    """The three files of a store."""
    folder.mkdir(parents=True, exist_ok=True)
    if references is None:
        keys = sorted({(r["key"]["dataset"], r["key"]["l2"]) for r in runs})
        references = [
            {"dataset": dataset, "l2": l2, "minima": [{"f": BASE, "certificate": {"holds": True}, "x_digest": "ab",
             "found_by": ["0"]}], "text": "One minimum, found from 10 starts."}
            for dataset, l2 in keys
        ]  # fmt: skip
    settings = settings or {
        "format": 1, "title": "synthetic", "methods": sorted({r["key"]["method"] for r in runs}), "max_epochs": 200,
        "versions": {"tercet": "0.0", "numpy": np.__version__}, "started": "2026-01-01T00:00:00",
    }  # fmt: skip
    (folder / "comparison.json").write_text(json.dumps(settings))
    for name, records in (("runs.jsonl", runs), ("references.jsonl", references)):
        (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def many_runs(datasets=("a9a", "covtype", "svmguide3"), l2s=(1e-3,), seeds=10, sgd=3, starts=("N",)):
    """A full protocol in small: eight methods and some settings of SGD."""
    methods = list(FAMILIES)
    methods += [f"SGD batch={b:g} step={s:g}" for b in (0.01, 0.05, 0.1) for s in (1e-4, 1e-3, 1e-2, 0.1, 1)][:sgd]
    return [
        record(dataset, l2, start, seed, method)
        for dataset in datasets for l2 in l2s for start in starts for seed in range(seeds) for method in methods
    ]  # fmt: skip


def small_store(folder):
    """Two data sets, three seeds, all methods and two choices of SGD."""
    return write_store(folder / "store", many_runs(datasets=("a9a", "svmguide3"), seeds=3, sgd=2))
