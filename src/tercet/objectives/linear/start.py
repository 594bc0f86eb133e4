"""A better start for a linear model, from a look along x and from directions that its rows do not see.

The view is that of a model on the host (`LinearView`) or on a device (`DeviceView`).
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.records import Vector
from tercet.watch import watched

FEW = 200  # rows that are looked at, if there are so many


def shrink(view: Any, x: Vector) -> tuple[Vector, int]:
    """tx with the lowest f of t = 1, 1/4, ..., 4^-6 and 0, and how many values of terms that took.

    Far from 0 a loss that saturates is flat in most rows, and no derivative tells the way back; along x the margins
    are known, and some of the rows tell it for next to nothing.
    """
    if not np.any(x):
        return x, 0
    few = max(FEW, view.terms // 8)
    some = view if view.terms <= few else view.take(np.arange(few) * view.terms // few)
    z = some.table.times(x)
    scales = [*(0.25**k for k in range(7)), 0.0]
    values = some.losses(z, scales) + np.array([view.penalty.value(t * x) for t in scales])
    lowest = min(range(len(scales)), key=lambda k: values[k] if isfinite(values[k]) else inf)
    return (x if lowest == 0 else scales[lowest] * x), len(scales) * some.terms


def unseen_to_rest(view: Any, x: Vector) -> Vector:
    """x at the l2 penalty's minimum along the directions that no row here sees (Av = 0); the loss stays the same.

    Without this a coordinate that the sample does not speak of keeps its start, however far out, until all data
    is used. Costs no evaluation of any term.
    """
    penalty, (m, d) = view.penalty, view.table.shape
    if penalty.l2 == 0.0 or penalty.alpha > 0.0 or not np.any(x):
        return x
    if view.wide:
        free = ~touched(view) & (penalty.mask > 0) & (x != 0.0)
        return np.where(free, 0.0, x) if np.any(free) else x
    gram = view.table.gram(np.ones(m) if on_host(view) else None)
    lengths = np.sqrt(np.diag(gram))  # of the columns, so that a badly scaled one does not look like nothing
    lengths[lengths == 0.0] = 1.0
    values, vectors = watched(view.table.look, np.linalg.eigh, gram / np.outer(lengths, lengths))
    N, _ = np.linalg.qr(vectors[:, values <= 1e-13 * d] / lengths[:, None])
    weighted = penalty.mask[:, None] * N
    return x - N @ np.linalg.lstsq(N.T @ weighted, weighted.T @ x, rcond=1e-10)[0]


def on_host(view: Any) -> bool:
    """Whether the rows are in NumPy or SciPy."""
    return isinstance(view.y, np.ndarray)


def touched(view: Any) -> Any:
    """Which columns hold anything but zeros in these rows."""
    if not on_host(view):
        return view.table.touched()
    seen = np.zeros(view.table.shape[1], dtype=bool)
    for _, block in view.table.blocks():
        seen[block.indices if sp.issparse(block) else np.any(block, axis=0)] = True
    return seen
