"""Which terms the derivatives are taken over: size rules and draws."""

from tercet.sampling.rules import Adaptive, Fixed, Full, Growing, Progressive

__all__ = ["Adaptive", "Fixed", "Full", "Growing", "Progressive"]
