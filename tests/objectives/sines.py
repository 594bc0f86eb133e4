"""f(x) = sum sin(a_i'x), whose derivatives are all known and of size one."""

import numpy as np

D = 4
RNG = np.random.default_rng(0)
A = RNG.standard_normal((6, D))
X0 = RNG.standard_normal(D)
U, V = RNG.standard_normal((2, D))
W = RNG.standard_normal((D, 2))


def fun(x):
    return float(np.sum(np.sin(A @ x)))


def grad(x):
    return A.T @ np.cos(A @ x)


def hess(x):
    return -A.T @ (np.sin(A @ x)[:, None] * A)


def hvp(x, v):
    return -A.T @ (np.sin(A @ x) * (A @ v))


def third(x):
    return -np.einsum("i,ia,ib,ic->abc", np.cos(A @ x), A, A, A)


def tvp(x, u, v):
    return -A.T @ (np.cos(A @ x) * (A @ u) * (A @ v))


GIVEN = {"grad": grad, "hess": hess, "hvp": hvp, "third": third, "tvp": tvp}
