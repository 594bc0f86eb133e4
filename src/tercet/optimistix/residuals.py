"""`GaussNewton` for optimistix: steps from the residuals, corrected by their second derivative along the step.

What is done stands in `tercet.subsolvers.gauss_newton`; this is the same written in JAX, for all data at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.flatten_util import ravel_pytree

from tercet.optimistix.formulas import all_finite, check_tolerances, choose, ending, flatten, precision, radius_step

ETA = 0.1  # of what was promised, from which on a step is taken
GROW = 3.0  # the radius over the last good step, at most
BEND = 0.375  # of the step: a longer correction tells that the valley turns
LONGEST = 0.5  # of the step, a correction
TRIES = 4  # times a step is made shorter before f is looked at
FAINT = 1e-8  # a column of J this much shorter than the longest, over the reach of its variable, counts as this


class Reach(eqx.Module):
    """How far each x_j came, and how strongly f bent along it: the units of steps (docs/decisions/012)."""

    start: Any
    span: Any
    bend: Any

    def at(self, x: Any, J: Any) -> Reach:
        """With another point."""
        span = jnp.maximum(self.span, jnp.maximum(jnp.abs(x), jnp.abs(x - self.start)))
        return Reach(self.start, span, jnp.maximum(self.bend, jnp.sum(J * J, axis=0)))

    def units(self) -> Any:
        """E_j = sqrt(D_j / sqrt(b_j)), the geometric mean of two lengths that know the units of x_j."""
        b, tiny = self.bend, jnp.finfo(self.bend.dtype).tiny
        longest = jnp.max(self.span, initial=0)
        most = jnp.max(self.span**2 * b, initial=0)
        most = jnp.where(most > 0, most, jnp.max(b, initial=0))
        alike = jnp.sqrt(most / jnp.maximum(b, tiny))
        D = jnp.where(self.span > 0, self.span, jnp.where((b > 0) & (most > 0), alike, 1))
        D = jnp.maximum(D, 1e-8 * longest)
        b = jnp.maximum(b, FAINT * most / D**2)
        return jnp.where(b > 0, jnp.sqrt(D / jnp.sqrt(jnp.maximum(b, tiny))), D)


class Lines(eqx.Module):
    """The residuals at x as straight lines, in coordinates c with s = W c in which J'J is diag(q^2).

    `values` and `Q` are the eigenvalues and eigenvectors of what steps are taken with: all of B in these coordinates
    where that is positive definite (`full`), else diag(q^2).
    """

    f: Any
    g: Any
    r: Any
    J: Any
    B: Any
    q: Any
    W: Any
    slope: Any
    K: Any
    values: Any
    Q: Any
    lowest: Any  # eigenvalue of B in these coordinates, and its direction
    down: Any
    full: Any
    free: Any  # the step without a radius
    size: Any  # |x| in these coordinates


class Trial(eqx.Module):
    """The step to try and the fall that is promised; whether it leads away from where B bends down."""

    s: Any
    length: Any
    fall: Any
    escapes: Any


class State(eqx.Module):
    """What one step hands to the next."""

    here: Lines
    reach: Reach
    radius: Any
    trial: Trial
    aux: Any
    first: Any
    rejected: Any  # how often in a row
    done: Any
    result: Any


class GaussNewton(optx.AbstractLeastSquaresSolver[Any, Any, Any, State]):
    """Least squares by Newton's and Gauss-Newton steps that the second derivative of the residuals corrects.

        optimistix.least_squares(fn, tercet.optimistix.GaussNewton(rtol=1e-10, atol=1e-10), y0)

    With r = fn(y) and J its Jacobian, by QR and singular values, a step within a radius solves (B + mu I) s = -J'r,
    where B is J'J and the terms with second derivatives of r as long as that is positive definite, else J'J. With
    b = r''[s, s] the correction is u = -1/2 (B + mu I)^-1 J'b, and s + u is judged by 1/2 |r + J(s + u) + b/2|^2; s is
    made shorter where u is long beside it.

    It ends with success where the step without a radius is below atol + rtol |y| in the `norm` and promises less than
    atol + rtol f, and B does not bend down there: a saddle or a maximum is left along its direction of least curvature.
    Where rounding ends all progress before that the result is `nonlinear_divergence`; where fn is not finite at y0,
    `nonfinite`. `stats` has f = 1/2 |r|^2, chi1 = |J'r| and chi2, how far B bends down, at the last point. Matrices are
    dense, d x d and m x d, for up to a few hundred variables; the precision is that of y0.
    """

    rtol: float
    atol: float
    norm: Callable[[Any], Any] = optx.max_norm

    def __post_init__(self) -> None:
        check_tolerances("GaussNewton", self.rtol, self.atol)

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> State:
        """Nothing is evaluated yet: the first trial is y itself, and it is accepted."""
        x, _ = flatten(y)
        zero, no, none = jnp.zeros((), x.dtype), jnp.array(False), jnp.zeros_like(x)
        square, m = jnp.zeros((x.size, x.size), x.dtype), sum(leaf.size for leaf in jax.tree_util.tree_leaves(f_struct))
        r, J = jnp.zeros(m, x.dtype), jnp.zeros((m, x.size), x.dtype)
        return State(
            here=Lines(zero, none, r, J, square, none, square, none, square, none, square, zero, none, no, none, zero),
            reach=Reach(x, none, none),
            radius=zero + jnp.inf,
            trial=Trial(none, zero, zero, no),
            aux=jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux_struct),
            first=~no,
            rejected=jnp.array(0),
            done=no,
            result=optx.RESULTS.successful,
        )

    def step(self, fn: Any, y: Any, args: Any, options: Any, state: State, tags: Any) -> tuple[Any, State, Any]:
        """Look at the trial point, judge it, and choose the next one."""
        x, restore = flatten(y)
        trial, before, first, eps = state.trial, state.here, state.first, precision(y)

        def r(x: Any) -> Any:
            return residuals(fn(restore(x), args)[0], x.dtype)

        values, aux = fn(restore(x + trial.s), args)
        there = residuals(values, x.dtype)
        after = 0.5 * there @ there
        promised = (trial.fall > 0) & jnp.isfinite(after)
        ratio = jnp.where(promised, (before.f - after) / trial.fall, -jnp.inf)
        rounding = trial.fall <= 64 * eps * before.f
        plausible = promised & ((ratio >= ETA) | (rounding & ~trial.escapes))

        def expand(_: None) -> tuple[Lines, Reach]:
            return lines(r, x + trial.s, there, state.reach, eps)

        here, reach = jax.lax.cond(plausible | first, expand, lambda _: (before, state.reach), None)
        lower = jnp.linalg.norm(before.W.T @ here.g) < jnp.linalg.norm(before.slope)  # where f is rounded off
        accepted = first | (plausible & all_finite((here.g, here.free)) & (~rounding | (ratio >= ETA) | lower))
        here, reach = choose(accepted, (here, reach), (before, state.reach))
        x = jnp.where(accepted, x + trial.s, x)
        radius = self.learn(state, before, after, ratio, accepted)
        radius = jnp.where(jnp.isfinite(radius), radius, begin(here))
        small = self.is_small(x, here, restore)
        bends = here.lowest < -64 * eps * jnp.max(jnp.abs(here.K))
        ahead = jax.lax.cond(small & bends, escape, lambda h, rho: corrected(r, x, h, rho), here, radius)
        rejected = jnp.where(accepted, 0, state.rejected + 1)
        done, result = ending(small & ~bends, first & ~all_finite((here.g, here.free)), rejected)
        aux = choose(accepted, aux, state.aux)
        state = State(here, reach, radius, ahead, aux, jnp.array(False), rejected, done, result)
        return restore(x), state, aux

    def learn(self, state: State, before: Lines, after: Any, ratio: Any, accepted: Any) -> Any:
        """The radius after a judged step: 4 rho times a good one, between half and `GROW` of it; after a rejection it
        ends where the parabola through f and its slope is lowest."""
        size, slope = state.trial.length, before.g @ state.trial.s
        lowest = -slope / (2 * (after - before.f - slope))
        worse = jnp.where(jnp.isfinite(lowest), jnp.clip(lowest, 0.1, 0.5), 0.1) * size
        better = jnp.clip(4 * ratio, 0.5, GROW) * size
        return jnp.where(state.first, jnp.inf, jnp.where(accepted, better, worse))

    def is_small(self, x: Any, here: Lines, restore: Any) -> Any:
        """Whether the step without a radius is below atol + rtol |y| and promises less than atol + rtol f."""
        scaled = jnp.abs(here.W @ here.free) / (self.atol + self.rtol * jnp.abs(x))
        fall = -0.5 * here.slope @ here.free
        return (self.norm(restore(scaled)) < 1) & (fall < self.atol + self.rtol * here.f)

    def terminate(self, fn: Any, y: Any, args: Any, options: Any, state: State, tags: Any) -> tuple[Any, Any]:
        """Whether the last step found a minimizer, or none where fn is finite."""
        return state.done, state.result

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: State, tags: Any, result: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """f, chi1 and chi2 of the last point go to `stats`."""
        here = state.here
        lowest = jnp.linalg.eigvalsh(here.B)[0]
        stats = {"f": here.f, "chi1": jnp.linalg.norm(here.g), "chi2": jnp.maximum(-lowest, 0)}
        return y, aux, stats


def residuals(values: Any, dtype: Any) -> Any:
    """A tree of residuals as one vector."""
    r, _ = ravel_pytree(values)
    if r.size == 0 or not jnp.issubdtype(r.dtype, jnp.floating):
        raise ValueError(f"least_squares(fn=...): fn gives {r.size} residuals of dtype {r.dtype}; give real numbers.")
    return r.astype(dtype)


def lines(residuals: Callable[[Any], Any], x: Any, r: Any, reach: Reach, eps: float) -> tuple[Lines, Reach]:
    """J by QR and singular values, and the terms of B with second derivatives of r, which are computed on their own."""
    d = x.size
    J = (jax.jacfwd if d <= r.size else jax.jacrev)(residuals)(x)
    reach = reach.at(x, J)
    E = reach.units()
    rows = jnp.concatenate([J * E, r[:, None]], axis=1)
    rows = jnp.concatenate([rows, jnp.zeros((max(d + 1 - r.size, 0), d + 1), x.dtype)])
    triangle = jnp.linalg.qr(rows, mode="r")
    U, q, Vt = jnp.linalg.svd(triangle[:, :d], full_matrices=False)
    slope, W = q * (U.T @ triangle[:, d]), E[:, None] * Vt.T
    rest = jax.hessian(lambda z: r @ residuals(z))(x)
    rest = 0.5 * (rest + rest.T)
    K = jnp.diag(q * q) + W.T @ rest @ W
    values, Q = jnp.linalg.eigh(K)
    seen = q > eps * d * q[0]
    newton = solved(K, -slope)
    full = jnp.isfinite(newton).all() & (values[0] > 0)
    full = full & jnp.all(seen | (jnp.diag(K) > eps * d * jnp.max(jnp.diag(K))))
    here = Lines(
        f=0.5 * r @ r,
        g=J.T @ r,
        r=r,
        J=J,
        B=J.T @ J + rest,
        q=q,
        W=W,
        slope=slope,
        K=K,
        values=jnp.where(full, values, q * q),
        Q=jnp.where(full, Q, jnp.eye(d, dtype=x.dtype)),
        lowest=values[0],
        down=Q[:, 0],
        full=full,
        free=jnp.where(full, newton, jnp.where(seen, -slope / jnp.where(seen, q * q, 1), 0)),
        size=jnp.linalg.norm(Vt @ (x / E)),
    )
    return here, reach


def solved(K: Any, v: Any) -> Any:
    """K^-1 v by Cholesky with the diagonal scaled to 1, which keeps digits; nan where K is not positive definite."""
    F = 1 / jnp.sqrt(jnp.where(jnp.diag(K) > 0, jnp.diag(K), jnp.nan))
    return F * jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(K * F * F[:, None]), True), F * v)


def begin(here: Lines) -> Any:
    """The first radius: the larger of |x| and the step of steepest descent; one unit where both are 0."""
    square = here.slope @ here.slope
    bend = jnp.sum((here.q * here.slope) ** 2)
    cauchy = jnp.where(bend > 0, jnp.sqrt(square) * square / jnp.where(bend > 0, bend, 1), jnp.sqrt(square))
    longest = jnp.maximum(here.size, cauchy)
    return jnp.where(longest > 0, longest, 1)


def escape(here: Lines, radius: Any) -> Trial:
    """The way on which B bends down most, as far as the radius."""
    c = radius * jnp.where(here.slope @ here.down > 0, -1, 1) * here.down
    return Trial(here.W @ c, radius, -0.5 * here.lowest * radius**2, jnp.array(True))


def corrected(residuals: Callable[[Any], Any], x: Any, here: Lines, radius: Any) -> Trial:
    """The step within the radius with its correction; a shorter one, as long as the correction is not small beside it:
    in the coordinates, or by what the model makes of both."""
    q2 = here.q * here.q

    def attempt(carry: Any) -> Any:
        k, radius, *_ = carry
        within = jnp.linalg.norm(here.free) <= radius
        inner, mu = radius_step(here.values, here.Q.T @ here.slope, radius)
        c, mu = jnp.where(within, here.free, here.Q @ inner), jnp.where(within, 0, mu)
        b = second(residuals, x, here.W @ c)
        slope = here.W.T @ (here.J.T @ b)
        rise = here.values + mu
        seen = rise > jnp.finfo(rise.dtype).eps * rise.size * jnp.max(rise)
        u = -0.5 * here.Q @ jnp.where(seen, (here.Q.T @ slope) / jnp.where(seen, rise, 1), 0)
        of_u, of_c = (jnp.sum((q2 + mu) * v * v) for v in (u, c))
        length = jnp.linalg.norm(c)
        times = jnp.minimum(jnp.linalg.norm(u) / length, jnp.sqrt(of_u / of_c))
        return k + 1, length * jnp.maximum(0.1, 0.8 * BEND / times), times, c, u, slope, b

    def bent(carry: Any) -> Any:
        k, _, times, *_ = carry
        return (k <= TRIES) & (times > BEND)

    none = jnp.zeros_like(x)
    start = (0, radius, jnp.full_like(radius, jnp.inf), none, none, none, jnp.zeros_like(here.r))
    _, _, _, c, u, slope, b = jax.lax.while_loop(bent, attempt, start)
    length = jnp.linalg.norm(c)
    times_c = jnp.where(here.full, here.K @ c, q2 * c)
    fall = -(here.slope @ c + 0.5 * c @ times_c)
    u = u * jnp.minimum(1, LONGEST * length / jnp.maximum(jnp.linalg.norm(u), jnp.finfo(u.dtype).tiny))
    long = c + u
    bent_by = 0.5 * (here.r @ b + slope @ long) + 0.125 * b @ b
    cubic = -(here.slope @ long + 0.5 * jnp.sum(q2 * long * long) + bent_by)
    good = (cubic > 0) & jnp.isfinite(long).all()
    c, fall = jnp.where(good, long, c), jnp.where(good, cubic, fall)
    return Trial(here.W @ c, jnp.linalg.norm(c), fall, jnp.array(False))


def second(residuals: Callable[[Any], Any], x: Any, s: Any) -> Any:
    """r''[s, s]."""

    def along(z: Any) -> Any:
        return jax.jvp(residuals, (z,), (s,))[1]

    return jax.jvp(along, (x,), (s,))[1]
