"""tercet.optimistix: the conventions of optimistix, saddles, rates, precision, and the minimizers of tercet itself."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optx = pytest.importorskip("optimistix")
equinox = pytest.importorskip("equinox")

import jax.numpy as jnp  # noqa: E402 (after what may skip the file)

import tercet  # noqa: E402 (likewise)
from tercet.optimistix import STM, certify  # noqa: E402 (likewise)
from tercet.optimistix.formulas import largest_cubic, regularized_step, third_square  # noqa: E402 (likewise)

SOLVER = STM(rtol=1e-9, atol=1e-9)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def rosen(y, args):
    return jnp.sum(100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)


def beale(y, args):
    a, b = y
    return (1.5 - a + a * b) ** 2 + (2.25 - a + a * b**2) ** 2 + (2.625 - a + a * b**3) ** 2


def wood(y, args):
    a, b, c, d = y
    first = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
    return first + 10 * (b + d - 2) ** 2 + 0.1 * (b - d) ** 2


def monkey(y, args):
    """A degenerate saddle at 0: gradient and Hessian are zero, f falls along the third derivative only."""
    return y[0] ** 3 - 3 * y[0] * y[1] ** 2 + (y @ y) ** 2


# the parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[0.5, 1.0, 7.0], [0.0, 1.0, 7.0], [-3.0, 1.0, 7.0], [-3.0, -1.0, 1e6]])
@pytest.mark.parametrize("sigma", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("radius", [1e-3, 1.0, np.inf])
def test_a_regularized_step_is_the_global_minimizer(values, sigma, radius):
    """(B + mu I) s = -c with B + mu I >= 0 and |s| = min(radius, (mu/sigma)^(1/2)) are sufficient for it."""
    c = jnp.array([0.3, -1.0, 2.0])
    s = np.asarray(regularized_step(jnp.array(values), c, jnp.array(sigma), jnp.array(radius)))
    shifts = -(np.asarray(c) / s) - values
    np.testing.assert_allclose(shifts, shifts[0], rtol=1e-6, atol=1e-12 * np.max(np.abs(values)))
    mu, r = shifts[0], np.linalg.norm(s)
    assert mu >= max(0.0, -values[0]) * (1 - 1e-9)
    assert r == pytest.approx(min(radius, np.sqrt(mu / sigma)), rel=1e-6)


def test_the_third_derivative_and_its_largest_value_over_a_subspace():
    rng = np.random.default_rng(0)
    x, s, h = rng.standard_normal(3), rng.standard_normal(3), 1e-4

    def f(y):
        return jnp.sum(jnp.sin(y)) * jnp.exp(y[0])

    g = jax.grad(f)
    difference = (g(x + h * s) - 2 * g(x) + g(x - h * s)) / h**2
    np.testing.assert_allclose(third_square(f, x, s), difference, rtol=1e-5)

    V = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    weights = np.array([1.0, -5.0, 3.0, 100.0])  # T[y]^3 = sum w_i (v_i'y)^3: the largest over axes 0 to 2 is 5

    def square(y):
        return V @ (weights * (V.T @ y) ** 2)

    value, y = largest_cubic(square, jnp.asarray(V), jnp.array([1.0, 1.0, 1.0, 0.0]), jnp.array(True))
    assert value == pytest.approx(5.0, rel=1e-5)
    np.testing.assert_allclose(np.abs(V.T @ y), [0, 1, 0, 0], atol=1e-2)
    assert largest_cubic(square, jnp.asarray(V), jnp.zeros(4), jnp.array(True))[0] == 0.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rtol": -1.0}, "rtol=-1.0"),
        ({"atol": 0.0}, "atol=0.0"),
        ({"atol": "a"}, "atol='a'"),
        ({"order": 4}, "order=4"),
        ({"worth": -1.0}, "worth=-1.0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        STM(**({"rtol": 1e-8, "atol": 1e-8} | settings))


def test_a_start_without_entries_is_refused():
    with pytest.raises(ValueError, match="0 entries"):
        optx.minimise(lambda y, args: jnp.sum(y), SOLVER, jnp.zeros(0))


# what it finds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "y0"),
    [(rosen, [-1.2, 1.0]), (rosen, [0.5] * 6), (beale, [1.0, 1.0]), (wood, [-3.0, -1.0, -3.0, -1.0])],
)
def test_it_finds_the_minimizers_of_tercet_and_they_are_certified(fn, y0):
    solution = optx.minimise(fn, SOLVER, jnp.array(y0))
    known = tercet.minimize(lambda y: fn(y, None), np.array(y0))
    assert known.success
    np.testing.assert_allclose(solution.value, known.x, atol=1e-7)
    certificate = certify(fn, solution, tol=1e-6)
    assert certificate.holds
    assert certificate.chi1 == pytest.approx(float(solution.stats["chi1"]), rel=1e-6, abs=1e-14)
    assert certificate.chi2 == solution.stats["chi2"] == 0.0


@pytest.mark.parametrize(
    ("fn", "y0", "lowest"),
    [
        (lambda y, args: y[1] ** 2 - y[0] ** 2 + y[0] ** 4, [0.0, 0.0], -0.25),
        (lambda y, args: y[1] ** 2 - y[0] ** 2 + y[0] ** 4, [0.0, 1.0], -0.25),  # Newton leads to the saddle
        (monkey, [0.0, 0.0], -27 / 256),
        (lambda y, args: monkey(y[:2], args) + y[2] ** 2, [0.0, 0.0, 2.0], -27 / 256),
        (lambda y, args: y[0] ** 3 / 3 - y[0] ** 2 * y[0] + y[0] ** 4, [0.0], -1 / 48),
    ],
)
def test_it_leaves_saddles_also_degenerate_ones(fn, y0, lowest):
    """At each of these points the gradient vanishes along the way down, so BFGS stays where it is or at the saddle."""
    solution = optx.minimise(fn, SOLVER, jnp.array(y0))
    assert fn(solution.value, None) == pytest.approx(lowest, abs=1e-12)
    assert certify(fn, solution, tol=1e-6).holds
    peer = optx.minimise(fn, optx.BFGS(rtol=1e-9, atol=1e-9), jnp.array(y0))
    assert fn(peer.value, None) > lowest + 1e-3


@pytest.mark.parametrize(("order", "left"), [(1, (False, False)), (2, (True, False)), (3, (True, True))])
def test_the_order_says_which_saddles_are_left(order, left):
    solver = STM(rtol=1e-9, atol=1e-9, order=order)
    saddle = optx.minimise(lambda y, args: y[1] ** 2 - y[0] ** 2 + y[0] ** 4, solver, jnp.zeros(2))
    degenerate = optx.minimise(monkey, solver, jnp.zeros(2))
    assert (bool(jnp.any(saddle.value != 0)), bool(jnp.any(degenerate.value != 0))) == left


def path(solver, fn, y0, steps):
    """The points after each step, as optimistix takes them, until the solver says that it is done."""

    def with_aux(y, args):
        return fn(y, args), None

    step = equinox.filter_jit(lambda y, state: solver.step(with_aux, y, None, {}, state, frozenset()))
    state = solver.init(with_aux, y0, None, {}, jax.ShapeDtypeStruct((), y0.dtype), None, frozenset())
    points, y = [], y0
    while len(points) < steps and not state.done:
        y, state, _ = step(y, state)
        points.append(np.asarray(y))
    return points


def test_convergence_is_quadratic_and_with_third_derivatives_cubic():
    """e_{k+1} <= C e_k^q near the minimizer 0 of a function whose third derivative there is not zero."""

    def fn(y, args):
        return jnp.exp(y[0]) - y[0] + jnp.exp(2 * y[1]) / 2 - y[1] + y[0] ** 2 * y[1]

    for worth, power in ((0.0, 2), (float("inf"), 3)):
        solver = STM(rtol=1e-15, atol=1e-15, worth=worth, sigma=tercet.SignedEstimate(start=1e-6))
        e = [np.max(np.abs(y)) for y in path(solver, fn, jnp.array([0.05, -0.04]), 12)]
        close = [(a, b) for a, b in itertools.pairwise(e) if a > 1e-5]
        assert len(close) >= 2
        assert all(b <= 5 * a**power + 1e-15 for a, b in close), (worth, e)


def test_a_flat_direction_does_not_keep_it_going():
    solution = optx.minimise(lambda y, args: (jnp.sum(y) - 1) ** 2, SOLVER, jnp.arange(20.0))
    assert float(jnp.sum(solution.value)) == pytest.approx(1.0, abs=1e-8)
    assert solution.stats["num_steps"] < 20


# how runs end -------------------------------------------------------------------------------------------------------


def test_failures_are_told_and_thrown():
    unbounded = optx.minimise(lambda y, args: -(y**2), SOLVER, 1.0, max_steps=30, throw=False)
    assert unbounded.result == optx.RESULTS.nonlinear_max_steps_reached
    with pytest.raises(RuntimeError, match="maximum number of steps"):
        optx.minimise(lambda y, args: -(y**2), SOLVER, 1.0, max_steps=30)

    nowhere = optx.minimise(lambda y, args: jnp.nan * y, SOLVER, 1.0, throw=False)
    assert nowhere.result == optx.RESULTS.nonfinite
    assert nowhere.value == 1.0

    # f falls until it ends: no point is critical, but no step leads further, however many there may be
    cliff = optx.minimise(lambda y, args: jnp.where(y > 2, jnp.nan, -y), SOLVER, 1.0, max_steps=None, throw=False)
    assert cliff.result == optx.RESULTS.nonlinear_divergence
    assert float(cliff.value) == pytest.approx(2.0)


def test_steps_into_nan_are_taken_back():
    solution = optx.minimise(lambda y, args: y - jnp.log(y), SOLVER, 0.01)
    assert float(solution.value) == pytest.approx(1.0, abs=1e-9)


def test_a_step_never_goes_up():
    start = jnp.array([-1.2, 1.0])
    values = [float(rosen(y, None)) for y in path(SOLVER, rosen, start, 100)]
    assert 10 < len(values) < 100
    assert values == sorted(values, reverse=True)
    assert values[0] == float(rosen(start, None))


# trees, aux, transformations --------------------------------------------------------------------------------------


def tree_fn(y, a):
    value = jnp.sum(jnp.cosh(y["u"] - a)) + jnp.cosh(y["v"] * a) + y["v"]
    return value, {"twice": 2 * y["v"], "count": jnp.array(3)}


def tree_start():
    return {"u": jnp.zeros((2, 2)), "v": jnp.array(1.0)}


def test_trees_args_and_aux():
    solution = optx.minimise(tree_fn, SOLVER, tree_start(), args=2.0, has_aux=True)
    np.testing.assert_allclose(solution.value["u"], 2.0, atol=1e-8)
    assert float(solution.value["v"]) == pytest.approx(-np.arcsinh(0.5) / 2)
    np.testing.assert_array_equal(solution.aux["twice"], 2 * solution.value["v"])  # the aux of the point itself
    assert solution.aux["count"] == 3
    assert certify(tree_fn, solution, 2.0, has_aux=True, tol=1e-6).holds


def test_jit_vmap_and_the_implicit_gradient():
    def v_of(a):
        return optx.minimise(tree_fn, SOLVER, tree_start(), args=a, has_aux=True).value["v"]

    a = jnp.array([0.5, 1.0, 3.0])
    exact = -jnp.arcsinh(1 / a) / a
    np.testing.assert_allclose(jax.jit(jax.vmap(v_of))(a), exact, atol=1e-9)
    slopes = jax.vmap(jax.grad(lambda a: -jnp.arcsinh(1 / a) / a))(a)
    np.testing.assert_allclose(jax.vmap(jax.grad(v_of))(a), slopes, rtol=1e-7)
    tangent = jax.jvp(v_of, (a[1],), (jnp.array(1.0),))[1]
    assert float(tangent) == pytest.approx(float(slopes[1]), rel=1e-7)


def test_a_batch_finds_what_each_start_finds():
    starts = jnp.asarray(np.random.default_rng(0).standard_normal((6, 3)))

    def solve(y0):
        return optx.minimise(rosen, SOLVER, y0, throw=False)

    batch = jax.vmap(solve)(starts)
    single = [solve(y0) for y0 in starts]
    np.testing.assert_allclose(batch.value, [s.value for s in single], atol=1e-9)
    np.testing.assert_array_equal(batch.stats["num_steps"], [s.stats["num_steps"] for s in single])


# precision ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
def test_single_precision_stays_single_whatever_jax_is_set_to(double):
    y0 = np.array([-1.2, 1.0], dtype=np.float32)
    seen = set()

    def fn(y, args):
        seen.add(y.dtype)
        return rosen(y, args)

    with jax.enable_x64(double):
        solution = optx.minimise(fn, STM(rtol=1e-3, atol=1e-3), y0)
        assert jax.config.jax_enable_x64 is double
        arrays = [
            leaf for leaf in jax.tree_util.tree_leaves((solution.state, solution.stats)) if hasattr(leaf, "dtype")
        ]
    assert seen == {solution.value.dtype} == {np.dtype(np.float32)}
    assert {leaf.dtype for leaf in arrays if leaf.dtype.kind == "f"} == {np.dtype(np.float32)}
    np.testing.assert_allclose(solution.value, 1.0, atol=5e-3)


def test_double_precision_is_used_where_jax_is_set_to_it():
    solution = optx.minimise(rosen, STM(rtol=1e-12, atol=1e-12), jnp.array([-1.2, 1.0]))
    assert solution.value.dtype == np.float64
    np.testing.assert_allclose(solution.value, 1.0, atol=1e-12)


def test_leaves_of_two_precisions_are_solved_to_the_lower_one():
    y0 = {"a": jnp.zeros(2, jnp.float32), "b": jnp.zeros((), jnp.float64)}
    solution = optx.minimise(
        lambda y, args: jnp.sum(jnp.cosh(y["a"] - 1)) + (y["b"] - 2) ** 2, STM(rtol=1e-5, atol=1e-5), y0
    )
    assert (solution.value["a"].dtype, solution.value["b"].dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(solution.value["a"], 1.0, atol=1e-5)
    assert float(solution.value["b"]) == pytest.approx(2.0, abs=1e-5)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_finite_sum_keeps_the_precision_of_its_parameters_and_the_setting_of_jax(dtype, double):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.standard_normal(60)
    seen = set()

    def loss(params, x, y):
        seen.add((params["w"].dtype, x.dtype))
        return (x @ params["w"] - y) ** 2

    with jax.enable_x64(double):
        result = tercet.minimize(tercet.FiniteSum(loss, (X, y)), {"w": np.zeros(3, dtype)}, tol=1e-4)
        assert jax.config.jax_enable_x64 is double
    assert result.success
    assert seen == {(np.dtype(dtype), np.dtype(dtype))}
    assert result.x["w"].dtype == dtype
    np.testing.assert_allclose(result.x["w"], np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-4)


def test_importing_tercet_imports_neither_it_nor_optimistix():
    code = "import sys, tercet; assert not {'tercet.optimistix', 'optimistix', 'equinox', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
