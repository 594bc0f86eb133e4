"""Whether a third derivative is worth its price (docs/decisions/002)."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SHARE = 0.33  # of the price of a third derivative, what even a small sample is charged


@dataclass(frozen=True)
class Purchase:
    """Third derivatives are bought always where T is formed, else where a quadratic left too much.

    Too much is 1/worth of the gradient over all terms, and less over a sample, where a product costs less. But a
    Hessian that is used again stays behind on a small sample, so that what it left there is its own error, which T does
    not mend.
    """

    worth: float  # 0: never
    formed: bool  # T is formed as an array
    reuses_hessian: bool  # B may be one that was formed nearby

    def buys(self, unexplained: float, share: float, lags: bool) -> bool:
        """Where the last quadratic left `unexplained`, T is over a `share` of the terms, and B perhaps lags."""
        if self.worth == 0:
            return False
        price = 1.0 if self.reuses_hessian and lags else max(LEAST_SHARE, share)
        return self.formed or unexplained >= price / self.worth
