"""Small fits: the iterations of `STM` on residuals, with its decisions, as a loop that is compiled but for the calls of
the model; where anything is unusual, and for the certificate, `STM` itself goes on from where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import Any, Final, Literal

import numpy as np

from tercet.control.judge import EPS, Score, highest, judge
from tercet.control.ray import Ray
from tercet.control.sigma import Control, Evidence, Miss, TrustRegion
from tercet.critical.bounded import certify_in
from tercet.critical.errors import Travelled
from tercet.frame import Reach
from tercet.methods.phases import PATIENCE
from tercet.methods.run import Run
from tercet.methods.state import Memory, State
from tercet.methods.step import TensorKernel
from tercet.methods.stm import STM
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import MeteredPoint
from tercet.records import Counts, Matrix, Status, Vector
from tercet.result import Row
from tercet.subsolvers.base import meets_first
from tercet.subsolvers.gauss_newton import TRIES, GaussNewton
from tercet.vectors import length

FEW = 20  # variables
SOME = 1000  # residuals
CLOSE: Final = "close"


@dataclass(frozen=True)
class Small:
    """`STM` for few variables and not many residuals."""

    method: STM = field(default_factory=STM)

    def __repr__(self) -> str:
        return repr(self.method)

    def kernel(self, run: Run) -> Any:
        """The loop, where it suits; else that of `STM`."""
        whole = self.method.kernel(run)
        solver, sizes = whole.parts.subsolver, whole.parts.sizes.first(run.n, run.d)
        plain = run.traits.blur == 0.0 and run.tolerances.relative > 0.0 and not run.domain.bounded
        if plain and run.d <= FEW and isinstance(solver, GaussNewton) and sizes.is_full(run.n):
            return SmallKernel(whole, solver)
        return whole


@dataclass(frozen=True, eq=False)
class Walk:
    """Where a small fit stands: as `State` and `Memory` have it, but for what is written in place in `table`."""

    point: MeteredPoint
    origin: MeteredPoint
    start: State
    table: Table
    radius: float = inf
    unexplained: float = 1.0
    iteration: int = 0
    length: float = nan
    stuck: int = 0
    rejected: bool = False  # the last step was
    before: Vector | None = None
    certificate: None = None
    sampled: bool = False

    @property
    def x(self) -> Vector:
        """Where the run stands."""
        return self.point.x

    @property
    def memory(self) -> Memory:
        """What `STM` needs to know of the past."""
        missed = inf if self.rejected else self.unexplained if self.iteration else 0.0
        past = Memory(Control(0.0, 0.0, self.radius), self.table.reach, self.iteration, self.length, self.unexplained)
        return replace(past, missed=missed, stuck=self.stuck)

    @property
    def state(self) -> State:
        """The same for `STM`."""
        return replace(self.start, point=self.point, memory=self.memory, before=self.before)


@dataclass(frozen=True, eq=False)
class Table:
    """What `tercet.fitting.walk` writes."""

    rows: Matrix
    matrices: Any
    numbers: Vector

    @staticmethod
    def of(run: Run, settings: GaussNewton, grow: float) -> Table:
        """At the start."""
        from tercet.fitting import walk  # Numba is loaded

        rows, numbers = np.zeros((len(walk.ROWS), run.d)), np.zeros(len(walk.NUMBERS))
        rows[walk.X0] = run.x0
        numbers[walk.RELATIVE], numbers[walk.FIRST] = run.tolerances.relative, grow
        numbers[walk.LEAST] = settings.left
        return Table(rows, np.zeros((len(walk.MATRICES), run.d, run.d)), numbers)

    @property
    def reach(self) -> Reach:
        """As far as it was seen."""
        from tercet.fitting import walk

        size, moved, bend = self.rows[[walk.SIZE, walk.MOVED, walk.BEND]]
        return Reach(size, moved, bend if bend.any() else np.zeros(0))


@dataclass(frozen=True, eq=False)
class Judged:
    """A step that was tried, and its verdict."""

    score: Score
    accepted: bool
    slope: Vector | None  # the gradient at x + s in the coordinates of the step, where it was looked at
    after: float  # f there
    promised: float
    paid: Counts


@dataclass(frozen=True, eq=False)
class SmallKernel:
    """A kernel whose states are a `Walk`, and then those of `STM`."""

    whole: TensorKernel
    settings: GaussNewton

    def begin(self, run: Run) -> Walk | State:
        """Stand at the start."""
        state, sigma = self.whole.begin(run), self.whole.parts.sigma
        if not isinstance(sigma, TrustRegion):
            return state
        return Walk(state.point, state.origin, state, Table.of(run, self.settings, sigma.grow))

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """As `STM` does."""
        return self.whole.resume(run, arrays)

    def step(self, run: Run, state: Walk | State) -> tuple[Any, Row | Status]:
        """One iteration, or the reason why there is none."""
        if isinstance(state, Walk):
            how = self.model(state)
            if isinstance(how, float):
                return self.walk(run, state, how)
            done = certified(run, state) if how is CLOSE else None
            if done is not None:
                return done, Status.CERTIFIED
            state = state.state
        return self.whole.step(run, state)

    def model(self, at: Walk) -> float | Literal["close"] | None:
        """The second-order step at x, by a matrix that is told; CLOSE where x is as close as was asked, and None where
        `STM` has to look at x."""
        from tercet.fitting import walk

        point, table, first = at.point, at.table, at.iteration == 0
        rows, numbers = table.rows, table.numbers
        f, g = point.value(), point.known.gradient
        numbers[walk.RADIUS], numbers[walk.LEFT] = at.radius, at.unexplained
        if not at.rejected:
            if g is None or not (isfinite(f) and np.isfinite(g).all() and g.any()):
                return None
            lines = point.residuals.linear().rows
            if not len(g) <= len(lines) <= SOME:
                return None
            rows[walk.X], rows[walk.G] = point.x, g
            numbers[walk.F], numbers[walk.GAINED] = f, at.origin.value() - f
            try:
                rest = point.residuals.rest()
            except NotFiniteError:
                return None
            if not walk.stand(lines, rest, rows, table.matrices, numbers):
                return None
        lost = at.rejected and at.stuck > 0
        if at.stuck >= PATIENCE or (lost and at.stuck == 1):
            return None
        how = walk.plain(rows, table.matrices, numbers)
        over = walk.over(rows, numbers, first, lost)
        if over or not isfinite(numbers[walk.LENGTH]):
            return CLOSE if over == 1 else None
        return float(how)

    def walk(self, run: Run, at: Walk, how: float) -> tuple[Walk, Row]:
        """The step with its correction, f there, and the next state."""
        from tercet.fitting import walk

        point, rows, numbers = at.point, at.table.rows, at.table.numbers
        radius = float(numbers[walk.RADIUS])
        for left in range(TRIES, -1, -1):
            curve = point.residuals.curve(rows[walk.E] * rows[walk.S])
            most = self.settings.bend if left else inf
            shorter = walk.correct(curve.slope, curve.image, curve.square, rows, at.table.matrices, numbers, how, most)
            if shorter == 0.0:
                break
            numbers[walk.RADIUS] = shorter
            how = walk.plain(rows, at.table.matrices, numbers)
        s = rows[walk.E] * rows[walk.S]
        trial, rounding = point.view.at(point.x + s), float(numbers[walk.ROUNDING])
        f, decrease, cubic = point.value(), numbers[walk.DECREASE], numbers[walk.BENT]
        promised = float(decrease if np.isnan(cubic) else cubic)
        before = dict(run.meter.tally)
        trial.residuals.ahead(highest(f, promised, self.whole.parts.sigma.eta1, rounding))
        after = trial.value()
        score = judge(f, promised, after, rounding)
        # What it took to know f; the gradient belongs to the next iteration.
        paid = Counts(**{**before, "value": run.meter.tally["value"]}, n=run.n)
        accepted, slope = self.verdict(trial, score, rows[walk.E], rows[walk.G])
        judged = Judged(score, accepted, slope, after, promised, paid)
        return self.learn(at, trial, judged, radius), self.describe(run, at, judged)

    def verdict(self, trial: MeteredPoint, score: Score, E: Vector, g: Vector) -> tuple[bool, Vector | None]:
        """Whether x + s is the next x, and the slope there (`Descent.verdict`)."""
        if score.ratio == -inf or (score.ratio < self.whole.parts.sigma.eta1 and not score.rounding):
            return False, None
        slope = E * trial.gradient()
        if not np.isfinite(slope).all():
            return False, None
        return not score.rounding or float(slope @ slope) < float(g @ g), slope

    def describe(self, run: Run, at: Walk, judged: Judged) -> Row:
        """What an observer sees."""
        from tercet.fitting import walk

        rows, numbers = at.table.rows, at.table.numbers
        bought, s, g = not np.isnan(numbers[walk.BENT]), rows[walk.S], at.point.gradient()
        sigma = float(numbers[walk.SIGMA])
        left = rows[walk.QUADRATIC] + sigma * float(s @ s) * s
        return Row(
            iteration=at.iteration,
            f=judged.after if judged.accepted else at.point.value(),
            gradient_norm=length(g),
            sigma=sigma,
            ratio=judged.score.ratio,
            accepted=judged.accepted,
            step_norm=length(rows[walk.E] * s),
            sizes=at.start.sizes,
            inner=2 if bought else 1,
            third_bought=bought,
            meets=(None if bought else meets_first(left, s, 100.0), None, None),
            seconds=perf_counter() - run.started,
            counts=judged.paid,
            predicted=judged.promised,
        )

    def learn(self, at: Walk, trial: MeteredPoint, judged: Judged, radius: float) -> Walk:
        """The next state, with a radius from the evidence (`Descent.learn`)."""
        from tercet.fitting import walk

        rows, numbers, score, accepted = at.table.rows, at.table.numbers, judged.score, judged.accepted
        size, stuck = float(numbers[walk.LENGTH]), at.stuck
        if size <= EPS * max(length(rows[walk.X] / rows[walk.E]), 1e-140):
            stuck = PATIENCE
        elif score.rounding:
            stuck += 1
        elif accepted:
            stuck = 0
        if score.rounding and not accepted:
            radius = 0.5 * size
        else:
            best = 0.5 if accepted or not isfinite(judged.after) else lowest(at, judged)
            evidence = Evidence(score.ratio, accepted, size, 4, Miss(0.0), None, best)
            radius = self.whole.parts.sigma.next(Control(0.0, 0.0, radius), evidence).radius
        later = replace(at, radius=radius, iteration=at.iteration + 1, stuck=stuck, rejected=not accepted)
        if not accepted or judged.slope is None:
            return later
        unexplained = length(judged.slope - rows[walk.QUADRATIC]) / max(length(rows[walk.G]), 1e-300)
        return replace(later, point=trial, unexplained=unexplained, length=size, before=at.point.x)


def certified(run: Run, at: Walk) -> State | None:
    """The end of a run, where the certificate holds at x as `STM` would ask for it; where not, it has more to say."""
    state, gained = at.state, at.origin.value() - at.point.value()
    try:
        way = Travelled(state.memory.reach, gained)
        found, _ = certify_in(run.domain, at.point, run.n, run.tolerances, run.traits, run.seed, way)
    except NotFiniteError:
        return None
    return replace(state, certificate=found) if found.holds else None


def lowest(at: Walk, judged: Judged) -> float:
    """Where along a step that was rejected f is lowest, by what was seen of it."""
    from tercet.fitting import walk

    rows, numbers = at.table.rows, at.table.numbers
    slope, quadratic, bent = float(rows[walk.G] @ rows[walk.S]), float(numbers[walk.DECREASE]), numbers[walk.BENT]
    cubic = 0.0 if np.isnan(bent) else 6.0 * (quadratic - float(bent))
    return Ray(slope, -2.0 * (quadratic + slope), cubic).lowest([(1.0, judged.after - at.point.value())])
