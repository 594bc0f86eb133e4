"""A better start for a linear model, from a look along x and from directions that its rows do not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from tercet.records import Vector
from tercet.watch import watched

if TYPE_CHECKING:
    from tercet.objectives.linear.point import LinearView


def shrink(view: LinearView, x: Vector) -> tuple[Vector, int]:
    """tx with the lowest f of t = 1, 1/4, ..., 4^-6 and 0, and how often f was looked at.

    Far from 0 a loss that saturates is flat in most rows, and no derivative tells the way back; along x the margins
    are known, so that a sample of the rows tells it for next to nothing.
    """
    if view.rows is None or not np.any(x):
        return x, 0
    z = view.table.times(x)
    scales = [*(0.25**k for k in range(7)), 0.0]
    values = [view.with_margins(t * x, t * z).value() for t in scales]
    lowest = int(np.nanargmin([*values, np.inf]))
    return (x if lowest in (0, len(scales)) else scales[lowest] * x), len(scales)


def unseen_to_rest(view: LinearView, x: Vector) -> Vector:
    """x at the l2 penalty's minimum along the directions that no row here sees (Av = 0); the loss stays the same.

    Without this a coordinate that the sample does not speak of keeps its start, however far out, until all data
    is used. Costs no evaluation of any term.
    """
    penalty, (m, d) = view.penalty, view.table.shape
    if penalty.l2 == 0.0 or penalty.alpha > 0.0 or not np.any(x):
        return x
    if view.wide:
        seen = np.zeros(d, dtype=bool)
        for _, block in view.table.blocks():
            seen[block.indices if sp.issparse(block) else np.any(block, axis=0)] = True
        free = ~seen & (penalty.mask > 0) & (x != 0.0)
        return np.where(free, 0.0, x) if np.any(free) else x
    gram = view.table.gram(np.ones(m))
    lengths = np.sqrt(np.diag(gram))  # of the columns, so that a badly scaled one does not look like nothing
    lengths[lengths == 0.0] = 1.0
    values, vectors = watched(view.table.look, np.linalg.eigh, gram / np.outer(lengths, lengths))
    N, _ = np.linalg.qr(vectors[:, values <= 1e-13 * d] / lengths[:, None])
    weighted = penalty.mask[:, None] * N
    return x - N @ np.linalg.lstsq(N.T @ weighted, weighted.T @ x, rcond=1e-10)[0]
