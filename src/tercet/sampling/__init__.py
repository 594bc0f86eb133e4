"""Which terms the derivatives are taken over: size rules and draws."""

from tercet.sampling.rules import Adaptive, Fixed, Full, Growing, Progressive
from tercet.sampling.theory import Ranges, Theory

__all__ = ["Adaptive", "Fixed", "Full", "Growing", "Progressive", "Ranges", "Theory"]
