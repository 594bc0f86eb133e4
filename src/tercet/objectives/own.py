"""An objective of the user's own, with the eight required members, as a problem for `minimize`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.checks import valid_indices
from tercet.objectives.base import Bound, check_length, digest, name_of

MEMBERS = ("n", "d", "over")


class OwnObjective:
    """An objective as it is: x is a vector of its d variables."""

    def __init__(self, objective: Any):
        missing = [name for name in MEMBERS if not hasattr(objective, name)]
        if missing:
            raise ValueError(
                f"minimize(problem={type(objective).__name__}(...)): an objective needs {', '.join(MEMBERS)}; "
                f"it has no {missing[0]}."
            )
        self.objective = objective

    def fingerprint(self) -> dict[str, str]:
        """What the objective says itself, or its class and its fields, where it is a dataclass."""
        own, objective = getattr(self.objective, "fingerprint", None), self.objective
        if own is not None:
            return own()
        named = {f.name: getattr(objective, f.name) for f in fields(objective)} if is_dataclass(objective) else {}
        parts = {name: told(value) for name, value in named.items()}
        return {"objective": type(objective).__qualname__, "n": repr(objective.n), "d": repr(objective.d), **parts}

    def bind(self, x0: Any) -> Bound:
        """Start at x0."""
        if x0 is None:
            raise ValueError("minimize(x0=None): an objective of your own needs a start; pass x0.")
        return Bound(self.objective, check_length("x0", x0, int(self.objective.d)))


def told(value: Any) -> str:
    """A field in a fingerprint: the digest of data, the value of a setting, else what kind of thing it is."""
    if sp.issparse(value):
        rows = valid_indices(value).tocsr()
        return f"{value.shape} {digest(rows.data, rows.indices, rows.indptr)}"
    if isinstance(value, np.ndarray):
        return digest(value)
    plain = isinstance(value, str | int | float | bool | tuple | None) or callable(value)
    return name_of(value) if plain else type(value).__qualname__
