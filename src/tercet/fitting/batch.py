"""Many least-squares fits of one model at once, compiled: Levenberg-Marquardt steps, then Newton's, then a certificate.

All are over the rows of arrays, one row for each curve; matrices are d x d with d small, and their factorizations are
written out, so that they run over all curves at once. J'J is enough for the steps, since where its digits do not
suffice the certificate fails, and that curve is fitted on its own (`tercet.fitting.many`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLOSE = 1e-6  # of each parameter: Levenberg-Marquardt steps end here
LARGEST = 1e12  # damping beyond which no step is left
ROUND = 4  # steps between two looks at which curves are done
RESOLVED = 64.0  # times eps and d: curvature above it is told from 0
REGULAR = 0.2  # |u| / |s| up to which Newton's step tells the error
ROUNDED = 3.0  # standard deviations of the rounding of g
EPS = 2.0**-52


def cholesky(xp: Any, A: Any, d: int) -> list[list[Any]]:
    """L with LL' = A for each of many matrices, entry by entry; nan where A is not positive definite."""
    L: list[list[Any]] = [[None] * d for _ in range(d)]
    for j in range(d):
        L[j][j] = xp.sqrt(A[j][j] - sum((L[j][k] ** 2 for k in range(j)), 0.0))
        for i in range(j + 1, d):
            L[i][j] = (A[i][j] - sum((L[i][k] * L[j][k] for k in range(j)), 0.0)) / L[j][j]
    return L


def solve(L: list[list[Any]], b: list[Any], d: int) -> list[Any]:
    """(LL')^-1 b."""
    y: list[Any] = []
    for i in range(d):
        y.append((b[i] - sum((L[i][k] * y[k] for k in range(i)), 0.0)) / L[i][i])
    z: list[Any] = [None] * d
    for i in reversed(range(d)):
        z[i] = (y[i] - sum((L[k][i] * z[k] for k in range(i + 1, d)), 0.0)) / L[i][i]
    return z


def entries(A: Any, d: int) -> list[list[Any]]:
    """The entries of one matrix."""
    return [[A[i, j] for j in range(d)] for i in range(d)]


class BatchKernels:
    """Compiled functions of many vectors of parameters and as many curves; `residual(p, *example)` is of one."""

    def __init__(self, jax: Any, residual: Callable[..., Any], d: int):
        xp = jax.numpy

        def half(p: Any, e: Any) -> Any:
            r = residual(p, *e)
            return 0.5 * (r @ r)

        def look(p: Any, e: Any) -> Any:
            r, J = residual(p, *e), jax.jacfwd(residual)(p, *e)
            return 0.5 * (r @ r), J.T @ r, J.T @ J

        def newton(B: Any) -> Any:
            """E and L with LL' = EBE, whose diagonal is 1, and whether that is positive definite for certain."""
            E = 1.0 / xp.sqrt(xp.where(xp.diag(B) > 0.0, xp.diag(B), xp.nan))
            H = B * E[:, None] * E[None, :]
            least = cholesky(xp, entries(H - RESOLVED * EPS * d * xp.eye(d), d), d)
            L = cholesky(xp, entries(H, d), d)
            good = xp.all(xp.isfinite(xp.stack([least[i][i] for i in range(d)])))
            return E, L, good

        def backward(E: Any, L: Any, v: Any) -> Any:
            return E * xp.stack(solve(L, list(E * v), d))

        def step(state: Any, e: Any) -> Any:
            p, f, g, A, D, lam, nu, done, count = state
            E = 1.0 / xp.sqrt(D)
            H = A * E[:, None] * E[None, :] + lam * xp.eye(d)
            s = E * xp.stack(solve(cholesky(xp, entries(H, d), d), list(-E * g), d))
            f2, g2, A2 = look(p + s, e)
            promised = -(g @ s) - 0.5 * (s @ A @ s)
            ratio = xp.where(xp.isfinite(f2) & xp.all(xp.isfinite(A2)), (f - f2) / promised, -xp.inf)
            small = xp.all(xp.abs(s) <= CLOSE * xp.abs(p)) & (lam < 1.0)
            rounding = promised <= 64 * EPS * f
            take = ~done & ((ratio > 1e-3) | (small & (ratio > -xp.inf)))
            ahead = (p + s, f2, g2, A2, xp.maximum(D, xp.diag(A2)))
            now = [xp.where(take, new, old) for new, old in zip(ahead, (p, f, g, A, D), strict=True)]
            grown = xp.where(take, lam * xp.maximum(1 / 5, 1 - (2 * xp.minimum(ratio, 1.0) - 1) ** 3), lam * nu)
            lam, nu = xp.where(done, lam, grown), xp.where(take, 2.0, 2.0 * nu)
            return (*now, lam, nu, done | small | rounding | ~(lam < LARGEST), count + ~done)

        def begin(p: Any, e: Any) -> Any:
            f, g, A = look(p, e)
            good = xp.isfinite(f) & xp.all(xp.isfinite(A))
            D = xp.where(xp.diag(A) > 0.0, xp.diag(A), 1.0)
            return p, f, g, A, D, xp.asarray(1e-3, p.dtype), xp.asarray(2.0, p.dtype), ~good, xp.asarray(0)

        def rounds(states: Any, examples: Any) -> Any:
            return jax.lax.fori_loop(0, ROUND, lambda _, s: jax.vmap(step)(s, examples), states)

        def finish(p: Any, e: Any, signs: Any) -> Any:
            """One step of Newton's from a point that is close, and whether it leads to a minimizer, with its errors as
            `tercet.critical.errors` has them; B is that of the point before, which differs by as little."""
            slope = jax.grad(half)
            f, g, B = half(p, e), slope(p, e), jax.hessian(half)(p, e)
            E, L, good = newton(B)
            q = p - backward(E, L, g)
            p = xp.where(good & (half(q, e) <= f * (1.0 + 4 * EPS)), q, p)
            g, beside = slope(p, e), p * (1.0 + 4 * EPS * signs)
            s, noise = -backward(E, L, g), slope(beside, e) - g - B @ (beside - p)
            bend = jax.jvp(lambda x: jax.jvp(lambda y: slope(y, e), (x,), (s,))[1], (p,), (s,))[1]
            u = -0.5 * backward(E, L, bend)
            inverse = xp.stack([backward(E, L, row) for row in xp.eye(d)])
            size, more = xp.sqrt(xp.maximum(s @ B @ s, 0.0)), xp.sqrt(xp.maximum(u @ B @ u, 0.0))
            spread = ROUNDED * xp.sqrt(xp.mean((E * noise) ** 2))
            floor = spread * xp.sqrt(xp.sum((inverse / E[None, :]) ** 2, axis=1))
            wrong = xp.abs(s) + 2 * more * xp.sqrt(xp.diag(inverse)) + floor + 2 * EPS * xp.abs(p)
            return p, half(p, e), good & (more <= xp.maximum(REGULAR * size, 1e-3 * spread)), wrong

        def inverse(p: Any, e: Any) -> Any:
            """|r|^2, (J'J)^-1 and the least pivot of J'J."""
            f, _, A = look(p, e)
            E, L, _ = newton(A)
            return (
                2.0 * f,
                xp.stack([backward(E, L, row) for row in xp.eye(d)]),
                xp.min(xp.stack([L[i][i] for i in range(d)])),
            )

        self.begin, self.rounds = jax.jit(jax.vmap(begin)), jax.jit(rounds)
        self.finish = jax.jit(jax.vmap(finish, in_axes=(0, 0, None)))
        self.inverse = jax.jit(jax.vmap(inverse))
        self.jacobian = jax.jit(jax.vmap(lambda p, e: (residual(p, *e), jax.jacfwd(residual)(p, *e))))
