"""Points whose derivatives are known, and measures of them by other means."""

from types import SimpleNamespace

import numpy as np


class Polynomial:
    """f(x) = g'x + 1/2 x'Bx + 1/6 T[x]^3 as a point, at 0 unless another x is given: all that a certificate asks."""

    terms = 1
    able = SimpleNamespace(limits=None)

    def __init__(self, g, B, T=None, bound=np.inf, x=None):
        self.at_0 = np.asarray(g, float), np.asarray(B, float), T, bound
        self.g, self.B = self.at_0[:2]
        self.T = np.zeros((len(self.g),) * 3) if T is None else T
        self.x = np.zeros(len(self.g)) if x is None else np.asarray(x, float)
        self.bound, self.products, self.view = bound, 0, self

    def at(self, x):
        return Polynomial(*self.at_0, x=x)

    first_at = at

    def value(self):
        x = self.x
        return float(self.g @ x + x @ self.B @ x / 2 + np.einsum("abc,a,b,c", self.T, x, x, x) / 6)

    def limits(self, V):
        return None

    def gradient(self):
        return self.g + self.B @ self.x + self.T @ self.x @ self.x / 2

    def hessian(self):
        return self.B + self.T @ self.x

    def hessian_product(self, v):
        self.products += 1
        return self.B @ v + self.T @ self.x @ v

    def third_product(self, u, v):
        return self.T @ v @ u

    def third_tensor(self, V):
        return np.einsum("abc,ai,bj,ck->ijk", self.T, V, V, V)

    def third_bound(self, V, tight=False):
        return self.bound


def symmetric(rng, k):
    T = rng.standard_normal((k, k, k))
    return sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6


def grid_largest(T):
    """max |T[y]^3| over a grid of unit vectors in 2 or 3 dimensions; the error is quadratic in the spacing."""
    if T.shape[0] == 2:
        a = np.linspace(0, np.pi, 20001)
        Y = np.stack([np.cos(a), np.sin(a)])
    else:
        a, b = np.meshgrid(np.linspace(0, np.pi, 601), np.linspace(0, np.pi, 601))
        Y = np.stack([np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)]).reshape(3, -1)
    return np.abs(np.einsum("abc,ai,bi,ci->i", T, Y, Y, Y, optimize=True)).max()


def rotated(values, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    B = Q @ np.diag(values) @ Q.T
    return (B + B.T) / 2


SPECTRA = {
    "indefinite": np.concatenate([[-2.0, -1.0], np.linspace(0.1, 5, 58)]),
    "positive": np.linspace(0.5, 5, 60),
    "one flat direction": np.concatenate([[0.0], np.linspace(0.5, 5, 59)]),
    "stiff": np.concatenate([[-0.5, 0.1], np.logspace(0, 3, 58)]),
    "weakly negative under a wide spectrum": np.concatenate([[-0.01], np.linspace(0.0, 10, 119)]),
    "all equal": np.full(40, 2.0),
    "zero": np.zeros(40),
}
