"""What a method is given to work with, and what it must offer; nothing here knows a particular method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from tercet.critical.tolerances import Tolerances
from tercet.domain import EVERYWHERE, Domain
from tercet.objectives.base import Objective, Traits
from tercet.objectives.metered import Meter, Metered, MeteredView
from tercet.records import Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Shuffle

if TYPE_CHECKING:
    from tercet.methods.state import State


@dataclass(frozen=True, eq=False)
class Run:
    """One call of `minimize`: the counted objective, the start, the seed and what is asked for."""

    objective: Metered
    x0: Vector
    seed: int
    tolerances: Tolerances
    meter: Meter
    traits: Traits  # what the objective says of itself
    full: MeteredView  # all terms
    scales: Vector | None  # the unit of each x_j, where the objective knows it
    shuffle: Shuffle  # whose beginnings are the nested samples
    n: int
    d: int
    started: float  # on the clock of `perf_counter`
    domain: Domain = EVERYWHERE  # where x may be

    @staticmethod
    def of(
        objective: Objective,
        x0: Vector,
        seed: int,
        tolerances: Tolerances,
        meter: Meter,
        started: float | None = None,
        domain: Domain = EVERYWHERE,
    ) -> Run:
        """A run from x0, which lies in the domain; nothing is evaluated yet."""
        metered, begun = Metered.of(objective, meter), perf_counter() if started is None else started
        n, d = objective.n, objective.d
        own: Any = metered.objective
        make = getattr(own, "shuffle", None)  # of an objective that keeps its terms on disk or on a device
        full, shuffle = metered.over(None), (make and make(seed)) or Shuffle(n, seed)
        scales = getattr(own, "scales", None)
        traits = metered.traits
        if domain.bounded:  # a search over a span of directions knows no bounds
            traits = replace(traits, images=False)
        return Run(metered, x0, seed, tolerances, meter, traits, full, scales, shuffle, n, d, begun, domain)

    @property
    def as_given(self) -> bool:
        """Whether it is of a sum that knows no scales: its x is taken as given (docs/decisions/012)."""
        return self.scales is None and self.n > 1 and not self.traits.residuals

    def sample(self, m: int) -> MeteredView:
        """The first m terms of the shuffled order, or all of them."""
        return self.full if m >= self.n else self.objective.over(self.shuffle.beginning(m))


def refuse_bounds(call: str, run: Run) -> None:
    """ValueError for a method whose steps would cross them."""
    if run.domain.bounded:
        raise ValueError(f"minimize(bounds=..., method={call}(...)): {call} knows no bounds; take STM() or SCR().")


class Kernel(Protocol):
    """A method whose parts have been chosen for a run: its first state, and the state and the row after another."""

    def begin(self, run: Run) -> State:
        """Stand at the start."""
        ...

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        ...

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One iteration, or the reason why there is none."""
        ...


class Method(Protocol):
    """Settings of a method."""

    def kernel(self, run: Run) -> Kernel:
        """The method with the parts that suit the run; ValueError where they do not suit each other."""
        ...
