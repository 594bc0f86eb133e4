"""`STM` for optimistix: one iteration is init, step and terminate of its minimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx

from tercet.checks import number
from tercet.control.sigma import SignedEstimate
from tercet.critical.certify import certify as certify_point
from tercet.critical.tolerances import Tolerances
from tercet.objectives.functions import Function
from tercet.objectives.metered import Meter, Metered
from tercet.optimistix.formulas import (
    all_finite,
    check_tolerances,
    choose,
    ending,
    flatten,
    largest_cubic,
    precision,
    regularized_step,
    third_square,
)
from tercet.records import Certificate


class Expansion(eqx.Module):
    """f, g and B = V diag(values) V' at the point where the run stands."""

    f: Any
    g: Any
    values: Any
    V: Any


class Critical(eqx.Module):
    """How critical that point is, and the direction y that leads away where chi_2 or chi_3 is too large."""

    small: Any  # Newton's step and what it promises are within the tolerances
    holds: Any
    chi2: Any
    chi3: Any
    y: Any
    slope: Any
    curvature: Any
    cubic: Any


class Trial(eqx.Module):
    """The step to try, and what the polynomials of order 2 and 3 promise for it: their fall and their gradient."""

    s: Any
    fall2: Any
    fall3: Any
    gradient2: Any
    gradient3: Any
    bought: Any  # whether T was bought; without it both polynomials are the same
    escapes: Any  # whether the step follows an escape direction


class Verdict(eqx.Module):
    """What the trial point told: its value, the ratio of the falls, and whether the values are rounded off."""

    after: Any
    ratio: Any
    rounding: Any
    accepted: Any


class Control(eqx.Module):
    """sigma without T and with it, the radius, what a quadratic left over, and the sigma of escape directions."""

    second: Any
    third: Any
    radius: Any
    unexplained: Any
    escape: Any


class State(eqx.Module):
    """What one step hands to the next."""

    here: Expansion
    critical: Critical
    control: Control
    trial: Trial
    aux: Any
    first: Any
    rejected: Any  # how often in a row
    done: Any
    result: Any


class STM(optx.AbstractMinimiser[Any, Any, State]):
    """The deterministic tensor method (AR3) with dense derivatives, for up to a few hundred variables.

    At each y it minimizes g's + 1/2 s'Bs + sigma/4 |s|^4 within a radius, which gives s_2. Where a quadratic has left
    more than 1/`worth` of the last gradient unexplained, one product with the third derivative T corrects s_2 to the
    minimizer of

        (g + 1/2 T[s_2]^2)'s + 1/2 s'Bs + sigma/4 |s|^4.

    One step looks at one trial point: its value and, where it is accepted, its gradient and Hessian.

    It ends with success where Newton's step |B|^-1 g is below atol + rtol |y| in the `norm` and promises less than
    atol + rtol |f|, chi_2 <= atol^(2/3) and chi_3 <= atol^(1/3), as far as `order` asks: at a saddle, also a degenerate
    one, it goes on. `stats` has chi1, chi2 and chi3 of the last point (chi3 is nan where it was not needed); `certify`
    makes a certificate of it. Where rounding ends all progress before that, the result is `nonlinear_divergence`; where
    f is not finite at y0, `nonfinite`. `sigma` has the factors by which sigma and the radius follow the evidence. The
    precision is that of y0.
    """

    rtol: float
    atol: float
    norm: Callable[[Any], Any] = optx.max_norm
    order: int = eqx.field(default=3, static=True)
    worth: float = eqx.field(default=2.0, static=True)
    sigma: SignedEstimate = eqx.field(default=SignedEstimate(), static=True)

    def __post_init__(self) -> None:
        check_tolerances("STM", self.rtol, self.atol)
        if isinstance(self.order, bool) or self.order not in (1, 2, 3):
            raise ValueError(f"STM(order={self.order!r}): order is 1, 2 or 3, the order of the test that ends the run.")
        if not number(self.worth) >= 0:
            raise ValueError(f"STM(worth={self.worth!r}): worth must be at least 0; inf buys third derivatives always.")

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> State:
        """Nothing is evaluated yet: the first trial is y itself, and it is accepted."""
        x, _ = flatten(y)
        zero, no = jnp.zeros((), x.dtype), jnp.array(False)
        return State(
            here=Expansion(zero, x, x, jnp.zeros((x.size, x.size), x.dtype)),
            critical=Critical(no, no, zero + jnp.nan, zero + jnp.nan, x, zero, zero, zero),
            control=self.fresh(x.dtype),
            trial=Trial(jnp.zeros_like(x), zero, zero, x, x, no, no),
            aux=jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux_struct),
            first=~no,
            rejected=jnp.array(0),
            done=no,
            result=optx.RESULTS.successful,
        )

    def step(self, fn: Any, y: Any, args: Any, options: Any, state: State, tags: Any) -> tuple[Any, State, Any]:
        """Look at the trial point, judge it, and choose the next one."""
        x, restore = flatten(y)
        first, trial, before = state.first, state.trial, state.here
        eps = precision(y)

        def f(x: Any) -> Any:
            return fn(restore(x), args)[0].astype(x.dtype)

        def expand(_: None) -> Expansion:
            values, V = jnp.linalg.eigh(jax.hessian(f)(x + trial.s))
            return Expansion(after, jax.grad(f)(x + trial.s), values, V)

        value, aux = fn(restore(x + trial.s), args)
        after = value.astype(x.dtype)
        promised = (trial.fall3 > 0) & jnp.isfinite(after)
        ratio = jnp.where(promised, (before.f - after) / trial.fall3, -jnp.inf)
        rounding = jnp.abs(trial.fall3) <= 64 * eps * jnp.abs(before.f)
        plausible = promised & ((ratio >= self.sigma.eta1) | rounding) & ~(rounding & trial.escapes)
        there = jax.lax.cond(plausible | first, expand, lambda _: before, None)
        # Where f is rounded off, a smaller gradient decides.
        smaller = jnp.linalg.norm(there.g) < jnp.linalg.norm(before.g)
        accepted = first | (plausible & all_finite(there) & (~rounding | smaller))

        x = jnp.where(accepted, x + trial.s, x)
        here = choose(accepted, there, before)
        learned = self.learn(state.control, trial, before, there, Verdict(after, ratio, rounding, accepted))
        control = choose(first, state.control, learned)
        critical = jax.lax.cond(
            accepted & all_finite(here),
            lambda _: self.examine(f, x, here, restore, eps),
            lambda _: state.critical,
            None,
        )
        rejected = jnp.where(accepted, 0, state.rejected + 1)
        done, result = ending(critical.holds, first & ~all_finite(there), rejected)
        aux = choose(accepted, aux, state.aux)
        state = State(
            here=here,
            critical=critical,
            control=control,
            trial=self.propose(f, x, here, critical, control),
            aux=aux,
            first=jnp.array(False),
            rejected=rejected,
            done=done,
            result=result,
        )
        return restore(x), state, aux

    def terminate(self, fn: Any, y: Any, args: Any, options: Any, state: State, tags: Any) -> tuple[Any, Any]:
        """Whether the last step found a point that is critical enough, or none where f is finite."""
        return state.done, state.result

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: State, tags: Any, result: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """chi1, chi2 and chi3 of the last point go to `stats`."""
        chi1 = jnp.linalg.norm(state.here.g)
        return y, aux, {"chi1": chi1, "chi2": state.critical.chi2, "chi3": state.critical.chi3}

    # model and solve ------------------------------------------------------------------------------------------------

    def propose(self, f: Any, x: Any, here: Expansion, critical: Critical, control: Control) -> Trial:
        """The step of the model, or along the escape direction where the gradient has nothing more to say."""
        escape = escape_trial(here, critical, control.escape)
        return choose(critical.small & ~critical.holds, escape, self.model_trial(f, x, here, control))

    def model_trial(self, f: Any, x: Any, here: Expansion, control: Control) -> Trial:
        """The second-order step, corrected by T where that is worth its price. In the basis of the eigenvectors."""
        values, V = here.values, here.V
        c = V.T @ here.g
        radius = jnp.minimum(control.radius, 3 * jnp.maximum(1, jnp.max(jnp.abs(x))))
        plain = regularized_step(values, c, control.second, radius)
        buys = control.unexplained * self.worth >= 1
        bend = jax.lax.cond(buys, lambda s: V.T @ third_square(f, x, V @ s), jnp.zeros_like, plain)
        # T[s_2]^2 says nothing beyond half the length of s_2, and is not T[s]^2: a step that promises no decrease
        # is not taken.
        change = regularized_step(values, c + bend / 2, control.third, radius) - plain
        room, size = jnp.linalg.norm(plain) / 2, jnp.linalg.norm(change)
        bent = plain + change * jnp.where(size > room, room / size, 1)
        bought = buys & (-(c @ bent + bent @ (values * bent) / 2 + bend @ bent / 6) > 0)
        s, bend = jnp.where(bought, bent, plain), jnp.where(bought, bend, 0)
        fall, gradient = -(c @ s + s @ (values * s) / 2), c + values * s
        return Trial(
            s=V @ s,
            fall2=fall,
            fall3=fall - bend @ s / 6,
            gradient2=V @ gradient,
            gradient3=V @ (gradient + bend / 2),
            bought=bought,
            escapes=jnp.array(False),
        )

    # judge ----------------------------------------------------------------------------------------------------------

    def fresh(self, dtype: Any) -> Control:
        """Before any evidence."""
        start = jnp.asarray(self.sigma.start, dtype)
        return Control(start, start, jnp.full_like(start, jnp.inf), jnp.ones_like(start), start)

    def learn(self, control: Control, trial: Trial, before: Expansion, there: Expansion, told: Verdict) -> Control:
        """Both sigmas and the radius after a judged step, as `SignedEstimate` has it."""
        rule, length, ratio, accepted = self.sigma, jnp.linalg.norm(trial.s), told.ratio, told.accepted
        missed = jnp.isneginf(ratio)

        def update(sigma: Any, fall: Any, gradient: Any) -> Any:
            slope = jnp.where(accepted, (there.g - gradient) @ trial.s, 0)
            estimates = jnp.stack([4 * (told.after - before.f + fall), slope]) / length**4
            estimate = jnp.max(jnp.where(jnp.isfinite(estimates), estimates, 0), initial=0)
            worse = jnp.maximum(rule.grow * sigma, jnp.minimum(estimate, rule.leap * sigma))
            worse = jnp.where(missed, 10 * rule.grow * sigma, worse)
            return jnp.where(accepted, jnp.maximum(estimate, rule.shrink * sigma), worse)

        kept = jnp.where(jnp.isfinite(control.radius), rule.memory * control.radius, 0)
        wider = jnp.where(ratio > 0.75, jnp.maximum(2 * length, kept), length)
        radius = jnp.where(accepted & (ratio >= 0.25), wider, length / 2)
        radius = jnp.where(missed, length / 10, radius)
        left = jnp.linalg.norm(there.g - trial.gradient2) / jnp.linalg.norm(before.g)
        judged = Control(
            second=update(control.second, trial.fall2, trial.gradient2),
            third=jnp.where(trial.bought, update(control.third, trial.fall3, trial.gradient3), control.third),
            radius=radius,
            unexplained=jnp.where(accepted, left, control.unexplained),
            escape=jnp.asarray(rule.start, control.escape.dtype),
        )
        shorter = eqx.tree_at(lambda c: c.radius, control, length / 2)
        judged = choose(told.rounding & ~accepted, shorter, judged)
        onward = eqx.tree_at(lambda c: c.radius, self.fresh(length.dtype), 2 * length)
        again = eqx.tree_at(lambda c: c.escape, control, 4 * control.escape)
        return choose(trial.escapes, choose(accepted, onward, again), judged)

    # stop? ----------------------------------------------------------------------------------------------------------

    def examine(self, f: Any, x: Any, here: Expansion, restore: Any, eps: float) -> Critical:
        """chi_2, and chi_3 where the gradient is small enough to ask for it; the way down where one is too large."""
        asked = Tolerances.of(self.atol, self.order)
        small = self.is_small(x, here, restore, eps)
        lowest, largest = here.values[0], jnp.max(jnp.abs(here.values))
        second = (self.order < 2) | (-lowest <= jnp.maximum(asked.eps2, 8 * eps * largest))
        kernel = (jnp.abs(here.values) <= asked.zeta).astype(x.dtype)
        needed = small & second & (self.order >= 3)
        chi3, top = largest_cubic(lambda y: third_square(f, x, y), here.V, kernel, needed)
        y = jnp.where(second, top, here.V[:, 0])
        cubic = jax.lax.cond(small, lambda y: third_square(f, x, y) @ y, lambda y: jnp.zeros((), x.dtype), y)
        slope = here.g @ y
        sign = jnp.where(jnp.where(second | (slope == 0), cubic, slope) > 0, -1, 1).astype(x.dtype)
        return Critical(
            small=small,
            holds=small & second & ((self.order < 3) | (chi3 <= asked.eps3)),
            chi2=jnp.maximum(-lowest, 0),
            chi3=jnp.where(needed, chi3, jnp.nan),
            y=sign * y,
            slope=sign * slope,
            curvature=jnp.sum(here.values * (here.V.T @ y) ** 2),
            cubic=sign * cubic,
        )

    def is_small(self, x: Any, here: Expansion, restore: Any, eps: float) -> Any:
        """Newton's step |B|^-1 g is below atol + rtol |y| and promises less than atol + rtol |f|.

        Parts of g below its rounding error count as zero, since along a flat direction they would never be small.
        """
        c = here.V.T @ here.g
        error = eps * jnp.max(jnp.abs(here.values)) * jnp.maximum(1, jnp.linalg.norm(x))
        newton = jnp.where(jnp.abs(c) <= error, 0, c / jnp.abs(here.values))
        scaled = jnp.abs(here.V @ newton) / (self.atol + self.rtol * jnp.abs(x))
        return (self.norm(restore(scaled)) < 1) & (c @ newton / 2 < self.atol + self.rtol * jnp.abs(here.f))


def escape_trial(here: Expansion, critical: Critical, sigma: Any) -> Trial:
    """The step t y with the t that minimizes curvature/2 t^2 + cubic/6 t^3 + sigma/4 t^4, 0 where none is below 0."""
    a, b = critical.curvature, critical.cubic / 2
    t = (jnp.sqrt(jnp.maximum(b * b - 4 * sigma * a, 0)) - b) / (2 * sigma)
    fall = -(critical.slope * t + critical.curvature / 2 * t**2 + critical.cubic / 6 * t**3)
    return Trial(t * critical.y, fall, fall, here.g, here.g, jnp.array(False), jnp.array(True))


def certify(
    fn: Callable[..., Any], solution: Any, args: Any = None, *, has_aux: bool = False, tol: float = 1e-8, order: int = 3
) -> Certificate:
    """The certificate of a solution of `optimistix.minimise`, or of any y, as `tercet.minimize` makes it for `tol`."""
    y = solution.value if isinstance(solution, optx.Solution) else solution
    bound = Function(lambda y: fn(y, args)[0] if has_aux else fn(y, args)).bind(y)
    metered = Metered.of(bound.objective, Meter(1))
    return certify_point(metered.over(None).at(bound.x0), 1, Tolerances.of(tol, order), metered.traits)[0]
