"""How far variance-reduced derivatives stray: the bounds of a sampled mean, for differences to an anchor."""

from __future__ import annotations

from tercet.checks import positive, whole
from tercet.sampling.bernstein import Bernstein, matrix_bernstein, tensor_bernstein, vector_bernstein
from tercet.theory.constants import Constants


def reduced_bounds(
    constants: Constants, distance: float, d: int, N: int, *, replacement: bool = False
) -> tuple[Bernstein, Bernstein, Bernstein]:
    """Bounds on the errors of g, B and T with samples of the differences, where |x - a| = distance:

        |grad f_i(x) - grad f_i(a)| <= L_g |x - a|,
        |hess f_i(x) - hess f_i(a)| <= L_b |x - a|,
        |third f_i(x) - third f_i(a)| <= L_t |x - a|,

    so that the range of the terms shrinks with the way from the anchor. `accuracy(n, delta, V)` of each takes V, the
    variance of the sampled differences, or (width/2)^2 where that was not looked at. All of it holds for an x and an a
    that were chosen before the sample was drawn.
    """
    r = positive("reduced_bounds", "distance", distance)
    whole("reduced_bounds", "d", d)
    whole("reduced_bounds", "N", N)
    rank_one = constants.ranges.rank_one
    return (
        vector_bernstein(d, constants.L_g * r, N, replacement=replacement),
        matrix_bernstein(d, constants.L_b * r, N, replacement=replacement),
        tensor_bernstein(d, 2.0 * constants.L_t * r, N, rank_one=rank_one, replacement=replacement),
    )
