"""Nesterov's worst functions for methods of order p, from one term each, and a run that is driven step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np

import tercet
from tercet.critical.tolerances import Tolerances
from tercet.methods.run import Run
from tercet.objectives.base import Traits
from tercet.objectives.metered import Meter
from tercet.result import Row


@dataclass(frozen=True)
class Chain:
    """f(x) = (sum |x_i - x_{i+1}|^(p+1) + |x_m|^(p+1)) / (p+1) - x_1, whose minimizer is (m, m-1, ..., 1).

    From 0 a step of order p sees one more variable at a time. It is an objective of one term.
    """

    m: int
    p: int
    n: int = 1
    terms: int = 1

    @property
    def d(self):
        return self.m

    @property
    def traits(self):
        return Traits(dense=True)

    @property
    def lowest(self):
        return -self.m * self.p / (self.p + 1)

    @property
    def distance(self):
        return float(np.linalg.norm(np.arange(1, self.m + 1)))

    @property
    def lipschitz(self):
        """Of the p-th derivative: no more than p! 2^((p+1)/2) was met in any direction that a run takes."""
        return factorial(self.p) * 2 ** ((self.p + 1) / 2)

    def over(self, rows):
        return self

    def at(self, x, carry=None):
        return ChainPoint(self.p, np.asarray(x, dtype=float))


def differences(x):
    return np.append(x[:-1] - x[1:], x[-1])


def transposed(u):
    out = u.copy()
    out[1:] -= u[:-1]
    return out


@dataclass(frozen=True)
class ChainPoint:
    p: int
    x: np.ndarray

    def value(self):
        with np.errstate(over="ignore"):
            return float(np.sum(np.abs(differences(self.x)) ** (self.p + 1)) / (self.p + 1) - self.x[0])

    def gradient(self):
        u = differences(self.x)
        g = transposed(np.abs(u) ** self.p * np.sign(u))
        g[0] -= 1.0
        return g

    def product(self, order, *vectors):
        p, u = self.p, differences(self.x)
        weight = p * np.abs(u) ** (p - 1) if order == 2 else p * (p - 1) * np.abs(u) ** (p - 2) * np.sign(u)
        for v in vectors:
            weight = weight * differences(v)
        return transposed(weight)


def drive(problem, method, steps, order=1):
    """f and the guarantee of the scheme after each step."""
    tolerances, meter = Tolerances.of(1e-300, order), Meter(1)
    run = Run.of(problem, np.zeros(problem.d), 0, tolerances, meter)
    kernel = method.kernel(run)
    state = kernel.begin(run)
    gaps, bounds = [], []
    for _ in range(steps):
        state, row = kernel.step(run, state)
        if not isinstance(row, Row):
            break
        gaps.append(row.f - problem.lowest)
        bounds.append(kernel.scheme.bound(state.extra, problem.distance, method.order))
    short = steps - len(gaps)
    return np.array(gaps + gaps[-1:] * short), np.array(bounds + bounds[-1:] * short), meter.counts()


def worst(kind, scheme, steps, lengths):
    """The largest gap and the largest guarantee over the chains after each step, where |x* - x0| = 1 and L = 1."""
    p = kind().order
    found = []
    for m in lengths:
        chain = Chain(m, p)
        gaps, bounds, _ = drive(chain, kind(scheme, chain.lipschitz, restart=False), steps)
        found.append(np.array([gaps, bounds]) / (chain.lipschitz * chain.distance ** (p + 1)))
    return np.max(found, axis=0)


def slope(values, first, last):
    """Of log values over log k, for k = first ... last."""
    k = np.arange(first, last + 1)
    return float(np.polyfit(np.log(k), np.log(values[first - 1 : last]), 1)[0])


KINDS = {2: tercet.AcceleratedCubic, 3: tercet.AcceleratedTensor}
