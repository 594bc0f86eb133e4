"""What many fits do with f, g and J'J of theirs, compiled by Numba: a step for each, and what Newton's step tells.

All arrays have a column for each curve; a symmetric matrix is its lower triangle. What was asked of JAX comes for the
curves `index`, in that order. J'J is enough for the steps, since where its digits do not suffice the certificate fails.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tercet.critical.errors import COARSEST, NOTHING, REGULAR, RESOLVED, ROUNDED
from tercet.critical.looks import VISIBLE

RELATIVE = 1e-10  # of each parameter, to which a curve is asked, as `curve_fit` does
CLOSE = (0.1 * RELATIVE) ** 0.5  # steps this short are left to Newton, whose error after one is about their square
BRIEF = 1e-3  # of how far each parameter reaches, a step over which the rest of B stays the same
FIRST = 1e-3  # damping
LARGEST = 1e12  # damping beyond which no step is left
ROUNDING = 64.0  # times eps and f: no change of f is told from 0 below that
EPS = 2.0**-52


@numba.njit(cache=True, error_model="numpy")
def scaled(A: Any, E: Any, more: float, H: Any) -> None:
    """H = EAE + more I, for a lower triangle A."""
    d = len(E)
    for i in range(d):
        for j in range(i + 1):
            H[i, j] = A[i * (i + 1) // 2 + j] * E[i] * E[j]
            H[j, i] = H[i, j]
        H[i, i] += more


@numba.njit(cache=True, error_model="numpy")
def cholesky(H: Any, L: Any) -> bool:
    """LL' = H, with 1 / L_jj on the diagonal, or False where H is not positive definite."""
    d = len(H)
    for i in range(d):
        for j in range(i + 1):
            left = H[i, j]
            for k in range(j):
                left -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = left * L[j, j]
            elif left > 0.0:
                L[i, i] = 1.0 / np.sqrt(left)
            else:
                return False
    return True


@numba.njit(cache=True, error_model="numpy")
def solve(L: Any, E: Any, v: Any, out: Any) -> None:
    """out = E (LL')^-1 E v."""
    d = len(E)
    for i in range(d):
        left = E[i] * v[i]
        for k in range(i):
            left -= L[i, k] * out[k]
        out[i] = left * L[i, i]
    for i in range(d - 1, -1, -1):
        left = out[i]
        for k in range(i + 1, d):
            left -= L[k, i] * out[k]
        out[i] = left * L[i, i]
    for i in range(d):
        out[i] *= E[i]


@numba.njit(cache=True, error_model="numpy")
def inverse(L: Any, E: Any, W: Any, out: Any) -> None:
    """The triangle of E (LL')^-1 E, with W = L^-1 on the way."""
    d = len(E)
    for j in range(d):
        W[j, j] = L[j, j]
        for i in range(j + 1, d):
            left = 0.0
            for k in range(j, i):
                left -= L[i, k] * W[k, j]
            W[i, j] = left * L[i, i]
    row = 0
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, d):
                total += W[k, i] * W[k, j]
            out[row] = total * E[i] * E[j]
            row += 1


@numba.njit(cache=True, error_model="numpy")
def product(A: Any, v: Any, out: Any) -> float:
    """out = Av for a lower triangle A; v'Av."""
    d, total = len(v), 0.0
    for i in range(d):
        out[i] = 0.0
        for j in range(d):
            high, low = max(i, j), min(i, j)
            out[i] += A[high * (high + 1) // 2 + low] * v[j]
        total += v[i] * out[i]
    return total


@numba.njit(cache=True, error_model="numpy")
def units(A: Any, E: Any) -> bool:
    """E_j = 1 / sqrt(A_jj), or False where one is not positive."""
    for j in range(len(E)):
        a = A[j * (j + 1) // 2 + j]
        if not (a > 0.0 and a < np.inf):
            return False
        E[j] = 1.0 / np.sqrt(a)
    return True


@numba.njit(cache=True, error_model="numpy")
def definite(A: Any, E: Any, H: Any, L: Any) -> bool:
    """Whether EAE = LL' is positive definite; L is its root."""
    if not units(A, E):
        return False
    scaled(A, E, 0.0, H)
    return cholesky(H, L)


@numba.njit(cache=True, error_model="numpy")
def begin(looked: Any, index: Any, known: Any, walk: Any) -> int:
    """What is known at the starts; those where it is finite stay in `index`, and are counted.

    `walk` has the scales of the steps, and then damping, its growth, what the last step promised, and the count.
    """
    d, left = len(walk) - 4, 0
    for j in range(len(index)):
        k, finite = index[j], True
        for row in range(len(known)):
            known[row, k] = looked[row, j]
            finite = finite and np.isfinite(looked[row, j])
        for i in range(d):
            a = looked[1 + d + i * (i + 1) // 2 + i, j]
            walk[i, k] = a if a > 0.0 else 1.0
        walk[d, k], walk[d + 1, k], walk[d + 3, k] = FIRST, 2.0, 0.0
        if finite:
            index[left] = k
            left += 1
    return left


@numba.njit(cache=True, error_model="numpy")
def judge(trial: Any, j: int, looked: Any, k: int, p: Any, known: Any, walk: Any) -> bool:
    """Take the step of a curve if it is good; whether there is nothing more to do."""
    d, finite = len(p), True
    for row in range(len(known)):
        finite = finite and np.isfinite(looked[row, j])
    damping, promised = walk[d, k], walk[d + 2, k]
    ratio = (known[0, k] - looked[0, j]) / promised if finite else -np.inf
    if ratio > 1e-3:
        walk[d, k] = damping * max(0.2, 1.0 - (2.0 * min(ratio, 1.0) - 1.0) ** 3)
        walk[d + 1, k] = 2.0
        for row in range(len(known)):
            known[row, k] = looked[row, j]
        for i in range(d):
            p[i, k] = trial[i, j]
            walk[i, k] = max(walk[i, k], looked[1 + d + i * (i + 1) // 2 + i, j])
    else:
        walk[d, k] = damping * walk[d + 1, k]
        walk[d + 1, k] *= 2.0
    walk[d + 3, k] += 1.0
    return promised <= ROUNDING * EPS * known[0, k] or not walk[d, k] < LARGEST


@numba.njit(cache=True, error_model="numpy")
def advance(trial: Any, looked: Any, index: Any, p: Any, known: Any, walk: Any, first: bool, most: int) -> int:
    """Take the steps that are good, unless these are the starts, and propose the next.

    Curves that go on stay in `index`, and are counted: not those whose next step is short and hardly damped. A trial is
    nan where rounding hides the step.
    """
    d, left = len(p), 0
    E, g, s, A = np.empty(d), np.empty(d), np.empty(d), np.empty(len(known) - 1 - d)
    H, L = np.empty((d, d)), np.empty((d, d))
    for j in range(len(index)):
        k = index[j]
        if not first and (judge(trial, j, looked, k, p, known, walk) or walk[d + 3, k] >= most):
            continue
        for i in range(d):
            E[i], g[i] = 1.0 / np.sqrt(walk[i, k]), known[1 + i, k]
        for i in range(len(A)):
            A[i] = known[1 + d + i, k]
        scaled(A, E, walk[d, k], H)
        if cholesky(H, L):
            solve(L, E, g, s)
        else:
            s[:] = np.nan
        promised, small = 0.0, walk[d, k] < 1.0
        for i in range(d):  # g's - s'As / 2, since (A + damping walk) s = g
            promised += 0.5 * s[i] * (g[i] + walk[d, k] * walk[i, k] * s[i])
            trial[i, left] = p[i, k] - s[i]
            small = small and abs(s[i]) <= CLOSE * abs(p[i, k])
        if small:
            continue
        walk[d + 2, k] = promised
        index[left] = k
        left += 1
    return left


@numba.njit(cache=True, error_model="numpy")
def newton(index: Any, p: Any, known: Any, rest: Any, trial: Any) -> None:
    """Where Newton's step leads each curve, with B = J'J + rest; nan where B is not positive definite."""
    d = len(p)
    E, g, s, B = np.empty(d), np.empty(d), np.empty(d), np.empty(len(rest))
    H, L = np.empty((d, d)), np.empty((d, d))
    for j in range(len(index)):
        k = index[j]
        for i in range(len(B)):
            B[i] = known[1 + d + i, k] + rest[i, j]
        for i in range(d):
            g[i] = known[1 + i, k]
        if definite(B, E, H, L):
            solve(L, E, g, s)
        else:
            s[:] = np.nan
        for i in range(d):
            trial[i, j] = p[i, k] - s[i]


@numba.njit(cache=True, error_model="numpy")
def arrive(
    trial: Any, looked: Any, index: Any, p: Any, known: Any, rest: Any, start: Any, signs: Any, beside: Any
) -> None:
    """Take Newton's steps that lead no higher, and go a few units in the last place beside.

    Where rounding hides whether f is lower, g tells. inf after a step so long that the rest of B is not the same there,
    and nan where there is none. The rest, which is made of residuals, is 0 where these shrank to a half.
    """
    d = len(p)
    for j in range(len(index)):
        k, brief, before, after = index[j], True, 0.0, 0.0
        for i in range(d):
            span = max(abs(p[i, k]), abs(start[i, k]), abs(p[i, k] - start[i, k]))
            brief = brief and abs(trial[i, j] - p[i, k]) <= BRIEF * span
            row = i * (i + 1) // 2 + i
            bend = known[1 + d + row, k] + rest[row, j]
            before += known[1 + i, k] ** 2 / bend
            after += looked[1 + i, j] ** 2 / bend
        nowhere = np.nan if np.isnan(trial[0, j]) else np.inf
        rise = looked[0, j] - known[0, k]
        taken = rise <= ROUNDING * EPS * known[0, k] or (
            brief and rise <= BRIEF * CLOSE * known[0, k] and after <= 0.25 * before
        )
        for row in range(len(rest) if taken and looked[0, j] < 0.25 * known[0, k] else 0):
            rest[row, j] = 0.0
        for row in range(len(known) if taken else 0):
            known[row, k] = looked[row, j]
        for i in range(d):
            if taken:
                p[i, k] = trial[i, j]
            beside[i, j] = p[i, k] * (1.0 + 4.0 * EPS * signs[i]) if brief else nowhere


@numba.njit(cache=True, error_model="numpy")
def tell(x: Any, known: Any, B: Any, there: Any, sloped: Any, signs: Any, E: Any, L: Any, out: Any) -> Any:
    """Newton's step s, what rounding does to g and to x, as `tercet.critical.errors` has them.

    The rows of `out` are s, the floor of each parameter, the square root of the diagonal of B^-1, and the larger of s
    and of what rounding does. The squares of the lengths of both, in the norm of B, the rounding of f, and a bound from
    below of the least eigenvalue of EBE.
    """
    d = len(x)
    v, Bv, s, W, inverted = np.empty(d), np.empty(d), out[0], np.empty((d, d)), np.empty(len(B))
    of_f, spread, trace = sloped[0] - known[0], 0.0, 0.0
    for i in range(d):
        v[i] = there[i] - x[i]
        of_f -= known[1 + i] * v[i]
    product(B, v, Bv)
    for i in range(d):
        spread += (E[i] * (sloped[1 + i] - known[1 + i] - Bv[i])) ** 2 / d
        v[i] = -known[1 + i]
    spread = ROUNDED * np.sqrt(spread)
    solve(L, E, v, s)
    inverse(L, E, W, inverted)
    for j in range(d):
        total, own = 0.0, inverted[j * (j + 1) // 2 + j]
        for i in range(d):
            high, low = max(i, j), min(i, j)
            total += (inverted[high * (high + 1) // 2 + low] / E[i]) ** 2
        out[1, j], out[2, j] = spread * np.sqrt(total), np.sqrt(own)
        trace += own / (E[j] * E[j])
    for i in range(d):
        v[i] = spread * signs[i] / E[i]
    solve(L, E, v, out[3])
    energy, loose = max(product(B, s, Bv), 0.0), max(product(B, out[3], Bv), 0.0)
    for i in range(d if energy >= loose else 0):
        out[3, i] = s[i]
    return energy, max(energy, loose), max(abs(of_f), EPS * known[0]), 1.0 / trace


@numba.njit(cache=True, error_model="numpy")
def survey(
    index: Any, p: Any, known: Any, rest: Any, beside: Any, sloped: Any, signs: Any, way: Any, told: Any
) -> None:
    """p and the direction along which Newton's step is to be told whether it tells; 0 where there is none.

    What `tell` tells is kept in the rows of `told`, with E and L.
    """
    d = len(p)
    E, out, B = np.empty(d), np.empty((4, d)), np.empty(len(rest))
    H, L = np.empty((d, d)), np.empty((d, d))
    for j in range(len(index)):
        k, good = index[j], False
        for i in range(len(B)):
            B[i] = known[1 + d + i, k] + rest[i, j]
        if np.isfinite(sloped[0, j]) and definite(B, E, H, L):
            energy, largest, of_f, least = tell(p[:, k], known[:, k], B, beside[:, j], sloped[:, j], signs, E, L, out)
            good = least > RESOLVED * EPS * d
            told[0, j], told[1, j], told[2, j] = energy, largest, of_f
        told[3, j] = good
        for i in range(d):
            way[i, j], way[d + i, j] = p[i, k], out[3, i] if good else 0.0
            told[4 + i, j], told[4 + d + i, j] = E[i], out[0, i]
            told[4 + 2 * d + i, j], told[4 + 3 * d + i, j] = out[1, i], out[2, i]
            for m in range(i + 1):
                told[4 + 4 * d + i * (i + 1) // 2 + m, j] = L[i, m]


@numba.njit(cache=True, error_model="numpy")
def conclude(index: Any, p: Any, known: Any, told: Any, beside: Any, bend: Any, start: Any, found: Any) -> None:
    """Whether each curve is certified, whether one more step of Newton's is worth it, and how wrong it may be.

    `bend` is T[v, v] along `survey`'s directions, start the first p; the rows of `found` are those three, the least
    pivot of J'J with its diagonal scaled to 1, and its inverse, a triangle.
    """
    d = len(p)
    E, u, v, A = np.empty(d), np.empty(d), np.empty(d), np.empty(len(known) - 1 - d)
    H, L, W = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    for j in range(len(index)):
        k = index[j]
        found[:, k] = 0.0
        found[1, k], found[2, k] = np.isinf(beside[0, j]), np.inf
        if told[3, j] == 0.0:
            continue
        for i in range(d):
            E[i], v[i] = told[4 + i, j], -0.5 * bend[i, j]
            for m in range(i + 1):
                L[i, m] = told[4 + 4 * d + i * (i + 1) // 2 + m, j]
        solve(L, E, v, u)
        more = 0.0
        for i in range(d):
            more += u[i] * v[i]
        more = np.sqrt(max(more, 0.0))
        within, seen_all, worst = more <= REGULAR * np.sqrt(told[1, j]), True, 0.0
        for i in range(d):
            size, off, floor = abs(p[i, k]), abs(told[4 + d + i, j]), told[4 + 2 * d + i, j]
            span = max(size, abs(start[i, k]), abs(p[i, k] - start[i, k]))
            seen = size > NOTHING * off
            seen_all = seen_all and (seen or off == 0.0)
            unit = size if seen else span
            within = within and off <= RELATIVE * unit + min(floor, COARSEST * unit)
            wrong = off + 2.0 * more * told[4 + 3 * d + i, j] + floor + 2.0 * EPS * size
            worst = max(worst, wrong / (size if size > wrong else span))
        sure = within and (seen_all or 0.5 * told[0, j] <= VISIBLE * told[2, j])
        found[0, k], found[1, k], found[2, k] = sure, not sure, worst
        for i in range(len(A)):
            A[i] = known[1 + d + i, k]
        if definite(A, E, H, L):
            found[3, k] = 1.0
            for i in range(d):
                found[3, k] = min(found[3, k], 1.0 / L[i, i])
            inverse(L, E, W, A)
            for i in range(len(A)):
                found[4 + i, k] = A[i]
