"""The measures behind a certificate: lowest eigenpairs, and the largest third derivative over a near-kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Tensor, Vector

FORMED_KERNEL = 8  # up to this dimension the third derivative over the near-kernel is formed
LANCZOS_VECTORS = 8  # to begin with; more where the near-kernel is larger
LONGEST = 120  # vectors of a Lanczos space
BASIS = 1e9  # bytes that it may take
FORMED = 3000  # up to this many variables a Hessian may be formed from products


def lowest_eigenpairs(point: MeteredPoint, d: int, dense: bool, zeta: float, seed: int) -> tuple[Vector, Matrix]:
    """Eigenvalues in ascending order with their vectors: all of them, or by Lanczos all up to zeta and a few more.

    Where Lanczos does not converge, or would need a third of all vectors, the matrix is formed from d products. Beyond
    a few thousand variables it cannot be formed, and only the lowest Ritz value is given.
    """
    if dense:
        B = point.hessian()
        values, vectors = np.linalg.eigh((B + B.T) / 2)
        return values, vectors
    if d <= 3 * LANCZOS_VECTORS:
        return eigenpairs_from_products(point, d)
    import scipy.sparse.linalg  # heavy, and only needed here

    start = np.random.default_rng(seed).standard_normal(d)
    # ARPACK never sees a direction that the operator maps to zero, and those are the ones looked for: shift them away.
    shift = 1.0 + float(np.linalg.norm(point.hessian_product(start)) / np.linalg.norm(start))
    operator = scipy.sparse.linalg.LinearOperator(
        (d, d), matvec=lambda v: point.hessian_product(np.ravel(v)) + shift * np.ravel(v), dtype=float
    )
    if d > FORMED:
        return lowest_pair(point.hessian_product, d, seed)
    k = LANCZOS_VECTORS
    while 3 * k < d:
        try:
            values, vectors = scipy.sparse.linalg.eigsh(operator, k, which="SA", v0=start, ncv=2 * k + 20, maxiter=50)
        except scipy.sparse.linalg.ArpackError:
            break
        order = np.argsort(values)
        if values[order[-1]] - shift > zeta:
            return values[order] - shift, vectors[:, order]
        k *= 3
    return eigenpairs_from_products(point, d)


def lowest_pair(product: Callable[[Vector], Vector], d: int, seed: int) -> tuple[Vector, Matrix]:
    """The lowest Ritz value of Lanczos from a random start, with its vector; it always answers.

    It is never below the lowest eigenvalue. The space grows until that value is above 0 for certain or has come to
    rest, and not beyond what memory holds.
    """
    import scipy.linalg  # heavy, and only needed here

    most = int(min(d, max(20, min(LONGEST, BASIS / (8 * d)))))
    v = np.random.default_rng(seed).standard_normal(d)
    V, diag, off = [v / np.linalg.norm(v)], list[float](), list[float]()
    before = np.inf
    while True:
        w = product(V[-1])
        diag.append(float(V[-1] @ w))
        basis = np.stack(V)
        for _ in range(2):
            w = w - (basis @ w) @ basis
        rest = float(np.linalg.norm(w))
        ended = len(V) >= most or rest <= 1e-12 * max(map(abs, diag))
        if ended or len(V) % 10 == 0:
            values, z = scipy.linalg.eigh_tridiagonal(np.array(diag), np.array(off))
            unsure = rest * abs(float(z[-1, 0]))
            if ended or values[0] > 2 * unsure or abs(before - values[0]) <= 0.01 * abs(values[0]):
                return values[:1], basis.T @ z[:, :1]
            before = float(values[0])
        off.append(rest)
        V.append(w / rest)


def eigenpairs_from_products(point: MeteredPoint, d: int) -> tuple[Vector, Matrix]:
    """All eigenpairs of the matrix that d products form."""
    B = np.stack([point.hessian_product(e) for e in np.eye(d)])
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    return values, vectors


def lowest_on_cone(B: Matrix, sides: Vector) -> tuple[float, Vector]:
    """The lowest v'Bv over unit v with sides_j v_j >= 0, and a v that attains it; where sides_j is 0, v_j is free.

    It is attained inside a face of this cone, and is there an eigenvalue of B over the coordinates of the face: one
    eigenvalue problem for each set of the j with sides.
    """
    edges, best, at = np.flatnonzero(sides), np.inf, np.zeros(len(B))
    for chosen in product((False, True), repeat=len(edges)):
        some = np.concatenate([np.flatnonzero(sides == 0.0), edges[np.array(chosen)]])
        if not len(some):
            continue
        values, vectors = np.linalg.eigh(B[np.ix_(some, some)])
        for value, v in zip(values, vectors.T, strict=True):
            if not value < best:
                break
            signed = v * sides[some]
            if np.all(signed >= 0.0) or np.all(signed <= 0.0):
                best, at = float(value), np.zeros(len(B))
                at[some] = v if np.all(signed >= 0.0) else -v
                break
    return best, at


def kernel_measure(point: MeteredPoint, V: Matrix | None, enough: float, seed: int) -> tuple[float, Vector | None, str]:
    """chi_3 over the span of V, the direction that attains it, and how it was found.

    Without V the near-kernel is too large to be known, and only a bound over all directions can tell.
    """
    if V is None:
        bound = point.third_bound(None)
        if bound <= enough:
            return bound, None, "chi3 bounded from above over all directions"
        return np.nan, None, "chi3 not known: the near-kernel is too large to be searched"
    k = V.shape[1]
    if k == 0:
        return 0.0, None, "chi3 = 0: the near-kernel is empty"
    bound = point.third_bound(V)
    if bound > enough and k > FORMED_KERNEL:
        bound = point.third_bound(V, tight=True)
    if bound <= enough:
        return bound, None, f"chi3 bounded from above over a near-kernel of dimension {k}"
    if k <= FORMED_KERNEL:
        T = point.third_tensor(V)
        value, z = largest_cubic(lambda y: (T @ y) @ y, k, starts=32, seed=seed)
        return value, V @ z, f"chi3 over a near-kernel of dimension {k}, from 32 starts"
    value, z = largest_cubic(lambda y: V.T @ point.third_product(V @ y, V @ y), k, starts=2, seed=seed, iterations=15)
    return value, V @ z, f"chi3 over a near-kernel of dimension {k}, by power iteration from 2 starts"


def largest_cubic(
    square: Callable[[Vector], Vector], k: int, starts: int, seed: int, iterations: int = 100
) -> tuple[float, Vector]:
    """max |T[y]^3| over unit y in R^k and a y that attains it, from y -> T[y, y]: a symmetric power iteration.

    y <- (T[y]^2 + a y) / |...| with a shift a that makes the iteration monotone (symmetric higher-order power
    method), from the coordinate axes' best guesses and random starts.
    """
    rng = np.random.default_rng(seed)
    best, at = 0.0, np.eye(k)[0]
    for y in rng.standard_normal((starts, k)):
        y = y / np.linalg.norm(y)
        shift = 0.0
        value = -np.inf
        for _ in range(iterations):
            image = square(y)
            shift = max(shift, float(np.linalg.norm(image)))
            new = float(image @ y)
            if new < 0 and not np.isfinite(value):
                y, new, image = -y, -new, image  # T[-y]^2 = T[y]^2, and T[-y]^3 = -T[y]^3
            if abs(new - value) <= 1e-10 * max(abs(new), 1e-300):
                break
            value = new
            move = image + shift * y
            length = float(np.linalg.norm(move))
            if length == 0.0:
                break
            y = move / length
        if value > best:
            best, at = value, y
    return best, at


def third_order_measure(T: Tensor, seed: int = 0) -> float:
    """max |T[y]^3| over unit y for a formed symmetric tensor; 0 for an empty one."""
    k = T.shape[0]
    return 0.0 if k == 0 else largest_cubic(lambda y: (T @ y) @ y, k, starts=4, seed=seed, iterations=30)[0]
