"""Ordinary iterations on a small linear model over all its rows, compiled by Numba: what `step` does there, in a loop.

Each goes the way of `tercet.methods.step`: expand, stop?, solve, search, judge, learn. Where anything is out of the
ordinary (`stand`, `plain` and `due` tell what) the loop ends before the iteration, which is left to `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from tercet.control.judge import EPS
from tercet.control.ray import FURTHEST, NEAREST
from tercet.frame import NEVER_LESS, ROUNDED
from tercet.methods import walk_search as w
from tercet.methods.phases import PATIENCE
from tercet.methods.stop import AWAY, HELD
from tercet.methods.walk_search import cholesky, finite, ray_of, root_of, rounded_off, search, size_of, solve
from tercet.objectives.linear.rows import compiled, dot, gradient, hessian, times
from tercet.objectives.linear.span import FAR
from tercet.subsolvers.spectral import RESOLVED

SMALLEST, LEAST = 1e-100, 1e-140  # a first radius, and the size of x, are at least
CHOLESKIES = 50  # in search of a shift


@compiled
def reached(V: Any, B: Any) -> bool:
    """How far each x_j reached (`Reach`); False where one may rest (`frame.at_rest`)."""
    d, typical, most, largest, here = len(B), 0.0, 0.0, 0.0, 0.0
    D = V[w.SPAN]
    for j in range(d):
        V[w.SIZE, j] = max(V[w.SIZE, j], abs(V[w.X, j]))
        V[w.MOVED, j] = max(V[w.MOVED, j], abs(V[w.X, j] - V[w.X0, j]))
        V[w.BEND, j] = max(V[w.BEND, j], abs(B[j, j]))
        D[j] = max(V[w.SIZE, j], V[w.MOVED, j])
        typical = max(typical, D[j])
        most, largest = max(most, D[j] * D[j] * V[w.BEND, j]), max(largest, V[w.BEND, j])
    typical = typical if typical > 0.0 else 1.0
    rests, low = False, np.inf
    for j in range(d):
        far = D[j] if V[w.SIZE, j] > V[w.MOVED, j] or NEVER_LESS * typical < D[j] else typical
        bends = abs(B[j, j]) * far * far
        here, low = max(here, bends), min(low, bends)
    rests = low <= ROUNDED * d * here
    most = most if most > 0.0 else largest
    for j in range(d):
        alike = np.sqrt(most / V[w.BEND, j])
        alike = alike if 0.0 < alike < np.inf else typical
        D[j] = max(D[j], NEVER_LESS * alike) if D[j] > 0.0 else alike
    return not rests


@compiled
def stand(data: Any, V: Any, M: Any, B: Any, scaled: Any, N: Any) -> bool:
    """Expand at x: B, and g and B in the coordinates of the step; False where x or B is no ordinary one."""
    d, f = len(B), N[w.F]
    if N[w.STUCK] > 0.0 or not (np.isfinite(f) and finite(V[w.G])) or f < -1e20 * max(1.0, N[w.SCALE]):
        return False
    if N[w.FORMED] == 0.0:
        hessian(data, M[w.Z], V[w.X], M[w.ROWS], B)
        for i in range(d):
            if not finite(B[i]):
                return False
        N[w.FORMED] = 1.0
        N[w.HESSIANS] += M.shape[1]
    moving = reached(V, B)
    if N[w.UNITS] > 0.0 and not moving:
        return False
    N[w.NORM], N[w.SIZED] = size_of(V[w.G]), 0.0
    for i in range(d):
        V[w.H, i] = V[w.E, i] * V[w.G, i]
        N[w.SIZED] += (V[w.X, i] / V[w.E, i]) ** 2
        for j in range(d):
            scaled[i, j] = V[w.E, i] * B[i, j] * V[w.E, j]
    N[w.SIZED], N[w.ASKED] = np.sqrt(N[w.SIZED]), N[w.RADIUS]
    if N[w.NORM] == 0.0:
        return False
    if not np.isfinite(N[w.ASKED]):
        N[w.ASKED] = N[w.GROW] * max(N[w.SIZED], cauchy(V[w.H], scaled), SMALLEST)
    return True


@compiled
def cauchy(g: Any, B: Any) -> float:
    """`phases.cauchy`."""
    size, bend = size_of(g), 0.0
    for i in range(len(g)):
        bend += g[i] * dot(B[i], g)
    bend /= size * size
    return size / abs(bend) if bend != 0.0 else size


@compiled
def plain(V: Any, B: Any, L: Any, N: Any) -> bool:
    """The minimizer c of the second-order model within the radius, and Bc; False where B is not definite."""
    trace, least = 0.0, cholesky(B, 0.0, L)
    for i in range(len(B)):
        trace += B[i, i]
    if not least > RESOLVED * EPS * trace:
        return False
    c, u, shift, radius = V[w.C], V[w.U], 0.0, N[w.ASKED]
    solve(L, V[w.H], c)
    length = size_of(c)
    for _ in range(CHOLESKIES):  # Newton's method on 1 / |c|, from the left: it does not overshoot
        if (shift == 0.0 and length <= radius) or abs(length - radius) <= 1e-13 * radius:
            break
        solve(L, c, u)
        bend = dot(c, u) / (length * length)
        shift += (1.0 - radius / length) * length / (radius * bend * length)
        if not cholesky(B, shift, L) > 0.0:
            return False
        solve(L, V[w.H], c)
        length = size_of(c)
    else:
        return False
    held = N[w.POWER] - 2.0
    N[w.SIGMA] = shift / max(length**held, w.TINY) if shift > 0.0 else 0.0
    for i in range(len(c)):
        c[i] = -c[i]
    for i in range(len(c)):
        V[w.BC, i] = dot(B[i], c)
    N[w.PLAIN] = -(dot(V[w.H], c) + 0.5 * dot(c, V[w.BC]))
    return True


@compiled
def due(V: Any, N: Any) -> bool:
    """Whether x may be as close as it was asked for, or goes away (`stop.is_due`, `stop.goes_away`)."""
    gained = N[w.START] - N[w.F]
    beside = max(abs(N[w.F]), gained) if gained == gained else abs(N[w.F])
    if N[w.ITERATION] > 0.0 and N[w.SEEN] == 0.0 and N[w.PLAIN] <= N[w.EPSILON] * beside:
        for j in range(len(V[w.C])):
            if abs(V[w.E, j] * V[w.C, j]) >= AWAY * V[w.SPAN, j]:
                return True
    if N[w.RELATIVE] == 0.0:
        return N[w.NORM] <= N[w.CLOSER] * N[w.FIRST]
    if size_of(V[w.C]) >= HELD * N[w.RADIUS] or N[w.PLAIN] > N[w.RELATIVE] * beside:
        return False
    closer = N[w.CLOSER] * N[w.RELATIVE]
    if N[w.PLAIN] <= closer**4 * gained:
        return True
    for j in range(len(V[w.C])):
        s, x = abs(V[w.E, j] * V[w.C, j]), abs(V[w.X, j])
        if s > closer * (x if x > 10.0 * s else V[w.SPAN, j]):  # `errors.sizes`
            return False
    return True


@compiled
def gone(V: Any, M: Any, data: Any, N: Any) -> None:
    """A fraction t of the step, with the gradient that the quadratic promises; and in its image the margins there."""
    t = N[w.FRACTION]
    for j in range(len(V[w.S])):
        V[w.NEXT, j] = V[w.X, j] + t * V[w.LIFT, j]
        V[w.SLOPE, j] = V[w.H, j] + t * (V[w.SLOPE, j] - V[w.H, j])
        V[w.S, j], V[w.LIFT, j] = t * V[w.S, j], t * V[w.LIFT, j]
    largest, strayed = 0.0, N[w.STRAYED] + t * N[w.CHANGE]
    for i in range(M.shape[1]):
        M[w.AS, i] = M[w.Z, i] + t * M[w.AS, i]
        largest = max(largest, abs(M[w.AS, i]))
    N[w.FALL] = strayed
    if strayed > FAR * largest:
        times(data, V[w.NEXT], M[w.AS])
        N[w.FALL] = -1.0


@compiled
def off(V: Any, promise: float) -> float:
    """How far the gradient at the end of the step is from `promise` times the one that was promised."""
    total = 0.0
    for j in range(len(V[w.S])):
        total += (V[w.E, j] * V[w.FRONT, j] - promise * V[w.SLOPE, j]) ** 2
    return np.sqrt(total)


@compiled
def judged(data: Any, V: Any, M: Any, N: Any, row: Any) -> tuple[float, bool, bool]:
    """The ratio, whether rounding hides it, and whether the step is accepted; with g at its end, where it is asked."""
    decrease, f, after = (N[w.THIRD] if N[w.BOUGHT] > 0.0 else N[w.SECOND]), N[w.F], N[w.AFTER]
    ratio = (f - after) / decrease if decrease > 0.0 and np.isfinite(after) else -np.inf
    jump = after - f > max(np.sqrt(EPS) * abs(f), 16.0 * N[w.ROUNDING])
    hidden = rounded_off(f, decrease, N[w.ROUNDING]) and not jump
    eta = N[w.ETA] if N[w.LOOKED] == 1.0 else EPS
    for k in range(4):
        row[w.ROW_VALUES + k] = N[w.VALUES + k]
    row[w.ROW_NORM], row[w.ROW_SIGMA], row[w.ROW_RATIO], row[w.ROW_PROMISED] = N[w.NORM], N[w.SIGMA], ratio, decrease
    row[w.ROW_BOUGHT], row[w.ROW_STEP] = N[w.BOUGHT], size_of(V[w.LIFT])
    if ratio == -np.inf or (ratio < eta and not hidden):
        return ratio, hidden, False
    gradient(data, M[w.AS], V[w.NEXT], M[w.ROWS], V[w.FRONT])
    N[w.GRADIENTS] += M.shape[1]
    if not finite(V[w.FRONT]):
        return ratio, hidden, False
    if hidden:
        return ratio, hidden, off(V, 0.0) < size_of(V[w.H])
    return ratio, hidden, True


@compiled
def learn(V: Any, N: Any, ratio: float, hidden: bool, accepted: bool) -> None:
    """What is remembered of a step (`Descent.learn`, `TrustRegion.next`)."""
    size = size_of(V[w.S])
    radius = N[w.ASKED]
    if hidden and not accepted:
        radius = 0.5 * size if size > 0.0 else radius
    elif size > 0.0:
        if not np.isfinite(ratio):
            radius = 0.1 * size
        elif not accepted:
            c1, c2, c3 = ray_of(V, N)
            c4 = N[w.AFTER] - N[w.F] - (c1 + c2 / 2 + c3 / 6)  # `Ray.lowest` of one look
            best = root_of(c1, c2, c3 / 2, 4 * c4, 0.0, NEAREST, FURTHEST) if np.isfinite(N[w.AFTER]) else 0.5
            radius = min(max(best, 0.1), 0.5) * min(size, N[w.ASKED])
        else:
            radius = min(max(4.0 * ratio, 0.5), N[w.GROW]) * size
    N[w.RADIUS] = radius
    if size <= EPS * max(N[w.SIZED], LEAST):
        N[w.STUCK] = PATIENCE
    elif hidden:
        N[w.STUCK] += 1.0
    elif accepted:
        N[w.STUCK] = 0.0
    N[w.ITERATION] += 1.0
    N[w.MISSED] = np.inf
    if accepted:
        N[w.LENGTH] = size
        N[w.UNEXPLAINED] = off(V, 1.0) / max(size_of(V[w.H]), w.TINY)
        N[w.MISSED] = N[w.UNEXPLAINED]


@compiled
def meets(V: Any, N: Any, row: Any) -> None:
    """Which parts of Condition 2 a second-order step meets."""
    r = size_of(V[w.S])
    pull = N[w.SIGMA] * r ** (N[w.POWER] - 2.0)
    left = 0.0
    for j in range(len(V[w.S])):
        left += (V[w.SLOPE, j] + pull * V[w.S, j]) ** 2
    row[w.ROW_FIRST] = 1.0 if np.sqrt(left) <= N[w.THETA] * r**3 else 0.0
    row[w.ROW_SECOND] = 1.0 if -pull <= N[w.THETA] * r * r else 0.0


@compiled
def taken(V: Any, M: Any, N: Any) -> None:
    """Stand where the step ended."""
    for j in range(len(V[w.X])):
        V[w.BEFORE, j], V[w.X, j], V[w.G, j] = V[w.X, j], V[w.NEXT, j], V[w.FRONT, j]
    for i in range(M.shape[1]):
        M[w.Z, i] = M[w.AS, i]
    N[w.F], N[w.FORMED] = N[w.AFTER], 0.0
    N[w.AGE], N[w.STRAYED] = (0.0, 0.0) if N[w.FALL] < 0.0 else (N[w.AGE] + 1.0, N[w.FALL])


def loop(data: Any, V: Any, M: Any, matrices: Any, N: Any, rows: Any, seen: Any) -> tuple[int, bool]:
    """Ordinary iterations, as many as there are rows for them; how many, and whether another may follow.

    The matrices are B, B in the coordinates of the step, and its root.
    """
    B, scaled, L = matrices[0], matrices[1], matrices[2]
    for k in range(len(rows)):
        if N[w.VALUES] + N[w.GRADIENTS] + N[w.HESSIANS] + N[w.THIRDS] >= N[w.MOST]:
            return k, True
        known = N[w.FORMED]
        if not stand(data, V, M, B, scaled, N):
            return k, False
        if not plain(V, scaled, L, N):
            if known == 0.0:  # of a B that is nearly singular each rounding counts: it is formed by who goes on with it
                N[w.FORMED] = 0.0
                N[w.HESSIANS] -= M.shape[1]
            return k, False
        if due(V, N):
            return k, False
        search(data, V, M, L, scaled, N, seen)
        gone(V, M, data, N)
        ratio, hidden, accepted = judged(data, V, M, N, rows[k])
        if N[w.BOUGHT] == 0.0:
            meets(V, N, rows[k])
        rows[k, w.ROW_F], rows[k, w.ROW_ACCEPTED] = N[w.AFTER] if accepted else N[w.F], accepted
        learn(V, N, ratio, hidden, accepted)
        if accepted:
            taken(V, M, N)
    return len(rows), True


walk: Callable[..., tuple[int, bool]] = numba.njit(cache=True, error_model="numpy")(loop)
