"""Coordinates in which a Hessian that is nearly S (x) G + I (x) diag(l) is nearly a multiple of one.

Margins U a_i with a k x p matrix U of variables bend f by the mean of (l_i'') (x) a_i a_i'. With S the mean of the
l_i'' and G that of the a_i a_i' this is nearly S (x) G: exact where l'' is the same in all rows. G and the penalty are
diagonal in the same basis V, S in one of its own, W:

    V'GV = diag(m),   V' diag(l) V = diag(r),   W'SW = diag(a),
    W'(S (x) G + I (x) diag(l))W = a_i m_j + r_j      in the entries of W'UV^-T
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from tercet.records import Matrix, Vector

FAINT = float(np.sqrt(np.finfo(float).eps))  # beside the largest: what is less is not told from 0


@dataclass(frozen=True, eq=False)
class Pair:
    """G and diag(l), diagonal in the same basis."""

    V: Matrix
    inverse: Matrix  # V^-1
    m: Vector
    r: Vector

    @staticmethod
    def of(G: Matrix, penalty: Vector, K: int) -> Pair:
        """V'(G + K diag(l))V = I: of K classes that are alike S is I / K. What is not told from 0 is lifted a little;
        a variable by which no row is moved stays alone, so that it rests to the last digit."""
        own = K * penalty
        diagonal = G.diagonal() + own
        total = G + np.diag(own + FAINT * np.where(diagonal > 0.0, diagonal, 1.0))
        moved = np.flatnonzero(G.diagonal())
        m, V = np.zeros(len(G)), np.diag(1.0 / np.sqrt(total.diagonal()))
        if len(moved):
            part = np.ix_(moved, moved)
            m[moved], V[part] = scipy.linalg.eigh(G[part], total[part], check_finite=False)
        m = np.clip(m, 0.0, 1.0)
        return Pair(V, V.T @ total, m, np.maximum(1.0 - m, FAINT) / K)


@dataclass(frozen=True, eq=False)
class Kronecker:
    """The coordinates at a point; a step of length one changes margins about as much as one of units of x."""

    pair: Pair
    W: Matrix
    root: Matrix  # sqrt((a_i m_j + r_j) / mean a)

    @staticmethod
    def of(S: Matrix, pair: Pair) -> Kronecker:
        """From S, of which nothing is below a small part of the largest."""
        a, W = np.linalg.eigh(S)
        a = np.maximum(a, max(FAINT * a[-1], np.finfo(float).tiny))
        return Kronecker(pair, W, np.sqrt((np.outer(a, pair.m) + pair.r) / np.mean(a)))

    def lift(self, c: Vector) -> Vector:
        """U = W (C / root) V'."""
        return ((self.W @ (c.reshape(self.root.shape) / self.root)) @ self.pair.V.T).ravel()

    def coordinates(self, s: Vector) -> Vector:
        """C = root W'U V^-T."""
        return (self.root * (self.W.T @ s.reshape(self.root.shape) @ self.pair.inverse.T)).ravel()

    def slope(self, g: Vector) -> Vector:
        """W'GV / root, for the slope G of U."""
        return ((self.W.T @ g.reshape(self.root.shape) @ self.pair.V) / self.root).ravel()
