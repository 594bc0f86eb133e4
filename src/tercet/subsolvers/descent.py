"""`GradientDescent`, the paper's sub-solver, and `Accelerated`, the same with momentum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.checks import positive, whole
from tercet.model import ProductModel, Regularizer
from tercet.records import Matrix, Meets, Step, Vector
from tercet.subsolvers.base import Ask, Taylor, Workspace, meets_first


@dataclass(frozen=True)
class GradientDescent:
    """s <- s - step grad m(s) from s = 0 until |grad m| <= theta |s|^3 (Condition 2, i = 1) or `iterations`.

    Each inner iteration costs one product with B and one with T. A step that would raise the model is halved, so a
    step size from the paper's grid 1e-4 ... 1 cannot diverge.
    """

    step: float = 1.0
    theta: float = 1.0
    iterations: int = 50

    def __post_init__(self) -> None:
        check_settings(self)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Products only; nothing to prepare."""
        return DescentWorkspace(taylor, self.step, self.theta, self.iterations, momentum=False)


@dataclass(frozen=True)
class Accelerated:
    """Gradient descent with Nesterov's momentum, restarted whenever the model rises."""

    step: float = 1.0
    theta: float = 1.0
    iterations: int = 50

    def __post_init__(self) -> None:
        check_settings(self)

    def prepare(self, taylor: Taylor) -> Workspace:
        """Products only; nothing to prepare."""
        return DescentWorkspace(taylor, self.step, self.theta, self.iterations, momentum=True)


def check_settings(settings: GradientDescent | Accelerated) -> None:
    """Step, theta and the number of iterations are positive."""
    call = type(settings).__name__
    positive(call, "step", settings.step)
    positive(call, "theta", settings.theta)
    whole(call, "iterations", settings.iterations, most=1e6)


@dataclass(eq=False)
class DescentWorkspace:
    """Descent on the model at one point."""

    taylor: Taylor
    step: float
    theta: float
    iterations: int
    momentum: bool

    def solve(self, ask: Ask) -> Step:
        """The last point of the descent, which is the lowest."""
        T = self.taylor.T if ask.buy_third else None
        sigma = ask.sigma2 if T is None else ask.sigma3
        product = None if T is None else T.third_product
        model = ProductModel(self.taylor.g, self.taylor.B.hessian_product, product, Regularizer(sigma, ask.power))
        s = np.zeros_like(self.taylor.g)
        value, gradient, forecasts = 0.0, self.taylor.g, None
        velocity, rate, age, inner = np.zeros_like(s), self.step, 0, 0
        while inner < self.iterations and not (inner > 0 and meets_first(gradient, s, self.theta)):
            trial = self.shorten(s + velocity - rate * gradient, ask.radius)
            inner += 1
            new, slope, seen = model.evaluate(trial)
            if not new < value:
                if age > 0:  # momentum overshot: forget it before the step itself is blamed
                    velocity, age = np.zeros_like(s), 0
                elif rate * float(np.linalg.norm(gradient)) <= 1e-15 * float(np.linalg.norm(s)):
                    break
                else:
                    rate *= 0.5
                continue
            age += 1
            velocity = (age / (age + 3.0)) * (trial - s) if self.momentum else velocity
            s, value, gradient, forecasts = trial, new, slope, seen
        quadratic, cubic = forecasts or model.forecasts(s)
        return Step(s, quadratic, cubic, inner, sigma)

    def meets(self, step: Step, ask: Ask) -> Meets:
        """The first condition, from the forecast; the others would take products."""
        gradient = step.forecast.gradient + Regularizer(step.sigma, ask.power).gradient(step.s)
        return meets_first(gradient, step.s, self.theta), None, None

    def shorten(self, s: Vector, radius: float) -> Vector:
        """s, pulled back to the radius."""
        length = float(np.linalg.norm(s))
        return s if length <= radius else s * (radius / length)

    def decreases(self, vectors: Matrix) -> Vector | None:
        """None: B is not factored."""
        return None
