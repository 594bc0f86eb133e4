"""Samples that live in memory while all terms are elsewhere: up to a size, and then all terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tercet.records import Sizes
from tercet.sampling.rules import Outlook, SizeRule

ENOUGH = 50.0  # terms for each variable: B over so many is off by a seventh, and a pass over all terms would cost more
SOLVED = 30.0  # the noise over what is still to be gained on the largest sample, before a pass is worth its time


@dataclass(frozen=True)
class InMemory:
    """A nested rule whose samples have at most `most` terms; a larger one is all terms.

    The largest sample is used before all terms are, and solved to well below its sampling error, since its iterations
    cost little beside a pass. B and T stay on it then, where it has enough terms for that: their error, of the order
    sqrt(d/m), costs less than passes over all terms.
    """

    rule: SizeRule
    most: int

    @property
    def nested(self) -> bool:
        """As the rule."""
        return self.rule.nested

    @property
    def replacement(self) -> bool:
        """As the rule."""
        return self.rule.replacement

    def first(self, n: int, d: int) -> Sizes:
        """As the rule, or the largest sample where the rule wants more than that and not all."""
        sizes = self.rule.first(n, d)
        m = sizes.value if sizes.value >= n else min(sizes.value, self.most)
        return Sizes(m, m, m, m)

    def next(self, outlook: Outlook) -> Sizes:
        """The rule's sizes, cut: first the largest sample, then all terms with B and T on it."""
        before, n = outlook.sizes, outlook.n
        sizes = self.rule.next(outlook)
        if sizes == before:
            return before
        if before.value < n and sizes.value > self.most:
            if before.value < self.most:
                return Sizes(self.most, self.most, self.most, self.most)
            if not (outlook.noisy or outlook.noise_share >= SOLVED):
                return before
            m = self.most if self.most >= ENOUGH * outlook.d else n
            return Sizes(n, n, m, m)
        hessian, third = (m if m <= self.most else n for m in (sizes.hessian, sizes.third))
        return replace(sizes, hessian=hessian, third=third)
