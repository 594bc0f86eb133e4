"""tercet.optimistix.GaussNewton: the conventions of optimistix, NIST's numbers, saddles, and what is no success."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optx = pytest.importorskip("optimistix")
pytest.importorskip("equinox")

import jax.numpy as jnp  # noqa: E402 (after what may skip the file)

from tercet.optimistix import GaussNewton  # noqa: E402 (likewise)
from tercet.optimistix.formulas import radius_step  # noqa: E402 (likewise)

SOLVER = GaussNewton(rtol=1e-10, atol=1e-12)
# Misra1a of NIST StRD
X = np.array([77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0])
Y = np.array([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78])
CERTIFIED = np.array([2.3894212918e02, 5.5015643181e-04])


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def misra(b, args):
    return b[0] * (1 - jnp.exp(-b[1] * X)) - Y


def solve(fn, y0, *args, **options):
    return optx.least_squares(fn, SOLVER, y0, *args, throw=False, **options)


def succeeded(solution):
    return bool(solution.result == optx.RESULTS.successful)


@pytest.mark.parametrize("values", [[7.0, 1.0, 0.5], [7.0, 1.0, 0.0], [1e12, 1.0, 1e-12]])
@pytest.mark.parametrize("radius", [1e-6, 1e-2])
def test_a_step_within_a_radius_is_the_minimizer_on_it(values, radius):
    c, values = jnp.array([0.3, -1.0, 2.0]), jnp.array(values)
    s, mu = radius_step(values, c, jnp.array(radius))
    assert mu >= 0
    np.testing.assert_allclose(np.linalg.norm(s), radius, rtol=1e-6)
    np.testing.assert_allclose((values + mu) * s, -c, rtol=1e-12)


def test_both_starts_of_misra_under_vmap_reach_the_certified_numbers():
    def one(b):
        found = solve(misra, b)
        return found.value, found.result == optx.RESULTS.successful

    b, good = jax.vmap(one)(jnp.array([[500.0, 1e-4], [250.0, 5e-4]]))
    np.testing.assert_allclose(b, [CERTIFIED, CERTIFIED], rtol=1e-9)
    assert np.all(good)


def test_trees_of_parameters_and_residuals_aux_and_stats():
    def fn(y, args):
        r = y["a"] * jnp.exp(-y["b"] * args) - jnp.exp(-args)
        return {"left": r[:3], "right": r[3:].reshape(2, -1)}, r.sum()

    t = jnp.linspace(0.0, 2.0, 9)
    found = solve(fn, {"a": jnp.array(3.0), "b": jnp.array(0.2)}, t, has_aux=True)
    assert succeeded(found)
    np.testing.assert_allclose([found.value["a"], found.value["b"]], 1.0, rtol=1e-8)
    np.testing.assert_allclose(found.aux, 0.0, atol=1e-8)
    assert found.stats["chi1"] < 1e-8
    assert found.stats["chi2"] == 0.0


def test_the_derivative_of_a_solution_is_that_of_the_implicit_function_theorem():
    def minimizer(a):
        return solve(lambda y, a: jnp.stack([y[0] ** 2 - a, 0.3 * (y[0] - 1.0)]), jnp.array([1.5]), a).value[0]

    y, slope = jax.value_and_grad(minimizer)(2.0)
    np.testing.assert_allclose(2 * y * (y**2 - 2) + 0.09 * (y - 1), 0.0, atol=1e-9)
    np.testing.assert_allclose(slope, 2 * y / (6 * y**2 - 4 + 0.09), rtol=1e-8)


def test_a_maximum_of_f_where_the_jacobian_is_0_is_left_also_for_fewer_residuals_than_parameters():
    found = solve(lambda y, args: jnp.sum(y**2, keepdims=True) - 1.0, jnp.zeros(3))
    assert succeeded(found)
    assert found.stats["f"] < 1e-20
    np.testing.assert_allclose(found.value @ found.value, 1.0, rtol=1e-9)


def test_single_precision_stays_single():
    y0 = jnp.array([1.0, 1.0], dtype=jnp.float32)

    def fn(y, args):
        return jnp.stack([10 * (y[1] - y[0] ** 2), 2 - y[0], y[0] - 1]).astype(jnp.float32)

    found = optx.least_squares(fn, GaussNewton(rtol=1e-4, atol=1e-4), y0, throw=False)
    assert found.value.dtype == jnp.float32
    assert succeeded(found)
    np.testing.assert_allclose(found.value, [1.5, 2.25], rtol=1e-3)


def test_what_has_no_minimizer_is_no_success():
    assert not succeeded(solve(lambda y, args: jnp.exp(-y), jnp.array([0.0]), max_steps=40))


def logarithm(y, args):
    return jnp.log(y) + 5.0


def test_a_trial_outside_the_domain_is_a_shorter_step():
    found = solve(logarithm, jnp.array([1.0]))
    assert succeeded(found)
    np.testing.assert_allclose(found.value, np.exp(-5.0), rtol=1e-9)


def test_a_start_where_residuals_are_not_finite_says_so():
    assert solve(logarithm, jnp.array([-1.0])).result == optx.RESULTS.nonfinite


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GaussNewton(rtol=-1.0, atol=1e-8), "rtol=-1.0"),
        (lambda: GaussNewton(rtol=1e-8, atol=0.0), "atol=0.0"),
        (lambda: solve(lambda y, args: y[:0], jnp.ones(2)), "fn gives 0 residuals"),
        (lambda: solve(lambda y, args: y, jnp.zeros(0)), "y0 has 0 entries"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
