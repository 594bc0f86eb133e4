"""The 35 unconstrained test problems of Moré, Garbow and Hillstrom.

Source: J. J. Moré, B. S. Garbow, K. E. Hillstrom, "Testing Unconstrained Optimization Software",
ACM Transactions on Mathematical Software 7(1), 1981, pp. 17-41.

Every objective is f(x) = sum_i r_i(x)^2, without a factor 1/2. Dimensions and starting points are the standard ones.
The data follow the dtype of the argument, so a float32 point gives a float32 value also when x64 is enabled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

Residual = Callable[[Array], Array]


# Equality by identity: comparing the array field elementwise would have no truth value.
@dataclass(frozen=True, eq=False)
class Problem:
    """One test problem.

    `minima` holds the local and global minimal values the paper lists. The paper truncates those without a closed
    form to six digits, so compare with a relative tolerance of about 1e-5. Values it reports in a limit at infinity
    are included.
    """

    number: int
    name: str
    fun: Callable[[Array], Array]
    x0: np.ndarray
    minima: tuple[float, ...]


def _indices(x: Array, m: int) -> Array:
    """Return 1, ..., m in the dtype of x."""
    return jnp.arange(1, m + 1, dtype=x.dtype)


def _data(x: Array, values: ArrayLike) -> Array:
    """Return values as an array in the dtype of x."""
    return jnp.asarray(values, dtype=x.dtype)


def rosenbrock(x: Array) -> Array:
    """(1) Rosenbrock."""
    return jnp.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def freudenstein_roth(x: Array) -> Array:
    """(2) Freudenstein and Roth."""
    return jnp.stack(
        [
            -13.0 + x[0] + ((5.0 - x[1]) * x[1] - 2.0) * x[1],
            -29.0 + x[0] + ((x[1] + 1.0) * x[1] - 14.0) * x[1],
        ]
    )


def powell_badly_scaled(x: Array) -> Array:
    """(3) Powell badly scaled."""
    return jnp.stack([1e4 * x[0] * x[1] - 1.0, jnp.exp(-x[0]) + jnp.exp(-x[1]) - 1.0001])


def brown_badly_scaled(x: Array) -> Array:
    """(4) Brown badly scaled."""
    return jnp.stack([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2.0])


def beale(x: Array) -> Array:
    """(5) Beale."""
    y = _data(x, [1.5, 2.25, 2.625])
    return y - x[0] * (1.0 - jnp.stack([x[1], x[1] ** 2, x[1] ** 3]))


def jennrich_sampson(x: Array) -> Array:
    """(6) Jennrich and Sampson, m = 10."""
    i = _indices(x, 10)
    return 2.0 + 2.0 * i - (jnp.exp(i * x[0]) + jnp.exp(i * x[1]))


def _turn(a: Array, b: Array) -> Array:
    """Return the angle of (a, b) in turns, in (-1/4, 3/4): the paper's theta, with its cut on a = 0, b < 0."""
    # Dividing by the larger coordinate keeps all derivatives accurate across a = 0, where arctan(b / a) loses them.
    # Taylor mode has no rule for arctan and divides by the second argument of arctan2, so that one is 1.
    steep = jnp.abs(b) > jnp.abs(a)
    ratio = jnp.where(steep, -a, b) / jnp.where(steep, b, a)
    upright = jnp.where(b > 0, 0.25, jnp.where(a > 0, -0.25, 0.75))
    offset = jnp.where(steep, upright, jnp.where(a > 0, 0.0, 0.5))
    return offset + jnp.arctan2(ratio, 1.0) / (2.0 * jnp.pi)


def helical_valley(x: Array) -> Array:
    """(7) Helical valley."""
    radius = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
    return jnp.stack([10.0 * (x[2] - 10.0 * _turn(x[0], x[1])), 10.0 * (radius - 1.0), x[2]])


_BARD_Y = (0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39)


def bard(x: Array) -> Array:
    """(8) Bard."""
    u = _indices(x, 15)
    v = 16.0 - u
    return _data(x, _BARD_Y) - (x[0] + u / (v * x[1] + jnp.minimum(u, v) * x[2]))


_GAUSSIAN_HALF_Y = (0.0009, 0.0044, 0.0175, 0.0540, 0.1295, 0.2420, 0.3521, 0.3989)
_GAUSSIAN_Y = _GAUSSIAN_HALF_Y + _GAUSSIAN_HALF_Y[-2::-1]


def gaussian(x: Array) -> Array:
    """(9) Gaussian."""
    t = (8.0 - _indices(x, 15)) / 2.0
    return x[0] * jnp.exp(-x[1] * (t - x[2]) ** 2 / 2.0) - _data(x, _GAUSSIAN_Y)


_MEYER_Y = (
    *(34780.0, 28610.0, 23650.0, 19630.0, 16370.0, 13720.0, 11540.0, 9744.0),
    *(8261.0, 7030.0, 6005.0, 5147.0, 4427.0, 3820.0, 3307.0, 2872.0),
)


def meyer(x: Array) -> Array:
    """(10) Meyer."""
    t = 45.0 + 5.0 * _indices(x, 16)
    return x[0] * jnp.exp(x[1] / (t + x[2])) - _data(x, _MEYER_Y)


def gulf(x: Array) -> Array:
    """(11) Gulf research and development, m = 99."""
    # The paper's "y_i m i x_2" is a misprint of y_i - x_2. The hundredth residual is left out since its y_i = 25
    # makes |y_i - x_2|^x_3 singular at the solution.
    t = _indices(x, 99) / 100.0
    y = 25.0 + (-50.0 * jnp.log(t)) ** (2.0 / 3.0)
    return jnp.exp(-(jnp.abs(y - x[1]) ** x[2]) / x[0]) - t


def box_3d(x: Array) -> Array:
    """(12) Box three-dimensional, m = 10."""
    t = 0.1 * _indices(x, 10)
    return jnp.exp(-t * x[0]) - jnp.exp(-t * x[1]) - x[2] * (jnp.exp(-t) - jnp.exp(-10.0 * t))


def powell_singular(x: Array) -> Array:
    """(13) Powell singular."""
    return extended_powell_singular(x)


def wood(x: Array) -> Array:
    """(14) Wood."""
    return jnp.stack(
        [
            10.0 * (x[1] - x[0] ** 2),
            1.0 - x[0],
            90.0**0.5 * (x[3] - x[2] ** 2),
            1.0 - x[2],
            10.0**0.5 * (x[1] + x[3] - 2.0),
            10.0**-0.5 * (x[1] - x[3]),
        ]
    )


_KOWALIK_Y = (0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246)
_KOWALIK_U = (4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625)


def kowalik_osborne(x: Array) -> Array:
    """(15) Kowalik and Osborne."""
    u = _data(x, _KOWALIK_U)
    return _data(x, _KOWALIK_Y) - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


def brown_dennis(x: Array) -> Array:
    """(16) Brown and Dennis, m = 20."""
    t = _indices(x, 20) / 5.0
    return (x[0] + t * x[1] - jnp.exp(t)) ** 2 + (x[2] + x[3] * jnp.sin(t) - jnp.cos(t)) ** 2


_OSBORNE_1_Y = (
    *(0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751),
    *(0.718, 0.685, 0.658, 0.628, 0.603, 0.580, 0.558, 0.538, 0.522, 0.506, 0.490),
    *(0.478, 0.467, 0.457, 0.448, 0.438, 0.431, 0.424, 0.420, 0.414, 0.411, 0.406),
)


def osborne_1(x: Array) -> Array:
    """(17) Osborne 1."""
    t = 10.0 * (_indices(x, 33) - 1.0)
    return _data(x, _OSBORNE_1_Y) - (x[0] + x[1] * jnp.exp(-t * x[3]) + x[2] * jnp.exp(-t * x[4]))


def biggs_exp6(x: Array) -> Array:
    """(18) Biggs EXP6, m = 13."""
    t = 0.1 * _indices(x, 13)
    y = jnp.exp(-t) - 5.0 * jnp.exp(-10.0 * t) + 3.0 * jnp.exp(-4.0 * t)
    return x[2] * jnp.exp(-t * x[0]) - x[3] * jnp.exp(-t * x[1]) + x[5] * jnp.exp(-t * x[4]) - y


_OSBORNE_2_Y = (
    *(1.366, 1.191, 1.112, 1.013, 0.991, 0.885, 0.831, 0.847, 0.786, 0.725, 0.746, 0.679, 0.608),
    *(0.655, 0.616, 0.606, 0.602, 0.626, 0.651, 0.724, 0.649, 0.649, 0.694, 0.644, 0.624, 0.661),
    *(0.612, 0.558, 0.533, 0.495, 0.500, 0.423, 0.395, 0.375, 0.372, 0.391, 0.396, 0.405, 0.428),
    *(0.429, 0.523, 0.562, 0.607, 0.653, 0.672, 0.708, 0.633, 0.668, 0.645, 0.632, 0.591, 0.559),
    *(0.597, 0.625, 0.739, 0.710, 0.729, 0.720, 0.636, 0.581, 0.428, 0.292, 0.162, 0.098, 0.054),
)


def osborne_2(x: Array) -> Array:
    """(19) Osborne 2."""
    t = (_indices(x, 65) - 1.0) / 10.0
    peaks = x[1:4] * jnp.exp(-x[5:8] * (t[:, None] - x[8:11]) ** 2)
    return _data(x, _OSBORNE_2_Y) - (x[0] * jnp.exp(-t * x[4]) + jnp.sum(peaks, axis=1))


def watson(x: Array) -> Array:
    """(20) Watson."""
    n = x.shape[0]
    # The powers are constants, so no derivative of 0^0 is ever taken.
    powers = np.vander(np.arange(1, 30) / 29.0, n, increasing=True)
    slopes = np.arange(1, n) * powers[:, :-1]
    first = _data(x, slopes) @ x[1:] - (_data(x, powers) @ x) ** 2 - 1.0
    return jnp.concatenate([first, jnp.stack([x[0], x[1] - x[0] ** 2 - 1.0])])


def extended_rosenbrock(x: Array) -> Array:
    """(21) Extended Rosenbrock."""
    odd, even = x[0::2], x[1::2]
    return jnp.stack([10.0 * (even - odd**2), 1.0 - odd], axis=1).ravel()


def extended_powell_singular(x: Array) -> Array:
    """(22) Extended Powell singular."""
    a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
    return jnp.stack(
        [a + 10.0 * b, 5.0**0.5 * (c - d), (b - 2.0 * c) ** 2, 10.0**0.5 * (a - d) ** 2],
        axis=1,
    ).ravel()


def penalty_1(x: Array) -> Array:
    """(23) Penalty I."""
    return jnp.append(1e-5**0.5 * (x - 1.0), jnp.sum(x**2) - 0.25)


def penalty_2(x: Array) -> Array:
    """(24) Penalty II."""
    n = x.shape[0]
    i = _indices(x, n)
    e, target = jnp.exp(x / 10.0), jnp.exp(i / 10.0)
    pairs = e[1:] + e[:-1] - (target[1:] + target[:-1])
    singles = e[1:] - jnp.exp(_data(x, -0.1))
    last = jnp.sum((n + 1.0 - i) * x**2) - 1.0
    return jnp.concatenate([x[:1] - 0.2, 1e-5**0.5 * pairs, 1e-5**0.5 * singles, last[None]])


def variably_dimensioned(x: Array) -> Array:
    """(25) Variably dimensioned."""
    s = jnp.sum(_indices(x, x.shape[0]) * (x - 1.0))
    return jnp.concatenate([x - 1.0, jnp.stack([s, s**2])])


def trigonometric(x: Array) -> Array:
    """(26) Trigonometric."""
    n = x.shape[0]
    return n - jnp.sum(jnp.cos(x)) + _indices(x, n) * (1.0 - jnp.cos(x)) - jnp.sin(x)


def brown_almost_linear(x: Array) -> Array:
    """(27) Brown almost-linear."""
    # The last entry of cumprod is the product; unlike prod it also has a Taylor-mode rule.
    return jnp.append(x[:-1] + jnp.sum(x) - (x.shape[0] + 1.0), jnp.cumprod(x)[-1] - 1.0)


def discrete_boundary_value(x: Array) -> Array:
    """(28) Discrete boundary value."""
    n = x.shape[0]
    h = 1.0 / (n + 1)
    t = h * _indices(x, n)
    padded = jnp.pad(x, 1)
    return 2.0 * x - padded[:-2] - padded[2:] + h**2 * (x + t + 1.0) ** 3 / 2.0


def discrete_integral_equation(x: Array) -> Array:
    """(29) Discrete integral equation."""
    n = x.shape[0]
    h = 1.0 / (n + 1)
    t = h * _indices(x, n)
    # Green's function of the boundary value problem: (1 - t_i) t_j for j <= i and t_i (1 - t_j) for j > i.
    kernel = jnp.minimum(t[:, None], t) * (1.0 - jnp.maximum(t[:, None], t))
    return x + h * (kernel @ (x + t + 1.0) ** 3) / 2.0


def broyden_tridiagonal(x: Array) -> Array:
    """(30) Broyden tridiagonal."""
    padded = jnp.pad(x, 1)
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


def broyden_banded(x: Array) -> Array:
    """(31) Broyden banded, lower bandwidth 5 and upper bandwidth 1."""
    n = x.shape[0]
    band = np.tri(n, n, 1) - np.tri(n, n, -6) - np.eye(n)
    return x * (2.0 + 5.0 * x**2) + 1.0 - _data(x, band) @ (x * (1.0 + x))


def linear_full_rank(x: Array) -> Array:
    """(32) Linear, full rank, m = 20."""
    m = 20
    return jnp.pad(x, (0, m - x.shape[0])) - 2.0 / m * jnp.sum(x) - 1.0


def linear_rank_1(x: Array) -> Array:
    """(33) Linear, rank 1, m = 20."""
    return _indices(x, 20) * jnp.sum(_indices(x, x.shape[0]) * x) - 1.0


def linear_rank_1_zero(x: Array) -> Array:
    """(34) Linear, rank 1 with zero columns and rows, m = 20."""
    m = 20
    inner = jnp.sum(_indices(x, x.shape[0])[1:-1] * x[1:-1])
    return jnp.pad(_indices(x, m - 2), 1) * inner - 1.0


def chebyquad(x: Array) -> Array:
    """(35) Chebyquad, m = n."""
    n = x.shape[0]
    y = 2.0 * x - 1.0
    values = [jnp.ones_like(y), y]
    for _ in range(n - 1):
        values.append(2.0 * y * values[-1] - values[-2])
    integrals = [0.0 if i % 2 else -1.0 / (i**2 - 1.0) for i in range(1, n + 1)]
    return jnp.mean(jnp.stack(values[1:]), axis=1) - _data(x, integrals)


def _grid(n: int) -> np.ndarray:
    """Return the interior points j / (n + 1) of the unit interval."""
    return np.arange(1, n + 1) / (n + 1.0)


_Row = tuple[int, str, Residual, Sequence[float] | np.ndarray, tuple[float, ...]]

_TABLE: tuple[_Row, ...] = (
    (1, "Rosenbrock", rosenbrock, (-1.2, 1.0), (0.0,)),
    (2, "Freudenstein and Roth", freudenstein_roth, (0.5, -2.0), (0.0, 48.9842)),
    (3, "Powell badly scaled", powell_badly_scaled, (0.0, 1.0), (0.0,)),
    (4, "Brown badly scaled", brown_badly_scaled, (1.0, 1.0), (0.0,)),
    (5, "Beale", beale, (1.0, 1.0), (0.0,)),
    (6, "Jennrich and Sampson", jennrich_sampson, (0.3, 0.4), (124.362,)),
    (7, "Helical valley", helical_valley, (-1.0, 0.0, 0.0), (0.0,)),
    (8, "Bard", bard, (1.0, 1.0, 1.0), (8.21487e-3, 17.4286)),
    (9, "Gaussian", gaussian, (0.4, 1.0, 0.0), (1.12793e-8,)),
    (10, "Meyer", meyer, (0.02, 4000.0, 250.0), (87.9458,)),
    (11, "Gulf research and development", gulf, (5.0, 2.5, 0.15), (0.0,)),
    (12, "Box three-dimensional", box_3d, (0.0, 10.0, 20.0), (0.0,)),
    (13, "Powell singular", powell_singular, (3.0, -1.0, 0.0, 1.0), (0.0,)),
    (14, "Wood", wood, (-3.0, -1.0, -3.0, -1.0), (0.0,)),
    (15, "Kowalik and Osborne", kowalik_osborne, (0.25, 0.39, 0.415, 0.39), (3.07505e-4, 1.02734e-3)),
    (16, "Brown and Dennis", brown_dennis, (25.0, 5.0, -5.0, -1.0), (85822.2,)),
    (17, "Osborne 1", osborne_1, (0.5, 1.5, -1.0, 0.01, 0.02), (5.46489e-5,)),
    (18, "Biggs EXP6", biggs_exp6, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0), (0.0, 5.65565e-3)),
    (19, "Osborne 2", osborne_2, (1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5), (4.01377e-2,)),
    (20, "Watson", watson, np.zeros(6), (2.28767e-3,)),
    (21, "Extended Rosenbrock", extended_rosenbrock, np.tile([-1.2, 1.0], 5), (0.0,)),
    (22, "Extended Powell singular", extended_powell_singular, np.tile([3.0, -1.0, 0.0, 1.0], 3), (0.0,)),
    (23, "Penalty I", penalty_1, np.arange(1.0, 5.0), (2.24997e-5,)),
    (24, "Penalty II", penalty_2, np.full(4, 0.5), (9.37629e-6,)),
    (25, "Variably dimensioned", variably_dimensioned, 1.0 - np.arange(1, 11) / 10.0, (0.0,)),
    (26, "Trigonometric", trigonometric, np.full(10, 0.1), (0.0, 2.79506e-5)),
    (27, "Brown almost-linear", brown_almost_linear, np.full(10, 0.5), (0.0, 1.0)),
    (28, "Discrete boundary value", discrete_boundary_value, _grid(10) * (_grid(10) - 1.0), (0.0,)),
    (29, "Discrete integral equation", discrete_integral_equation, _grid(10) * (_grid(10) - 1.0), (0.0,)),
    (30, "Broyden tridiagonal", broyden_tridiagonal, np.full(10, -1.0), (0.0,)),
    (31, "Broyden banded", broyden_banded, np.full(10, -1.0), (0.0,)),
    (32, "Linear, full rank", linear_full_rank, np.ones(10), (10.0,)),
    (33, "Linear, rank 1", linear_rank_1, np.ones(10), (20 * 19 / (2 * 41),)),
    (34, "Linear, rank 1 with zero columns and rows", linear_rank_1_zero, np.ones(10), (454 / (2 * 37),)),
    (35, "Chebyquad", chebyquad, _grid(8), (3.51687e-3,)),
)


def _sum_of_squares(residual: Residual) -> Callable[[Array], Array]:
    """Return the objective x -> sum of the squared residuals."""

    def fun(x: Array) -> Array:
        return jnp.sum(residual(x) ** 2)

    return fun


def _problem(row: _Row) -> Problem:
    """Build the problem of one table row, with a read-only starting point."""
    number, name, residual, start, minima = row
    x0 = np.array(start, dtype=np.float64)
    x0.flags.writeable = False
    return Problem(number, name, _sum_of_squares(residual), x0, minima)


PROBLEMS: tuple[Problem, ...] = tuple(_problem(row) for row in _TABLE)
