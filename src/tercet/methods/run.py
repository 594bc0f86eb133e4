"""What a method is given to work with, and what it must offer; nothing here knows a particular method."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from tercet.criticality import Tolerances
from tercet.methods.sigma import SigmaRule
from tercet.objectives.base import Objective
from tercet.objectives.counting import Counted, CountedPoint, CountedView, Meter
from tercet.records import Certificate, Rows, Status, Vector
from tercet.result import Row
from tercet.sampling.rules import SizeRule
from tercet.subsolvers import Dense, Krylov, Subspace
from tercet.subsolvers.base import Subsolver


class Settings(Protocol):
    """The parts of a method of the line: how many samples, which sizes, which sub-solver, which sigma."""

    @property
    def order(self) -> int:
        """2 or 3: the number of derivative samples that are drawn."""
        ...

    @property
    def power(self) -> int:
        """The power p of the regularizer sigma/p |s|^p."""
        ...

    @property
    def sizes(self) -> SizeRule:
        """How many terms."""
        ...

    @property
    def subsolver(self) -> Subsolver | None:
        """How the model is minimized; None chooses by d."""
        ...

    @property
    def sigma(self) -> SigmaRule:
        """How steps are regularized."""
        ...

    @property
    def worth(self) -> float:
        """Third derivatives are bought when a quadratic left more than 1/worth of the gradient unexplained."""
        ...

    @property
    def noise_aware(self) -> bool:
        """Whether a rejection that sampling error explains leaves sigma alone."""
        ...


@dataclass(eq=False)
class Run:
    """One call of `minimize`: the counted objective, the start, the seed and what is asked for."""

    raw: Objective
    x0: Vector
    seed: int
    tolerances: Tolerances
    meter: Meter
    scale: float = 1.0  # |f(x0)|, to tell when f fell beyond any sensible value
    _views: dict[str, tuple[int, CountedView]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objective = Counted(self.raw, self.meter)
        self.n, self.d, self.how = self.raw.n, self.raw.d, self.raw.how
        self.dense, self.forms_third = self.raw.dense, self.raw.forms_third
        self.hessian_cost = self.raw.hessian_cost

    def view(self, rows: Rows | None) -> CountedView:
        """The nested sample of these rows, gathered once; all terms and the latest sample are kept until `leave`."""
        slot, size = ("all", self.n) if rows is None else ("sample", len(rows))
        if slot not in self._views or self._views[slot][0] != size:
            self._views[slot] = (size, self.objective.over(rows))
        return self._views[slot][1]

    def leave(self) -> None:
        """Let go of the latest sample: it is not asked for again."""
        self._views.pop("sample", None)

    @cached_property
    def start(self) -> CountedPoint:
        """x0 over all terms, to compare with."""
        return self.view(None).at(self.x0)

    def subsolver(self, settings: Settings) -> Subsolver:
        """The sub-solver that was asked for, or the one that suits d."""
        spans = getattr(self.raw, "spans", False) and settings.sizes.nested
        return settings.subsolver or (Dense() if self.dense else Subspace() if spans else Krylov())


class Walk(Protocol):
    """A method under way: where it stands, and its next iteration."""

    x: Vector

    def step(self) -> Row | Status:
        """One iteration, or the reason why there is none."""
        ...

    def state(self) -> dict[str, Any] | None:
        """All that the next iteration depends on, as numbers and arrays; None where a run cannot be taken up again."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where `state` was taken."""
        ...

    def full_point(self) -> CountedPoint | None:
        """x over all terms, where that is already at hand."""
        ...

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of x, where one was made."""
        ...


class Method(Protocol):
    """Settings of a method."""

    def start(self, run: Run) -> Walk:
        """Set out from run.x0."""
        ...
