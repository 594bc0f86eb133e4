"""The Gram matrix A' diag(c) A of a Hessian, formed anew only in the rows whose c changed (docs/decisions/005)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.tables import Table
from tercet.records import Matrix, Rows, Vector

Part = Callable[[slice], Vector]


def same_rows(a: Rows | None, b: Rows | None) -> bool:
    """Whether two ascending lists of rows are the same; None stands for all."""
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


@dataclass(frozen=True, eq=False)
class Gram:
    """A Gram matrix that was formed, with the coefficients c that each of its rows had then: what a point carries."""

    rows: Rows | None  # which rows of the model, ascending; None: all
    c: Vector
    matrix: Matrix

    def over(self, rows: Rows | None, terms: int) -> Vector | None:
        """c laid out over a larger set of rows, nan where a row is new; None where ours are not among them."""
        if same_rows(rows, self.rows):
            return self.c
        if self.rows is None:
            return None
        ours = np.zeros(max(self.rows[-1] + 1, 0 if rows is None else rows[-1] + 1), dtype=bool)
        ours[self.rows] = True
        places = np.flatnonzero(ours if rows is None else ours[rows])
        if not np.array_equal(places if rows is None else rows[places], self.rows):  # not nested, or with repeats
            return None
        past = np.full(terms, np.nan)
        past[places] = self.c
        return past

    def arrays(self) -> dict[str, Any]:
        """As arrays."""
        rows = {} if self.rows is None else {"rows": self.rows}
        return {"c": self.c, "gram": self.matrix, **rows}

    @staticmethod
    def of(arrays: dict[str, Any], d: int) -> Gram:
        """From arrays, in d variables; ValueError where they cannot be those of a Gram matrix."""
        rows, c, matrix = arrays.get("rows"), arrays["c"], arrays["gram"]
        if matrix.shape != (d, d) or c.ndim != 1 or not (np.isfinite(matrix).all() and np.isfinite(c).all()):
            raise ValueError(f"a Gram matrix of shape {matrix.shape}, or one that is not finite")
        if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-9 * float(np.max(np.abs(matrix)))):
            raise ValueError("a Gram matrix that is not symmetric")
        if rows is not None and not (
            rows.shape == c.shape
            and rows.dtype.kind == "i"
            and len(rows)
            and rows[0] >= 0
            and np.all(np.diff(rows) >= 0)
        ):
            raise ValueError("a Gram matrix over rows that are none")
        return Gram(rows, c, matrix)

    def exact(self) -> None:
        """Nothing: a Hessian that uses it again is not exact."""
        return None


@dataclass(frozen=True)
class Renewal:
    """Which rows are formed again: those whose c changed by more than the fraction `stale`."""

    stale: float
    compiled: bool

    def form(self, table: Table, rows: Rows | None, c: Part, known: Gram | None) -> tuple[Gram, int]:
        """The Gram matrix with the coefficients c, fresh in the rows that changed since `known`, and their number."""
        terms = table.shape[0]
        past = None if known is None else known.over(rows, terms)
        mixed, total, count, change = np.empty(terms), np.zeros((table.shape[1],) * 2), terms, self.change()
        room = np.empty(0 if past is None else len(mixed[table.pieces[0]]))
        for piece in table.pieces:
            now = gains = mixed[piece]
            now[:] = c(piece)
            if past is not None:
                gains = room[: len(now)]
                count -= change(now, past[piece], self.stale, gains)
            table.add_gram(total, piece, gains)
        gram = table.whole_gram(total)
        if past is not None and known is not None:
            gram += known.matrix
        return Gram(rows, mixed, gram), count

    def change(self) -> Callable[[Vector, Vector, float, Vector], int]:
        """The formula, or its compiled twin."""
        if not self.compiled:
            return change
        from tercet.objectives import kernels

        return kernels.change


def change(c: Vector, past: Vector, stale: float, gains: Vector) -> int:
    """Put back, in place, those of c that hardly differ from the past; returns their number.

    The gains are by how much the others changed: all of it where a row is new.
    """
    gains[:] = c - past
    kept = np.abs(gains) <= stale * np.abs(past)
    np.copyto(gains, 0.0, where=kept)
    np.copyto(gains, c, where=np.isnan(past))
    np.copyto(c, past, where=kept)
    return int(np.count_nonzero(kept))
