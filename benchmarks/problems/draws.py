"""For the theory: many samples at once, norms of small tensors by a grid that errs upwards, and a slow function.

The means of many samples are one matrix product. Used by tests/theory and by benchmarks/theory.py.
"""

from __future__ import annotations

import numpy as np

import tercet
from tercet import theory
from tercet.sampling.bounds import symmetric_contraction


def shares(rng, N, n, repeats, replacement):
    """A matrix of `repeats` samples: how often each of N terms was drawn, over n."""
    if replacement:
        return rng.multinomial(n, np.full(N, 1 / N), size=repeats) / n
    keys = rng.random((repeats, N))
    last = np.partition(keys, n - 1, axis=1)[:, n - 1 : n]
    return (keys <= last) / n


def errors(rng, terms, n, repeats, replacement):
    """mean over the sample - mean over all, for many samples of N terms of any shape."""
    flat = terms.reshape(len(terms), -1)
    drawn = shares(rng, len(terms), n, repeats, replacement) @ (flat - flat.mean(axis=0))
    return drawn.reshape(repeats, *terms.shape[1:])


def vector_norms(E):
    return np.linalg.norm(E, axis=1)


def symmetric_norms(E):
    return np.max(np.abs(np.linalg.eigvalsh(E)), axis=1)


def general_norms(E):
    return np.linalg.norm(E, 2, axis=(1, 2))


def half_circle(points):
    angles = np.arange(points) * np.pi / points
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def symmetric_cubic_norms(E, points=60):
    """|E| of symmetric 2 x 2 x 2 tensors, from above: the largest value on a grid of half a circle over cos(3 phi)."""
    U = half_circle(points)
    cubes = np.einsum("ga,gb,gc->gabc", U, U, U).reshape(points, -1)
    top = np.max(np.abs(E.reshape(len(E), -1) @ cubes.T), axis=1)
    return top / symmetric_contraction(2 * np.sin(np.pi / points / 4), 3)


def general_cubic_norms(E, points=45):
    """|E| of 2 x 2 x 2 tensors, from above: largest singular value of the slices along a grid of the first mode.

    |E[u]| is a norm of a vector that is linear in u, so a grid with half spacing phi sees at least cos(phi) of it.
    """
    slices = np.einsum("rabc,ga->rgbc", E, half_circle(points))
    a, b, c, d = (slices[:, :, i, j] for i in (0, 1) for j in (0, 1))
    squares, det = a**2 + b**2 + c**2 + d**2, a * d - b * c
    largest = np.sqrt((squares + np.sqrt(np.maximum(squares**2 - 4 * det**2, 0))) / 2)
    return np.max(largest, axis=1) / np.cos(np.pi / points / 2)


def unit_rows(rng, N, d):
    v = rng.standard_normal((N, d))
    return v / np.linalg.norm(v, axis=1)[:, None]


def populations(rng, N):
    """name: (terms with norm at most 1, their norm, d or modes)."""
    v, a, b, c = (unit_rows(rng, N, d) for d in (4, 4, 2, 2))
    signs = rng.choice((-1.0, 1.0), N)
    mixed = [unit_rows(rng, N, 2) for _ in range(3)]
    symmetric = (np.einsum("i,ia,ib,ic->iabc", signs, c, c, c), symmetric_cubic_norms)
    general = (np.einsum("ia,ib,ic->iabc", *mixed), general_cubic_norms)
    return {
        "scalar": (signs[:, None], vector_norms),
        "vector": (v, vector_norms),
        "symmetric matrix": (signs[:, None, None] * a[:, :, None] * a[:, None, :], symmetric_norms),
        "general matrix": (b[:, :, None] * v[:, None, :3], general_norms),
        "symmetric tensor": symmetric,
        "general tensor": general,
        "rank-one symmetric tensor": symmetric,
        "rank-one general tensor": general,
    }


N = 300
NAMES = list(populations(np.random.default_rng(0), 5))


def tail_of(name, replacement, statement="sharp"):
    how = {"N": N, "replacement": replacement, "statement": statement}
    return {
        "scalar": lambda: theory.vector_tail(1, 1.0, **how),
        "vector": lambda: theory.vector_tail(4, 1.0, **how),
        "symmetric matrix": lambda: theory.matrix_tail(4, 1.0, **how),
        "general matrix": lambda: theory.matrix_tail(2, 1.0, columns=3, **how),
        "symmetric tensor": lambda: theory.tensor_tail(2, 2.0, **how),
        "general tensor": lambda: theory.tensor_tail(2, 2.0, symmetric=False, **how),
        "rank-one symmetric tensor": lambda: theory.tensor_tail(2, 2.0, rank_one=True, **how),
        "rank-one general tensor": lambda: theory.tensor_tail(2, 2.0, symmetric=False, rank_one=True, **how),
    }[name]()


def slope(eps, reach, subsolver=None):
    """f = a sqrt(1 + x^2), a = 1.5 eps: slope about a until |x| < 0.89. From x = eps^-reach, with sigma >= 1."""
    a = 1.5 * eps

    def root(x):
        return np.sqrt(1 + x[0] ** 2)

    x0 = np.array([eps**-reach + 0.894])
    run = tercet.minimize(
        lambda x: a * root(x),
        x0,
        grad=lambda x: a * x / root(x),
        hess=lambda x: np.array([[a / root(x) ** 3]]),
        third=lambda x: np.array([[[-3 * a * x[0] / root(x) ** 5]]]),
        method=tercet.STM(
            tercet.Full(), subsolver, tercet.PaperSigma(minimum=1.0), worth=np.inf, units=tercet.Euclidean()
        ),
        order=1,
        tol=eps,
        max_iterations=20000,
    )
    assert run.success
    return run, a * (root(x0) - 1), 3 * a
