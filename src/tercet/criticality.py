"""How critical a point is: chi_1, chi_2, chi_3, and the direction that leads away when it is not.

    chi_1 = |grad f|,  chi_2 = max(0, -lambda_min(hess f)),  chi_3 = max |third f[y]^3| over |hess f[y]^2| <= zeta

The near-kernel of chi_3 is taken as the span of the eigenvectors with |lambda| <= zeta; every unit y in it satisfies
|hess f[y]^2| <= zeta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Point
from tercet.records import Certificate, Matrix, Tensor, Vector

FORMED_KERNEL = 8  # up to this dimension the third derivative over the near-kernel is formed
LANCZOS_VECTORS = 8  # to begin with; more where the near-kernel is larger
FORMED = 3000  # up to this many variables a Hessian may be formed from products


@dataclass(frozen=True)
class Tolerances:
    """eps_1, eps_2, eps_3, the near-kernel's zeta, and the order that is asked for.

    From one tolerance: eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3) (paper, Condition 1) and
    zeta = min(10 tol^(1/2), 1e-3). Beside a degenerate point with third derivative T a gradient of size tol comes with
    a curvature of sqrt(2 tol T), which has to count as near the kernel.
    """

    eps1: float
    eps2: float
    eps3: float
    zeta: float
    order: int

    @staticmethod
    def of(tol: float, order: int) -> Tolerances:
        """The four numbers that belong to one tolerance."""
        return Tolerances(tol, tol ** (2 / 3), tol ** (1 / 3), min(10 * tol**0.5, 1e-3), order)


@dataclass(frozen=True, eq=False)
class Escape:
    """A unit direction along which f falls although its gradient is small: g'y, y'By and T[y]^3, and its order."""

    y: Vector
    slope: float
    curvature: float
    cubic: float
    order: int

    def length(self, sigma: float) -> float:
        """The t > 0 that minimizes slope t + curvature/2 t^2 + cubic/6 t^3 + sigma/4 t^4; 0 where none is below 0."""
        roots = np.roots([sigma, self.cubic / 2, self.curvature, self.slope])
        real = roots[np.abs(roots.imag) <= 1e-6 * np.abs(roots)].real
        ahead = [float(t) for t in real if t > 0 and self.fall(float(t)) - sigma / 4 * t**4 > 0]
        return max(ahead, key=lambda t: self.fall(t) - sigma / 4 * t**4, default=0.0)

    def most(self, sigma: float) -> float:
        """sigma, or less where so large a one hides the fall: curvature t^2/2 + cubic t^3/6 + sigma t^4/4 is negative
        for some t only while sigma < cubic^2 / (18 curvature)."""
        return min(sigma, self.cubic**2 / (36 * self.curvature)) if self.curvature > 0.0 else sigma

    def fall(self, t: float) -> float:
        """phi(0) - phi(t y)."""
        return -(self.slope * t + self.curvature / 2 * t**2 + self.cubic / 6 * t**3)


def certify(
    point: Point, n: int, tolerances: Tolerances, dense: bool, how: str, seed: int = 0
) -> tuple[Certificate, Escape | None]:
    """The certificate of a point up to the order asked for, and a way down where orders 2 or 3 fail.

    A gradient (usually known), for order 2 a Hessian (dense) or some 20-60 products (Lanczos), for order 3 one
    evaluation of all third derivatives where a bound suffices, else the products of a power iteration.
    """
    g = point.gradient()
    chi1, chi2, chi3 = float(np.linalg.norm(g)), np.nan, np.nan
    notes, escape = [how], None
    if tolerances.order >= 2:
        values, vectors = lowest_eigenpairs(point, len(g), dense, tolerances.zeta, seed)
        notes.append("chi2 by a dense eigenvalue problem" if dense else "chi2 by Lanczos")
        chi2 = 0.0 if values[0] >= 0 else -float(values[0])  # nan stays nan
        if chi2 > tolerances.eps2:
            escape = escape_along(point, g, vectors[:, 0], 2)
        elif tolerances.order >= 3:
            kernel = vectors[:, np.abs(values) <= tolerances.zeta]
            whole = len(values) == len(g) or values[-1] > tolerances.zeta
            chi3, y, note = kernel_measure(point, kernel if whole else None, tolerances.eps3, seed)
            notes.append(note)
            if chi3 > tolerances.eps3 and y is not None:
                escape = escape_along(point, g, y, 3)
    t = tolerances
    certificate = Certificate(
        chi1, chi2, chi3, t.eps1, t.eps2, t.eps3, t.zeta, t.order, point.terms, n, "; ".join(notes)
    )
    return certificate, escape


def lowest_eigenpairs(point: Point, d: int, dense: bool, zeta: float, seed: int) -> tuple[Vector, Matrix]:
    """Eigenvalues in ascending order with their vectors: all of them, or by Lanczos all up to zeta and a few more.

    Where Lanczos does not converge, or would need a third of all vectors, the matrix is formed from d products. Beyond
    a few thousand variables it cannot be formed, and only the lowest eigenvalue is given.
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
        return lowest_eigenpair(operator, shift, start, 0.01 * zeta / shift)
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


def lowest_eigenpair(operator: Any, shift: float, start: Vector, accuracy: float) -> tuple[Vector, Matrix]:
    """The lowest eigenvalue and its vector, or nan where Lanczos does not find it."""
    import scipy.sparse.linalg

    try:
        values, vectors = scipy.sparse.linalg.eigsh(operator, 1, which="SA", v0=start, ncv=20, maxiter=30, tol=accuracy)
    except scipy.sparse.linalg.ArpackError:
        return np.array([np.nan]), start[:, None] / np.linalg.norm(start)
    return values - shift, vectors


def eigenpairs_from_products(point: Point, d: int) -> tuple[Vector, Matrix]:
    """All eigenpairs of the matrix that d products form."""
    B = np.stack([point.hessian_product(e) for e in np.eye(d)])
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    return values, vectors


def kernel_measure(point: Point, V: Matrix | None, enough: float, seed: int) -> tuple[float, Vector | None, str]:
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


def escape_along(point: Point, g: Vector, y: Vector, order: int) -> Escape:
    """The direction y or -y, whichever goes down, with the derivatives along it."""
    curvature = float(y @ point.hessian_product(y))
    cubic = float(y @ point.third_product(y, y))
    slope = float(g @ y)
    sign = -1.0 if (cubic > 0 if order == 3 or slope == 0 else slope > 0) else 1.0
    return Escape(sign * y, sign * slope, curvature, sign * cubic, order)
