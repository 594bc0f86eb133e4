"""An objective of thirty lines, as docs/extending.md shows it. Its eight members are all that it has to have."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Localization:
    """Where is x? f(x) = mean of (|x - p_i|^2 - r_i^2)^2 / 4 over anchors p_i and measured distances r_i."""

    anchors: np.ndarray  # n x d
    distances: np.ndarray  # n

    @property
    def n(self):
        return len(self.anchors)

    @property
    def d(self):
        return self.anchors.shape[1]

    def over(self, rows):
        return self if rows is None else Localization(self.anchors[rows], self.distances[rows])

    @property
    def terms(self):
        return self.n

    def at(self, x, carry=None):
        return Place(x - self.anchors, self.distances)


@dataclass(frozen=True, eq=False)
class Place:
    """f at one x; with w_i = x - p_i and c_i = |w_i|^2 - r_i^2 every derivative is a mean over the anchors."""

    w: np.ndarray
    r: np.ndarray

    @property
    def c(self):
        return np.sum(self.w**2, axis=1) - self.r**2

    def value(self):
        return float(np.mean(self.c**2)) / 4

    def gradient(self):
        return self.c @ self.w / len(self.w)

    def product(self, order, u, v=None):
        wu = self.w @ u
        if order == 2:  # c u + 2 w (w'u)
            return (np.sum(self.c) * u + 2 * wu @ self.w) / len(self.w)
        wv = self.w @ v  # 2 (u'v) w + 2 (w'u) v + 2 (w'v) u
        return 2 * ((u @ v) * self.w.sum(axis=0) + np.sum(wu) * v + np.sum(wv) * u) / len(self.w)
