"""A shuffled order of rows that needs no list of them: each row has a key of its own.

    key_i = Philox(seed)[i],   the sample of m rows = those with the m smallest keys

Philox is a generator by counter: the key of row i is computed from the seed and i alone. So samples are nested, do not
depend on how the rows are cut into shards, and each shard finds its part without the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tercet.records import Rows

WIDTH = 4  # numbers that Philox gives for one count
SLACK = 6.0  # standard deviations: a threshold for m rows leaves fewer than m with a probability below 1e-8
Keys = NDArray[np.uint64]


def keys(seed: int, start: int, stop: int) -> Keys:
    """The keys of the rows from start up to stop."""
    first = start // WIDTH
    stream = np.random.Philox(seed=np.random.SeedSequence([seed, 2]))
    stream.advance(first)
    return stream.random_raw(stop - WIDTH * first)[start - WIDTH * first :]


def threshold(m: int, n: int) -> int:
    """Nearly surely at least m of n keys are below, and not many more."""
    if m >= n:
        return 1 << 64
    share = (m + SLACK * np.sqrt(m) + SLACK * SLACK) / n
    return min(1 << 64, int(share * 2.0**64))


def below(seed: int, start: int, stop: int, limit: int) -> tuple[Rows, Keys]:
    """The rows from start up to stop whose keys are below a limit, and these."""
    each = keys(seed, start, stop)
    found = np.arange(len(each)) if limit >= 1 << 64 else np.flatnonzero(each < np.uint64(limit))
    return (start + found).astype(np.intp), each[found]


def by_key(rows: Rows, each: Keys) -> NDArray[np.intp]:
    """The places of rows in the order of their keys; equal ones in the order of the rows."""
    return np.lexsort((rows, each))
