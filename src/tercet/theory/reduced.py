"""How far variance-reduced derivatives stray: the bounds of a sampled mean, for differences to an anchor."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial
from typing import Any

from tercet.checks import leading_orders, positive, whole
from tercet.sampling.bernstein import Bernstein, matrix_bernstein, tensor_bernstein, vector_bernstein
from tercet.theory.constants import Constants


def reduced_bounds(
    constants: Constants,
    distance: float,
    d: int,
    N: int,
    *,
    orders: Sequence[int] = (1, 2),
    replacement: bool = False,
) -> tuple[Bernstein, Bernstein, Bernstein]:
    """Bounds on the errors of g, B and T with samples of the differences, where |x - a| = r = distance:

        orders      g               B               T
        (1,)        L_g r
        (1, 2)      L_b r^2 / 2     L_b r
        (1, 2, 3)   L_t r^3 / 6     L_t r^2 / 2     L_t r

    is what a term of the difference does not exceed, so that its range shrinks with the way from the anchor. Where
    nothing stands the derivative is that of the sample, with its range (`Ranges`); T is, where it is not formed.
    `accuracy(n, delta, V)` of each takes V, the variance of the sampled differences, or (width/2)^2 where that was not
    looked at. All of it holds for an x and an a that were chosen before the sample was drawn.
    """
    r = positive("reduced_bounds", "distance", distance)
    whole("reduced_bounds", "d", d)
    whole("reduced_bounds", "N", N)
    known, ranges = leading_orders("reduced_bounds", orders), constants.ranges
    how: dict[str, Any] = {"replacement": replacement}
    # At order k the difference is f_i^(k)(x) less its Taylor polynomial, whose last derivative is the highest known.
    top = max(known)
    bounds = (constants.L_g, constants.L_b, constants.L_t)
    rest = [bounds[top - 1] * r ** (top + 1 - k) / factorial(top + 1 - k) for k in range(1, top + 1)]
    g = vector_bernstein(d, rest[0], N, **how)
    B = matrix_bernstein(d, rest[1], N, **how) if top >= 2 else matrix_bernstein(d, N=N, width=ranges.hessian, **how)
    T = tensor_bernstein(d, 2.0 * rest[2] if top >= 3 else ranges.third, N, rank_one=ranges.rank_one, **how)
    return g, B, T
