"""Whether a third derivative is worth its price (docs/decisions/002)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Purchase:
    """Third derivatives are bought with the step where T is formed or `worth` is inf, else once f was looked at where
    the second-order step ends, if it missed the promised decrease by more than 1/worth of it.

    But a Hessian that is used again stays behind on a small sample, so that what it missed there is its own error,
    which T does not mend.
    """

    worth: float  # 0: never
    formed: bool  # T is formed as an array
    reuses_hessian: bool  # B may be one that was formed nearby

    @property
    def first(self) -> bool:
        """Whether T is part of the model from the beginning."""
        return self.worth == inf or (self.formed and self.worth > 0)

    def buys(self, fall: float, promised: float, lags: bool) -> bool:
        """Where f fell so while the second-order model promised that, and B perhaps lags."""
        if self.worth == 0 or self.worth == inf or self.formed:
            return False
        missed = abs(fall - promised) / max(promised, 1e-300)
        return missed * self.worth >= 1.0 and not (self.reuses_hessian and lags)
