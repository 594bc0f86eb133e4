"""How far a sampled mean of vectors, matrices or tensors strays from the mean over all N terms.

One relation between the sample size n, the accuracy t and the failure probability delta, seen from three sides:

    P(|mean over the sample - mean over all| >= t) <= F exp(-n t^2 / (V rho_n)) = delta

`size(t, delta)` is the smallest n, `failure(n, t)` the probability, `accuracy(n, delta)` the t. F counts dimensions, V
is the squared range of one term, and rho_n <= 1 is what drawing without replacement gains (rho_N = 0). `Hoeffding`
knows only the range; `Bernstein` (bernstein.py) also uses the variance seen in the sample. docs/theory.md derives every
constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import asin, ceil, comb, cos, exp, log, log1p, pi, prod, sqrt
from typing import Any

import numpy as np

from tercet.checks import positive, probability, whole

STATEMENTS = ("sharp", "corrected", "paper")
MOST = 1e100  # sample sizes beyond the square of this are refused
NET_POINTS = 100  # radii of the cover that are tried; each of them gives a bound, the best one is taken


def check_statement(call: str, statement: str, paper: bool) -> str:
    """The name of the statement that is meant; `paper=True` is short for statement="paper"."""
    if statement not in STATEMENTS:
        raise ValueError(f"{call}(statement={statement!r}): choose one of {', '.join(STATEMENTS)}.")
    return "paper" if paper else statement


# what drawing without replacement gains ------------------------------------------------------------------------------


def serfling(n: int, N: int) -> float:
    """rho_n = min(1 - (n-1)/N, (1 - n/N)(1 + 1/n)), the factor of Hoeffding-Serfling; 0 for n = N.

    The first is Serfling's, from the sample itself; the second is the first one of the N - n terms left out, since
    (mean of the sample - mu) = -(N-n)/n (mean of the rest - mu).
    """
    return 0.0 if n >= N else min(1 - (n - 1) / N, (1 - n / N) * (1 + 1 / n))


def printed_serfling(n: int, N: int) -> float:
    """(1 - n/N)(1 + 1/n), the factor that the paper uses for every n."""
    return 0.0 if n >= N else (1 - n / N) * (1 + 1 / n)


# the cover of the sphere ---------------------------------------------------------------------------------------------


def general_contraction(radius: float, order: int) -> float:
    """c with c |X| <= max of X over a cover: 2 - (1 + radius)^k, from |X| <= max + ((1 + radius)^k - 1) |X|."""
    return 2 - (1 + radius) ** order


def symmetric_contraction(radius: float, order: int) -> float:
    """c with c |X| <= max of |X(u, ..., u)| over a cover of one sphere: cos(k phi), phi = 2 asin(radius / 2).

    On a great circle X(u, ..., u) is a trigonometric polynomial of degree k, and by M. Riesz it falls from its maximum
    no faster than cos(k phi).
    """
    angle = order * 2 * asin(min(1.0, radius / 2))
    return cos(angle) if angle < pi / 2 else 0.0


@lru_cache(maxsize=64)
def covers(order: int, symmetric: bool) -> tuple[tuple[float, float], ...]:
    """Pairs (log(1 + 2/radius), c) of covers: their size per dimension, and how much of the norm they see."""
    contraction = symmetric_contraction if symmetric else general_contraction
    radii = np.geomspace(1e-3, pi / 2, NET_POINTS) / order  # beyond these a cover sees nothing
    pairs = ((log1p(2 / float(r)), contraction(float(r), order)) for r in radii)
    return tuple((size, c) for size, c in pairs if c > 0)


def printed_k0(order: int) -> float:
    """k_0 = 2k / log(3/2), the base of the paper's cover of radius log(3/2)/k."""
    return 2 * order / log(1.5)


# Hoeffding -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hoeffding:
    """P(error >= t) <= min_j F_j exp(-n t^2 / (V_j rho_n)): from the range of the terms alone.

    Make one with `vector_tail`, `matrix_tail` or `tensor_tail`. `N` is None where the terms are drawn with replacement
    and their number does not matter.
    """

    log_factors: tuple[float, ...]  # log F_j
    roots: tuple[float, ...]  # sqrt(V_j); squares of very large or small ranges are no numbers
    N: int | None
    replacement: bool
    statement: str
    formula: str

    def rho(self, n: int) -> float:
        """rho_n; 1 with replacement."""
        if self.replacement or self.N is None:
            return 1.0
        return serfling(n, self.N) if self.statement == "sharp" else printed_serfling(n, self.N)

    def check(self, n: Any) -> int:
        """n is a whole number, and not above N without replacement."""
        m = whole("failure", "n", n)
        if not self.replacement and self.N is not None and m > self.N:
            raise ValueError(f"n={n}: no more than N={self.N} terms can be drawn without replacement.")
        return m

    def failure(self, n: int, t: float) -> float:
        """The bound on P(error >= t) for a sample of n terms; at most 1."""
        n, t, rho = self.check(n), positive("failure", "t", t), self.rho(n)
        if rho == 0.0:
            return 0.0
        logs = (f - n * (t / r) * (t / r) / rho for f, r in zip(self.log_factors, self.roots, strict=True))
        return min(1.0, exp(min(0.0, min(logs))))

    def accuracy(self, n: int, delta: float) -> float:
        """The t with failure(n, t) = delta."""
        n, delta = self.check(n), probability("accuracy", "delta", delta)
        return self.spread(delta) * sqrt(self.rho(n) / n)

    def spread(self, delta: float) -> float:
        """sqrt(min_j V_j log(F_j / delta)), the accuracy of one term drawn with replacement."""
        return min(r * sqrt(f - log(delta)) for f, r in zip(self.log_factors, self.roots, strict=True))

    def size(self, t: float, delta: float) -> int:
        """The smallest n with failure(n, t) <= delta, from the inequality itself; never above N.

        Where all N terms are needed, taking each of them once has no error at all. statement="paper" gives the printed
        closed form, which tends to 2N as t -> 0.
        """
        t, delta = positive("size", "t", t), probability("size", "delta", delta)
        if self.statement == "paper":
            return self.printed_size(t, delta)
        most = self.N if self.N is not None else ceil(self.needed(t, delta)) + 1
        return smallest(lambda n: self.accuracy(n, delta) <= t, most)

    def needed(self, t: float, delta: float) -> float:
        """The size with replacement, before it is rounded up: V log(F / delta) / t^2."""
        root = self.spread(delta) / t
        if root > MOST:
            raise ValueError(f"size(t={t}, delta={delta}): the size is beyond all numbers; t is too small.")
        return root**2

    def printed_size(self, t: float, delta: float) -> int:
        """The paper's closed forms: V L / t^2 with replacement, 2 V L / (t^2 + V L / N) without, L = log(F / delta)."""
        if self.replacement or self.N is None:
            return ceil(self.needed(t, delta))
        ratio = t / self.spread(delta)
        return ceil(2 / (ratio * ratio + 1 / self.N))


def smallest(good: Callable[[int], bool], most: int) -> int:
    """The smallest n up to `most` from which on `good` holds; `most` where it holds nowhere below."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def population(call: str, N: Any, replacement: bool) -> int | None:
    """N, which without replacement has to be given."""
    if N is None and not replacement:
        raise ValueError(f"{call}(N=None): give the number N of all terms, or replacement=True.")
    return None if N is None else whole(call, "N", N)


def worst_case(
    log_factor: float, root: float, N: int | None, replacement: bool, statement: str, head: str
) -> Hoeffding:
    """A bound with one factor F and one sqrt(V), and its formula in words."""
    rho = "" if replacement else {"sharp": " rho_n"}.get(statement, " (1+1/n)(1-n/N)")
    return Hoeffding((log_factor,), (root,), N, replacement, statement, f"P(error >= t) <= {head}{rho})) [{statement}]")


def vector_tail(
    d: int, bound: float, N: int | None = None, *, replacement: bool = False, statement: str = "sharp",
    paper: bool = False,
) -> Hoeffding:  # fmt: skip
    """The mean of vectors in R^d with |v_i| <= bound, in the Euclidean norm.

    sharp:      (d+1) exp(-n t^2 / (2 s^2 rho_n)), s = bound
    corrected:  (d+1) exp(-n t^2 / (8 s^2 (1+1/n)(1-n/N))), with replacement (d+1) exp(-n t^2 / (8 (2s)^2))
    paper:      2d in place of d+1, with replacement d exp(-n t^2 / (8 s^2))
    """
    call, statement = "vector_tail", check_statement("vector_tail", statement, paper)
    d, s, N = whole(call, "d", d), positive(call, "bound", bound), population(call, N, replacement)
    if statement == "sharp":
        return worst_case(log(d + 1), sqrt(2) * s, N, replacement, statement, "(d+1) exp(-n t^2 / (2 s^2")
    if statement == "corrected":
        inner = 2 * s if replacement else s
        text = "(d+1) exp(-n t^2 / (8 " + ("(2s)^2" if replacement else "s^2")
        return worst_case(log(d + 1), sqrt(8) * inner, N, replacement, statement, text)
    text = ("d" if replacement else "2d") + " exp(-n t^2 / (8 s^2"
    return worst_case(log(d if replacement else 2 * d), sqrt(8) * s, N, replacement, statement, text)


def matrix_tail(
    d: int, bound: float | None = None, N: int | None = None, *, width: float | None = None,
    columns: int | None = None, replacement: bool = False, statement: str = "sharp", paper: bool = False,
) -> Hoeffding:  # fmt: skip
    """The mean of matrices with |A_i| <= bound, in the spectral norm.

    Symmetric d x d matrices by default; there `width` = b - a with a I <= A_i <= b I may be given instead of the bound
    (width = 2 bound at worst). With `columns` the matrices are general, d x columns.

        sharp:      2d exp(-2 n t^2 / (width^2 rho_n)), general (d + columns) exp(-n t^2 / (2 s^2 rho_n))
        corrected:  2d exp(-n t^2 / (8 s^2 (1+1/n)(1-n/N))), with replacement 8 (2s)^2 in place of 8 s^2
        paper:      with replacement d exp(-n t^2 / (8 s^2))
    """
    call, statement = "matrix_tail", check_statement("matrix_tail", statement, paper)
    d, N = whole(call, "d", d), population(call, N, replacement)
    w = matrix_width(call, bound, width, columns)
    rows = 2 * d if columns is None else d + whole(call, "columns", columns)
    count = "2d" if columns is None else "(d1+d2)"
    if statement == "sharp":
        return worst_case(log(rows), w / sqrt(2), N, replacement, statement, f"{count} exp(-2 n t^2 / (w^2")
    s = w / 2
    if statement == "corrected":
        inner = w if replacement else s
        text = f"{count} exp(-n t^2 / (8 " + ("(2s)^2" if replacement else "s^2")
        return worst_case(log(rows), sqrt(8) * inner, N, replacement, statement, text)
    if replacement:
        return worst_case(log(d), sqrt(8) * s, N, replacement, statement, "d exp(-n t^2 / (8 s^2")
    return worst_case(log(rows), sqrt(8) * s, N, replacement, statement, f"{count} exp(-n t^2 / (8 s^2")


def matrix_width(call: str, bound: float | None, width: float | None, columns: int | None) -> float:
    """b - a from what was given: 2 bound, or the width itself, which only symmetric matrices have."""
    if (bound is None) == (width is None):
        raise ValueError(f"{call}: give either bound (|A_i| <= bound) or width (a I <= A_i <= b I, width = b - a).")
    if width is not None and columns is not None:
        raise ValueError(f"{call}(width={width}, columns={columns}): a general matrix has a bound, not a width.")
    return positive(call, "width", width) if bound is None else 2 * positive(call, "bound", bound)


def tensor_tail(
    d: int | Sequence[int], width: float, N: int | None = None, *, order: int = 3, symmetric: bool = True,
    rank_one: bool = False, replacement: bool = False, statement: str = "sharp", paper: bool = False,
) -> Hoeffding:  # fmt: skip
    """The mean of tensors of any order k, in the spectral norm; width = b - a with a <= Y_i(u_1, ..., u_k) <= b.

    `d` is one number or, for a general tensor, one per mode. D = d for a symmetric tensor, the sum of all d_j else.
    `rank_one` says that every term is c a (x) b (x) ..., as in a linear model: unfolded to a matrix its norm is still
    at most width/2, and the mean's norm is at most that of its unfolding, so that no cover is needed and

        sharp:      P = (number of rows + columns) exp(-2 n t^2 / (width^2 rho_n)), the smaller of the two bounds.

    Without it:

        sharp:      min over radii r of 2 (1 + 2/r)^D exp(-2 n (c t)^2 / (width^2 rho_n)),
                    c = cos(k phi), phi = 2 asin(r/2), for symmetric and c = 2 - (1 + r)^k for general tensors
        corrected:  2 k_0^D exp(-n t^2 / (2 width^2 (1+1/n)(1-n/N))), k_0 = 2k / log(3/2)
        paper:      the same with D = the sum of all d_j for symmetric tensors too
    """
    call, statement = "tensor_tail", check_statement("tensor_tail", statement, paper)
    k, w, N = whole(call, "order", order), positive(call, "width", width), population(call, N, replacement)
    D = dimensions(call, d, k, symmetric and statement != "paper")
    rho = "" if replacement else (" rho_n" if statement == "sharp" else " (1+1/n)(1-n/N)")
    if statement != "sharp":
        factor = log(2) + D * log(printed_k0(k))
        return worst_case(factor, sqrt(2) * w, N, replacement, statement, "2 k0^D exp(-n t^2 / (2 w^2")
    nets = covers(k, symmetric)
    c_text = "cos(2 k asin(r/2))" if symmetric else "2-(1+r)^k"
    formula = f"P(error >= t) <= min_r 2 (1+2/r)^D exp(-2 n (c t)^2 / (w^2{rho})), c = {c_text} [sharp]"
    logs, roots = tuple(log(2) + D * size for size, _ in nets), tuple(w / sqrt(2) / c for _, c in nets)
    if rank_one:
        logs, roots = (unfolded(d, k, symmetric), *logs), (w / sqrt(2), *roots)
        formula = f"the smaller of F exp(-2 n t^2 / (w^2{rho})), F = {round(exp(logs[0]))} unfolded, and {formula}"
    return Hoeffding(logs, roots, N, replacement, statement, formula)


def dimensions(call: str, d: int | Sequence[int], k: int, symmetric: bool) -> int:
    """D, the dimensions that the covers count: d for a symmetric tensor, the sum over all modes for a general one."""
    if isinstance(d, Sequence):
        modes = [whole(call, "d", mode) for mode in d]
        if len(modes) != k:
            raise ValueError(f"{call}(d={tuple(d)}, order={k}): give one dimension for each of the {k} modes.")
        if symmetric and len(set(modes)) > 1:
            raise ValueError(f"{call}(d={tuple(d)}): a symmetric tensor has equal dimensions; set symmetric=False.")
        return modes[0] if symmetric else sum(modes)
    return whole(call, "d", d) * (1 if symmetric else k)


def unfolded(d: int | Sequence[int], k: int, symmetric: bool) -> float:
    """log of the rows and columns of a tensor unfolded to a matrix, the first half of its modes against the rest.

    A symmetric tensor of order k lives on symmetric powers, of dimension binom(d + j - 1, j).
    """
    a = k // 2
    if symmetric:
        m = d[0] if isinstance(d, Sequence) else d
        return log(comb(m + a - 1, a) + comb(m + k - a - 1, k - a))
    modes = d if isinstance(d, Sequence) else [d] * k
    return log(prod(modes[:a]) + prod(modes[a:]))
