"""Runs that are taken step by step, and what they run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tercet
from tercet import Status
from tercet.critical.tolerances import Tolerances
from tercet.methods.phases import asked
from tercet.methods.run import Run
from tercet.objectives.metered import Meter
from tercet.records import Sizes
from tercet.result import Row
from tercet.sampling.rules import Outlook

RNG = np.random.default_rng(3)
N, D = 3000, 5
X = RNG.standard_normal((N, D))
Y = (X @ RNG.standard_normal(D) + RNG.standard_normal(N) > 0).astype(float)
MODEL = tercet.LinearModel(X, Y, l2=1e-3)


class Quartic:
    """g'x + 1/2 x'Bx + 1/6 T[x]^3 + c/4 sum x_i^4 with random coefficients, and its derivatives, in plain NumPy."""

    def __init__(self, seed: int, d: int):
        rng = np.random.default_rng(seed)
        T = rng.standard_normal((d, d, d))
        orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        self.T = sum(np.transpose(T, order) for order in orders) / 6.0
        B = rng.standard_normal((d, d))
        self.B, self.g = (B + B.T) / 2, rng.standard_normal(d)
        self.start = 2.0 * rng.standard_normal(d)

    def value(self, x: np.ndarray) -> float:
        cubic = ((self.T @ x) @ x) @ x / 6.0
        return float(self.g @ x + 0.5 * x @ self.B @ x + cubic + 0.25 * np.sum(x**4))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.g + self.B @ x + 0.5 * (self.T @ x) @ x + x**3

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return self.B + self.T @ x + np.diag(3.0 * x**2)

    def third(self, x: np.ndarray) -> np.ndarray:
        T = self.T.copy()
        i = np.arange(len(x))
        T[i, i, i] += 6.0 * x
        return T

    def minimize(self, method: Any, **options: Any) -> tuple[tercet.Result, list[np.ndarray]]:
        """The run, and all its points with the start first."""
        points = [self.start]
        result = tercet.minimize(
            self.value,
            self.start,
            grad=self.gradient,
            hess=self.hessian,
            third=self.third,
            method=method,
            callback=lambda info: points.append(info.x.copy()),
            **options,
        )
        return result, points


class Flat:
    """l = z^3/3 + z^4/4: at z = 0 a critical point of order 2 that is none of order 3."""

    def derivatives(self, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        return z**3 / 3 + z**4 / 4, z**2 + z**3, 2 * z + 3 * z**2, 2 + 6 * z


@dataclass(frozen=True)
class Told:
    """A size rule that follows a function of the outlook, and writes down what it was shown."""

    begin: Callable[[int, int], Sizes]
    go_on: Callable[[Outlook], Sizes] = lambda outlook: outlook.sizes
    nested: bool = True
    replacement: bool = False
    asked: list[Outlook] = field(default_factory=list)

    def first(self, n: int, d: int) -> Sizes:
        return self.begin(n, d)

    def next(self, outlook: Outlook) -> Sizes:
        self.asked.append(outlook)
        return self.go_on(outlook)


def dearer(problem: Any, cost: float = 20.0) -> Any:
    """The problem with Hessians that are called dear, so that they serve for several steps; f is looked at once."""
    problem.traits = replace(problem.traits, hessian_cost=cost, images=False)
    return problem


@dataclass(eq=False)
class Walk:
    """A run of a method, taken step by step."""

    run: Run
    method: Any
    kernel: Any
    state: Any

    @staticmethod
    def of(method: Any, problem: Any = MODEL, start: Any = None, seed: int = 0, tol: float = 1e-8) -> Walk:
        """At its first state; without a start from a vector of ones."""
        bound = problem.bind(np.ones(problem.d) if start is None else start)
        run = Run.of(bound.objective, bound.x0, seed, Tolerances.of(tol, 3), Meter(bound.objective.n))
        kernel = method.kernel(run)
        return Walk(run, method, kernel, kernel.begin(run))

    def again(self, arrays: dict[str, Any]) -> Walk:
        """Another run of the same, which stands where these arrays say and has paid as much."""
        old = self.run
        meter = Meter(old.n, tally=dict(old.meter.tally))
        run = Run.of(old.objective.objective, old.x0.copy(), old.seed, old.tolerances, meter)
        kernel = self.method.kernel(run)
        return Walk(run, self.method, kernel, kernel.resume(run, arrays))

    @property
    def parts(self) -> Any:
        return self.kernel.parts

    @property
    def memory(self) -> Any:
        return self.state.memory

    def step(self) -> Row | Status:
        """One iteration."""
        self.state, outcome = self.kernel.step(self.run, self.state)
        return outcome

    def remember(self, **changes: Any) -> None:
        """Go on with another memory."""
        self.state = replace(self.state, memory=replace(self.state.memory, **changes))

    def expand(self) -> Any:
        """The expansion at x."""
        return self.parts.policy.expand(self.run, self.parts, self.state)[1]

    def solve(self, at: Any) -> Any:
        """The step from there, and what was asked for it."""
        return self.state.phase.solve(at, asked(self.parts, self.state, at))
