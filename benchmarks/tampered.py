"""Checkpoints that were edited and have checksums that fit: refused, or the run that goes on from them is a true one.

    python -m benchmarks.tampered                  # 1000 edits over 14 kinds of run
    python -m benchmarks.tampered --edits 100

An edit changes one value of the header or one array at random. What a run cannot have written is refused with a
`CheckpointError`. Else the run goes on: its end has the bits of the run that was never interrupted (equal), or what was
edited made another run of it, whose f is that of its x and whose success holds at a new look (true).
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import tercet
from tercet.methods.checkpoint import FRAME, MARK, frames_of

Frames = list[tuple[dict[str, Any], dict[str, Any]]]
ODD: list[Any] = [
    -1, 0, 1, 2, 1.5, -0.5, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), 10**30, None, True, False, "x",
    "", [], [1], {}, {"a": 1}, {"array": "state0"}, {"array": "none"},
]  # fmt: skip
FEW = 4  # iterations until the checkpoint
MORE = 60
CLOSE = 1e-9


def written(frames: Frames, path: Path) -> Path:
    """The frames as a file, with checksums that fit."""
    parts = []
    for header, arrays in frames:
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **arrays, header=np.array(json.dumps(header)))
        body = out.getvalue()
        parts.append(FRAME.pack(MARK, len(body), zlib.crc32(body)) + body)
    path.write_bytes(b"".join(parts))
    return path


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a tree."""
    pairs: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def edit_header(header: dict[str, Any], rnd: random.Random) -> tuple[Any, Any]:
    """One value of it is another, of its own kind or of any."""
    *way, last = rnd.choice(list(places(header)))
    node: Any = header
    for key in way:
        node = node[key]
    old = node[last]
    plain = isinstance(old, int | float) and not isinstance(old, bool) and abs(old) < 1e300
    if rnd.random() < 0.15 and isinstance(node, dict):
        del node[last]
    elif plain and rnd.random() < 0.5:
        node[last] = rnd.choice([-old, old + 1, 2 * old, old + 1e-3 if isinstance(old, float) else old - 1])
    else:
        node[last] = rnd.choice(ODD)
    return (*way, last), old


def edit_array(arrays: dict[str, Any], rnd: random.Random) -> tuple[Any, Any]:
    """One array has another shape or type, or other numbers."""
    name = rnd.choice(list(arrays))
    array = arrays[name].copy()
    if array.dtype.names:
        column = rnd.choice(array.dtype.names)
        array[column][rnd.randrange(len(array))] = rnd.choice([-1, 0, 7, 10**9])
    else:
        changes: list[Callable[[Any], Any]] = [lambda a: a[:-1], lambda a: a.astype(np.float32), lambda a: -a]
        changes += [lambda a: a.astype(complex), lambda a: a.astype(str), lambda a: a[..., None], np.zeros_like]
        array = rnd.choice([*changes, lambda a: a * np.nan])(array)
    arrays[name] = array
    return name, array


def edit(journal: Frames, rnd: random.Random) -> tuple[Frames, Any]:
    """The first or the last frame with one edit, and what it was."""
    frames = copy.deepcopy(journal)
    header, arrays = frames[rnd.choice([0, -1])]
    return frames, edit_header(header, rnd) if rnd.random() < 0.7 else edit_array(arrays, rnd)


@dataclass(frozen=True, eq=False)
class Kind:
    """A problem, its start and a method."""

    problem: Any
    x0: Any
    method: Any = field(default_factory=tercet.STM)
    derivatives: dict[str, Any] = field(default_factory=dict)
    bounds: Any = None

    def journal(self, path: Path) -> Frames:
        """A checkpoint of its run after a few iterations."""
        how = {"method": self.method, "max_iterations": FEW, "seed": 1, "checkpoint": path}
        tercet.minimize(self.problem, self.x0, bounds=self.bounds, **how, **self.derivatives)
        return list(frames_of(path.read_bytes()))

    def resume(self, path: Path) -> tercet.Result:
        """On from there."""
        return tercet.resume(path, self.problem, max_iterations=MORE, **self.derivatives)

    def value(self, x: Any) -> float:
        """f, asked anew."""
        if callable(self.problem):
            return float(self.problem(np.asarray(x)))
        return float(self.problem.over(None).at(np.asarray(x)).value())

    def true(self, result: tercet.Result) -> bool:
        """f is that of x, and a success is one at a new look."""
        f = self.value(result.x)
        if not (np.isclose(result.fun, f, rtol=CLOSE, atol=1e-12) or (np.isnan(f) and np.isnan(result.fun))):
            return False
        # A tolerance that was edited is asked again as it is; a certificate of the default holds within its own error.
        t = result.certificate
        tol = None if t.relative else tercet.Tolerances(2 * max(t.chi1, t.eps1), t.eps2, t.eps3)
        again = {"tol": tol, "bounds": self.bounds, **self.derivatives}
        return not result.success or tercet.certify(self.problem, result.x, **again).holds


def kinds() -> dict[str, Kind]:
    """Runs of every method over a linear model, and of every problem by STM."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = (X @ np.ones(3) + rng.standard_normal(200) > 0).astype(float)
    start, linear = 3.0 * rng.standard_normal(3), tercet.LinearModel(X, y, l2=1e-3)
    methods = {
        "STM": tercet.STM(tercet.Progressive(multiple=4)),
        "SCR": tercet.SCR(tercet.Adaptive()),
        "Growing": tercet.STM(tercet.Growing(0.1, 1.5)),
        "Fixed": tercet.STM(tercet.Fixed(0.5, 1.0, 0.5)),
        "Krylov": tercet.STM(tercet.Full(), tercet.Krylov()),
        "Subspace": tercet.STM(tercet.Full(), tercet.Subspace()),
        "descent": tercet.SCR(subsolver=tercet.GradientDescent()),
        "paper": tercet.STM.paper(),
        "SGD": tercet.SGD(),
    }
    found = {name: Kind(linear, start, method) for name, method in methods.items()}
    found["values only"] = Kind(quartic, start)
    found["with jac"] = Kind(quartic, start, derivatives={"grad": slope})
    found["between bounds"] = Kind(quartic, np.full(3, 1.9), derivatives={"grad": slope}, bounds=[(0.7, 2.0)] * 3)
    found["FiniteSum"] = Kind(tercet.FiniteSum(lambda p, a, b: jnp.log1p(jnp.exp(-b * (a @ p))), (X, 2 * y - 1)), start)
    found["Residuals"] = Kind(tercet.Residuals(lambda p, a, b: jnp.tanh(a @ p) - b, (X, y)), start)
    return found


def quartic(x: Any) -> float:
    """A strict minimum."""
    return float(np.sum((x - 1.0) ** 4) + np.sum(x**2))


def slope(x: Any) -> Any:
    """Its gradient."""
    return 4.0 * (x - 1.0) ** 3 + 2.0 * x


def outcome(kind: Kind, journal: Frames, whole: tercet.Result, rnd: random.Random, path: Path) -> tuple[str, Any]:
    """What became of one edit, and the edit."""
    frames, what = edit(journal, rnd)
    try:
        result = kind.resume(written(frames, path))
    except tercet.CheckpointError:
        return "refused", what
    except Exception:  # what a benchmark of bare tracebacks counts
        return f"bare: {traceback.format_exc(limit=-1)}", what
    if np.asarray(result.x).tobytes() == np.asarray(whole.x).tobytes() and result.status is whole.status:
        return "equal", what
    return "true" if kind.true(result) else f"lie: {result.status.name} at {result.x}", what


def main() -> None:
    """Count what became of all edits, and show every one that was neither refused nor true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=1000)
    edits = parser.parse_args().edits
    total, every = Counter[str](), kinds()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for k, (name, kind) in enumerate(every.items()):
            path, counts = Path(folder) / "run.ckpt", Counter[str]()
            journal = kind.journal(path)
            whole = kind.resume(path)
            for seed in range(k, edits, len(every)):
                found, what = outcome(kind, journal, whole, random.Random(seed), path)
                counts[found.partition(":")[0]] += 1
                if found not in ("refused", "equal", "true"):
                    print(f"{name}, edit {seed}: {what}\n  {found}", flush=True)
            total += counts
            print(f"{name:16}" + ", ".join(f"{many} {what}" for what, many in sorted(counts.items())), flush=True)
    print(f"{edits} edits: " + ", ".join(f"{many} {what}" for what, many in sorted(total.items())))


if __name__ == "__main__":
    main()
