"""`Walled`: a sub-solver whose steps stay between walls, the bounds of the variables that are free.

Where the step of the free variables does not reach a wall it is the step, of second or third order, as it would be
without bounds. Else the second-order model is minimized between the walls: along the path P(c + t p), so that many of
them are reached at once, then over the variables that are left, until a step stays inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.face import FacePoint, embed
from tercet.once import once
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Subsolver, Taylor, Workspace
from tercet.vectors import length

ENOUGH = 0.1  # of what the slope promises, along a path that bends at walls
HALVINGS = 60


@dataclass(frozen=True)
class Walled:
    """A sub-solver between the walls that the Taylor polynomial comes with."""

    inner: Subsolver

    def prepare(self, taylor: Taylor) -> Workspace:
        """Nothing before it is asked for: there may be no variables."""
        assert taylor.walls is not None
        return WalledWorkspace(self.inner, taylor, *taylor.walls)


@dataclass(eq=False)
class WalledWorkspace:
    """The model at one point between walls; the last step without T is remembered, since it is asked for again."""

    inner: Subsolver
    taylor: Taylor
    low: Vector
    high: Vector
    last: tuple[Ask, Step, bool] | None = None

    @once
    def free(self) -> Workspace:
        """The model of all variables that are free at x."""
        return self.inner.prepare(self.taylor)

    def solve(self, ask: Ask) -> Step:
        """The step, corrected by T where that may be bought and stays inside, too."""
        step, inside = self.plain(replace(ask, buy_third=False))
        if not (ask.buy_third and inside and self.taylor.T is not None):
            return step
        other = self.free.solve(ask)
        return other if self.inside(other.s) else step

    def plain(self, ask: Ask) -> tuple[Step, bool]:
        """The second-order step, and whether it did not come to a wall."""
        if not len(self.taylor.g):  # a sampled slope may hold every variable at a bound
            return Step(self.taylor.g, Forecast(0.0, self.taylor.g), None, 0, ask.sigma2), False
        if self.last is None or self.last[0] != ask:
            step = self.free.solve(ask)
            inside = self.inside(step.s)
            self.last = ask, step if inside else self.bent(step, ask), inside
        return self.last[1:]

    def inside(self, c: Vector) -> bool:
        """Whether no coordinate is beyond a wall."""
        return bool(np.all((c >= self.low) & (c <= self.high)))

    def product(self, c: Vector) -> Vector:
        """What the model has for Bc."""
        own: Any = getattr(self.free, "product", None)
        return self.taylor.B.hessian_product(c) if own is None else own(c)

    def bent(self, step: Step, ask: Ask) -> Step:
        """From a step that crosses walls: the lower end of its path and of the steepest one, and on from there."""
        g, start, inner = self.taylor.g, np.zeros_like(self.taylor.g), step.inner
        steepest = -g * (min(ask.radius, self.cauchy(length(step.s))) / length(g))
        ends = [self.path(start, g, p) for p in (step.s, steepest)]
        c, Bc = min(ends, key=lambda end: float(g @ end[0] + 0.5 * (end[0] @ end[1])))
        while True:
            some, slope, left = np.flatnonzero((c > self.low) & (c < self.high)), g + Bc, ask.radius - length(c)
            if not (np.any(slope[some]) and left > 0.0):
                break
            taylor = Taylor(slope[some], FacePoint(self.taylor.B, some, len(g)), None, False, self.taylor.wait)
            more = self.inner.prepare(taylor).solve(replace(ask, radius=left))
            p, inner = embed(more.s, some, len(g)), inner + more.inner
            ends_inside = self.inside(c + p)
            there, Bw = (c + p, self.product(p)) if ends_inside else self.path(c, slope, p)
            w = there - c
            if not float(slope @ w + 0.5 * (w @ Bw)) < 0.0:
                break
            c, Bc = there, Bc + Bw
            if ends_inside:
                break
        return Step(c, Forecast(-float(g @ c + 0.5 * (c @ Bc)), g + Bc), None, inner, step.sigma)

    def path(self, c: Vector, slope: Vector, p: Vector) -> tuple[Vector, Vector]:
        """P(c + tp) and B (P(c + tp) - c) for the first t of 1, 1/2, ... at which the model falls by a tenth of what
        its slope says; the first wall is not jumped over, since up to it the model falls in any case."""
        p = np.where(((c <= self.low) & (p < 0.0)) | ((c >= self.high) & (p > 0.0)), 0.0, p)
        wall = np.where(p > 0.0, self.high, self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(p != 0.0, (wall - c) / p, np.inf)
        first, t = float(np.min(times, initial=np.inf)), 1.0
        for _ in range(HALVINGS):
            there = np.where(times <= t, wall, c + t * p)
            w = there - c
            Bw = self.product(w)
            if float(slope @ w + 0.5 * (w @ Bw)) <= ENOUGH * float(slope @ w):
                break
            t = max(0.5 * t, first) if t > first else 0.5 * t
        return there, Bw

    def cauchy(self, otherwise: float) -> float:
        """How long the steepest step of the model is, where that bends up."""
        g = self.taylor.g
        bend = float(g @ self.product(g))
        return length(g) ** 3 / bend if bend > 0.0 else otherwise

    def meets(self, step: Step, ask: Ask) -> Meets:
        """Of a step that came to no wall."""
        if self.last is None or not self.last[2] or not self.inside(step.s):
            return None, None, None
        return self.free.meets(step, ask)

    def decreases(self, vectors: Matrix) -> Vector | None:
        """Over the free variables."""
        return self.free.decreases(vectors) if len(self.taylor.g) else np.zeros(len(vectors))
