"""`AcceleratedTensor` and `AcceleratedCubic`: for convex sums, steps of third or second order with momentum."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import Any

import numpy as np

from tercet.checks import flag, positive
from tercet.control.judge import EPS, rounded
from tercet.control.sigma import Control
from tercet.critical.certify import certify
from tercet.critical.errors import Travelled, sizes
from tercet.frame import SAME, Frame, Reach, Scaled
from tercet.methods.run import Run, refuse_bounds
from tercet.methods.saved import need, vector
from tercet.methods.schemes import THETA, Landing, Momentum, NearOptimal, Scheme
from tercet.methods.state import Memory, State, Views
from tercet.methods.stop import AWAY, CLOSER, CLOSEST
from tercet.model import power_of
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint, exact
from tercet.records import Sizes, Status, Vector
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.subsolvers.base import Taylor
from tercet.subsolvers.convex import Space, minimize_convex, space_of
from tercet.subsolvers.spectral import Tridiagonal
from tercet.vectors import length

INSIDE = 0.1  # of the error that a step may have, THETA of it: what the sub-solver may leave
SHARE = (1.0 - INSIDE) * THETA  # and what the model may miss
RAISES = 100  # doublings of sigma at one y
NO_BEND = np.zeros(0)  # where no Hessian is formed


@dataclass(frozen=True)
class AcceleratedTensor:
    """For convex sums: steps of the third-order model, over all terms, with momentum.

        m(s) = g's + 1/2 s'Bs + 1/6 T[s]^3 + sigma/4 |s|^4

    `scheme` is `NearOptimal()` (f - min f falls like k^-5), `EstimateSequence()` (Nesterov's, k^-4) or
    `Unaccelerated()` (k^-3). sigma is adapted: it is raised where the step does not have the gradient that the scheme
    asks for, and falls with what the model was seen to miss; with `lipschitz`, a bound on the fourth derivative, it is
    never below what that guarantees. With `restart` the momentum is let go of where, by the lowest curvature seen, the
    gap has been halved, so that a strongly convex sum is solved at the speed of the plain steps near its minimizer.

    An objective that is known not to be convex is refused; where curvature is seen to be negative the run ends with
    `Status.NOT_CONVEX` and the best point. Steps are measured in the units of a linear model, else as x is given.
    """

    scheme: Scheme = field(default_factory=NearOptimal)
    lipschitz: float | None = None
    restart: bool = True
    order: int = field(default=3, init=False)

    def __post_init__(self) -> None:
        check_settings(self)

    def kernel(self, run: Run) -> AcceleratedKernel:
        """The method on a run; ValueError where the objective is not convex."""
        return kernel_of(self, run)


@dataclass(frozen=True)
class AcceleratedCubic:
    """For convex sums: steps of the second-order model g's + 1/2 s'Bs + sigma/3 |s|^3 with momentum.

    As `AcceleratedTensor`, with a bound on the third derivative in `lipschitz`: f - min f falls like k^-3.5, k^-3 and
    k^-2.
    """

    scheme: Scheme = field(default_factory=NearOptimal)
    lipschitz: float | None = None
    restart: bool = True
    order: int = field(default=2, init=False)

    def __post_init__(self) -> None:
        check_settings(self)

    def kernel(self, run: Run) -> AcceleratedKernel:
        """The method on a run; ValueError where the objective is not convex."""
        return kernel_of(self, run)


Settings = AcceleratedTensor | AcceleratedCubic


def check_settings(settings: Settings) -> None:
    """The scheme is one, the constant is positive."""
    call, scheme = type(settings).__name__, settings.scheme
    if isinstance(scheme, type) or not all(hasattr(scheme, name) for name in ("propose", "absorb", "bound")):
        raise ValueError(f"{call}(scheme={scheme!r}): give NearOptimal(), EstimateSequence() or Unaccelerated().")
    if settings.lipschitz is not None:
        positive(call, "lipschitz", settings.lipschitz, 1e100)
    flag(call, "restart", settings.restart)


def kernel_of(settings: Settings, run: Run) -> AcceleratedKernel:
    """The method on the terms of a run."""
    if getattr(run.objective.objective, "convex", None) is False:
        raise ValueError(
            f"minimize(method={type(settings).__name__}()): its loss or penalty is not convex, and accelerated methods "
            "are for convex sums; use tercet.STM() or tercet.SCR()."
        )
    refuse_bounds(type(settings).__name__, run)
    frame = SAME if run.scales is None else Scaled(run.scales)
    p = settings.order
    least = 0.0
    if settings.lipschitz is not None:
        least = settings.lipschitz / ((2.0 if p == 2 else 6.0) * SHARE)
    return AcceleratedKernel(settings.scheme, settings.restart, p, frame, least)


@dataclass(frozen=True, eq=False)
class Base:
    """What is known at y, where a step begins."""

    point: MeteredPoint
    c: Vector  # y
    g: Vector
    taylor: Taylor
    space: Space | None  # None where the gradient is 0


@dataclass(frozen=True)
class AcceleratedKernel:
    """Steps from y; the state is that of every method, x the lowest point that was seen, and `Momentum` beside it."""

    scheme: Scheme
    restart: bool
    p: int
    frame: Frame
    least: float  # sigma is never below

    def begin(self, run: Run) -> State:
        """Stand at x0, with f and its gradient."""
        at, n = run.full.first_at(run.x0), run.n
        at.value()
        memory = Memory(Control(self.least, self.least), Reach.of(run.x0))
        sizes = Sizes(n, n, n, n if self.p > 2 else 0)
        momentum = Momentum.at(self.frame.coordinates(run.x0))
        views, stream = Views.alone(run.full), Stream.of(run.seed)
        return State(at, at, sizes, views, memory, stream, scale=abs(at.value()), extra=momentum)

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        saved = arrays.get("extra")
        need(saved is not None and set(saved) == {each.name for each in fields(Momentum)}, "it has no such momentum")
        assert saved is not None
        for name in ("start", "pull"):
            vector(f"the {name} of its momentum", saved[name], run.d)
        need(isinstance(saved["away"], bool), "away is no truth value")
        for name in ("weight", "guess", "steep", "lowest", "near"):
            need(isinstance(saved[name], float), f"the {name} of its momentum is no number")
        return State.from_arrays(run, lambda sizes: Views.alone(run.full), arrays, Momentum(**saved))

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One step, or the reason why there is none."""
        try:
            return self.iterate(run, state)
        except NotFiniteError:
            return state, Status.NOT_FINITE

    def iterate(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """certified? -> y -> model -> step -> momentum."""
        slope = state.point.gradient()
        if not (isfinite(state.point.value()) and np.isfinite(slope).all()):
            return state, Status.NOT_FINITE
        if state.point.value() < -1e20 * max(1.0, state.scale):
            return state, Status.UNBOUNDED
        if due(run, state):
            state, status = conclude(run, state, self.frame)
            if status is not None:
                return state, status
        momentum = momentum_of(state)
        here, sigma = self.frame.coordinates(state.x), state.memory.control.sigma3
        a, c = self.scheme.propose(momentum, here, sigma, self.p) if momentum.weight > 0.0 else (nan, here)
        base = self.base(run, state, c)
        landing = self.land(run, state, base, sigma or first_sigma(base, length(here), self.p))
        if isinstance(landing, Status):
            return state, landing
        return self.learn(run, state, base, landing, a)

    def base(self, run: Run, state: State, c: Vector) -> Base:
        """g and B at y; at x itself the gradient is there already."""
        point = run.full.at(self.frame.lift(c))
        if np.array_equal(point.x, state.x):
            point.known.value, point.known.gradient = state.point.value(), state.point.gradient()
        g, seen = self.frame.slope(point.gradient()), self.frame.point(point)
        if not np.isfinite(g).all():
            raise NotFiniteError("gradient")
        taylor = Taylor(g, seen, seen if self.p > 2 else None, False, run.meter.wait)
        return Base(point, c, g, taylor, space_of(taylor, run.traits.dense) if g.any() else None)

    def land(self, run: Run, state: State, base: Base, sigma: float) -> Landing | Status:
        """A step from y that the schemes can use, with a sigma that is raised until it is one."""
        p, most = self.p, sigma * 2.0**RAISES
        still = Landing(base.c, np.zeros_like(base.c), base.g, sigma, 0.0, sigma, base.point, 0, 0.0, False)
        while base.space is not None and sigma <= most:
            solved = minimize_convex(base.taylor, base.space, sigma, p + 1, INSIDE * THETA)
            if bends_down(base.space.curvature(), run.traits.epsilon):
                return Status.NOT_CONVEX
            if solved is None:
                sigma *= 2.0
                continue
            s, r = solved.s, length(solved.s)
            if r <= EPS * length(base.c):
                return still
            there = run.full.first_at(self.frame.lift(base.c + s))
            slope = self.frame.slope(there.gradient()) if isfinite(there.value()) else np.full_like(s, nan)
            if not np.isfinite(slope).all():
                sigma *= 10.0
                continue
            rate, wanted = sigma * power_of(r, p - 1), length(slope - solved.slope) / (SHARE * power_of(r, p))
            serves = length(slope + rate * s) <= THETA * rate * r
            if serves or rounded(there.value(), solved.decrease):
                following = max(self.least, min(sigma, max(wanted, 0.5 * sigma)))
                return Landing(
                    base.c + s, s, slope, sigma, rate, following, there, solved.inner, solved.decrease, serves
                )
            change = slope - base.g
            if float(change @ s) < -np.sqrt(run.traits.epsilon) * length(change) * r:
                return Status.NOT_CONVEX
            sigma = max(2.0 * sigma, wanted)
        return still

    def learn(self, run: Run, state: State, base: Base, to: Landing, a: float) -> tuple[State, Row]:
        """The lower of x and y + s, and the momentum after the step."""
        before, absorbed = momentum_of(state), None
        if before.weight == 0.0:  # y did not depend on sigma, and a may still be chosen
            before = replace(before, steep=length(base.g))
            a, _ = self.scheme.propose(before, base.c, to.sigma, self.p)
        if to.serves:
            absorbed = self.scheme.absorb(before, a, to, self.p)
        momentum, x = absorbed or before, lower(state.point, to.there)
        lowest = momentum.lowest if base.space is None else lowest_of(base.space.curvature())
        momentum = replace(momentum, lowest=min(momentum.lowest, lowest))
        if self.restart and momentum.restarts(self.scheme, self.p):
            momentum = Momentum.at(self.frame.coordinates(x.x))
        bend = NO_BEND if base.point.known.hessian is None else base.point.known.hessian.diagonal()
        reach = state.memory.reach.at(x.x, run.x0, bend)
        near, away, gap = self.nearness(run, state, base, x, reach)
        stuck = x is state.point and not to.serves
        momentum = replace(momentum, near=0.0 if stuck else near, away=away)
        memory = replace(
            state.memory,
            control=Control(to.following, to.following),
            reach=reach,
            iteration=state.memory.iteration + 1,
            length=length(to.s),
        )
        row = Row(
            iteration=state.memory.iteration,
            f=x.value(),
            gradient_norm=float(np.linalg.norm(x.gradient())),
            sigma=to.sigma,
            ratio=nan,
            accepted=absorbed is not None or x is not state.point,
            step_norm=float(np.linalg.norm(self.frame.lift(to.s))),
            sizes=state.sizes,
            inner=to.inner,
            third_bought=self.p > 2,
            counts=run.meter.counts(),
            seconds=perf_counter() - run.started,
            predicted=gap,
        )
        return replace(state, point=x, memory=memory, extra=momentum, certificate=None), row

    def nearness(self, run: Run, state: State, base: Base, x: MeteredPoint, reach: Reach) -> tuple[float, bool, float]:
        """How far the minimizer is from x by the curvature at y, over what was asked; whether x goes away with nothing
        to gain; and the gap."""
        if base.space is None:
            return 0.0, False, 0.0
        g, form = self.frame.slope(x.gradient()), base.space.curvature()
        e, _ = base.space.lift(-form.shifted(0.0)(base.space.rotate(g)))
        gap, s = 0.5 * abs(float(g @ e)), self.frame.lift(e)
        size = float(np.fmax(abs(x.value()), known_value(state) - x.value()))
        relative, spans = run.tolerances.relative, reach.spans
        away = gap <= run.traits.epsilon * size and float(np.max(np.abs(s) / spans)) >= AWAY
        if not relative:
            return inf, away and not state.memory.looked, gap
        each = np.abs(s) / (sizes(x.x, s, spans) if reach.bend.size else spans)
        far = float(np.max(each)) if reach.bend.size else float(np.linalg.norm(each)) / np.sqrt(len(s))
        near = max(far, gap / size if size > 0.0 else inf) / relative
        return near, away and not state.memory.looked, gap


def momentum_of(state: State) -> Momentum:
    """What the method keeps."""
    assert isinstance(state.extra, Momentum)
    return state.extra


def known_value(state: State) -> float:
    """f at x0; nan where it is not known."""
    value = state.origin.known.value
    return nan if value is None else value


def first_sigma(base: Base, size: float, p: int) -> float:
    """With which no step is longer than the larger of |x| and the step of steepest descent: |g| / r^p."""
    if base.space is None:
        return 1.0
    steep = length(base.g)
    bend = float(base.g @ base.taylor.B.hessian_product(base.g)) / steep**2
    return steep / power_of(max(size, steep / bend if bend > 0.0 else steep), p)


def bends_down(form: Tridiagonal, epsilon: float) -> bool:
    """Whether an eigenvalue is negative by more than rounding."""
    return form.floor > np.sqrt(epsilon) * form.bound


def lowest_of(form: Tridiagonal) -> float:
    """The lowest eigenvalue."""
    import scipy.linalg

    d = len(form.diag)
    if d == 1:
        return float(form.diag[0])
    return float(scipy.linalg.eigvalsh_tridiagonal(form.diag, form.off[: d - 1], select="i", select_range=(0, 0))[0])


def lower(x: MeteredPoint, there: MeteredPoint) -> MeteredPoint:
    """The one where f is lower; where rounding hides that, the one with the smaller gradient."""
    fall = x.value() - there.value()
    if rounded(x.value(), fall):
        return there if length(there.gradient()) < length(x.gradient()) else x
    return there if fall > 0.0 else x


def due(run: Run, state: State) -> bool:
    """Whether x may be as close as was asked."""
    t, closer, momentum = run.tolerances, state.memory.closer, momentum_of(state)
    if momentum.away or momentum.near == 0.0:
        return True
    if t.relative:
        return momentum.near <= closer or not np.any(state.point.gradient())
    return float(np.linalg.norm(state.point.gradient())) <= closer * t.eps1


def conclude(run: Run, state: State, frame: Frame) -> tuple[State, Status | None]:
    """The certificate at x: the run ends, goes on from a lower point that was seen, or asks for more."""
    memory, away = state.memory, momentum_of(state).away
    gained = known_value(state) - state.point.value()
    try:
        way = Travelled(memory.reach, gained, away)
        certificate, down = certify(exact(state.point), run.n, run.tolerances, run.traits, run.seed, way)
    except NotFiniteError:
        return state, Status.NOT_FINITE
    state = replace(state, certificate=certificate)
    if certificate.holds:
        return state, Status.CERTIFIED
    if down is not None and down.order == 2:
        return state, Status.NOT_CONVEX
    if certificate.ray is not None and (away or certificate.converged):
        return state, Status.FLAT
    if certificate.converged or memory.closer < CLOSEST:
        return state, Status.NOT_CERTIFIED
    memory = replace(memory, closer=CLOSER * memory.closer, looked=memory.looked or away)
    if down is not None:
        there = run.full.first_at(state.x + down.s)
        if there.value() < state.point.value():
            momentum = Momentum.at(frame.coordinates(there.x))
            return replace(state, point=there, memory=memory, extra=momentum, certificate=None), None
    return replace(state, memory=memory, extra=replace(momentum_of(state), away=False), certificate=None), None
