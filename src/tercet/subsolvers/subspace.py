"""`Subspace`: for linear models with many variables, f itself is minimized over few directions that are well known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tercet.checks import positive, whole
from tercet.objectives.base import NotFiniteError, Traits
from tercet.objectives.metered import engine_of
from tercet.once import once
from tercet.records import Forecast, Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Needs, Taylor, Workspace
from tercet.subsolvers.dense import Dense, SpectralWorkspace
from tercet.subsolvers.krylov import Krylov, KrylovWorkspace
from tercet.vectors import combine, fits, length

ENOUGH = 0.1  # of the decrease that a model promised: with less, its step is not gone
KEPT = 8  # vectors of a Krylov space whose images are kept; with more of them one more product is little
POOR = 0.05  # a quadratic model that leaves this much of the gradient is not worth a second product


@dataclass(frozen=True)
class Subspace:
    """Minimize f over span{p, x, the last three steps}, where p is the gradient or a step over a Krylov space.

    A linear model knows what its rows make of x and of the steps that led to it. So f over such a span costs one
    product with A, for p, and every look at f, its gradient and B there is cheap. The first step is the one of the
    quadratic model over the span. While more than `relative` of the gradient over the span is left, others follow from
    where f has been looked at, up to `looks` in all; looking again takes the place of a third derivative.

    p is the gradient where the last quadratic model was poor: with the last step beside it that is the method of
    conjugate gradients, with a new gradient for each vector. Where the model was good, the vectors of a Krylov space
    are as good as new gradients, and cost no look at f; they are added until they leave no more of the gradient than
    the model is worth, and not less than a fraction `krylov`.
    """

    relative: float = 0.2
    looks: int = 8
    krylov: float = 0.3

    def __post_init__(self) -> None:
        positive("Subspace", "relative", self.relative)
        whole("Subspace", "looks", self.looks, most=1e6)
        positive("Subspace", "krylov", self.krylov)

    def needs(self, traits: Traits, sizes: Any) -> Needs:
        """Rows, and the same rows at the next point and for all derivatives; without T the regularizer is cubic."""
        if not traits.images:
            raise ValueError(
                f"minimize(method=...): Subspace() works on a LinearModel, and this problem has {traits.provenance}; "
                "give subsolver=Krylov()."
            )
        if not sizes.nested:
            raise ValueError(
                f"minimize(method=...): Subspace() remembers steps, and {sizes!r} draws other terms each time; "
                "give sizes=Progressive() or Full(), or subsolver=Krylov()."
            )
        return Needs(power=3, same_terms=True, own_units=True)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Nothing is computed yet."""
        return SubspaceWorkspace(self, taylor)


@dataclass(eq=False)
class ImageSpace(KrylovWorkspace):
    """A Krylov space with what A makes of its vectors; the last one costs no product with A' until another follows."""

    source: Any = None  # what A makes of directions
    images: list[Vector] = field(default_factory=list)  # all, or only the last

    def extend(self) -> bool:
        """One more vector v, with Av and v'Bv."""
        if self.V:
            self.follow(self.source.product(self.V[-1], self.images[-1]))
        if not self.grow():
            return False
        if len(self.images) == KEPT:
            self.images.clear()
        self.images.append(self.source.along(self.V[-1]))
        self.diag.append(self.source.curvature(self.V[-1], self.images[-1]))
        return True


@dataclass(eq=False)
class SubspaceWorkspace:
    """f over the span of one point. Its forecasts have the gradient in the coordinates of the span."""

    settings: Subspace
    taylor: Taylor
    span: Any = None
    last: tuple[Ask, Step] | None = None  # the stop test asks for it, too

    @once
    def source(self) -> Any:
        """What A makes of directions at x."""
        return engine_of(self.taylor.B).images(self.taylor.B)

    def direction(self, ask: Ask) -> tuple[Vector, Vector]:
        """p and Ap."""
        g = self.taylor.g
        if ask.unexplained >= POOR:
            return g, self.source.along(g)
        space = ImageSpace(Krylov(), self.taylor, source=self.source)
        z: Vector = np.ones(1)
        enough = max(self.settings.krylov, ask.unexplained / POOR) * length(g)
        while space.extend():
            left = space.off[-1] * abs(float(z[-1])) if space.off else length(g)  # by the vectors before this one
            z = space.coordinates(ask)[0]
            if left <= enough or space.cautious(ask):
                break
        p = combine(z, space.V)
        if fits(p) and len(space.images) == len(z):
            return p, combine(z, space.images)
        p = p if fits(p) else g
        return p, self.source.along(p)

    @once
    def first(self) -> SpectralWorkspace:
        """The quadratic model at x."""
        return model(self.span.at())

    def solve(self, ask: Ask) -> Step:
        """The step of the model over the span, or a longer way down that begins with it."""
        if not fits(self.taylor.g):
            return Step(np.zeros_like(self.taylor.g), Forecast(0.0, self.taylor.g), None, 0, ask.sigma2)
        if self.span is None:
            self.span = self.source.span(*self.direction(ask))
        ask = replace(ask, sigma3=0.0, buy_third=False)
        if self.last is None or self.last[0] != ask:
            self.last = (ask, self.descend(ask))
        return self.last[1]

    def descend(self, ask: Ask) -> Step:
        """Steps over the span, each no longer than twice the one before."""
        step, start = self.first.solve(ask), self.taylor.B.value()
        here = self.span.at(step.s)
        if not start - here.value() >= ENOUGH * step.quadratic.decrease > 0.0:
            return Step(here.s, step.quadratic, None, step.inner, step.sigma, here.metered, 1.0)
        there, radius, looks = None, 2.0 * length(step.s), 1
        enough = self.settings.relative * length(self.first.taylor.g)
        while looks < self.settings.looks and length(here.gradient()) > enough:
            try:
                there = there or model(here)
            except NotFiniteError:  # a good point to stop at
                break
            more = there.solve(replace(ask, sigma2=0.0, radius=radius))
            trial, looks = self.span.at(here.c + more.s), looks + 1
            ratio = (here.value() - trial.value()) / max(more.quadratic.decrease, 1e-300)
            radius = length(more.s) * (2.0 if ratio > 0.75 else 1.0 if ratio > 0.25 else 0.5)
            if ratio >= ENOUGH:
                here, there = trial, None
        g, B = self.first.taylor.g, self.first.taylor.B.hessian()
        left = length(here.gradient() - (g + B @ here.c)) / length(g)
        seen = Forecast(start - here.value(), here.gradient())
        return Step(here.s, seen, None, looks, step.sigma, here.metered, left)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """Not known outside the span."""
        return None, None, None

    def decreases(self, vectors: Matrix) -> Vector | None:
        """None: B is not factored."""
        return None


def model(here: Any) -> SpectralWorkspace:
    """The quadratic model at a point of the span, in its few coordinates."""
    here.hessian()
    return SpectralWorkspace.of(Dense(), Taylor(here.gradient(), here, None, False))
