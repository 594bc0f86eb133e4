"""How long a Hessian that is dear serves: while it explains the gradient (docs/decisions/010)."""

from __future__ import annotations

from dataclasses import dataclass

from tercet.objectives.metered import MeteredPoint, renewed


@dataclass(frozen=True)
class Renewing:
    """A Hessian from nearby is let go of when it left more than `left` of the gradient, and when its step was rejected,
    which leaves infinitely much. Cheap Hessians are formed at each point, and nothing is let go of.
    """

    left: float = 0.3

    def before(self, B: MeteredPoint, unexplained: float) -> MeteredPoint:
        """The point that gives B for the next step."""
        return renewed(B) if unexplained > self.left else B
