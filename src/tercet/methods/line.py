"""One iteration of STM and SCR, as a straight line:

    sizes -> draw -> expand -> [stop?] -> model -> solve -> judge -> observe

`Line.step` is that line; each part below is one of its words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tercet.criticality import Escape, certify
from tercet.methods.promise import UNKNOWN, WholeThird, observe, promise
from tercet.methods.run import Run, Settings
from tercet.methods.sigma import Evidence, Miss
from tercet.methods.state import Expansion, Memory, escape_step, restore_run, run_state
from tercet.objectives.base import NotFiniteError
from tercet.objectives.counting import CountedPoint
from tercet.records import Certificate, Counts, Forecast, Matrix, Sizes, Status, Step, Vector
from tercet.result import Row
from tercet.sampling.draws import Draws
from tercet.sampling.rules import Outlook
from tercet.sampling.theory import promises
from tercet.subsolvers import Subspace
from tercet.subsolvers.base import Regularization, Taylor
from tercet.vectors import length

EPS = float(np.finfo(float).eps)
CHEAP = 0.33  # of the price of a third derivative, the share that even a small sample is charged
PATIENCE = 20  # this many rejections that noise or rounding explains end the run
EXPLAINED = 0.3  # a dear Hessian serves for as long as it leaves no more than this much of the gradient


@dataclass(eq=False)
class Line:
    """A run of STM or SCR: where it stands, and what it remembers."""

    run: Run
    settings: Settings
    x: Vector
    draws: Draws = field(init=False)
    memory: Memory = field(init=False)
    here: Expansion | None = field(init=False, default=None)
    point: CountedPoint | None = field(init=False, default=None)  # x over the sample of the function values
    escape: Escape | None = field(init=False, default=None)
    sampled: bool = field(init=False, default=False)  # some iterations looked at a sample of the values only
    variances: tuple[float, float, float] = field(init=False, default=UNKNOWN)  # of this iteration's samples
    looks: bool = field(init=False, default=False)  # the sub-solver looks at f itself

    def __post_init__(self) -> None:
        n, d, rule = self.run.n, self.run.d, self.settings.sizes
        subsolver = self.run.subsolver(self.settings)
        self.looks = isinstance(subsolver, Subspace)
        if isinstance(subsolver, Subspace):
            subsolver.check(self.run.raw, rule)
        self.draws = Draws(n, self.run.seed, rule.replacement)
        self.memory = Memory(self.settings.sigma.first(), rule.first(n, d))
        self.sampled = self.memory.sizes.value < n

    @property
    def power(self) -> int:
        """Of the regularizer; a model without T, as every one over a span is, has |s|^3."""
        return 3 if self.looks else self.settings.power

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of x, where the stop test has made one."""
        return self.memory.certificate

    def full_point(self) -> CountedPoint | None:
        """x over all terms, where that is already at hand."""
        return self.point if self.point is not None and self.point.terms >= self.run.n else None

    def state(self) -> dict[str, Any] | None:
        """All that the next iteration depends on, where the last step was accepted; None elsewhere.

        After a rejection a factorization is under way; a resumed run repeats that iteration from the accepted point.
        """
        if self.here is not None or not isinstance(self.point, CountedPoint):
            return None
        point = {"x": self.x, "point": self.point.saved(), "memory": self.memory.as_dict(), "sampled": self.sampled}
        return {**point, **run_state(self.run, self.draws)}

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where `state` was taken."""
        restore_run(self.run, self.draws, state)
        self.x, self.sampled = state["x"], bool(state["sampled"])
        self.memory = Memory.from_dict(state["memory"])
        view = self.run.view(self.draws.beginning(self.memory.sizes.value))
        self.point, self.here, self.escape = view.recall(self.x, state["point"]), None, None

    def step(self) -> Row | Status:
        """One iteration, or the reason why there is none."""
        self.expand()
        self.enlarge()
        status = self.stop()
        if status is not None:
            return status
        return self.judge(self.solve())

    # draw and expand ------------------------------------------------------------------------------------------------

    def expand(self) -> None:
        """f, g, B, T at x over this iteration's samples. A nested sample that did not move is used again."""
        if self.here is not None and (self.settings.sizes.nested or self.memory.sizes.is_full(self.run.n)):
            return
        if self.point is None:
            view = self.run.view(self.draws.beginning(self.memory.sizes.value))
            self.x = view.settle(self.x)
            self.point = view.at(self.x)
            if self.settings.sizes.nested:
                self.point.together()
            self.run.scale = abs(self.point.value())
            if self.sampled:
                self.run.start.value()  # to compare with at the end, or at once when the run is interrupted
                self.run.start.forget()
            if self.x is self.run.x0 and self.point.terms >= self.run.n:
                self.run.start = self.point
        if self.settings.sizes.nested:
            self.here = self.nested_expansion()
            return
        if self.memory.sizes.is_full(self.run.n):
            full = self.run.view(None).exact(self.point) if promises(self.settings.sizes) else self.point
            self.here = self.expansion(full, full, full)
            return
        sizes = self.memory.sizes
        fresh = (
            self.run.view(None).at(self.x) if promises(self.settings.sizes) else self.point
        )  # owes nothing to the past
        points = [
            full if rows is None else self.run.objective.over(rows).at(self.x)
            for full, rows in (
                (self.point, self.draws.independent(sizes.gradient)),
                (fresh, self.draws.independent(sizes.hessian)),
                (fresh, self.draws.independent(sizes.third)),
            )
        ]
        self.here = self.expansion(*points)

    def expansion(self, first: CountedPoint, second: CountedPoint, third: CountedPoint) -> Expansion:
        """The Taylor polynomial from the points that give g, B and T, with a sub-solver prepared on it."""
        assert self.point is not None
        # A value that is not finite needs no derivatives; the stop test ends the run there.
        g = first.gradient() if np.isfinite(self.point.value()) else np.full(self.run.d, np.nan)
        bent = WholeThird(third) if promises(self.settings.sizes) else third
        taylor = Taylor(g, second, bent if self.settings.order >= 3 else None, self.run.dense, self.run.forms_third)
        return Expansion(self.point, first, second, third, self.run.subsolver(self.settings).prepare(taylor))

    def nested_expansion(self) -> Expansion:
        """All derivatives over the terms of f, but B and T perhaps over the last sample of those before."""
        assert self.point is not None
        sizes, behind = self.memory.sizes, self.point
        if sizes.third < sizes.value:  # for T alone, what B can use again need not be kept
            behind = self.run.view(self.draws.beginning(sizes.third)).at(self.x, self.point if self.lags else None)
        second = behind if self.lags else self.point
        if self.memory.unexplained > EXPLAINED:
            second.renew()
        return self.expansion(self.point, second, behind)

    @property
    def lags(self) -> bool:
        """Whether B stays on the last sample before that of f."""
        return self.settings.sizes.nested and self.memory.sizes.hessian < self.memory.sizes.value

    def enlarge(self) -> None:
        """Ask the size rule, and let a nested sample grow: x is looked at over more terms."""
        rule, n = self.settings.sizes, self.run.n
        while rule.nested and self.memory.sizes.hessian < n and self.finite():
            assert self.point is not None
            if self.point.terms < n and length(self.point.gradient()) <= self.run.tolerances.eps1:
                self.memory.blur = np.inf  # this sample has nothing more to teach
            sizes = self.next_sizes()
            if sizes == self.memory.sizes:
                return
            self.grow(sizes)

    def grow(self, sizes: Sizes) -> None:
        """Look at x over more terms. The old sample goes before the new one comes."""
        assert self.point is not None
        trail, old = self.point.trail, self.memory.sizes
        self.here = None
        if sizes.value != old.value:
            self.point = None
        if sizes.third != old.third:
            self.run.leave()
        if self.point is None:
            self.point = self.run.view(self.draws.beginning(sizes.value)).at(self.x, trail).together()
        if sizes.value >= self.run.n:
            self.draws.rest()
        self.memory.sizes, self.memory.blur, self.memory.missed = sizes, 0.0, 0.0
        self.here = self.nested_expansion()

    def next_sizes(self) -> Sizes:
        """What the size rule says now; a sub-solver that looks at f itself needs all derivatives over its terms."""
        m = self.memory
        sizes = self.settings.sizes.next(
            Outlook(
                n=self.run.n,
                d=self.run.d,
                iteration=m.iteration,
                sizes=m.sizes,
                step=m.length,
                blur=m.blur,
                noisy=m.noisy,
                spreads=m.spreads,
                variances=self.variances,
                missed=m.missed,
                cost=self.run.hessian_cost,
            )
        )
        return replace(sizes, hessian=sizes.value, third=sizes.value) if self.looks else sizes

    def sampling_errors(self, point: CountedPoint) -> Matrix:
        """Rows e_k whose e_k e_k' sum to the covariance of the sampled gradient; zero when it is not sampled."""
        m, n, again = point.terms, self.run.n, self.settings.sizes.replacement
        if m >= n and not again:
            return np.zeros((1, self.run.d))
        return point.gradient_errors() * np.sqrt(1.0 if again else 1.0 - m / n)

    def blur(self, point: CountedPoint) -> float:
        """The decrease that the sampling error of a gradient can pretend, over the one that the gradient promises.

        Both are 1/2 v'(B + mu I)^-1 v with this iteration's B; where B is not factored, squared norms stand in.
        """
        assert self.here is not None
        both = np.vstack([self.sampling_errors(point), point.gradient()])
        each = self.here.workspace.decreases(both)
        if each is None:
            each = np.einsum("ij,ij->i", both, both)
        pretended, promised = float(np.sum(each[:-1])), float(each[-1])
        return pretended / promised if promised > 0 else np.inf

    # stop? ----------------------------------------------------------------------------------------------------------

    def finite(self) -> bool:
        """f and g are finite at x."""
        assert self.here is not None
        return bool(np.isfinite(self.here.value.value()) and np.isfinite(self.here.first.gradient()).all())

    def stop(self) -> Status | None:
        """The stop test at x: not finite, stuck, or certified. A gradient that is small enough asks for the rest."""
        assert self.here is not None
        if not self.finite():
            return Status.NOT_FINITE
        if self.here.value.value() < -1e20 * max(1.0, self.run.scale):
            if self.here.value.terms >= self.run.n:
                return Status.UNBOUNDED
            self.restart()  # only all terms together can tell
        if self.memory.hopeless:
            return Status.NOT_CERTIFIED
        if self.memory.stuck >= PATIENCE:
            return Status.NOISE if self.memory.noisy else Status.ROUNDING
        if self.here.first.terms < self.run.n or self.settings.sizes.replacement:
            return None
        small = self.memory.reach * self.run.tolerances.eps1
        if length(self.here.first.gradient()) > small or self.escape is not None:
            return None
        if self.here.first.drifted:
            self.look_again()
            return self.stop()
        if self.run.tolerances.order >= 2 and self.unfinished():
            return None
        return self.certify()

    def look_again(self) -> None:
        """The same x, owing nothing to the steps that led to it."""
        assert self.here is not None
        fresh = self.run.view(None).exact(self.here.first)
        if not (np.isfinite(fresh.value()) and np.isfinite(fresh.gradient()).all()):  # f was finite here before
            raise NotFiniteError("value")
        self.point, self.here = fresh, None
        self.expand()

    def unfinished(self) -> bool:
        """A flat direction can hide a decrease behind a small gradient; go on while the model still promises one."""
        assert self.here is not None
        worthwhile = 1e-3 * self.run.tolerances.eps1 * max(1.0, abs(self.here.value.value()))
        return self.memory.stuck == 0 and self.quadratic_step().second.decrease > worthwhile

    def certify(self) -> Status | None:
        """The certificate at x; where it fails for curvature or the third derivative, the way down is kept."""
        assert self.here is not None
        run = self.run
        point = run.view(None).exact(self.here.first)
        certificate, self.escape = certify(point, run.n, run.tolerances, run.dense, run.how, run.seed)
        if certificate.holds and self.worse_than_start():
            self.restart()
            return None
        self.memory.certificate = certificate
        if certificate.holds:
            return Status.CERTIFIED
        if self.escape is None:
            return Status.NOT_CERTIFIED
        self.memory.escape_sigma = self.escape.most(self.settings.sigma.first().third)
        return None

    def worse_than_start(self) -> bool:
        """Sampled phases do not look at the full objective, so where they led has to be compared with x0 once."""
        assert self.point is not None
        if not self.sampled:
            return False
        self.sampled = False
        return self.run.start.value() < self.point.value()

    def restart(self) -> None:
        """Begin again at x0 with all data."""
        n, control = self.run.n, self.settings.sigma.first()
        self.memory = Memory(control, Sizes(n, n, n, n), self.memory.iteration)
        self.x, self.here, self.point, self.escape = self.run.x0, None, None, None
        self.expand()

    # model and solve ------------------------------------------------------------------------------------------------

    def bends(self) -> bool:
        """Whether a third derivative is worth buying: always where T is formed, else when a quadratic left too much.

        Too much is 1/worth of the gradient over all terms, and less over a sample, where a product costs less. But a
        dear Hessian stays behind on a small sample, so that what it left there is its own error, which T does not mend.
        """
        if self.settings.order < 3 or self.settings.worth == 0:
            return False
        rough = self.run.objective.dear and self.lags
        share = 1.0 if rough else max(CHEAP, self.memory.sizes.third / self.run.n)
        return self.run.forms_third or self.memory.unexplained >= share / self.settings.worth

    def regularization(self, bends: bool) -> Regularization:
        """sigma and radius as they stand."""
        c = self.memory.control
        return Regularization(c.second, c.third, self.power, c.radius, bends, self.memory.unexplained)

    def quadratic_step(self) -> Step:
        """The step that no third derivative is bought for."""
        assert self.here is not None
        return self.here.workspace.solve(self.regularization(False))

    def solve(self) -> Step:
        """The step of the model, or along the escape direction. Steps that no model can vouch for are not tried."""
        assert self.here is not None
        if self.escape is not None:
            return escape_step(self.escape, self.memory.escape_sigma, self.here.first.gradient())
        step = self.here.workspace.solve(self.regularization(self.bends()))
        for _ in range(60):
            if self.trusted(step):
                break
            c = self.memory.control
            self.memory.control = replace(c, second=10 * c.second, third=10 * c.third)
            step = self.here.workspace.solve(self.regularization(self.bends()))
        return step

    def trusted(self, step: Step) -> bool:
        """The step and its promise are within reason: |s| <= 3 max(1, |x|), phi(0) - phi(s) <= 1000 max(1, |f|)."""
        assert self.here is not None
        if step.point is not None:
            return True
        reach = 3.0 * max(1.0, float(np.max(np.abs(self.x))))
        most = 1e3 * max(1.0, abs(self.here.value.value()))
        return bool(np.max(np.abs(step.s)) <= reach and step.forecast.decrease <= most)

    # judge ----------------------------------------------------------------------------------------------------------

    def judge(self, step: Step) -> Row:
        """rho = (f(x) - f(x+s)) / (phi(0) - phi(s)); accept, update sigma, remember."""
        assert self.here is not None
        f, decrease = self.here.value.value(), step.forecast.decrease
        trial = self.trial(step)
        after = trial.value()
        paid = self.run.meter.counts()  # what it took to know f here; the gradient belongs to the next iteration
        ratio = (f - after) / decrease if decrease > 0 and np.isfinite(after) else -np.inf
        rounding = bool(abs(decrease) <= 64 * EPS * abs(f))
        accepted = self.accepts(trial, ratio, rounding)
        row = self.row(step, after if accepted else f, ratio, accepted, paid)
        if self.escape is None:
            self.learn(self.evidence(step, trial, ratio, accepted, after), rounding)
        else:
            self.learn_escape(step, accepted, rounding)
        if accepted:
            if self.settings.sizes.nested and trial.terms < self.run.n:
                self.memory.blur = self.blur(trial)
            self.move(step, trial)
        elif self.here.second.renew():  # the next step is from a Hessian of this x
            self.here = None
        self.memory.iteration += 1
        if not self.settings.sizes.nested:
            sizes = self.next_sizes()
            if sizes != self.memory.sizes:  # larger samples: a new expansion, and new hope
                self.memory.sizes, self.memory.stuck, self.here = sizes, 0, None
        return row

    def trial(self, step: Step) -> CountedPoint:
        """f at x + s over the terms of f; a sub-solver that had the same terms may have looked at it already."""
        assert self.here is not None
        if step.point is not None and self.here.second is self.here.value:
            return step.point
        view = self.run.view(self.draws.beginning(self.memory.sizes.value))
        if not self.settings.sizes.nested:
            return view.at(self.x + step.s, self.here.value.trail)
        trial = view.at(self.x + step.s, self.here.second)
        if self.escape is not None:
            trial.renew()
        return trial.together()

    def accepts(self, trial: CountedPoint, ratio: float, rounding: bool) -> bool:
        """ratio >= eta1 with a finite gradient; where f is rounded off, a smaller gradient decides."""
        assert self.here is not None
        if np.isneginf(ratio) or (ratio < self.settings.sigma.eta1 and not rounding):
            return False
        if self.escape is not None:
            return ratio >= self.settings.sigma.eta1 and not rounding
        if not self.consistent():
            return not rounding
        g = trial.gradient()
        return bool(np.isfinite(g).all()) and not (rounding and length(g) >= length(self.here.first.gradient()))

    def consistent(self) -> bool:
        """f and g are averages over the same terms, so that a new gradient can be compared with the forecast."""
        sizes = self.memory.sizes
        return self.settings.sizes.nested or (sizes.gradient >= self.run.n and not self.settings.sizes.replacement)

    def evidence(self, step: Step, trial: CountedPoint, ratio: float, accepted: bool, after: float) -> Evidence:
        """How the polynomials of second and third order missed the trial point."""
        assert self.here is not None
        f, compare = self.here.value.value(), accepted and self.consistent() and step.point is None
        noise = 0.0 if self.consistent() else self.allowance(step)

        def miss(forecast: Forecast) -> Miss:
            slope = float((trial.gradient() - forecast.gradient) @ step.s) if compare else np.nan
            return Miss(after - (f - forecast.decrease) - noise, slope)

        if compare:
            left = length(trial.gradient() - step.second.gradient)
            self.memory.unexplained = left / max(length(self.here.first.gradient()), 1e-300)
        elif accepted and step.left is not None:
            self.memory.unexplained = step.left
        self.memory.missed = self.memory.unexplained if accepted else np.inf
        third = None if step.third is None else miss(step.third)
        return Evidence(ratio, accepted, length(step.s), self.power, miss(step.second), third)

    def allowance(self, step: Step) -> float:
        """By how much sampling error alone lets f miss the forecast; that much is not held against the model.

        Two standard deviations of the sampled g's, and the bias of a step that was chosen for the sampled g and takes
        its noise for slope: e'(B + mu I)^-1 e, twice what the noise can pretend.
        """
        assert self.here is not None
        self.measure_noise(step)
        deviation = length(self.sampling_errors(self.here.first) @ step.s)
        bias = self.memory.blur * step.forecast.decrease
        return 2.0 * (deviation + (bias if np.isfinite(bias) else 0.0))

    def learn(self, evidence: Evidence, rounding: bool) -> None:
        """Sigma and radius from the evidence, unless sampling error or rounding explains how the model missed."""
        m, accepted = self.memory, evidence.accepted
        noise = False
        if not self.consistent():
            noise = self.settings.noise_aware and evidence.ratio < 0.75 and self.noise_explains(evidence)
        m.noisy = noise and not accepted
        if rounding and not accepted:
            m.control = replace(m.control, radius=0.5 * evidence.length)
            m.hopeless = bool(m.reach < 1.0)
        elif not noise:
            m.control = self.settings.sigma.next(m.control, evidence)
        if accepted and not rounding:
            m.reach = 1.0
        if evidence.length <= EPS * max(length(self.x), 1e-140):  # at x = 0 before |s|^2 underflows
            m.stuck, m.noisy = PATIENCE, not self.consistent()
        elif m.noisy or rounding:
            m.stuck += 1
        elif accepted and not noise:
            m.stuck = max(0, m.stuck - 1) if not self.consistent() else 0

    def noise_explains(self, evidence: Evidence) -> bool:
        """Whether the miss is within the allowance, which was taken off already, or noise is most of g."""
        return (evidence.third or evidence.second).value <= 0.0 or self.memory.blur >= 0.5

    def measure_noise(self, step: Step) -> None:
        """The blur of this step, and how far one term's g, B and T stray from their means, for the size rules.

        For g from the sampled terms; for B and T the size of the derivative along the step stands in.
        """
        assert self.here is not None
        r, first = max(length(step.s), 1e-150), self.here.first
        self.memory.blur = self.blur(first)
        bend = 0.0 if step.third is None else 2 * length(step.third.gradient - step.second.gradient)
        self.memory.spreads = (
            float(np.sqrt(np.sum(self.sampling_errors(first) ** 2) * first.terms)),
            length(step.second.gradient - first.gradient()) / r,
            bend / r**2,
        )

    def learn_escape(self, step: Step, accepted: bool, rounding: bool) -> None:
        """A shorter step along the escape direction next time, until it is too short to show in f."""
        assert self.here is not None
        m, first = self.memory, self.settings.sigma.first()
        if accepted:
            m.control = replace(first, radius=2 * length(step.s))
            m.stuck, m.reach = 0, 1.0
        elif rounding:
            # f no longer shows the way down, but at a flat minimum the gradient may still lead closer.
            self.escape, m.control = None, first
            m.reach = 0.1 * length(self.here.first.gradient()) / self.run.tolerances.eps1
            m.hopeless = bool(m.reach < 1e-8)
        m.escape_sigma *= 4.0

    def move(self, step: Step, trial: CountedPoint) -> None:
        """x + s is the new x; its value is known, and its derivatives are taken when asked for."""
        self.x, self.point, self.here, self.escape = self.x + step.s, trial, None, None
        self.memory.length = length(step.s)
        self.memory.certificate = None

    def row(self, step: Step, f: float, ratio: float, accepted: bool, paid: Counts) -> Row:
        """What an observer sees of this iteration."""
        assert self.here is not None
        how = self.regularization(False)
        meets = self.here.workspace.meets(step, how) if self.escape is None else (None, None, None)
        self.variances = observe(self.settings.sizes, self.here)
        sure = promise(self.settings.sizes, self.memory.sizes, self.run.n, self.run.d, self.here, step, self.variances)
        return Row(
            iteration=self.memory.iteration,
            f=f,
            gradient_norm=length(self.here.first.gradient()),
            sigma=step.sigma,
            ratio=ratio,
            accepted=accepted,
            step_norm=length(step.s),
            sizes=self.memory.sizes,
            inner=step.inner,
            third=step.third is not None,
            escape=0 if self.escape is None else self.escape.order,
            meets=meets,
            counts=paid,
            predicted=step.forecast.decrease,
            guaranteed=sure.holds,
            failure=sure.failure,
        )
