"""The smallest engine, f_i(x) = sin(a_i'x) by its eight members, which tells what it was asked; and larger ones."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.objectives.base import Priced


class SinesPoint:
    """The mean over some terms at one x."""

    def __init__(self, view, x):
        self.view, self.x, self.A = view, x, view.A

    def tell(self, name):
        self.view.objective.asked.append((name, len(self.A)))

    def value(self):
        self.tell("value")
        return float(np.mean(np.sin(self.A @ self.x)))

    def gradient(self):
        self.tell("gradient")
        return self.A.T @ np.cos(self.A @ self.x) / len(self.A)

    def product(self, order, *vectors):
        self.tell(f"product {order}")
        c = -np.sin(self.A @ self.x) if order == 2 else -np.cos(self.A @ self.x)
        for v in vectors:
            c = c * (self.A @ v)
        return self.A.T @ c / len(self.A)


class TwicePoint(SinesPoint):
    """Every answer took two evaluations of each term, and a value beside it."""

    def value(self):
        return Priced(super().value(), value=2 * len(self.A))

    def gradient(self):
        return Priced(super().gradient(), value=1, gradient=2 * len(self.A))

    def product(self, order, *vectors):
        answer, twice = super().product(order, *vectors), 2 * len(self.A)
        return Priced(answer, value=1, hessian=twice) if order == 2 else Priced(answer, value=1, third=twice)


class AtOncePoint(SinesPoint):
    """f and its gradient in one round."""

    def first(self):
        self.tell("first")
        return super().value(), super().gradient()


@dataclass
class SinesView:
    """The mean over some terms."""

    objective: Any
    A: Any

    @property
    def terms(self):
        return len(self.A)

    def at(self, x, carry=None):
        return self.objective.kind(self, x)


@dataclass
class Sines:
    """The mean of sin(a_i'x) over the rows of A, with points of one kind; `asked` are the members and their terms."""

    A: Any
    kind: Any = SinesPoint
    asked: list = field(default_factory=list)

    @property
    def n(self):
        return self.A.shape[0]

    @property
    def d(self):
        return self.A.shape[1]

    def over(self, rows):
        return SinesView(self, self.A if rows is None else self.A[rows])


def sines(n=60, d=4, kind=SinesPoint, seed=0):
    """Random terms."""
    return Sines(np.random.default_rng(seed).standard_normal((n, d)), kind)
