"""Secants: B+ s = y, quadratics are learned, and a run without Hessians pays for no more than it says."""

import numpy as np
import pytest
import scipy.optimize

import tercet
import tercet.scipy
from tercet.domain import Box
from tercet.objectives.callables import CallObjective
from tercet.objectives.differences import leads
from tercet.objectives.metered import Meter, Metered, exact
from tercet.objectives.secant import Secant, Seed, diagonal, recalled
from tercet.records import Status

RNG = np.random.default_rng(3)
Q = RNG.standard_normal((4, 4))
UP, SADDLE = Q @ Q.T + np.eye(4), Q + Q.T
VALLEY = np.array([-1.2, 1.0] * 5)


class Counting:
    def __init__(self, call):
        self.call, self.calls = call, 0

    def __call__(self, x):
        self.calls += 1
        return self.call(x)


def rosen(x):
    return float(scipy.optimize.rosen(x))  # a number, so that JAX does not trace it


@pytest.mark.parametrize("H", [UP, SADDLE], ids=["bends up", "saddle"])
def test_the_new_matrix_takes_the_step_to_the_difference_of_the_gradients(H):
    start = Secant(np.zeros(4), 0.0, np.zeros(4), np.eye(4))
    for s in RNG.standard_normal((8, 4)):
        B = start.hessian(s, H @ s)
        np.testing.assert_allclose(B @ s, H @ s, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(B, B.T, rtol=0, atol=1e-12)


def test_one_that_bends_up_stays_so_and_one_that_does_not_may_bend_down():
    x = RNG.standard_normal(4)
    start = Secant(np.zeros(4), 0.0, np.zeros(4), np.eye(4))
    assert np.linalg.eigvalsh(start.hessian(x, UP @ x))[0] > 0
    down = start.hessian(x, -x)
    assert np.linalg.eigvalsh(down)[0] == pytest.approx(-1.0)


def test_a_point_that_stays_where_it_is_learns_nothing():
    start = Secant(np.ones(4), 0.0, np.ones(4), UP)
    np.testing.assert_array_equal(start.hessian(np.ones(4), np.ones(4)), UP)


def test_a_carry_is_made_again_from_its_arrays():
    carry = Secant(np.ones(4), 2.0, np.zeros(4), UP)
    again = recalled(carry.arrays())
    assert isinstance(again, Secant)
    assert again.f == 2.0
    np.testing.assert_array_equal(again.B, UP)
    assert recalled(Seed().arrays()) == Seed()
    assert carry.exact() is None
    assert Seed().exact() is None


@pytest.mark.parametrize("bends", [np.zeros(3), np.array([1.0, np.inf, 2.0]), np.array([1.0, -4.0, 0.0])])
def test_a_run_begins_with_a_matrix_that_is_definite(bends):
    B = diagonal(bends, np.ones(3))
    assert np.all(np.isfinite(B))
    assert np.linalg.eigvalsh(B)[0] > 0


def test_a_forward_gradient_leads_where_it_is_far_above_its_error_and_not_beside_a_minimum():
    x, bend = np.ones(3), np.ones(3)
    assert leads(x, 1.0, np.full(3, 1e-3), bend)
    assert not leads(x, 1.0, np.full(3, 1e-7), bend)
    assert not leads(x, 1e6, np.full(3, 1e-3), bend), "f is rounded too much"


def test_one_axis_along_which_f_bends_strongly_is_not_overlooked_beside_others():
    x, g = np.ones(2), np.array([3e-3, 5e-3])
    assert leads(x, 1e-5, g, np.array([100.0, 100.0]))
    assert not leads(x, 1e-5, g, np.array([100.0, 1e7])), "its error is 0.15"


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_parameters_in_units_that_lie_far_apart_do_not_mislead_a_run_of_values(seed):
    """Of six such fits each, one was ended by rounding: a component of a forward gradient was nothing but error."""
    rng, t = np.random.default_rng(seed), np.linspace(0.0, 4.0, 40)
    for _ in range(6):
        y, k = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * rng.standard_normal(40), 10.0 ** rng.uniform(-3.0, 3.0, 3)

        def fun(p, y=y, k=k):
            return float(np.sum((p[0] * k[0] * np.exp(-p[1] * k[1] * t) + p[2] * k[2] - y) ** 2))

        assert scipy.optimize.minimize(fun, 1.0 / k, method=tercet.scipy.stm).success


def test_an_error_along_a_strong_axis_does_not_mislead_a_run_of_values():
    """Brown's badly scaled function for other scales: of twenty, six were ended by it."""
    rng, certified = np.random.default_rng(7), 0
    for _ in range(20):
        a, b = 10.0 ** rng.uniform(2, 6), 10.0 ** rng.uniform(-6, -2)

        def fun(x, a=a, b=b):
            return float((x[0] - a) ** 2 + (x[1] - b) ** 2 + (x[0] * x[1] - a * b) ** 2)

        certified += scipy.optimize.minimize(fun, np.ones(2), method=tercet.scipy.stm).success
    assert certified >= 19


def test_a_point_that_was_given_a_secant_says_what_it_owes_and_the_exact_one_does_not():
    objective = CallObjective(4, lambda x: 0.5 * x @ UP @ x, {})
    x, y = np.ones(4), np.ones(4) + 0.1 * RNG.standard_normal(4)
    point = Metered.of(objective, Meter(1)).over(None).at(y, here(objective, x, Seed()).carry)
    assert point.inexact == 1
    point.value()
    assert point.view.meter.tally["value"] == 1
    np.testing.assert_allclose(point.gradient(), UP @ y, rtol=1e-5)
    assert point.view.meter.tally["value"] == 1 + 4, "forward: a value for each variable"
    assert np.any(np.abs(point.hessian() - UP) > 0.1)
    fresh = exact(point)
    assert fresh.inexact == 4
    np.testing.assert_allclose(fresh.hessian(), UP, rtol=0, atol=1e-6)


def here(objective, x, given):
    point = Metered.of(objective, Meter(1)).over(None).at(x, tercet.objectives.metered.Carry(None, given))
    point.value(), point.gradient(), point.hessian()
    return point


def test_forward_differences_stay_in_a_box():
    box, asked = Box(np.array([0.0, -1.0, 2.0]), np.array([1.0, 1.0, 2.0])), []

    def fun(x):
        asked.append(x)
        assert np.array_equal(x, box.project(x))
        return float(x @ x)

    objective = CallObjective(3, fun, {}).within(box)
    x = np.array([1.0, -1.0, 2.0])
    g = here(objective, x, Secant(x, 6.0, 2 * x, 2 * np.eye(3))).gradient()
    np.testing.assert_allclose(g[:2], 2 * x[:2], rtol=1e-6)
    assert g[2] == 0.0, "it is held fast"


@pytest.mark.parametrize("start", [VALLEY, np.zeros(10), np.full(10, 2.0)], ids=["valley", "zeros", "twos"])
def test_values_alone_cost_at_most_half_as_many_again_as_bfgs_and_give_more_digits(start):
    theirs, ours = Counting(rosen), Counting(rosen)
    bfgs = scipy.optimize.minimize(theirs, start, method="BFGS")
    result = scipy.optimize.minimize(ours, start, method=tercet.scipy.stm)
    assert result.success
    assert ours.calls == result.nfev <= 1.5 * theirs.calls
    slope = np.linalg.norm(scipy.optimize.rosen_der(result.x))
    assert slope <= np.linalg.norm(scipy.optimize.rosen_der(bfgs.x))


def test_with_a_gradient_the_run_forms_no_hessian_and_the_certificate_one():
    grad = Counting(scipy.optimize.rosen_der)
    result = tercet.minimize(rosen, VALLEY, grad=grad)
    assert result.success
    assert result.certificate.digits > 7
    assert grad.calls == result.counts.gradient
    on_the_way = result.trace.rows[result.nit // 2].counts
    assert on_the_way.hessian == on_the_way.third == 0
    assert on_the_way.gradient <= result.nit // 2 + 2
    assert result.counts.hessian <= 2, "of certificates"


def test_the_result_has_the_derivatives_that_the_certificate_saw():
    result = scipy.optimize.minimize(rosen, np.zeros(3), jac=scipy.optimize.rosen_der, method=tercet.scipy.stm)
    np.testing.assert_allclose(result.hess, scipy.optimize.rosen_hess(result.x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("jac", [False, True], ids=["values", "gradient"])
def test_saddles_are_left_and_quartic_minima_certified(jac):
    def saddle(x):
        return float(x[0] ** 2 - x[1] ** 2 + x[1] ** 4)

    def saddle_slope(x):
        return np.array([2 * x[0], -2 * x[1] + 4 * x[1] ** 3])

    def flat(x):
        return float(x[0] ** 2 + x[1] ** 4)

    def flat_slope(x):
        return np.array([2 * x[0], 4 * x[1] ** 3])

    left = tercet.minimize(saddle, np.array([1.0, 0.0]), **({"grad": saddle_slope} if jac else {}))
    assert left.success
    assert left.fun == pytest.approx(-0.25)
    start, given = np.array([1.0, -2.0]), {"grad": flat_slope} if jac else {"tol": 1e-5}
    result = tercet.minimize(flat, start, **given)
    assert result.success
    assert result.certificate.rises
    assert result.fun < 1e-8


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_ended(tmp_path):
    start, path = np.array([-1.2, 1.0]), tmp_path / "run"
    whole = tercet.minimize(rosen, start)
    part = tercet.minimize(rosen, start, max_iterations=7, checkpoint=path)
    assert part.status is Status.MAX_ITERATIONS
    rest = tercet.resume(path, rosen, max_iterations=1000)
    assert rest.nit == whole.nit
    np.testing.assert_array_equal(rest.x, whole.x)
    assert rest.counts == whole.counts


def powell(x):
    a, b, c, d = x.reshape(-1, 4).T
    return float(np.sum((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4))


def powell_grad(x):
    a, b, c, d = x.reshape(-1, 4).T
    bend, tilt = 4 * (b - 2 * c) ** 3, 40 * (a - d) ** 3
    return np.stack(
        [2 * (a + 10 * b) + tilt, 20 * (a + 10 * b) + bend, 10 * (c - d) - 2 * bend, -10 * (c - d) - tilt], 1
    ).ravel()


@pytest.mark.parametrize("copies", [1, 3])
def test_along_a_quartic_a_run_ends_where_f_has_nothing_more_to_fall(copies):
    """Steps of secants say nothing there of how far x is; 408 and 454 iterations were taken."""
    result = tercet.minimize(powell, np.tile([3.0, -1.0, 0.0, 1.0], copies), grad=powell_grad)
    assert result.status is Status.CERTIFIED
    assert result.nit < 250
    assert np.max(np.abs(result.x)) < 1e-7


@pytest.mark.parametrize("d", [2, 6, 10])
def test_a_certificate_takes_two_gradients_a_variable_and_ten(d):
    """Its own, 2 d for the Hessian, one for rounding, two for T along each of Newton's step, rounding, the softest
    direction and all of them."""
    grad = Counting(scipy.optimize.rosen_der)
    certificate = tercet.certify(rosen, 1.0 + 1e-10 * np.arange(d), grad=grad)
    assert certificate.holds
    assert grad.calls == 2 * d + 10
