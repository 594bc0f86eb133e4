"""Where a step of the compiled loop ends (`tercet.methods.walk`): the lowest of a few looks along it.

Of a run there are vectors of d numbers (`VECTORS`), margins of n (`MARGINS`), and numbers (`NUMBERS`), all written in
place; of each iteration one line (`LINE`). A step is in coordinates that have no units, s = Ec.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tercet.control.judge import rounded
from tercet.control.ray import FURTHEST, GAIN, NEAREST, first_root
from tercet.objectives.linear.rows import compiled, dot, summed, third_square, times, value
from tercet.objectives.linear.span import FAR, FRESH

# where it is and was, how far each x_j reached and how f bent, the units and spans; g; then in the coordinates of the
# step g, the plain step c and Bc, the step as far as it is gone with the gradients that are promised there, and u
VECTORS = X, X0, BEFORE, SIZE, MOVED, BEND, E, SPAN, G, H, C, BC, S, SLOPE, BENT, U, BU, LIFT, NEXT, FRONT = range(20)
MARGINS = Z, AS, AU, ROWS = range(4)
NUMBERS = (
    F, RADIUS, LENGTH, UNEXPLAINED, MISSED, STUCK, AGE, STRAYED, ITERATION,
    VALUES, GRADIENTS, HESSIANS, THIRDS, FORMED,  # evaluations so far; whether B is formed at x
    NORM, SIZED, ASKED, SIGMA, PLAIN, SECOND, THIRD, FALL, BOUGHT, FRACTION, LOOKED, AFTER, CHANGE,
    SCALE, START, RELATIVE, CLOSER, FIRST, ROUNDING, EPSILON, SEEN, ETA, GROW, WORTH, THETA, POWER, LOOKS, UNITS, MOST,
) = range(43)  # fmt: skip
LINE = (
    ROW_F, ROW_NORM, ROW_SIGMA, ROW_RATIO, ROW_ACCEPTED, ROW_STEP, ROW_BOUGHT, ROW_FIRST, ROW_SECOND, ROW_PROMISED,
    ROW_VALUES, ROW_GRADIENTS, ROW_HESSIANS, ROW_THIRDS,
) = range(14)  # fmt: skip
TINY = 1e-300
rounded_off, root_of = compiled(rounded), compiled(first_root)


@summed
def cholesky(B: Any, shift: float, L: Any) -> float:
    """LL' = B + shift I; the least square on the diagonal of L, 0 where there is no L."""
    least = np.inf
    for i in range(len(B)):
        for j in range(i + 1):
            left = B[i, j]
            for k in range(j):
                left -= L[i, k] * L[j, k]
            L[i, j] = left / L[j, j] if i > j else left + shift
        left = L[i, i]
        if not left > 0.0:
            return 0.0
        L[i, i], least = np.sqrt(left), min(least, left)
    return least


@compiled
def solve(L: Any, v: Any, out: Any) -> None:
    """out = (LL')^-1 v."""
    d = len(v)
    for i in range(d):
        left = v[i]
        for k in range(i):
            left -= L[i, k] * out[k]
        out[i] = left / L[i, i]
    for i in range(d - 1, -1, -1):
        out[i] /= L[i, i]
        for k in range(i):
            out[k] -= L[i, k] * out[i]


@compiled
def size_of(v: Any) -> float:
    """|v|."""
    return np.sqrt(dot(v, v))


@compiled
def finite(v: Any) -> bool:
    """Whether all entries are numbers."""
    total = 0.0
    for a in v:
        total += 0.0 * a  # nan once one is none
    return total == 0.0


@compiled
def fell(f: float, after: float) -> float:
    """f less f at a point, -inf outside its domain."""
    return f - after if np.isfinite(after) else -np.inf


@compiled
def aim(data: Any, V: Any, z: Any) -> float:
    """z = As for the step Ec, and the largest of these."""
    for j in range(len(V[S])):
        V[LIFT, j] = V[E, j] * V[S, j]
    times(data, V[LIFT], z)
    largest = 0.0
    for a in z:
        largest = max(largest, abs(a))
    return largest


@compiled
def look(data: Any, V: Any, M: Any, image: Any, most: float, t: float, N: Any) -> float:
    """f at x + ts, with margins that are known unless they would carry too much rounding."""
    for j in range(len(V[X])):
        V[NEXT, j] = V[X, j] + t * V[LIFT, j]
    f, largest = value(data, M[Z], image, t, V[NEXT])
    if N[STRAYED] + t * most > FAR * largest:
        times(data, V[NEXT], M[ROWS])
        f, largest = value(data, M[ROWS], M[ROWS], 0.0, V[NEXT])
    N[VALUES] += M.shape[1]
    return f


@compiled
def corrected(data: Any, V: Any, M: Any, L: Any, B: Any, N: Any) -> bool:
    """The step with its third-order correction, where that is worth its price, over the plane of both where f is lowest
    by what is known (`search.corrected`, `search.bend_of`); False where there is none."""
    promised = N[PLAIN]
    if not abs(N[FALL] - promised) / max(promised, TINY) * N[WORTH] >= 1.0:
        return False
    if rounded_off(N[F], promised, N[ROUNDING]):
        return False
    c, u, T = V[C], V[U], V[BENT]
    N[THIRDS] += third_square(data, M[Z], M[AS], V[X], V[LIFT], M[ROWS], T)
    if not finite(T):
        return False
    d = len(u)
    for i in range(d):
        T[i] *= V[E, i]
    solve(L, T, u)
    size, most = 0.5 * size_of(u), 0.5 * size_of(c)
    part = -0.5 * (most / size if size > most else 1.0)
    for i in range(d):
        u[i] *= part
    for i in range(d):
        V[BU, i] = dot(B[i], u)
    combined(V, N, 1.0, 1.0)
    if not N[THIRD] > 0.0:
        return False
    a, b = bend_of(V, N[FALL])
    if a == a:
        combined(V, N, a, b)
    return True


@compiled
def combined(V: Any, N: Any, a: float, b: float) -> None:
    """The step a c + b u, and what is promised of it with T[ac, ac] in place of T."""
    along, bend, fall = 0.0, 0.0, 0.0
    for j in range(len(V[S])):
        step, Bs = a * V[C, j] + b * V[U, j], a * V[BC, j] + b * V[BU, j]
        V[S, j], V[SLOPE, j] = step, V[H, j] + Bs
        along += V[H, j] * step
        bend += Bs * step
        fall += V[BENT, j] * step
    N[SECOND] = -(along + 0.5 * bend)
    N[THIRD] = N[SECOND] - a * a * fall / 6.0


@compiled
def bend_of(V: Any, fall: float) -> tuple[float, float]:
    """a and b of a s + b u where f is lowest by what is known of it; nan where that says nothing."""
    g, s, u, Bs, T = V[H], V[C], V[U], V[BC], V[BENT]
    w, p, q, r = dot(u, V[BU]), dot(g, u), dot(u, Bs), dot(u, T)
    c1, c2, c3 = dot(g, s), dot(s, Bs), dot(s, T)
    c4 = -fall - (c1 + c2 / 2.0 + c3 / 6.0) if np.isfinite(fall) else np.inf
    if not (w > 0.0 and np.isfinite(c4)):
        return np.nan, np.nan
    a = root_of(
        c1 - p * q / w, c2 - (q * q + p * r) / w, (c3 - 3.0 * q * r / w) / 2.0, 4.0 * c4 - r * r / (2.0 * w), 0.0,
        0.1, 3.0,
    )  # fmt: skip
    most = 0.5 * a * size_of(s) / max(size_of(u), TINY)
    return a, min(max(-(p + a * q + a * a * r / 2.0) / w, -most), most)


@compiled
def through(c1: float, c2: float, c3: float, t: Any, change: Any, k: int) -> tuple[float, float]:
    """`Ray.through`, the last one or two of k looks."""
    b = (change[k - 1] - t[k - 1] * (c1 + t[k - 1] * (c2 / 2 + t[k - 1] * c3 / 6))) / t[k - 1] ** 4
    if k == 1:
        return b, 0.0
    a = (change[k - 2] - t[k - 2] * (c1 + t[k - 2] * (c2 / 2 + t[k - 2] * c3 / 6))) / t[k - 2] ** 4
    c5 = (b - a) / (t[k - 1] - t[k - 2])
    return a - c5 * t[k - 2], c5


@compiled
def lowest(c1: float, c2: float, c3: float, t: Any, change: Any, k: int) -> float:
    """`Ray.lowest`."""
    c4, c5 = through(c1, c2, c3, t, change, k)
    low, high = NEAREST * t[k - 1], FURTHEST * t[k - 1]
    return root_of(c1, c2, c3 / 2, 4 * c4, 5 * c5, low, high) if np.isfinite(c4) and np.isfinite(c5) else low


@compiled
def onward(c1: float, c2: float, c3: float, t: Any, change: Any, k: int) -> float:
    """`Ray.next`; nan where f would hardly be lower."""
    if not np.isfinite(change[k - 1]):
        return NEAREST * t[k - 1]
    there, best = lowest(c1, c2, c3, t, change, k), np.inf
    for i in range(k):
        best = min(best, change[i])
        if t[i] == there:
            return np.nan
    c4, c5 = through(c1, c2, c3, t, change, k)
    promised = there * (c1 + there * (c2 / 2 + there * (c3 / 6 + there * (c4 + there * c5))))
    return np.nan if best - promised < GAIN * max(-best, 0.0) else there


@compiled
def ray_of(V: Any, N: Any) -> tuple[float, float, float]:
    """The first three derivatives of f along the step (`Ray.of`)."""
    c1 = dot(V[H], V[S])
    c3 = 6.0 * (N[SECOND] - N[THIRD]) if N[BOUGHT] > 0.0 else 0.0
    return c1, -2.0 * (N[SECOND] + c1), c3


@compiled
def second_order(V: Any, N: Any) -> None:
    """The step is the plain one."""
    for j in range(len(V[S])):
        V[S, j], V[SLOPE, j], V[LIFT, j] = V[C, j], V[H, j] + V[BC, j], V[E, j] * V[C, j]
    N[SECOND] = N[THIRD] = N[PLAIN]
    N[BOUGHT] = 0.0


@compiled
def search(data: Any, V: Any, M: Any, L: Any, B: Any, N: Any, seen: Any) -> None:
    """`AlongStep`: the lowest of a few looks along the step or its correction; the margins there are those of x then,
    if the step is taken (`taken`)."""
    if N[AGE] >= FRESH:
        times(data, V[X], M[Z])
        N[AGE] = N[STRAYED] = 0.0
    second_order(V, N)
    most, image, looks = aim(data, V, M[AS]), AS, 1
    first = look(data, V, M, M[AS], most, 1.0, N)
    N[FALL] = fell(N[F], first)
    if N[SIGMA] == 0.0 and N[WORTH] > 0.0:
        if corrected(data, V, M, L, B, N):
            wide, looks = aim(data, V, M[AU]), 2
            lower = look(data, V, M, M[AU], wide, 1.0, N)
            if fell(N[F], lower) > N[FALL]:
                N[FALL], N[BOUGHT], first, most, image = fell(N[F], lower), 1.0, lower, wide, AU
        if N[BOUGHT] == 0.0:
            second_order(V, N)
    t, change, f, k = seen[0], seen[1], seen[2], 1
    t[0], change[0], f[0] = 1.0, -N[FALL], first
    c1, c2, c3 = ray_of(V, N)
    promised = N[THIRD] if N[BOUGHT] > 0.0 else N[SECOND]
    while looks < N[LOOKS]:
        there = onward(c1, c2, c3, t, change, k)
        if there != there or rounded_off(N[F], promised, N[ROUNDING]):
            break
        t[k], f[k] = there, look(data, V, M, M[image], most, there, N)
        change[k] = -fell(N[F], f[k])
        k, looks = k + 1, looks + 1
    best = 0
    for i in range(1, k):
        best = i if change[i] < change[best] else best
    N[FRACTION], N[LOOKED], N[AFTER], N[CHANGE] = t[best], looks, f[best], most
    if image == AU:
        for i in range(M.shape[1]):
            M[AS, i] = M[AU, i]
