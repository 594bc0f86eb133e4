"""Some rows, their cuts, and shards that count, wait or fail as a test wants."""

import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tercet import Shards

RNG = np.random.default_rng(0)
N, D = 3000, 5
X = RNG.standard_normal((N, D))
Y = (X @ RNG.standard_normal(D) + RNG.standard_normal(N) > 0).astype(float)
TARGETS = X @ np.arange(1.0, D + 1) + 0.3 * RNG.standard_t(2, N)
W = RNG.uniform(0.1, 3.0, N)
CUTS = (0, 400, 401, 1700, 2500, N)
SHAPES = [(b - a, D) for a, b in itertools.pairwise(CUTS)]
SMALL = 500 * 8 * (D + 2)
OPTIONS = {"loss": "sigmoid_squares", "l2": 1e-3, "sample_bytes": SMALL}


def cut(values, cuts=CUTS):
    return [values[a:b] for a, b in itertools.pairwise(cuts)]


def shards_of(table=X, y=Y, w=None):
    return Shards(cut(table), cut(y), weights=None if w is None else cut(w))


def files(folder):
    for k, (table, y) in enumerate(zip(cut(X), cut(Y), strict=True)):
        np.save(folder / f"X-{k}.npy", table)
        np.save(folder / f"y-{k}.npy", y)
    return Shards(str(folder / "X-*.npy"), str(folder / "y-*.npy"))


@dataclass(frozen=True)
class Read:
    """Reads shards, and does what a test asks when a file lies there."""

    folder: str

    def __call__(self, i):
        folder = Path(self.folder)
        if (folder / "kill").exists() and i == 3:
            (folder / "kill").rename(folder / "killed")
            os.kill(os.getpid(), signal.SIGKILL)
        if (folder / f"fail-{i}").exists():
            raise OSError("no such tape")
        if (folder / f"flaky-{i}").exists():
            (folder / f"flaky-{i}").unlink()
            raise OSError("once")
        if (folder / "slow").exists():
            time.sleep(0.5)
        return cut(X)[i], cut(Y)[i]
