"""What a case is: a problem with a start, by a name that says what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Bound

LINEAR = ("data", "embedded", "generated", "scaled", "small")
FUNCTIONS = ("mgh", "mgh10", "singular", "nist")
GROUPS = (*LINEAR, *FUNCTIONS, "sums")
HELD = 3  # one in so many generated cases is held back


@dataclass(frozen=True, eq=False)
class Instance:
    """A case with its data: an objective, where it starts, and what is known of it.

    f(origin) - f* is the unit of the gaps; `minimum` is f* where it is known in closed form; `regression` belongs to a
    sum of squares with certified parameters.
    """

    objective: Any
    x0: np.ndarray
    origin: np.ndarray
    minimum: float | None = None
    regression: Any = None


@dataclass(frozen=True, eq=False)
class Case:
    """A problem by its name. Cases of one `source` share data or compiled code and are run one after the other."""

    name: str
    group: str
    source: str
    make: Callable[[], Instance]
    quick: bool = False
    base: str | None = None  # the case of which this is the same function in other units

    @property
    def split(self) -> str:
        """`held` for one in three generated cases, by a digest of the name; all others are `seen`."""
        return split_of(self.name, self.group)


def split_of(name: str, group: str) -> str:
    """The fixed rule by which generated cases are held back."""
    if group != "generated":
        return "seen"
    return "held" if hashlib.sha256(name.encode()).digest()[0] % HELD == 0 else "seen"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem that is compiled already: `minimize` gets the same objective each time."""

    objective: Any

    def bind(self, x0: Any) -> Bound:
        """The objective itself, from x0."""
        return Bound(self.objective, np.array(x0, dtype=float), lambda x: x)

    def fingerprint(self) -> dict[str, str]:
        """Not needed: these runs are not resumed."""
        return {}


def start_at(name: str, d: int) -> np.ndarray:
    """zero, normal = N(0, I) or far = 3 N(0, I), the same for the same d."""
    if name == "zero":
        return np.zeros(d)
    return {"normal": 1.0, "far": 3.0}[name] * np.random.default_rng([d, 7]).standard_normal(d)


def all_cases() -> list[Case]:
    """Every case, those of one source beside each other; dear ones first, so that two jobs end together."""
    from benchmarks.suite import functions, linear

    return [*linear.cases(), *functions.cases()]
