"""From a state to the numbers of the compiled loop (`tercet.methods.walk`), and back to a state and rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.control.sigma import TrustRegion
from tercet.frame import Euclidean, Natural, Reach
from tercet.methods.phases import DESCENT
from tercet.methods.policy import Nested
from tercet.methods.run import Run
from tercet.methods.search import AlongStep
from tercet.objectives.linear.span import Path
from tercet.objectives.metered import Carry, Known, MeteredPoint, engine_of
from tercet.records import Counts, Sizes, Vector
from tercet.result import Row
from tercet.subsolvers import Dense

if TYPE_CHECKING:
    from tercet.methods.parts import Parts
    from tercet.methods.state import State

Walked = tuple["State", list[Row], bool]  # where it ended, the iterations, and whether another may follow


@dataclass(frozen=True, eq=False)
class Walker:
    """Who takes the ordinary iterations of a run on a small linear model; the parts are those of the defaults."""

    data: Any  # the rows
    units: Vector  # E
    fixed: Vector  # the numbers of the loop that stay

    @staticmethod
    def of(parts: Parts, run: Run) -> Walker | None:
        """One for these parts; None where an iteration takes another way."""
        view, sigma, subsolver = run.full.engine, parts.sigma, parts.subsolver
        natural = type(parts.units) is Natural and run.scales is not None
        ours = type(sigma) is TrustRegion and type(subsolver) is Dense and type(parts.search) is AlongStep
        plain = type(parts.policy) is Nested and not (parts.guarantee.promises or parts.forms_third or parts.buys_first)
        if not (ours and plain and (natural or type(parts.units) is Euclidean)) or run.objective.reuses_hessian:
            return None
        data = getattr(view, "looped", None)
        if data is None:
            return None
        from tercet.methods import walk_search as w  # compiled, and loaded only where it is used

        assert isinstance(sigma, TrustRegion)
        assert isinstance(subsolver, Dense)
        assert isinstance(parts.search, AlongStep)
        N, t = np.zeros(len(w.NUMBERS)), run.tolerances
        N[w.RELATIVE], N[w.FIRST], N[w.EPSILON], N[w.UNITS] = t.relative, t.eps1, run.traits.epsilon, natural
        N[w.ETA], N[w.GROW], N[w.THETA], N[w.POWER] = sigma.eta1, sigma.grow, subsolver.theta, parts.power
        N[w.WORTH], N[w.LOOKS] = parts.third.worth if parts.order >= 3 else 0.0, parts.search.looks
        E = np.require(run.scales, None, ("C", "W")) if natural else np.ones(run.d)
        return Walker(data, E, N)

    def walk(self, run: Run, state: State, most: int, evaluations: float) -> Walked:
        """At most so many iterations, and none once there were so many evaluations; none where the next is no ordinary
        one. What was computed of it is known at the point then."""
        m, point = state.memory, state.point
        full = state.views.value is run.full and state.views.hessian is run.full and state.sizes.is_full(run.n)
        if not full or state.phase is not DESCENT or m.stuck or m.hopeless or state.certificate is not None:
            return state, [], False
        if point.known.gradient is None or point.borrowed is not None or m.control.sigma2 != 0.0:
            return state, [], False
        from tercet.methods import walk_search as w
        from tercet.methods.walk import walk

        numbers, known = self.numbers(run, state, evaluations), point.known.hessian
        V, M, B = self.arrays(run, state, numbers), np.empty((len(w.MARGINS), run.n)), np.zeros((3, run.d, run.d))
        M[w.Z] = engine_of(point).margins.z
        if known is not None:
            B[0] = known
        lines = np.zeros((most, len(w.LINE)))
        taken, more = walk(self.data, V, M, B, numbers, lines, np.empty((3, int(numbers[w.LOOKS]) + 1)))
        counted = {name: int(numbers[w.VALUES + k]) for k, name in enumerate(run.meter.tally)}
        run.meter.tally.update(counted)
        here = B[0] if numbers[w.FORMED] else None
        if not taken:
            if here is not None and known is None:
                point.known.hessian = here
            return state, [], False
        rows = [self.row(run, m.iteration + k, line) for k, line in enumerate(lines[:taken])]
        return self.stand(run, state, V, M, numbers, here, any(row.accepted for row in rows)), rows, more

    def numbers(self, run: Run, state: State, evaluations: float) -> Vector:
        """The numbers at a state."""
        from tercet.methods import walk_search as w

        N, m, tally, path = self.fixed.copy(), state.memory, run.meter.tally, state.point.given.engine
        start = state.origin.known.value
        N[w.F], N[w.RADIUS], N[w.LENGTH], N[w.MISSED] = state.point.value(), m.control.radius, m.length, m.missed
        N[w.UNEXPLAINED], N[w.ITERATION] = m.unexplained, m.iteration
        N[w.FORMED] = state.point.known.hessian is not None
        N[w.VALUES : w.VALUES + 4], N[w.MOST] = list(tally.values()), evaluations
        N[w.SCALE], N[w.START], N[w.CLOSER] = state.scale, np.nan if start is None else start, m.closer
        N[w.ROUNDING], N[w.SEEN] = m.rounding, m.looked
        if path is not None and path.margins is not None:
            N[w.AGE], N[w.STRAYED] = path.age, path.moved
        return N

    def arrays(self, run: Run, state: State, N: Vector) -> Any:
        """The vectors at a state."""
        from tercet.methods import walk_search as w

        V, reach, point = np.zeros((len(w.VECTORS), run.d)), state.memory.reach, state.point
        V[w.X], V[w.X0], V[w.G], V[w.E] = point.x, run.x0, point.known.gradient, self.units
        V[w.SIZE], V[w.MOVED] = reach.size, reach.moved
        if reach.bend.size:
            V[w.BEND] = reach.bend
        return V

    def stand(self, run: Run, state: State, V: Any, M: Any, N: Vector, B: Any, moved: bool) -> State:
        """The state after the loop."""
        from tercet.methods import walk_search as w

        point, before = state.point, state.before
        if moved:
            path = Path(None, (), (), M[w.Z].copy(), int(N[w.AGE]), float(N[w.STRAYED]))
            known = Known(float(N[w.F]), V[w.G].copy())
            point, before = MeteredPoint(state.views.value, V[w.X].copy(), Carry(None, path), known), V[w.BEFORE].copy()
        if B is not None:
            point.known.hessian = B
        memory = replace(
            state.memory,
            control=replace(state.memory.control, radius=float(N[w.RADIUS])),
            reach=Reach(V[w.SIZE].copy(), V[w.MOVED].copy(), V[w.BEND].copy()),
            iteration=int(N[w.ITERATION]),
            length=float(N[w.LENGTH]),
            unexplained=float(N[w.UNEXPLAINED]),
            missed=float(N[w.MISSED]),
            noisy=False,
            stuck=int(N[w.STUCK]),
        )
        return replace(state, point=point, memory=memory, before=before, kept=None)

    def row(self, run: Run, iteration: int, line: Vector) -> Row:
        """What an observer sees of an iteration."""
        from tercet.methods import walk_search as w

        n, at, bought = run.n, line.tolist(), bool(line[w.ROW_BOUGHT])
        value, gradient, hessian, third = (int(each) for each in at[w.ROW_VALUES :])
        return Row(
            iteration=iteration,
            f=at[w.ROW_F],
            gradient_norm=at[w.ROW_NORM],
            sigma=at[w.ROW_SIGMA],
            ratio=at[w.ROW_RATIO],
            accepted=bool(at[w.ROW_ACCEPTED]),
            step_norm=at[w.ROW_STEP],
            sizes=Sizes(n, n, n, n),
            inner=1 + bought,
            third_bought=bought,
            meets=(None, None, None) if bought else (bool(at[w.ROW_FIRST]), bool(at[w.ROW_SECOND]), None),
            seconds=perf_counter() - run.started,
            counts=Counts(value, gradient, hessian, third, n),
            predicted=at[w.ROW_PROMISED],
        )
