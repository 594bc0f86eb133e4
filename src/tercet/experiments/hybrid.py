"""`Hybrid`: cubic regularization, and third-order steps at degenerate points only (Anandkumar and Ge 2016).

Let V hold the eigenvectors of hess f(z) of the k lowest eigenvalues, and C be the Frobenius norm of third f(z) over
their span. The competitive subspace is the largest such span with

    lambda_k <= C^2 / (12 L Q^2),

L a Lipschitz constant of third f: there the third derivative may outdo the second. With a unit vector u in it,
third f(z)[u]^3 >= C / Q, and C >= Q (24 |grad f(z)| L^2)^(1/3),

    f(z - C/(LQ) u) <= f(z) - C^4 / (24 L^3 Q^4).

Random vectors of the subspace have such a share with Q of the order d^(3/2).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import number, positive
from tercet.control.judge import rounded
from tercet.experiments.interpolation import Interpolation
from tercet.frame import Euclidean
from tercet.methods.phases import DESCENT
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.saved import need
from tercet.methods.state import State
from tercet.methods.step import TensorKernel
from tercet.methods.stm import SCR
from tercet.objectives.base import NotFiniteError
from tercet.objectives.linear import LinearModel
from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Sizes, Status, Tensor, Vector
from tercet.result import Row
from tercet.sampling import Full
from tercet.theory.constants import constants

DRAWS = 1000  # of unit vectors: one in a few has the share
RAISES = 60  # doublings of L at one point


@dataclass(frozen=True)
class Hybrid:
    """Steps of cubic regularization over all data; where |grad f| <= `epsilon`, one of third order, if it promises
    enough.

    `lipschitz` is L to begin with: it is doubled where f does not fall as promised. None: that of a linear model, by
    its rows, else 1. `share` is Q; None: k^(3/2) for a subspace of k directions.
    """

    epsilon: float = 1e-4
    lipschitz: float | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        positive("Hybrid", "epsilon", self.epsilon)
        if self.lipschitz is not None:
            positive("Hybrid", "lipschitz", self.lipschitz)
        if self.share is not None and not 1 <= number(self.share) < inf:
            raise ValueError(f"Hybrid(share={self.share!r}): give a number of at least 1, or None.")

    def kernel(self, run: Run) -> HybridKernel:
        """The method on the terms of a run."""
        refuse_bounds("Hybrid", run)
        if run.traits.residuals or run.traits.in_memory is not None:
            raise ValueError("Hybrid(): it is for sums and functions that are in memory; use tercet.SCR() here.")
        method = SCR(Full(nested=False), sigma=Interpolation(), units=Euclidean())
        return HybridKernel(self, TensorKernel.of(method, run))


@dataclass(frozen=True)
class Learnt:
    """What the method keeps: L as far as f has told it, and how often it drew."""

    lipschitz: float = 0.0  # 0 before the first third-order step
    draws: int = 0

    def arrays(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @staticmethod
    def of(arrays: Any) -> Learnt:
        """From a checkpoint."""
        need(arrays is not None and set(arrays) == {"lipschitz", "draws"}, "it is of another method")
        need(isinstance(arrays["lipschitz"], float) and isinstance(arrays["draws"], int), "L is no number")
        return Learnt(**arrays)


@dataclass(frozen=True, eq=False)
class Way:
    """A unit vector of the competitive subspace along which f bends down, and what that promises."""

    u: Vector
    C: float
    Q: float

    def length(self, lipschitz: float) -> float:
        """C / (LQ)."""
        return self.C / (lipschitz * self.Q)

    def fall(self, lipschitz: float) -> float:
        """C^4 / (24 L^3 Q^4)."""
        return self.C**4 / (24.0 * lipschitz**3 * self.Q**4)


@dataclass(frozen=True, eq=False)
class Bend:
    """What is known at a point: the lowest eigenvalues of B, their vectors, T over these, and |grad f|."""

    values: Vector
    V: Matrix
    T: Tensor
    steep: float
    share: float | None

    @staticmethod
    def of(point: MeteredPoint, lipschitz: float, share: float | None) -> Bend:
        """T is formed over the eigenvectors that may be of the competitive subspace for this L."""
        values, V = np.linalg.eigh(point.hessian())
        k = possible(values, point.third_bound(V), lipschitz, share)
        T = point.third_tensor(V[:, :k]) if k else np.zeros((0, 0, 0))
        return Bend(values[:k], V[:, :k], T, float(np.linalg.norm(point.gradient())), share)

    def competitive(self, lipschitz: float) -> tuple[int, float, float]:
        """k, C and Q of the competitive subspace; k = 0: there is none."""
        for k in range(len(self.values), 0, -1):
            C, Q = float(np.linalg.norm(self.T[:k, :k, :k])), self.share or k**1.5
            if self.values[k - 1] <= C * C / (12.0 * lipschitz * Q * Q):
                return k, C, Q
        return 0, 0.0, 1.0

    def way(self, lipschitz: float, rng: np.random.Generator) -> Way | None:
        """A third-order step, where one promises enough."""
        k, C, Q = self.competitive(lipschitz)
        if C == 0.0 or 24.0 * self.steep * lipschitz**2 * Q**3 > C**3:
            return None
        T = self.T[:k, :k, :k]
        for _ in range(DRAWS):
            z = rng.standard_normal(k)
            z /= np.linalg.norm(z)
            bend = float(np.einsum("ijk,i,j,k->", T, z, z, z))
            if abs(bend) >= C / Q:
                return Way(-np.sign(bend) * (self.V[:, :k] @ z), C, Q)
        return None


def possible(values: Vector, bound: float, lipschitz: float, share: float | None) -> int:
    """How many eigenvectors may be of the competitive subspace, by C <= k max |third f[y]^3|, where that is known."""
    k = np.arange(1, len(values) + 1)
    Q = k**1.5 if share is None else share
    held = values <= (k * bound / Q) ** 2 / (12.0 * lipschitz)
    return int(k[held].max()) if held.any() else 0


def first_lipschitz(settings: Hybrid, run: Run) -> float:
    """L to begin with."""
    objective = run.objective.objective
    if settings.lipschitz is not None or not isinstance(objective, LinearModel):
        return settings.lipschitz or 1.0
    L = constants(objective).lipschitz
    return L if 0.0 < L < inf else 1.0


@dataclass(frozen=True)
class HybridKernel:
    """Cubic regularization, with third-order steps between."""

    settings: Hybrid
    inner: TensorKernel

    def begin(self, run: Run) -> State:
        """Stand at the start."""
        return replace(self.inner.begin(run), extra=Learnt())

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        learnt = Learnt.of(arrays.get("extra"))
        return replace(self.inner.resume(run, {**arrays, "extra": None}), extra=learnt)

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One step of third order where |grad f| is small and it promises enough; else one of second order."""
        point = state.point
        due = state.phase is DESCENT and state.kept is None and np.isfinite(point.value())
        if due and float(np.linalg.norm(point.gradient())) <= self.settings.epsilon:
            found = self.leave(run, state)
            if found is not None:
                return found
        return self.inner.step(run, state)

    def leave(self, run: Run, state: State) -> tuple[State, Row] | None:
        """z - C/(LQ) u, with L as large as f asks for; None where there is no such way, or rounding hides it."""
        learnt, point = state.extra, state.point
        assert isinstance(learnt, Learnt)
        L, rng = first_lipschitz(self.settings, run), np.random.default_rng([run.seed, 16, learnt.draws])
        L = max(L, learnt.lipschitz)
        try:
            bend = Bend.of(point, L, self.settings.share)
        except NotFiniteError:
            return None
        for _ in range(RAISES):
            way = bend.way(L, rng)
            if way is None or rounded(point.value(), way.fall(L)):
                return None
            there = run.full.first_at(point.x + way.length(L) * way.u)
            if there.value() <= point.value() - way.fall(L):
                return self.arrive(run, state, there, Learnt(L, learnt.draws + 1), way)
            L *= 2.0
        return None

    def arrive(self, run: Run, state: State, there: MeteredPoint, learnt: Learnt, way: Way) -> tuple[State, Row]:
        """The state and the row after a third-order step."""
        size, memory, n = way.length(learnt.lipschitz), state.memory, run.n
        fall = way.fall(learnt.lipschitz)
        row = Row(
            iteration=memory.iteration,
            f=there.value(),
            gradient_norm=float(np.linalg.norm(state.point.gradient())),
            sigma=learnt.lipschitz,
            ratio=(state.point.value() - there.value()) / fall,
            accepted=True,
            step_norm=size,
            sizes=Sizes(n, n, n, n),
            inner=1,
            third_bought=True,
            escape=3,
            counts=run.meter.counts(),
            seconds=perf_counter() - run.started,
            predicted=fall,
        )
        memory = replace(memory, iteration=row.iteration + 1, length=size, stuck=0, closer=1.0, looked=False)
        return replace(state, point=there, memory=memory, before=state.x, extra=learnt, certificate=None), row
