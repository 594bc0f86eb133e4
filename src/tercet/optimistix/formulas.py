"""Formulas of the tensor method in JAX: what they say stands in `tercet.subsolvers` and `tercet.critical`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx
from jax.flatten_util import ravel_pytree

from tercet.checks import number

PATIENCE = 60  # rejections in a row, each of which at least halves the step, until it is below rounding
PROBES = 40  # of the shift that makes a step as long as its regularizer says
STEPS = 12  # of Newton's for a step as long as the radius
STARTS, POWERS = 8, 60  # of the power iteration for chi_3


def check_tolerances(call: str, rtol: Any, atol: Any) -> None:
    """ValueError where one of them is no tolerance."""
    for name, value, least in (("rtol", rtol, 0.0), ("atol", atol, 1e-300)):
        if not least <= number(value) < float("inf"):
            raise ValueError(f"{call}({name}={value!r}): give a number; rtol is at least 0, atol is positive.")


def ending(holds: Any, nowhere: Any, rejected: Any) -> tuple[Any, Any]:
    """Whether the run is over, and how: at a minimizer, not finite at the start, or no step is accepted any more."""
    holds, stuck = holds & ~nowhere, nowhere | (rejected >= PATIENCE)
    failure = optx.RESULTS.where(nowhere, optx.RESULTS.nonfinite, optx.RESULTS.nonlinear_divergence)
    return holds | stuck, optx.RESULTS.where(stuck & ~holds, failure, optx.RESULTS.successful)


def flatten(y: Any) -> tuple[Any, Callable[[Any], Any]]:
    """y as one real vector, and the way back."""
    x, restore = ravel_pytree(y)
    if x.size == 0 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"minimise(y0=...): y0 has {x.size} entries of dtype {x.dtype}; give real numbers.")
    return x, restore


def precision(y: Any) -> float:
    """The largest rounding error among the leaves of y: f is no better than what it is computed from."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree_util.tree_leaves(y))


def choose(which: Any, yes: Any, no: Any) -> Any:
    """One of two trees of arrays of the same structure."""
    return jax.tree_util.tree_map(lambda a, b: jnp.where(which, a, b), yes, no)


def all_finite(tree: Any) -> Any:
    """No entry is nan or infinite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(tree)]))


def third_square(f: Callable[[Any], Any], x: Any, s: Any) -> Any:
    """third f(x)[s, s], at the price of about three gradients."""

    def along(p: Any) -> Any:
        return jax.jvp(jax.grad(f), (p,), (s,))[1]

    return jax.jvp(along, (x,), (s,))[1]


def regularized_step(values: Any, c: Any, sigma: Any, radius: Any) -> Any:
    """The minimizer of c's + 1/2 sum values s^2 + sigma/4 |s|^4 over |s| <= radius, save along an eigenvector that c
    does not see.

    s = -c / (values + mu) with the mu >= max(0, -lambda_min) at which |s| = min(radius, (mu/sigma)^(1/2)): safeguarded
    Newton steps on the inverse lengths, which are nearly linear in mu.
    """
    floor, size = jnp.maximum(-values[0], 0), jnp.linalg.norm(c)
    tiny = jnp.finfo(c.dtype).tiny

    def step(rise: Any) -> Any:
        return jnp.where(c == 0, 0, -c / (values + floor + rise))

    def probe(k: Any, bracket: Any) -> Any:
        low, high, rise = bracket
        s, mu = step(rise), floor + rise
        r, free = jnp.linalg.norm(s), jnp.sqrt(mu / sigma)
        rho = jnp.minimum(radius, free)
        low, high = jnp.where(r <= rho, low, rise), jnp.where(r <= rho, rise, high)
        slope = jnp.sum(s * s / (values + mu)) / r**3 + jnp.where(free < radius, 0.5 / (mu * rho), 0)
        newton = rise - (1 / r - 1 / rho) / slope
        inside = (low < newton) & (newton < high) & (k % 3 < 2)  # now and then halfway, so that none creeps
        return low, high, jnp.where(inside, newton, jnp.sqrt(jnp.maximum(low, tiny)) * jnp.sqrt(high))

    high = jnp.maximum(jnp.maximum(size / radius, size ** (2 / 3) * sigma ** (1 / 3)) * (1 + 1e-3), tiny)
    shortest = size / (values[-1] + floor + high)
    low = jnp.where(floor == 0, jnp.minimum(sigma * shortest**2, high), 0)
    _, high, _ = jax.lax.fori_loop(0, PROBES, probe, (low, high, high))
    return step(high)


def radius_step(values: Any, c: Any, radius: Any) -> tuple[Any, Any]:
    """The minimizer of c's + 1/2 sum values s^2 over |s| = radius for values >= 0, and its multiplier mu.

    1/|s(mu)| is concave in mu, so that Newton's steps from a mu at which one entry of s alone is as long come from the
    left and do not overshoot.
    """
    tiny = jnp.finfo(c.dtype).tiny

    def probe(_: int, mu: Any) -> Any:
        s = c / (values + mu)
        size = jnp.linalg.norm(s)
        slope = jnp.sum(s * s / (values + mu)) / size**3
        newton = mu + (1 / radius - 1 / size) / slope
        return jnp.where(jnp.isfinite(newton), jnp.maximum(newton, mu), mu)

    low = jnp.maximum(jnp.max(jnp.abs(c) / radius - values), tiny)
    mu = jax.lax.fori_loop(0, STEPS, probe, low)
    return -c / (values + mu), mu


def largest_cubic(square: Callable[[Any], Any], V: Any, kernel: Any, needed: Any) -> tuple[Any, Any]:
    """max |T[y]^3| over unit y in the span of the columns of V that `kernel` marks, and a y that attains it.

    y <- (T[y]^2 + a y) / |...| with a shift a that makes it monotone, from several starts; nothing where not needed.
    """

    def project(y: Any) -> Any:
        return V @ (kernel * (V.T @ y))

    def normalize(y: Any) -> Any:
        length = jnp.linalg.norm(y, axis=-1, keepdims=True)
        return jnp.where(length > 0, y / length, 0)

    def go_on(carry: Any) -> Any:
        _, _, _, moving, k = carry
        return needed & jnp.any(kernel > 0) & moving & (k < POWERS)

    def body(carry: Any) -> Any:
        y, shift, value, _, k = carry
        image = jax.vmap(lambda y: project(square(y)))(y)
        new = jnp.sum(image * y, axis=1)
        y, new = jnp.where((new < 0)[:, None], -y, y), jnp.abs(new)  # T[-y]^2 = T[y]^2, and T[-y]^3 = -T[y]^3
        shift = jnp.maximum(shift, jnp.linalg.norm(image, axis=1))
        moving = jnp.any(jnp.abs(new - value) > 1e-6 * new)
        return normalize(image + shift[:, None] * y), shift, new, moving, k + 1

    start = jax.random.normal(jax.random.key(0), (STARTS, V.shape[0]), V.dtype)
    zeros = jnp.zeros(STARTS, V.dtype)
    carry = (normalize(jax.vmap(project)(start)), zeros, zeros, jnp.array(True), 0)
    y, _, value, _, _ = jax.lax.while_loop(go_on, body, carry)
    best = jnp.argmax(value)
    return value[best], y[best]
