"""What `success` means: digits that are there, in any units, no plateau and no saddle, and who is not alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tercet
from tercet import Status
from tests.critical.problems import Known, polynomial, quadratic, regression, silent, singular

# digits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "many"), [(regression, 125), (quadratic, 100), (polynomial, 60), (singular, 15)])
def test_no_more_digits_are_claimed_than_are_right(make, many):
    """300 problems: at most one digit too many, and every regular one solved to the digits that were asked."""
    too_many, solved = [], 0
    for seed in range(many):
        known = make(seed)
        result = known.minimize(max_iterations=100)
        claimed, true = result.certificate.digits, known.digits(result.x)
        solved += result.success
        if claimed > true + 1.0 or (result.success and make is not singular and true < 6.0):
            too_many.append((make.__name__, seed, claimed, true))
    assert too_many == []
    assert solved >= (many if make is not singular else 0.9 * many)


# units --------------------------------------------------------------------------------------------------------------


def scaled(known, of_f, units, shift):
    """The same problem with f in other units and shifted, and x_j in units of its own."""
    d, u = known.derivatives, units
    return Known(
        lambda z: of_f * (known.fun(z * u) + shift),
        {
            "grad": lambda z: of_f * u * d["grad"](z * u),
            "hess": lambda z: of_f * d["hess"](z * u) * np.outer(u, u),
            "third": lambda z: of_f * np.einsum("abc,a,b,c->abc", d["third"](z * u), u, u, u),
        },
        known.x0 / u,
        known.minimizer / u,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of_f", [1e-12, 1e12])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_same_status_and_digits_in_any_units(seed, of_f, unit):
    known = polynomial(seed)
    units = unit ** np.linspace(-1, 1, len(known.x0))
    here, there = known.minimize(), scaled(known, of_f, units, 0.0).minimize()
    assert here.success
    assert there.success
    assert there.certificate.condition == pytest.approx(here.certificate.condition, rel=1e-3)
    assert known.digits(there.x * units) >= 6.0


# monotone in tol ----------------------------------------------------------------------------------------------------

TOLS = 10.0 ** np.arange(-10.0, -1.0)


def cubic_and_quartic(a, b, c=1.0):
    """a x^2 + b x^3 + c x^4, whose strict global minimum is 0 where b^2 < 4 a c."""
    return Known(
        lambda x: float(a * x[0] ** 2 + b * x[0] ** 3 + c * x[0] ** 4),
        {
            "grad": lambda x: 2 * a * x + 3 * b * x**2 + 4 * c * x**3,
            "hess": lambda x: (2 * a + 6 * b * x + 12 * c * x**2)[:, None],
            "third": lambda x: (6 * b + 24 * c * x)[:, None, None],
        },
        np.array([0.7]),
        np.zeros(1),
    )


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_what_holds_at_tol_holds_at_every_larger_tol(seed):
    """A strict minimum is certified at every tol, however its curvature compares with its third derivative."""
    a, b = 2.5e-4, 0.01
    if seed is not None:
        rng = np.random.default_rng(seed)
        a = 10.0 ** rng.uniform(-6, 0)
        b = rng.uniform(-1.9, 1.9) * np.sqrt(a)
    known = cubic_and_quartic(a, b)
    for tol in TOLS:
        certificate = tercet.certify(known.fun, np.zeros(1), tol=tol, **known.derivatives)
        assert certificate.holds, tol
        result = known.minimize(tol=tol)
        assert result.success, tol
        assert abs(result.x[0]) <= max(2 * tol / a, 2 * (tol / 4) ** (1 / 3))


@pytest.mark.parametrize("seed", range(10))
def test_a_certificate_that_holds_at_a_point_holds_there_for_every_larger_tol(seed):
    """Also at points that are not quite the minimizer, and at saddles, where none holds."""
    rng = np.random.default_rng(seed)
    known = [polynomial, quadratic, singular][seed % 3](seed)
    x = known.minimizer + 10.0 ** rng.uniform(-12, -2) * rng.standard_normal(len(known.x0))
    held = [tercet.certify(known.fun, x, tol=tol, **known.derivatives).holds for tol in TOLS]
    assert held == sorted(held)


# no minimizer -------------------------------------------------------------------------------------------------------

UNITS = [(u, c) for u in (1e-6, 1.0, 1e6) for c in (1e-12, 1.0, 1e12)]


@pytest.mark.parametrize(("u", "c"), UNITS)
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_an_exponential_that_falls_for_ever_is_flat_in_any_units(u, c, shift):
    e = lambda x, k: c * (-1 / u) ** k * np.exp(-x[0] / u)  # noqa: E731 - a formula with a name
    result = tercet.minimize(
        lambda x: float(e(x, 0)) + c * shift,
        np.zeros(1),
        grad=lambda x: np.array([e(x, 1)]),
        hess=lambda x: np.array([[e(x, 2)]]),
        third=lambda x: np.array([[[e(x, 3)]]]),
    )
    assert result.status is Status.FLAT
    assert not result.success
    assert result.certificate.ray == (1.0,)
    assert 25 <= result.x[0] / u <= 60  # where nothing more is to be gained, not where numbers end


@pytest.mark.parametrize("c", [1e-6, 1.0, 1e6])
def test_a_hill_that_x_came_down_from_is_not_stepped_over(c):
    """c + c / (1 + x^2): far out f is flat to both sides, and on the other side of the hill, too."""
    result = tercet.minimize(lambda x: c * (1.0 + 1.0 / (1.0 + x[0] ** 2)), np.ones(1))
    assert result.status is Status.FLAT
    assert result.certificate.ray == (1.0,)


@pytest.mark.parametrize("units", [(1.0, 1.0, 1.0), (1e-6, 1.0, 1e6)], ids=["as it is", "columns in other units"])
@pytest.mark.parametrize("seed", range(4))
def test_separable_classes_without_a_penalty_are_flat(seed, units):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3))
    y = (X @ [1.0, -2.0, 0.5] > 0).astype(float)
    result = tercet.minimize(tercet.LinearModel(X * units, y, "logistic"))
    assert result.status is Status.FLAT
    assert np.all((X * units) @ result.certificate.ray * (2 * y - 1) > 0)  # it separates
    held = tercet.minimize(tercet.LinearModel(X * units, y, "logistic", l2=1e-3))
    assert held.success
    assert held.certificate.strict


@pytest.mark.parametrize("u", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("S", [0.02, 0.09, 0.5])
def test_a_variance_that_goes_to_zero_in_its_logarithm_is_flat(S, u):
    """log v + S / v with v = 1 + exp(x / u) and S < 1: the excess variance wants to be 0."""

    def parts(x):
        p = 1 / (1 + np.exp(-x[0] / u))
        q = 1 - p
        first, second = p - S * p * q, p * q - S * p * q * (q - p)
        third = p * q * (q - p) - S * p * q * ((q - p) ** 2 - 2 * p * q)
        return first / u, second / u**2, third / u**3

    result = tercet.minimize(
        lambda x: float(np.log1p(np.exp(x[0] / u)) + S / (1 + np.exp(x[0] / u))),
        np.array([0.7 * u]),
        grad=lambda x: np.array([parts(x)[0]]),
        hess=lambda x: np.array([[parts(x)[1]]]),
        third=lambda x: np.array([[[parts(x)[2]]]]),
    )
    assert result.status is Status.FLAT
    assert result.certificate.ray == (-1.0,)
    assert result.fun == pytest.approx(S, rel=1e-12)


# saddles ------------------------------------------------------------------------------------------------------------


def fourth_order_saddle(x0):
    return Known(
        lambda x: float(x[0] ** 2 - x[1] ** 4 + x[1] ** 6),
        {
            "grad": lambda x: np.array([2 * x[0], -4 * x[1] ** 3 + 6 * x[1] ** 5]),
            "hess": lambda x: np.diag([2.0, -12 * x[1] ** 2 + 30 * x[1] ** 4]),
            "third": lambda x: np.einsum("a,b,c->abc", *np.eye(2)[[1] * 3]) * (-24 * x[1] + 120 * x[1] ** 3),
        },
        np.asarray(x0, float),
        np.array([0.0, np.sqrt(2 / 3)]),
    )


@pytest.mark.parametrize("tol", [None, 1e-6, 1e-8])
def test_a_fourth_order_saddle_is_left_from_every_start(tol):
    starts = [(a, b) for a in (0.0, 1e-6, 1.0) for b in (0.0, 1e-9, -1e-6, 1e-4, 1e-3, -0.01, 0.1)]
    for start in starts:
        result = fourth_order_saddle(start).minimize(tol=tol)
        assert result.success, start
        assert abs(abs(result.x[1]) - np.sqrt(2 / 3)) <= 1e-5, start
        assert result.fun == pytest.approx(-4 / 27, rel=1e-9)


BENT_SADDLES = {
    # (x_0 - c y^k)^2 + a y^p + b y^q
    "fourth order": (1.5, 2, -1.0, 4, 1.0, 6),
    "fourth order, steep": (-3.0, 2, -1.0, 4, 1.0, 6),
    "sixth order along a cubic": (1.0, 3, -1.0, 6, 1.0, 8),
    "sixth order along a parabola": (1.0, 2, -1.0, 6, 1.0, 8),
    "fifth order": (1.0, 2, 1.0, 5, 1.0, 6),
}


def bent(case, x0):
    c, k, a, p, b, q = BENT_SADDLES[case]

    def grad(x):
        r, y = x[0] - c * x[1] ** k, x[1]
        return np.array([2 * r, -2 * r * c * k * y ** (k - 1) + a * p * y ** (p - 1) + b * q * y ** (q - 1)])

    def hess(x):
        r, y = x[0] - c * x[1] ** k, x[1]
        slope, curve = -c * k * y ** (k - 1), -c * k * (k - 1) * y ** (k - 2)
        rest = a * p * (p - 1) * y ** (p - 2) + b * q * (q - 1) * y ** (q - 2)
        return np.array([[2.0, 2 * slope], [2 * slope, 2 * slope**2 + 2 * r * curve + rest]])

    fun = lambda x: float((x[0] - c * x[1] ** k) ** 2 + a * x[1] ** p + b * x[1] ** q)  # noqa: E731 - a formula
    return Known(fun, {"grad": grad, "hess": hess}, np.asarray(x0, float), np.zeros(2))


@pytest.mark.parametrize("x0", [(0.0, 0.0), (1.0, 0.0), (1.0, 1e-5), (1e-3, -1e-4)])
@pytest.mark.parametrize("case", BENT_SADDLES)
def test_a_saddle_from_which_f_falls_along_a_parabola_only_is_left(case, x0):
    """Along every line through 0 f rises."""
    _, _, a, p, b, q = BENT_SADDLES[case]
    y = (-a * p / (b * q)) ** (1 / (q - p)) if p % 2 == 0 else -a * p / (b * q)
    result = bent(case, x0).minimize()
    assert result.success
    assert result.fun == pytest.approx(a * y**p + b * y**q, rel=1e-6)


@pytest.mark.parametrize("power", [6, 8])
def test_a_strict_minimum_in_a_curved_valley_is_strict(power):
    fun = lambda x: float((x[1] - x[0] ** 2) ** 2 + x[0] ** power)  # noqa: E731 - a formula with a name

    def grad(x):
        r = x[1] - x[0] ** 2
        return np.array([-4 * x[0] * r + power * x[0] ** (power - 1), 2 * r])

    hess = lambda x: np.array(  # noqa: E731 - a formula with a name
        [[12 * x[0] ** 2 - 4 * x[1] + power * (power - 1) * x[0] ** (power - 2), -4 * x[0]], [-4 * x[0], 2.0]]
    )
    certificate = tercet.certify(fun, np.zeros(2), grad=grad, hess=hess)
    assert certificate.holds
    assert certificate.strict


# what derivatives do not say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0.0, 1.0, -30.0])
def test_an_edge_that_points_up_is_no_minimum(m):
    """(x - m)^2 - |x - m|, whose derivatives at m are said to be 0 and 2."""
    certificate = tercet.certify(
        lambda x: float((x[0] - m) ** 2 - abs(x[0] - m)),
        [m],
        grad=lambda x: 2 * (x - m) - np.sign(x - m),
        hess=lambda x: np.full((1, 1), 2.0),
    )
    assert not certificate.holds
    assert certificate.way_down is not None


@pytest.mark.parametrize("off", [1e-2, 1e-3])
def test_a_gradient_that_is_wrong_is_no_success(off):
    result = tercet.minimize(
        lambda x: float((x[0] - 1) ** 2 + 2 * (x[1] - 2) ** 2 + 1),
        [3.0, 0.0],
        grad=lambda x: np.array([2 * (x[0] - 1), 4 * (x[1] - 2)]) + off,
        hess=lambda x: np.diag([2.0, 4.0]),
    )
    assert not result.success


@pytest.mark.parametrize("edge", [0.3, 0.5, 0.9])
def test_a_jump_of_f_is_no_rounding_and_the_best_point_is_returned(edge):
    fun = lambda x: float((x[0] - 1) ** 2 + (x[0] >= edge))  # noqa: E731 - a formula with a name
    result = tercet.minimize(fun, [0.0], grad=lambda x: 2 * (x - 1), hess=lambda x: np.full((1, 1), 2.0))
    assert result.fun <= 1.001 * (1 - edge) ** 2


def test_a_minimum_of_zero_is_certified_before_numbers_end():
    """x^2 from 0.1: each step leaves the rounding of the one before."""
    for x0 in np.linspace(0.1, 3.0, 30):
        result = tercet.minimize(lambda x: float(x @ x), [x0, 0.7], grad=lambda x: 2 * x, hess=lambda x: 2 * np.eye(2))
        assert result.success, x0


# minimizers that are not alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squares", "logistic", "cauchy"])
@pytest.mark.parametrize("units", [(1.0, 1.0, 1.0), (1e-3, 1.0, 1e3)], ids=["as it is", "columns in other units"])
@pytest.mark.parametrize("kind", ["a column twice", "in other units", "two constants", "sums of columns"])
def test_collinear_columns_are_named(kind, units, loss):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((120, 3))
        y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(120)
        X = X * units
        more, involved, k = {
            "a column twice": (X[:, :1], {0, 3}, 1),
            "in other units": (1e3 * X[:, 1:2], {1, 3}, 1),
            "two constants": (np.full((120, 2), [2.0, 3.0]), {3, 4}, 1),
            "sums of columns": (X @ rng.standard_normal((3, 2)), {0, 1, 2, 3, 4}, 2),
        }[kind]
        y = (y > 0).astype(float) if loss == "logistic" else y
        result = tercet.minimize(tercet.LinearModel(np.column_stack([X, more]), y, loss))
        certificate = result.certificate
        assert result.success
        assert certificate.strict is False
        if kind == "sums of columns" and units[0] != 1.0:  # of which the largest is nearly all
            assert {2, 3, 4} <= set(certificate.involved)
        else:
            assert set(certificate.involved) == involved
        assert len(certificate.kernel) == k
        A = np.column_stack([X, more])
        flat = np.abs(A @ np.array(certificate.kernel).T) / (np.abs(A) @ np.abs(np.array(certificate.kernel).T))
        assert np.max(flat) <= 1e-9
        alone = tercet.minimize(
            tercet.LinearModel(X if kind != "two constants" else np.column_stack([X, more[:, :1]]), y, loss)
        )
        assert alone.certificate.strict
        assert result.fun == pytest.approx(alone.fun, rel=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # exp is looked at far out
def test_a_variable_on_which_f_does_not_depend_is_named_and_rests():
    """Of 60: B_00, g_0 and the changes of f along x_0 are rounding, and tell neither where x_0 is nor that f rises."""
    held, moved = 0, []
    for seed in range(60):
        known = silent(seed)
        result = known.minimize()
        assert result.status in (Status.CERTIFIED, Status.ROUNDING), seed
        if result.success:
            held += 1
            assert result.certificate.strict is False, seed
            assert 0 in result.certificate.involved, seed
        reach = max(1.0, abs(known.x0[0]), float(np.max(np.abs(result.x[1:]))))
        moved.append(abs(result.x[0] - known.x0[0]) / reach)
    assert held >= 56
    assert np.count_nonzero(np.array(moved) > 1e-6) <= 12
    assert np.count_nonzero(np.array(moved) > 10.0) <= 3  # one step on a B_00 that is rounding takes x_0 that far
    assert max(moved) <= 100.0


@pytest.mark.parametrize("x0", [(2.0, 0.1), (0.3, 5.0), (-1.0, -3.0)])
def test_gauge_freedom_is_a_success_that_says_so(x0):
    """(x_0 x_1 - 1)^2 has a curve of minimizers."""
    result = tercet.minimize(lambda x: (x[0] * x[1] - 1.0) ** 2, np.array(x0))
    assert result.success
    assert result.certificate.strict is False
    assert result.certificate.involved == (0, 1)


def test_an_over_parametrized_model_is_a_success_that_names_what_is_not_identified():
    """y = a b t + c: the product of a and b is told, c too."""
    t = np.linspace(-1, 1, 20)
    y = jnp.asarray(3 * t + 0.5 + 0.1 * np.sin(9 * t))
    result = tercet.minimize(lambda p: jnp.mean((p[0] * p[1] * t + p[2] - y) ** 2), np.array([1.0, 1.0, 0.0]))
    assert result.success
    assert result.certificate.strict is False
    assert result.certificate.involved == (0, 1)
    assert len(result.certificate.kernel) == 1


@pytest.mark.parametrize("small", [1.0, 1e-3, 1e-6, 1e-12, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_whether_a_minimizer_is_one_of_many_does_not_depend_on_which_of_them_it_is(seed, small):
    """|W3 W2 W1 - A|^2, of which one weight happens to be small: how far x may go among them is no error of it."""
    rng = np.random.default_rng(seed)
    W1, W2, A = rng.standard_normal((3, 2, 2))
    W1[0, 1] *= small
    W3 = A @ np.linalg.inv(W2 @ W1)

    def fun(x):
        V1, V2, V3 = x.reshape(3, 2, 2)
        return jnp.sum((V3 @ V2 @ V1 - A) ** 2)

    certificate = tercet.certify(fun, np.concatenate([W.ravel() for W in (W1, W2, W3)]))
    assert certificate.holds
    assert certificate.strict is False
    assert len(certificate.kernel) == 8


# flat but isolated minima -------------------------------------------------------------------------------------------


def powell(x):
    return (x[0] + 10 * x[1]) ** 2 + 5 * (x[2] - x[3]) ** 2 + (x[1] - 2 * x[2]) ** 4 + 10 * (x[0] - x[3]) ** 4


FORM = np.random.default_rng(0).standard_normal((40, 6))
FLAT_MINIMA = {
    "quartic": (lambda x: jnp.sum((x - 1.0) ** 4), np.array([3.0, -1.0])),
    "quartic in a valley": (lambda x: (x[0] - x[1]) ** 2 + (x[0] + x[1]) ** 4, np.array([1.5, 0.5])),
    "powell": (powell, np.array([3.0, -1.0, 0.0, 1.0])),
    "two powells": (lambda x: powell(x[:4]) + powell(x[4:]), np.array([3.0, -1.0, 0.0, 1.0] * 2)),
    "three powells": (lambda x: powell(x.reshape(3, 4).T).sum(), np.array([3.0, -1.0, 0.0, 1.0] * 3)),
    "sixth power": (lambda x: jnp.sum((x - 1.0) ** 6), np.array([3.0, -1.0, 2.5])),
    "sixth power at 0": (lambda x: jnp.sum(x**6), np.array([1.0, 0.5, -2.0])),
    "ten quartics at 0": (lambda x: jnp.sum(x**4), np.linspace(-1.0, 2.0, 10)),
    "quartic form at 0": (lambda x: jnp.mean((FORM @ x) ** 4), np.array([0.1, -0.5, 0.3, -2.3, -0.4, 0.2])),
    "eighth power": (lambda x: jnp.sum((x - 1.0) ** 8), np.array([3.0, 2.5])),
    "five powells": (lambda x: powell(x.reshape(5, 4).T).sum(), np.array([3.0, -1.0, 0.0, 1.0] * 5)),
}


@pytest.mark.parametrize("name", FLAT_MINIMA)
def test_a_flat_but_isolated_minimum_is_a_success_at_no_waste(name):
    fun, x0 = FLAT_MINIMA[name]
    with jax.enable_x64(True):
        first, third = (tercet.minimize(fun, x0, order=order) for order in (1, 3))
    assert third.success
    assert third.certificate.rises
    assert third.certificate.strict

    def evaluations(result):
        """Up to the last step: the certificate comes after it."""
        counts = result.trace.rows[-1].counts
        return counts.value + counts.gradient

    assert evaluations(third) <= 2.5 * evaluations(first)


@pytest.mark.parametrize("seed", range(4))
def test_an_isolated_minimum_that_is_flat_in_many_variables_is_strict(seed):
    """mean (a_i'(x - m))^4: along a mixture of x_j the lowest f across lies far aside, and no valley leads there."""
    rng = np.random.default_rng(seed)
    d = 3 + 2 * seed
    A, m = rng.standard_normal((8 * d, d)), rng.standard_normal(d) * (seed % 2)
    result = tercet.minimize(lambda x: jnp.mean((A @ (x - m)) ** 4), m + rng.standard_normal(d))
    assert result.success
    assert result.certificate.strict


# single precision ---------------------------------------------------------------------------------------------------


def test_single_precision_is_certified_at_the_default_tolerance():
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((50, 3)), dtype=jnp.float32)
    b = jnp.asarray(rng.standard_normal(50), dtype=jnp.float32)
    minimizer = np.linalg.lstsq(np.asarray(A, float), np.asarray(b, float), rcond=None)[0]
    result = tercet.minimize(lambda x: jnp.mean((A @ x - b) ** 2), jnp.zeros(3, dtype=jnp.float32))
    assert result.success
    right = -np.log10(np.max(np.abs(np.asarray(result.x) - minimizer) / np.abs(minimizer)))
    assert 3.0 <= result.certificate.digits <= right + 1.0


@pytest.mark.parametrize("beside", [0.0, 1e-300, 1e-17, -1e-12, 1e-8])
def test_an_x_that_begins_beside_0_is_no_x_that_rests(beside):
    """(x_0 - 1)^2 + (x_1 - 1)^2 from (beside, 2): where x_0 begins tells nothing of how far it may go."""
    result = tercet.minimize(
        lambda x: float(np.sum((x - 1.0) ** 2)),
        [beside, 2.0],
        grad=lambda x: 2.0 * (x - 1.0),
        hess=lambda x: 2.0 * np.eye(2),
    )
    assert result.success
    np.testing.assert_allclose(result.x, 1.0, rtol=1e-8)
