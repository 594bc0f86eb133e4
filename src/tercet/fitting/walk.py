"""One step of a small fit, compiled by Numba: what `GaussNewton` does in the units of `Natural`, all in one place.

Of a fit there are rows of d numbers (`ROWS`), matrices (`MATRICES`) and numbers (`NUMBERS`), all written in place.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tercet.critical.errors import NOTHING
from tercet.fitting.steps import cholesky, solve
from tercet.frame import FAINT, NEVER_LESS, ROUNDED
from tercet.methods.phases import NEAR
from tercet.methods.stop import AWAY, HELD
from tercet.subsolvers.bases import SAME
from tercet.subsolvers.gauss_newton import LONGEST

# how far each x_j reached; its unit E; g, q and c in the coordinates of a step; the step s and the two gradients there
ROWS = X, X0, SIZE, MOVED, BEND, E, G, Q, SLOPE, C, S, QUADRATIC, CUBIC, VALUES, UNIT = range(15)
MATRICES = VT, REST, ROOT, TURN = range(4)
NUMBERS = F, GAINED, RADIUS, LEFT, MU, LENGTH, DECREASE, BENT, SIGMA, RELATIVE, FIRST, LEAST, ROUNDING = range(13)
DIAGONAL, FACTORED, TURNED = 0.0, 1.0, 2.0  # ways to solve with the matrix of the step
EPS = 2.0**-52
TINY = float(np.finfo(float).tiny)


@numba.njit(cache=True, error_model="numpy")
def spans(rows: Any, D: Any) -> None:
    """`Reach.spans`."""
    d, typical, most, largest = len(D), 0.0, 0.0, 0.0
    for j in range(d):
        D[j] = max(rows[SIZE, j], rows[MOVED, j])
        typical = max(typical, D[j])
        most = max(most, D[j] * D[j] * rows[BEND, j])
        largest = max(largest, rows[BEND, j])
    typical = typical if typical > 0.0 else 1.0
    most = most if most > 0.0 else largest
    for j in range(d):
        alike = np.sqrt(most / rows[BEND, j])
        alike = alike if 0.0 < alike < np.inf else typical
        D[j] = max(D[j], NEVER_LESS * alike) if D[j] > 0.0 else alike


@numba.njit(cache=True, error_model="numpy")
def units(rows: Any, D: Any) -> None:
    """`Natural`."""
    d, most = len(D), 0.0
    for j in range(d):
        most = max(most, D[j] * D[j] * rows[BEND, j])
    for j in range(d):
        unit = D[j]
        if 0.0 < most < np.inf:
            unit = 1.0 / np.sqrt(max(rows[BEND, j], max(FAINT * most / (D[j] * D[j]), TINY)))
        rows[E, j] = np.sqrt(D[j] * unit)


@numba.njit(cache=True, error_model="numpy")
def rests(rows: Any, bend: Any, f: float) -> bool:
    """Whether some x_j rests (`frame.at_rest`); g is not scaled yet."""
    d, longest, most = len(bend), 0.0, 0.0
    D = np.empty(d)
    for j in range(d):
        longest = max(longest, max(rows[SIZE, j], rows[MOVED, j]))
    longest = longest if longest > 0.0 else 1.0
    for j in range(d):
        D[j] = max(rows[SIZE, j], rows[MOVED, j])
        if not (rows[SIZE, j] > rows[MOVED, j] or NEVER_LESS * longest < D[j]):
            D[j] = longest
        most = max(most, bend[j] * D[j] * D[j])
    for j in range(d):
        g, rounded = abs(rows[G, j]), ROUNDED * abs(f)
        little = g * g <= rounded * bend[j] or g * max(D[j], FAINT * longest) <= rounded
        if little and bend[j] * D[j] * D[j] <= ROUNDED * d * most and g * D[j] <= rounded:
            return True
    return False


@numba.njit(cache=True, error_model="numpy")
def stand(A: Any, rest: Any, rows: Any, matrices: Any, numbers: Any) -> bool:
    """The model at x, whose g and f are known, from the residuals as straight lines A and the rest of B; False where it
    is none for small fits."""
    m, d = A.shape[0], A.shape[1] - 1
    bend, D, rounding = np.zeros(d), np.empty(d), 0.0
    for i in range(m):
        made = 0.0
        for j in range(d):
            bend[j] += A[i, j] ** 2
            made += (A[i, j] * rows[X, j]) ** 2
        rounding += made * A[i, d] ** 2
    numbers[ROUNDING] = EPS * np.sqrt(rounding)  # `Linearized.rounding`
    for j in range(d):
        rows[SIZE, j] = max(rows[SIZE, j], abs(rows[X, j]))
        rows[MOVED, j] = max(rows[MOVED, j], abs(rows[X, j] - rows[X0, j]))
        rows[BEND, j] = max(rows[BEND, j], bend[j])
    spans(rows, D)
    units(rows, D)
    finite = np.isfinite(rest).all() and np.isfinite(A).all() and np.isfinite(rows[E]).all() and (rows[E] > 0.0).all()
    if not finite or rests(rows, bend, numbers[F]):
        return False
    rows[UNIT], rows[G] = D, rows[G] * rows[E]
    R = np.linalg.qr(A)[1] if m > d + 1 else A
    root, image = R[:, :d] * rows[E], np.ascontiguousarray(R[:, d])
    U, q, Vt = np.linalg.svd(root, False)
    pulled, size = root.T @ image - rows[G], np.abs(root).T @ np.abs(image)
    own = np.sqrt(np.sum(pulled**2)) <= SAME * np.sqrt(np.sum(size**2))
    rows[Q], rows[SLOPE] = q, q * (U.T @ image) if own else Vt @ rows[G]
    scaled = rest * rows[E]
    for j in range(d):
        scaled[j] *= rows[E, j]
    matrices[VT], matrices[REST] = Vt, Vt @ scaled @ Vt.T
    if not np.isfinite(numbers[RADIUS]):
        first_radius(rows, matrices, numbers)
    return True


@numba.njit(cache=True, error_model="numpy")
def first_radius(rows: Any, matrices: Any, numbers: Any) -> None:
    """|x|, or the length of the step of steepest descent, with all of B, where that is more."""
    size, length = np.sqrt(np.sum((rows[X] / rows[E]) ** 2)), np.sqrt(np.sum(rows[G] ** 2))
    c = matrices[VT] @ (rows[G] / length)
    along = np.sum((rows[Q] * c) ** 2) + np.sum(c * (matrices[REST] @ c))
    cauchy = length / abs(along) if along != 0.0 else length
    numbers[RADIUS] = numbers[FIRST] * max(NEAR * max(size, cauchy), 1e-100)


@numba.njit(cache=True, error_model="numpy")
def secular(values: Any, slope: Any, radius: float) -> float:
    """The mu > 0 at which |slope / (values + mu)| = radius; values are at least 0, and at mu = 0 it is longer."""
    size = np.sqrt(np.sum(slope * slope))
    low, high = 0.0, size / radius * (1.0 + 1e-12)
    mu = high
    for _ in range(200):
        length, bend = 0.0, 0.0
        for j in range(len(slope)):
            part = slope[j] / (values[j] + mu)
            length += part * part
            bend += part * part / (values[j] + mu)
        bend, length = bend / length, np.sqrt(length)
        if length <= radius:
            high = mu
        else:
            low = mu
        if abs(length - radius) <= 1e-13 * radius:
            return mu
        if high - low <= 4.0 * EPS * high:
            break
        following = mu + (length / radius - 1.0) / bend
        mu = following if low < following < high else np.sqrt(max(low, 1e-280) * high)
        mu = mu if low < mu < high else 0.5 * (low + high)
    return high


@numba.njit(cache=True, error_model="numpy")
def newton(rows: Any, matrices: Any) -> bool:
    """Whether diag(q^2) + rest is positive definite; its root with the diagonal scaled to 1."""
    d = rows.shape[1]
    K, L = np.empty((d, d)), matrices[ROOT]
    for i in range(d):
        a = rows[Q, i] ** 2 + matrices[REST, i, i]
        if not a > 0.0:
            return False
        rows[VALUES, i] = 1.0 / np.sqrt(a)
    for i in range(d):
        for j in range(d):
            K[i, j] = matrices[REST, i, j] + (rows[Q, i] ** 2 if i == j else 0.0)
            K[i, j] *= rows[VALUES, i] * rows[VALUES, j]
    return cholesky(K, L)


@numba.njit(cache=True, error_model="numpy")
def solved(rows: Any, matrices: Any, numbers: Any, how: float, v: Any, out: Any) -> None:
    """With the matrix of the step, shifted by mu."""
    d, mu = len(v), numbers[MU]
    if how == FACTORED:
        solve(matrices[ROOT], rows[VALUES], v, out)
    elif how == TURNED:
        out[:] = matrices[TURN] @ ((matrices[TURN].T @ v) / (rows[VALUES] + mu))
    else:
        for j in range(d):
            seen = mu > 0.0 or rows[Q, j] > EPS * d * rows[Q, 0]
            out[j] = v[j] / (rows[Q, j] ** 2 + mu) if seen else 0.0


@numba.njit(cache=True, error_model="numpy")
def plain(rows: Any, matrices: Any, numbers: Any) -> float:
    """The minimizer c of the second-order model within the radius; by which matrix, in the way that is told.

    All of B where it is positive definite and the last step left something of the gradient, else J'J.
    """
    d, radius = rows.shape[1], numbers[RADIUS]
    c, how = rows[C], DIAGONAL
    numbers[MU] = 0.0
    if numbers[LEFT] > numbers[LEAST] and newton(rows, matrices):
        how = FACTORED
    solved(rows, matrices, numbers, how, rows[SLOPE], c)
    if np.sqrt(np.sum(c * c)) > radius:
        if how == FACTORED:
            K = matrices[REST].copy()
            for j in range(d):
                K[j, j] += rows[Q, j] ** 2
            values, W = np.linalg.eigh(0.5 * (K + K.T))
            rows[VALUES], matrices[TURN] = np.maximum(values, 0.0), W
            numbers[MU], how = secular(rows[VALUES], W.T @ rows[SLOPE], radius), TURNED
        else:
            numbers[MU] = secular(rows[Q] ** 2, rows[SLOPE], radius)
        solved(rows, matrices, numbers, how, rows[SLOPE], c)
    for j in range(d):
        c[j] = -c[j]
    numbers[SIGMA] = numbers[MU] / max(np.sum(c * c), 1e-300)
    forecast(rows, matrices, numbers, how)
    numbers[BENT] = np.nan  # there is no correction
    return how


@numba.njit(cache=True, error_model="numpy")
def forecast(rows: Any, matrices: Any, numbers: Any, how: float) -> None:
    """s = Vc, and what the second-order model makes of it."""
    c = rows[C]
    Bc = rows[Q] ** 2 * c
    if how != DIAGONAL:
        Bc += matrices[REST] @ c
    rows[S] = c @ matrices[VT]
    rows[QUADRATIC] = rows[G] + Bc @ matrices[VT]
    numbers[DECREASE] = -np.sum(rows[SLOPE] * c + 0.5 * c * Bc)
    numbers[LENGTH] = np.sqrt(np.sum(rows[S] ** 2))


@numba.njit(cache=True, error_model="numpy")
def over(rows: Any, numbers: Any, first: bool, lost: bool) -> int:
    """1 where x is as close as was asked, 2 where it goes away (`stop.is_due`, `stop.goes_away`), else 0: not at the
    first x, nor where the last step was lost to rounding, which says nothing of the next."""
    size = abs(numbers[F])
    if numbers[GAINED] > size:
        size = numbers[GAINED]
    close, far = True, 0.0
    for j in range(rows.shape[1]):
        s, x, D = abs(rows[E, j] * rows[S, j]), abs(rows[X, j]), rows[UNIT, j]
        close = close and s <= numbers[RELATIVE] * (x if x > NOTHING * s else D)
        far = max(far, s / D)
    if numbers[DECREASE] <= EPS * size and far >= AWAY and not first:
        return 2
    held = numbers[LENGTH] >= HELD * numbers[RADIUS]
    return int(close and not held and not lost and numbers[DECREASE] <= numbers[RELATIVE] * size)


@numba.njit(cache=True, error_model="numpy")
def correct(
    curve: Any, image: float, square: float, rows: Any, matrices: Any, numbers: Any, how: float, most: float
) -> float:
    """s + u from b = r''[s, s]; or, where u is more than `most` of s, how long s may be, for another try.

    0: it is corrected, or is left as it is where the correction does not promise a decrease.
    """
    d = rows.shape[1]
    pulled, inside, u = curve * rows[E], np.empty(d), np.empty(d)
    inside[:] = matrices[VT] @ pulled
    solved(rows, matrices, numbers, how, inside, u)
    u *= -0.5
    c, of_u, of_c = rows[C], 0.0, 0.0
    if not (np.isfinite(square) and np.isfinite(u).all() and np.any(c != 0.0)):
        return 0.0
    for j in range(d):
        weight = rows[Q, j] ** 2 + numbers[MU]
        of_u += weight * u[j] ** 2
        of_c += weight * c[j] ** 2
    size, length = np.sqrt(np.sum(u * u)), np.sqrt(np.sum(c * c))
    times = min(size / length, np.sqrt(of_u / of_c))
    if not times <= most:
        return length * max(0.1, 0.8 * most / times)
    u *= min(1.0, LONGEST * length / max(size, 1e-300))
    accept(u, inside, pulled, image, square, rows, matrices, numbers, how)
    return 0.0


@numba.njit(cache=True, error_model="numpy")
def accept(
    u: Any, b: Any, pulled: Any, image: float, square: float, rows: Any, matrices: Any, numbers: Any, how: float
) -> None:
    """c + u in place of c, where 1/2 |r + J(s + u) + b/2|^2 promises a decrease."""
    c = rows[C] + u
    straight = rows[Q] ** 2 * c
    bent = 0.5 * (image + np.sum(b * c)) + 0.125 * square
    decrease = -np.sum(rows[SLOPE] * c + 0.5 * c * straight) - bent
    if decrease > 0.0:
        rows[CUBIC] = rows[G] + straight @ matrices[VT] + 0.5 * pulled
        rows[C] = c
        forecast(rows, matrices, numbers, how)
        numbers[BENT] = decrease
