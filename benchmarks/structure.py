"""How much a reader has to hold in mind: one iteration of STM counted with a profile hook, and the source itself.

    python -m benchmarks.structure

A switch is a call into another file than that of the call before. The solver's algebra (`subsolvers`, `model`,
`vectors`) is left out. Compiled kernels count as calls, as the hook sees them. Times are medians, on one thread.
"""

from __future__ import annotations

import ast
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet

ROOT = Path(tercet.__file__).parent
ALGEBRA = ("subsolvers", "model.py", "vectors.py")
METER = ("objectives/metered.py", "objectives/counting.py")  # its name now, and before


def problem(n: int, d: int, density: float) -> tercet.LinearModel:
    """The paper's loss on sparse rows."""
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=density, rng=rng, format="csr")
    return tercet.LinearModel(X, (X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0).astype(float), l2=1e-3)


def iterations(model: tercet.LinearModel, sizes: Any) -> list[tuple[Any, list[str]]]:
    """The rows of a run that buys third derivatives always, each with the files of its calls."""
    calls: list[str] = []
    found: list[tuple[Any, list[str]]] = []

    def hook(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            calls.append(frame.f_code.co_filename[len(str(ROOT)) + 1 :])

    def watch(info: tercet.Info) -> None:
        sys.setprofile(None)
        found.append((info.row, list(calls)))
        calls.clear()
        sys.setprofile(hook)

    try:
        start = np.random.default_rng(1).standard_normal(model.d)
        tercet.minimize(model, start, method=tercet.STM(sizes, worth=np.inf), callback=watch, max_iterations=12)
    finally:
        sys.setprofile(None)
    return found


def switches(calls: list[str]) -> int:
    """Calls into another file than the one before, outside the algebra."""
    outside = [file for file in calls if not file.startswith(ALGEBRA)]
    return sum(a != b for a, b in pairwise(outside))


def dynamic() -> None:
    """One iteration, over all terms and over a sample."""
    few, many = problem(3000, 40, 0.2), problem(60_000, 40, 0.2)
    for name, model, sizes, wanted in (
        ("all terms", few, tercet.Full(), lambda before, now: now == few.n),
        ("a sample", many, tercet.Progressive(), lambda before, now: now == before < many.n),
        ("a sample that grew", many, tercet.Progressive(), lambda before, now: before < now < many.n),
    ):
        found = iterations(model, sizes)
        runs = [
            (row, calls)
            for (last, _), (row, calls) in pairwise(found)
            if row.accepted and row.as_dict()["third_bought"] and wanted(last.sizes.value, row.sizes.value)
        ]
        counts = [
            (len(calls), len(set(calls)), switches(calls), sum(file in METER for file in calls)) for _, calls in runs
        ]
        middle = np.median(counts, axis=0).astype(int)
        print(
            f"one iteration over {name}: {middle[0]} calls in {middle[1]} files, "
            f"{middle[2]} switches outside the algebra, {middle[3]} calls into the meter"
        )


def static() -> None:
    """The source: its largest classes, functions and files, and what should not be there."""
    classes, functions, lines, cells = [], [], [], []
    words = dict.fromkeys(("__dict__", "type: ignore"), 0)
    for path in sorted(ROOT.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        lines.append((len(text.splitlines()), name))
        words = {word: count + text.count(word) for word, count in words.items()}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
                classes.append((len(methods), f"{name}: {node.name}"))
                written = {cell for m in methods if m.name not in ("__init__", "__post_init__") for cell in assigned(m)}
                if written and name.startswith(("methods", "control", "objectives", "sampling", "critical")):
                    cells.append(f"{node.name} ({', '.join(sorted(written))})")
            if isinstance(node, ast.FunctionDef):
                functions.append(((node.end_lineno or 0) - node.lineno + 1, f"{name}: {node.name}"))
    for what, found in (("class, by its methods", classes), ("function, by its lines", functions), ("file", lines)):
        print(f"largest {what}: " + ", ".join(f"{where} {size}" for size, where in sorted(found, reverse=True)[:3]))
    print("lines with " + ", ".join(f"{word}: {count}" for word, count in words.items()))
    print("written outside a constructor: " + "; ".join(cells))


def assigned(function: ast.FunctionDef) -> set[str]:
    """The attributes of self that a method sets."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == "self":
                found.add(node.attr)
            elif isinstance(owner, ast.Attribute):
                found.add(f"{owner.attr}.{node.attr}")
    return found


def milliseconds(model: tercet.LinearModel, x0: np.ndarray, method: Any, repeats: int = 40) -> tuple[float, float]:
    """Processor time of one iteration, from callback to callback, and of a whole call with its certificate; medians."""
    one, whole = [], []
    for _ in range(repeats):
        clock = [time.process_time()]
        tercet.minimize(model, x0, method=method, callback=lambda _, seen=clock: seen.append(time.process_time()))
        whole.append(time.process_time() - clock[0])
        one += [after - before for before, after in pairwise(clock[1:])]
    return 1e3 * float(np.median(one)), 1e3 * float(np.median(whole))


def speed() -> None:
    """One iteration on small dense data."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 20))
    y = (X @ rng.standard_normal(20) + rng.standard_normal(1000) > 0).astype(float)
    for loss in ("sigmoid_squares", "logistic"):
        for start in (0.0, 1.0):
            model, x0 = tercet.LinearModel(X, y, loss, l2=1e-3), start * rng.standard_normal(20)
            for method in (tercet.STM(), tercet.SCR()):
                one, whole = milliseconds(model, x0, method)
                print(
                    f"n = 1000, d = 20, {loss}, start {start:g} N(0, I), {type(method).__name__}: "
                    f"processor ms an iteration {one:.2f}, a call {whole:.2f}"
                )


def main() -> None:
    """All of it."""
    dynamic()
    static()
    speed()


if __name__ == "__main__":
    main()
