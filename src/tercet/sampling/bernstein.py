"""How far a sampled mean strays, judged by the variance seen in the sample: empirical Bernstein bounds.

The counterparts of `vector_tail`, `matrix_tail` and `tensor_tail`; docs/theory.md, section 2, derives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Any

from tercet.checks import number, positive, probability, whole
from tercet.sampling.bounds import MOST, covers, dimensions, matrix_width, population, serfling, smallest, unfolded


def bernstein_serfling(n: int, N: int) -> float:
    """What the variance term gains: min(1, v_n, (m/n) v_m) with m = N - n and

        v_n = (N m^2 / n) sum_{j=m}^{N-1} 1 / (j^2 (j+1)) <= N m^2 (N + m - 1/3) / (2 q(m) q(N)),
        q(j) = j^2 - j/3 - 2/9,

    about 1 - n/(2N) for a small sample and (N^2 - n^2) / (2 n N) for a large one.
    """
    if n >= N:
        return 0.0
    m = N - n

    def q(j: int) -> float:
        return j * j - j / 3 - 2 / 9

    own = N * m * m * (N + m - 1 / 3) / (2 * q(m) * q(N))
    rest = N * m * n * (N + n - 1 / 3) / (2 * q(n) * q(N))
    return min(1.0, own, rest)


@dataclass(frozen=True)
class Bernstein:
    """The error from the variance V seen in the sample and the width w of the terms, in two steps.

    With probability 1 - delta/2 the error is at most the t of Bernstein's inequality with the true variance sigma^2,

        P(error >= t) <= min_j F_j exp(-n (c_j t)^2 / (2 (rho_n sigma^2 + w c_j t / 3))),

    or that of Hoeffding's, if smaller (so that it is never worse than the worst case at delta/2); and with probability
    1 - delta/2, since (1/n) sum |X_i - mu|^2 = V + |error|^2 and non-negative terms rarely lie far below their mean,

        sigma <= sqrt(V + error^2 + b) + sqrt(b),   b = w^2 log(2/delta) / (2n).

    V is the sample's (1/n) sum |X_i - mean|^2 for vectors, the norm of (1/n) sum (X_i - mean)^2 for matrices, and the
    largest variance (1/n) sum (X_i(u) - mean(u))^2 in any direction for tensors; any number above it will do.
    Make one with `vector_bernstein`, `matrix_bernstein` or `tensor_bernstein`.
    """

    log_factors: tuple[float, ...]
    contractions: tuple[float, ...]  # c_j: 1 for vectors and matrices
    width: float
    N: int | None
    replacement: bool
    formula: str

    def rho(self, n: int) -> float:
        """What drawing without replacement gains in the variance term."""
        return 1.0 if self.replacement or self.N is None else bernstein_serfling(n, self.N)

    def accuracy(self, n: int, delta: float, variance: float) -> float:
        """The t that the error exceeds with probability at most delta, for a sample of n terms with this variance."""
        n, v = self.check(n, variance)
        return self.at_log(n, log(probability("accuracy", "delta", delta)), v)

    def failure(self, n: int, t: float, variance: float) -> float:
        """The smallest delta with accuracy(n, delta, variance) <= t; 1 where there is none.

        A guarantee only for a variance assumed before the draw: a level chosen after looking is no probability.
        """
        n, v = self.check(n, variance)
        t = positive("failure", "t", t)
        low, high = -700.0, 0.0
        if self.at_log(n, low, v) <= t:
            return 0.0 if self.at_log(n, low, v) == 0.0 else exp(low)
        if self.at_log(n, high, v) > t:
            return 1.0
        while high - low > 1e-10:
            middle = (low + high) / 2
            low, high = (low, middle) if self.at_log(n, middle, v) <= t else (middle, high)
        return exp(high)

    def size(self, t: float, delta: float, variance: float) -> int:
        """The smallest n whose accuracy is t if its variance is the one given; never above N.

        A plan, since the variance of a sample is known only once it is drawn; `accuracy` then says what was reached.
        """
        t, logged = positive("size", "t", t), log(probability("size", "delta", delta))
        _, v = self.check(1, variance)
        most = self.N
        if most is None:
            most = 2
            while self.at_log(most, logged, v) > t:
                most *= 2
                if most > MOST:
                    raise ValueError(f"size(t={t}, delta={delta}): the size is beyond all numbers; t is too small.")
        return smallest(lambda n: self.at_log(n, logged, v) <= t, most)

    def check(self, n: Any, variance: Any) -> tuple[int, float]:
        """n terms can be drawn, and the variance, at least 0 and at most 1/4 in units of width^2."""
        m = whole("accuracy", "n", n)
        if not self.replacement and self.N is not None and m > self.N:
            raise ValueError(f"n={n}: no more than N={self.N} terms can be drawn without replacement.")
        if not number(variance) >= 0:
            raise ValueError(f"variance={variance!r}: give the sample's variance, a number that is at least 0.")
        return m, min(0.25, float(variance) / self.width / self.width)

    def at_log(self, n: int, log_delta: float, variance: float) -> float:
        """accuracy(n, exp(log_delta), variance width^2): the bound on the error, put into itself until it settles."""
        if self.rho(n) == 0.0:
            return 0.0
        half = log(2) - log_delta  # log(2 / delta)
        floor = half / (2 * n)
        error = 1.0  # in units of the width, which no error exceeds; every round keeps an upper bound
        for _ in range(60):
            sigma = min(0.5, sqrt(variance + error * error + floor) + sqrt(floor))
            new = min(error, self.known_variance(n, half, sigma))
            if new >= error * (1 - 1e-12):
                break
            error = new
        return error * self.width

    def known_variance(self, n: int, half: float, sigma: float) -> float:
        """The smaller t of Bernstein's and Hoeffding's inequality at delta/2, in units of w, with L = log(2F/delta):

        c t = a + sqrt(a^2 + 2 rho_n sigma^2 L/n), a = L/(3n);     c t = sqrt(rho_n L/(2n))
        """
        best, rho = inf, self.rho(n)
        flat = 1.0 if self.replacement or self.N is None else serfling(n, self.N)
        for factor, c in zip(self.log_factors, self.contractions, strict=True):
            L = factor + half
            a = L / (3 * n)
            bernstein = a + sqrt(a * a + 2 * rho * sigma * sigma * L / n)
            best = min(best, bernstein / c, sqrt(flat * L / (2 * n)) / c)
        return best


BERNSTEIN = (
    "F exp(-n (c t)^2 / (2 (rho_n sigma^2 + w c t / 3))), "
    "sigma <= sqrt(V + t^2 + b) + sqrt(b), b = w^2 log(2/delta)/(2n)"
)


def vector_bernstein(d: int, bound: float, N: int | None = None, *, replacement: bool = False) -> Bernstein:
    """Vectors in R^d with |v_i| <= bound: F = d + 1, w = 2 bound, V = (1/n) sum |v_i - mean|^2."""
    call = "vector_bernstein"
    d, w, N = whole(call, "d", d), 2 * positive(call, "bound", bound), population(call, N, replacement)
    return Bernstein((log(d + 1),), (1.0,), w, N, replacement, f"{BERNSTEIN}; F = d+1, c = 1, w = 2 s")


def matrix_bernstein(
    d: int, bound: float | None = None, N: int | None = None, *, width: float | None = None,
    columns: int | None = None, replacement: bool = False,
) -> Bernstein:  # fmt: skip
    """Matrices: F = 2d for symmetric ones, d + columns for general; V = |(1/n) sum (A_i - mean)^2|.

    For general matrices V is the larger norm of the mean of (A_i - mean)(A_i - mean)' and (A_i - mean)'(A_i - mean).
    """
    call = "matrix_bernstein"
    d, N, w = whole(call, "d", d), population(call, N, replacement), matrix_width(call, bound, width, columns)
    rows = 2 * d if columns is None else d + whole(call, "columns", columns)
    return Bernstein((log(rows),), (1.0,), w, N, replacement, f"{BERNSTEIN}; F = {rows}, c = 1")


def tensor_bernstein(
    d: int | Sequence[int], width: float, N: int | None = None, *, order: int = 3, symmetric: bool = True,
    rank_one: bool = False, replacement: bool = False,
) -> Bernstein:  # fmt: skip
    """Tensors of order k: F = 2 (1 + 2/r)^D and c as in `tensor_tail`; V = the largest variance of Y_i(u).

    With `rank_one` terms also F = rows + columns, c = 1 of the unfolding, if V bounds the variance of the unfolded
    terms as in `matrix_bernstein`; `tercet.objectives.variances.variance` does.
    """
    call = "tensor_bernstein"
    k, w, N = whole(call, "order", order), positive(call, "width", width), population(call, N, replacement)
    D, nets = dimensions(call, d, k, symmetric), covers(k, symmetric)
    logs, cs = tuple(log(2) + D * size for size, _ in nets), tuple(c for _, c in nets)
    if rank_one:
        logs, cs = (unfolded(d, k, symmetric), *logs), (1.0, *cs)
    return Bernstein(logs, cs, w, N, replacement, f"{BERNSTEIN}; F = 2 (1+2/r)^{D}, the best radius r")
