"""Bad input and bad luck: every run ends with a point no worse than its start and a status that says why."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import tercet
from tercet import Status

jax = pytest.importorskip("jax")
jnp = jax.numpy

START = np.array([-1.2, 1.0])
BUDGETS = (Status.MAX_ITERATIONS, Status.MAX_EPOCHS, Status.MAX_SECONDS)


def rosen(x: np.ndarray) -> float:
    return float(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)


def rosen_grad(x: np.ndarray) -> np.ndarray:
    bend = x[1] - x[0] ** 2
    return np.array([-400.0 * x[0] * bend - 2.0 * (1.0 - x[0]), 200.0 * bend])


def rosen_hess(x: np.ndarray) -> np.ndarray:
    return np.array([[1200.0 * x[0] ** 2 - 400.0 * x[1] + 2.0, -400.0 * x[0]], [-400.0 * x[0], 200.0]])


def rosen_tvp(x: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    mixed = u[0] * v[1] + u[1] * v[0]
    return np.array([2400.0 * x[0] * u[0] * v[0] - 400.0 * mixed, -400.0 * u[0] * v[0]])


ROSEN = {"fun": rosen, "grad": rosen_grad, "hess": rosen_hess, "tvp": rosen_tvp}


class Failing:
    """A function that raises at its k-th call, or from it on."""

    def __init__(self, function: Any, k: int, error: BaseException, on: bool = False):
        self.function, self.k, self.error, self.on, self.number = function, k, error, on, 0

    def __call__(self, *arguments: Any) -> Any:
        self.number += 1
        if self.number == self.k or (self.on and self.number > self.k):
            raise self.error
        return self.function(*arguments)

    @property
    def raised(self) -> bool:
        return self.number >= self.k


class OwnLoss:
    """The logistic loss as a user's object; `derivatives` is what a test makes fail."""

    def __init__(self, failing: Any = None):
        self.call = failing or self.formulas

    @staticmethod
    def formulas(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        p = expit(z)
        q = p * (1 - p)
        return np.logaddexp(0.0, z) - y * z, p - y, q, q * (1 - 2 * p)

    def derivatives(self, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.call(z, y)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((600, 4))
Y = (X @ [1.0, -2.0, 0.5, 0.0] + RNG.standard_normal(600) > 0).astype(float)
LINEAR = tercet.LinearModel(X, Y, OwnLoss(), l2=1e-3)
LINEAR_START = np.full(4, 2.0)
LINEAR_F0 = tercet.minimize(LINEAR, LINEAR_START, max_iterations=0).fun

RULES = {
    "progressive": tercet.Progressive(multiple=5.0),
    "full": tercet.Full(),
    "fixed": tercet.Fixed(0.2, 0.2, 0.2),
    "growing": tercet.Growing(),
}


def contained(problem: Any, start: Any, **options: Any) -> tercet.Result:
    """`minimize`, where an interruption that gets out fails the test instead of ending the test session."""
    try:
        return tercet.minimize(problem, start, **options)
    except KeyboardInterrupt:
        return pytest.fail("KeyboardInterrupt got out of minimize, and with it the result was lost")


def rosen_run(name: str, failing: Failing, **options: Any) -> tercet.Result:
    calls = {**ROSEN, name: failing}
    return contained(calls.pop("fun"), START, **calls, **options)


def linear_run(failing: Failing, rule: Any, **options: Any) -> tercet.Result:
    problem = tercet.LinearModel(X, Y, OwnLoss(failing), l2=1e-3)
    return contained(problem, LINEAR_START, method=tercet.STM(sizes=rule), **options)


# a function that raises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", ROSEN)
def test_a_function_that_raises_ends_the_run_with_the_best_point_and_the_exception(name, on):
    for k in range(1, 31):
        error = RuntimeError(f"call {k}")
        failing = Failing(ROSEN[name], k, error, on)
        try:
            result = rosen_run(name, failing)
        except RuntimeError:  # at x0, where nothing can be lost
            assert "at x0" in error.__notes__[0]
            assert k <= 3  # a third derivative in two variables takes three products, all at x0
            continue
        assert k > 1
        assert failing.raised or result.success
        if not failing.raised:
            continue
        if result.success:  # the exception came when x0 was compared at the end; nothing was lost by it
            assert result.certificate.chi1 <= 1e-8
            continue
        assert result.status is Status.FUNCTION_ERROR
        assert result.error is error
        assert f"RuntimeError: call {k}" in result.message
        assert result.fun <= rosen(START)
        assert result.fun == rosen(result.x)


@pytest.mark.parametrize("on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_loss_that_raises_ends_the_run_with_the_best_point_and_the_exception(rule, on):
    reached = 0
    for k in range(1, 31):
        error = ZeroDivisionError(f"call {k}")
        failing = Failing(OwnLoss.formulas, k, error, on)
        try:
            result = linear_run(failing, rule)
        except ZeroDivisionError:  # at x0, where nothing can be lost
            assert "at x0" in error.__notes__[0]
            continue
        assert k > 1
        if not failing.raised or result.success:
            assert result.success or result.status is Status.NOISE
            continue
        reached += 1
        assert result.status is Status.FUNCTION_ERROR
        assert result.error is error
        if np.isnan(result.fun):
            assert on  # f(x0) over all rows could not be computed any more
            assert np.array_equal(result.x, LINEAR_START)  # so nothing but x0 is known not to be worse than x0
        else:
            assert result.fun <= LINEAR_F0
            assert result.fun == pytest.approx(float(value_of(result.x)), rel=1e-13)
    assert reached >= 5


def value_of(x: np.ndarray) -> float:
    z = X @ x
    return float(np.mean(np.logaddexp(0.0, z) - Y * z) + 0.5e-3 * x @ x)


def test_a_finite_sum_whose_loss_raises_on_the_host_ends_the_run_with_the_exception():
    calls = {"number": 0}

    def host(z: np.ndarray) -> np.ndarray:
        calls["number"] += 1
        if calls["number"] >= 3:
            raise RuntimeError("no more")
        return np.asarray(z) ** 2

    @jax.custom_jvp
    def square(z: Any) -> Any:
        return jax.pure_callback(host, jax.ShapeDtypeStruct(z.shape, z.dtype), z, vmap_method="expand_dims")

    square.defjvp(lambda primals, tangents: (square(primals[0]), 2.0 * primals[0] * tangents[0]))
    problem = tercet.FiniteSum(lambda p, a: square(p[0] - a) + p[0] ** 4, np.linspace(-1.0, 1.0, 16))
    result = tercet.minimize(problem, np.array([2.0]), method=tercet.STM(sizes=tercet.Full()))
    assert result.status is Status.FUNCTION_ERROR
    assert "no more" in str(result.error)


@pytest.mark.parametrize("budget", [{}, {"max_iterations": 0}, {"max_seconds": 1e-9}], ids=str)
@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR(tercet.Fixed(0.5, 0.5)), tercet.SGD(1.0)], ids=repr)
def test_a_plain_function_that_raises_at_x0_raises_to_the_caller_with_our_advice(budget, method):
    def broken(x: Any) -> Any:
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data") as error:
        tercet.minimize(broken, np.zeros(2), method=method, **budget)
    assert "start where it can be evaluated" in error.value.__notes__[0]


def test_a_plain_function_that_only_takes_numpy_arrays_is_minimized_by_differences():
    def picky(x: Any) -> float:
        assert isinstance(x, np.ndarray)
        return float(np.sum((x - 1.0) ** 2))

    result = tercet.minimize(picky, np.zeros(2), tol=1e-6)
    assert result.success
    np.testing.assert_allclose(result.x, 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("grad", np.zeros(3)), ("hess", np.zeros(2)), ("tvp", np.zeros((2, 2))), ("fun", np.zeros(2)), ("grad", "text")],
)
def test_a_derivative_of_the_wrong_shape_is_refused_at_x0_with_a_message_that_says_so(name, wrong):
    with pytest.raises(ValueError, match=name) as error:
        rosen_run(name, Failing(lambda *arguments: wrong, 10**9, RuntimeError()))
    if not isinstance(wrong, str):
        assert str(np.shape(wrong)) in str(error.value)


# not finite ---------------------------------------------------------------------------------------------------------


SMALL_SIGMA = {
    "STM": tercet.STM(sigma=tercet.SignedEstimate(start=1e-6)),
    "SCR": tercet.SCR(sigma=tercet.SignedEstimate(start=1e-6)),
    "STM, paper's sigma": tercet.STM(sigma=tercet.PaperSigma(start=1e-6)),
}


@pytest.mark.parametrize("beyond", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", SMALL_SIGMA.values(), ids=SMALL_SIGMA)
def test_a_value_that_is_not_finite_beyond_a_border_is_a_rejected_step(beyond, method):
    """log cosh x, whose Newton steps overshoot from where it is nearly straight."""

    def fun(x: np.ndarray) -> float:
        return float(np.log(np.cosh(x[0]))) if x[0] > -0.2 else beyond

    def third(x: np.ndarray) -> np.ndarray:
        t = np.tanh(x)
        return (-2.0 * t * (1.0 - t * t)).reshape(1, 1, 1)

    result = tercet.minimize(
        fun,
        np.array([1.5]),
        grad=np.tanh,
        hess=lambda x: 1.0 - np.tanh(x).reshape(1, 1) ** 2,
        third=third,
        method=method,
    )
    lost = result.trace["ratio"] == -np.inf
    assert np.any(lost)
    assert not np.any(result.trace["accepted"][lost])
    assert np.all(np.isfinite(result.trace["f"]))
    assert np.all(np.diff(result.trace["sigma"])[lost[:-1]] > 0)
    assert result.success
    assert abs(result.x[0]) <= 1e-8


def test_a_gradient_that_is_not_finite_at_the_trial_point_is_a_rejected_step():
    def grad(x: np.ndarray) -> np.ndarray:
        return np.where(x < 1.2, 2.0 * (x - 1.0), np.nan)

    def hess(x: np.ndarray) -> np.ndarray:
        return np.array([[1.0]])  # half the true curvature: the first steps overshoot to x >= 1.2

    result = tercet.minimize(lambda x: float((x[0] - 1.0) ** 2), np.array([0.0]), grad=grad, hess=hess)
    assert result.success
    assert result.x[0] == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_start_where_the_function_is_not_finite_is_an_outcome(bad):
    result = tercet.minimize(lambda x: bad, START, grad=rosen_grad, hess=rosen_hess)
    assert result.status is Status.NOT_FINITE
    assert np.array_equal(result.x, START)
    assert not result.success
    assert result.nit == 0
    traced = tercet.minimize(lambda x: jnp.log(x[0]) + x[1] ** 2, START)
    assert traced.status is Status.NOT_FINITE
    summed = tercet.minimize(tercet.FiniteSum(lambda p, a: jnp.sqrt(p[0] - a) + p[1] ** 2, np.zeros(20)), START)
    assert summed.status is Status.NOT_FINITE


SUBSOLVERS = {
    "default": None,
    "Dense": tercet.Dense(),
    "Krylov": tercet.Krylov(),
    "GradientDescent": tercet.GradientDescent(),
    "Accelerated": tercet.Accelerated(),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("subsolver", SUBSOLVERS.values(), ids=SUBSOLVERS)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("name", ["grad", "hess", "tvp"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_derivative_that_is_not_finite_at_the_start_is_an_outcome_and_no_exception(subsolver, kind, name, bad):
    shape = {"grad": (2,), "hess": (2, 2), "tvp": (2,)}[name]
    calls = {**ROSEN, name: lambda *arguments: np.full(shape, bad)}
    result = tercet.minimize(calls.pop("fun"), START, **calls, method=kind(subsolver=subsolver), max_iterations=50)
    assert not (result.success and name != "tvp")
    if name in ("grad", "hess"):
        assert result.status is Status.NOT_FINITE
    assert result.fun <= rosen(START)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_jax_function_with_an_infinite_curvature_at_the_start_is_an_outcome_and_no_exception():
    result = tercet.minimize(lambda x: jnp.sum(jnp.abs(x) ** 1.5), np.zeros(1))
    assert result.status is Status.NOT_FINITE
    assert not result.success


# unbounded, constant ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize(
    ("fun", "start"),
    [
        (lambda x: x[0] - 2.0 * x[1], np.zeros(2)),
        (lambda x: 1e-3 * x[0], np.ones(1)),
        (lambda x: -jnp.sum(x**4), np.full(2, 0.1)),
        (lambda x: x[0] ** 3, np.zeros(1)),
        (lambda x: x[0] ** 3, np.ones(1)),
        (lambda x: -jnp.sum(x**2), np.zeros(2)),
        (lambda x: x[0] ** 2 - jnp.exp(x[1]), np.zeros(2)),
    ],
    ids=["linear", "gentle linear", "-x^4", "x^3 from 0", "x^3 from 1", "-x^2", "-exp"],
)
def test_a_function_unbounded_below_never_ends_with_success(fun, start, kind):
    with jax.enable_x64(True):
        f0 = float(fun(jnp.asarray(start)))
    result = tercet.minimize(fun, start, method=kind(), max_iterations=300)
    assert result.status in (Status.UNBOUNDED, *BUDGETS)
    assert not result.success
    assert result.fun < f0
    assert result.fun < -1e3


def test_a_linear_function_falls_fast_enough_to_be_called_unbounded():
    assert tercet.minimize(lambda x: x[0] - 2.0 * x[1], np.zeros(2)).status is Status.UNBOUNDED


def test_a_large_function_that_is_bounded_is_not_called_unbounded():
    result = tercet.minimize(lambda x: 1e22 * (jnp.sum((x - 1.0) ** 2) - 5.0), np.zeros(2), tol=1e10)
    assert result.status is Status.CERTIFIED
    np.testing.assert_allclose(result.x, 1.0, rtol=0, atol=1e-6)


def test_a_sampled_sum_that_is_unbounded_below_never_ends_with_success():
    linear = tercet.LinearModel(X, Y, lambda z, y: z + 0.0 * y)
    result = tercet.minimize(linear, max_iterations=300)
    assert result.status in (Status.UNBOUNDED, *BUDGETS)
    assert result.fun < -1e3


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("start", [np.zeros(3), np.array([1e6, -3.0, 0.0])], ids=["zero", "far"])
def test_a_constant_function_is_a_success_at_its_start(order, start):
    traced = tercet.minimize(lambda x: 3.0 + 0.0 * x[0], start, order=order)
    called = tercet.minimize(lambda x: 3.0, start, grad=np.zeros_like, order=order)
    for result in (traced, called):
        assert result.success
        assert result.fun == 3.0
        assert np.array_equal(result.x, start)


# interruptions ------------------------------------------------------------------------------------------------------


def test_ctrl_c_inside_the_function_returns_the_best_point_so_far():
    lowest = np.inf
    for k in range(1, 15):
        result = rosen_run("fun", Failing(rosen, k, KeyboardInterrupt()))
        assert result.status is Status.INTERRUPTED
        assert isinstance(result.error, KeyboardInterrupt)
        assert not result.success
        assert result.fun == rosen(result.x)
        assert result.fun <= min(rosen(START), lowest)
        lowest = result.fun
    assert lowest < 1e-3 * rosen(START)  # what was reached before the interruption is what is returned


@pytest.mark.parametrize("name", ROSEN)
def test_ctrl_c_at_any_call_also_while_the_result_is_being_put_together_returns_a_result(name):
    for k in range(1, 40):
        failing = Failing(ROSEN[name], k, KeyboardInterrupt())
        result = rosen_run(name, failing, max_iterations=6)
        if not failing.raised:
            break
        assert result.status in (Status.INTERRUPTED, Status.MAX_ITERATIONS)
        assert result.fun <= rosen(START)
    assert k > 3


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_ctrl_c_inside_a_loss_returns_the_best_point_so_far(rule):
    for k in range(1, 12):
        result = linear_run(Failing(OwnLoss.formulas, k, KeyboardInterrupt()), rule, max_iterations=20)
        finished = (Status.CERTIFIED,) if k > 6 else ()  # the interruption came when all was done
        assert result.status in (Status.INTERRUPTED, Status.MAX_ITERATIONS, *finished)
        assert result.fun <= LINEAR_F0


def test_ctrl_c_inside_the_callback_ends_the_run_with_a_result():
    def interrupt(info: tercet.Info) -> None:
        if info.iteration == 2:
            raise KeyboardInterrupt

    result = contained(LINEAR, LINEAR_START, callback=interrupt)
    assert result.status is Status.INTERRUPTED
    assert result.nit == 3


def test_an_exception_of_the_callback_is_the_users_own_and_reaches_the_user():
    class OwnError(Exception):
        pass

    def faulty(info: tercet.Info) -> None:
        raise OwnError("in the callback")

    with pytest.raises(OwnError, match="in the callback"):
        tercet.minimize(LINEAR, LINEAR_START, callback=faulty)
    with pytest.raises(TypeError):
        tercet.minimize(LINEAR, LINEAR_START, callback=lambda: None)


# budgets ------------------------------------------------------------------------------------------------------------

METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "full": tercet.STM(sizes=tercet.Full()),
    "fixed": tercet.STM(sizes=tercet.Fixed(0.2, 0.2, 0.2)),
    "SGD": tercet.SGD(),
    "SGD, far too large a step": tercet.SGD(step=1e3),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(
    ("budget", "status"),
    [
        ({"max_iterations": 0}, Status.MAX_ITERATIONS),
        ({"max_iterations": 1}, Status.MAX_ITERATIONS),
        ({"max_iterations": 3}, Status.MAX_ITERATIONS),
        ({"max_epochs": 1e-9}, Status.MAX_EPOCHS),
        ({"max_epochs": 0.5}, Status.MAX_EPOCHS),
        ({"max_seconds": 1e-9}, Status.MAX_SECONDS),
    ],
    ids=str,
)
def test_a_spent_budget_says_so_and_the_point_is_not_worse_than_the_start(method, budget, status):
    for start in (LINEAR_START, np.zeros(4)):
        result = tercet.minimize(LINEAR, start, method=method, **budget)
        assert result.status is status
        assert result.nit == budget.get("max_iterations", result.nit)
        assert result.fun <= value_of(start)
        assert result.fun == pytest.approx(value_of(result.x), rel=1e-13)
        if result.nit == 0:
            assert np.array_equal(result.x, start)


def test_max_epochs_ends_at_the_first_iteration_that_reaches_it():
    result = tercet.minimize(LINEAR, LINEAR_START, method=tercet.STM(sizes=tercet.Full()), max_epochs=10)
    assert result.status is Status.MAX_EPOCHS
    epochs = result.trace["epochs"]
    assert np.all(epochs[:-1] < 10)
    # the last iteration, then f(x0) and the certificate: the gradient at x and one beside it, three values and a
    # product for what is rounding, a Hessian, four products with the third derivative, and a look at f
    assert result.counts.epochs <= 10 + np.max(np.diff(epochs)) + 13


def test_a_budget_that_ends_at_a_certified_point_is_a_success():
    best = tercet.minimize(LINEAR).x
    result = tercet.minimize(LINEAR, best, max_iterations=0)
    assert result.success


@pytest.mark.parametrize(
    "derivatives", [{}, {"grad": True}, {"grad": True, "hess": True}], ids=["f", "f, g", "f, g, B"]
)
def test_max_seconds_bounds_the_wall_time_also_inside_differences(derivatives):
    pause = 2e-3

    def slow(function: Any) -> Any:
        def call(x: Any) -> Any:
            time.sleep(pause)
            return function(np.asarray(x))

        return call

    target = np.arange(12.0)
    given = {"grad": lambda x: 4.0 * (x - target) ** 3, "hess": lambda x: np.diag(12.0 * (x - target) ** 2)}
    calls = {name: slow(given[name]) for name in derivatives}
    started = time.perf_counter()
    result = tercet.minimize(
        slow(lambda x: float(np.sum((x - target) ** 4))), np.full(12, 30.0), max_seconds=0.1, **calls
    )
    assert result.status is Status.MAX_SECONDS
    # Beyond the limit: the piece of work under way, and one gradient (24 values at most) at the point returned.
    assert time.perf_counter() - started < 0.1 + 150 * pause


def test_max_seconds_bounds_a_long_run():
    started = time.perf_counter()
    result = tercet.minimize(LINEAR, LINEAR_START, method=tercet.SGD(step=1e-6), max_iterations=10**9, max_seconds=0.3)
    assert result.status is Status.MAX_SECONDS
    assert 0.3 <= time.perf_counter() - started < 1.3


def test_sgd_that_diverges_returns_its_start():
    problem = tercet.LinearModel(X, X @ np.ones(4), "squares")
    result = tercet.minimize(problem, method=tercet.SGD(batch=1.0, step=10.0), max_iterations=1000)
    assert result.fun <= tercet.minimize(problem, max_iterations=0).fun
    assert not result.success


# misuse -------------------------------------------------------------------------------------------------------------


def quadratic(x: Any) -> Any:
    return jnp.sum((x - 1.0) ** 2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tol": 0.0}, "tol=0.0"),
        ({"tol": -1e-8}, "tol=-1e-08"),
        ({"tol": np.nan}, "tol=nan"),
        ({"tol": "small"}, "tol='small'"),
        ({"tol": np.array([1e-8, 1e-8])}, "tol=array"),
        ({"tol": 1e-30}, "tol=1e-30"),
        ({"tol": 5e-324}, "tol=5e-324"),
        ({"tol": tercet.Tolerances(eps1=1e-300)}, "tol=1e-300"),
        ({"tol": tercet.Tolerances(relative=5e-16)}, "relative=5e-16"),
        ({"order": 0}, "order=0"),
        ({"order": 4}, "order=4"),
        ({"order": "3"}, "order='3'"),
        ({"order": 2.0}, "order=2.0"),
        ({"order": np.array([1, 2])}, "order=array"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": None}, "seed=None"),
        ({"seed": True}, "seed=True"),
        ({"seed": "0"}, "seed='0'"),
        ({"max_iterations": -1}, "max_iterations=-1"),
        ({"max_iterations": "ten"}, "max_iterations='ten'"),
        ({"max_iterations": np.nan}, "max_iterations=nan"),
        ({"max_seconds": 0}, "max_seconds=0"),
        ({"max_seconds": -1.0}, "max_seconds=-1.0"),
        ({"max_epochs": np.nan}, "max_epochs=nan"),
        ({"max_epochs": -2}, "max_epochs=-2"),
        ({"method": tercet.STM}, "method=STM"),
        ({"method": tercet.SGD}, "method=SGD"),
        ({"method": "STM"}, "method='STM'"),
        ({"callback": 3}, "callback=3"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_before_any_work_with_its_name_and_value(options, text):
    def untouched(x: Any) -> Any:
        raise AssertionError("the function was called")

    for problem, start in ((LINEAR, None), (untouched, START)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is checked below
            tercet.minimize(problem, start, **options)
        assert text in str(caught.value)
        assert "minimize(" in str(caught.value)


@pytest.mark.parametrize("tol", [1e-12, tercet.Tolerances(relative=1e-8), tercet.Tolerances(eps1=1e-36)], ids=str)
def test_what_double_precision_can_meet_and_single_cannot_is_refused_in_single_and_says_what_can_be_met(tol):
    with pytest.raises(ValueError, match=r"minimize\(tol=.*ask for (\S+) or more") as caught:
        tercet.minimize(quadratic, jnp.zeros(2, dtype=jnp.float32), tol=tol)
    least = float(str(caught.value).split("ask for ")[1].split(" or more")[0].rstrip(","))
    kind = "relative" if "relative" in str(caught.value) else "eps1"
    met = tercet.Tolerances(**{kind: 1.1 * least}) if isinstance(tol, tercet.Tolerances) else 1.1 * least
    assert tercet.minimize(quadratic, jnp.zeros(2, dtype=jnp.float32), tol=met).success
    assert tercet.minimize(lambda x: float(x @ x), [1.0, 2.0], grad=lambda x: 2 * x, tol=tol).success


def test_a_tolerance_in_tiny_units_is_taken_as_it_is_when_it_is_spelled_out():
    tiny = tercet.minimize(lambda x: 1e-34 * quadratic(x), np.zeros(2), tol=tercet.Tolerances(eps1=1e-45), order=1)
    assert tiny.success
    np.testing.assert_allclose(tiny.x, 1.0, rtol=1e-10)


@pytest.mark.parametrize("off", [1e-3, 1e-9])
def test_where_rounding_keeps_a_tolerance_from_being_met_the_message_says_what_can_be(off):
    """A gradient that is computed to `off`, and asked to be smaller."""

    def grad(x):
        return 2 * (x - 1.0) + off * np.cos(1e15 * x + np.arange(2))

    result = tercet.minimize(
        lambda x: float(np.sum((x - 1.0) ** 2)), [3.0, 0.0], grad=grad, hess=lambda x: 2 * np.eye(2), tol=1e-15, order=1
    )
    assert result.status is Status.ROUNDING
    reach = float(result.message.split(" can be met here")[0].split()[-1])
    assert 0.01 * off < reach < 10 * off


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (np.zeros(3), "(3,)"),
        (np.zeros((4, 1)), "(4, 1)"),
        (0.0, "()"),
        ([0.0, np.nan, 0.0, 0.0], "x0[1]"),
        ([0.0, 0.0, 0.0, np.inf], "x0[3]"),
        (["a", "b", "c", "d"], "<U1"),
        (np.zeros(4, dtype=complex), "complex128"),
        ({"w": np.zeros(4)}, "object"),
        ([[0.0], [0.0, 1.0]], "x0"),
    ],
    ids=str,
)
def test_a_linear_model_refuses_a_start_that_does_not_fit_and_says_what_it_got(start, text):
    with pytest.raises(ValueError, match="x0") as caught:
        tercet.minimize(LINEAR, start)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "start",
    [None, np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), "text", np.array(["a"]), [], [[0.0], [0.0, 1.0]]],
    ids=str,
)
@pytest.mark.parametrize("derivatives", [{}, {"grad": rosen_grad}], ids=["traced", "called"])
def test_a_plain_function_refuses_a_start_that_is_no_finite_array(start, derivatives):
    with pytest.raises(ValueError, match="x0"):
        tercet.minimize(quadratic, start, **derivatives)


def test_a_finite_sum_needs_its_parameters():
    problem = tercet.FiniteSum(lambda p, a: jnp.sum((p - a) ** 2), np.zeros((8, 2)))
    for start in (None, np.array([np.nan, 0.0]), {"w": "text"}):
        with pytest.raises(ValueError, match="x0"):
            tercet.minimize(problem, start)


@pytest.mark.parametrize("problem", [3, None, "rosenbrock", np.zeros(2), {"loss": 1}], ids=str)
def test_a_problem_that_is_no_function_is_refused(problem):
    with pytest.raises(ValueError, match="problem=") as caught:
        tercet.minimize(problem, np.zeros(2))
    assert repr(problem) in str(caught.value)


@pytest.mark.parametrize("problem", [tercet.LinearModel, tercet.FiniteSum])
def test_a_problem_class_instead_of_an_object_is_refused_with_the_remedy(problem):
    with pytest.raises(ValueError, match="problem=") as caught:
        tercet.minimize(problem, np.zeros(2))
    assert problem.__name__ in str(caught.value)


@pytest.mark.parametrize("name", ["grad", "hess", "hvp", "third", "tvp"])
def test_derivatives_beside_a_problem_that_has_its_own_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}="):
        tercet.minimize(LINEAR, **{name: rosen_grad})


@pytest.mark.parametrize("pair", [("hess", "hvp"), ("third", "tvp")])
def test_two_forms_of_one_derivative_are_refused(pair):
    with pytest.raises(ValueError, match=f"{pair[0]}=.*{pair[1]}="):
        tercet.minimize(rosen, START, grad=rosen_grad, **dict.fromkeys(pair, rosen_hess))


@pytest.mark.parametrize("name", ["grad", "hess", "hvp", "third", "tvp"])
def test_a_derivative_that_is_no_function_is_refused(name):
    with pytest.raises(ValueError, match=f"{name}=3"):
        tercet.minimize(rosen, START, **{name: 3})


@pytest.mark.parametrize(
    "make",
    [
        lambda: tercet.STM(sizes=tercet.Full),
        lambda: tercet.STM(sizes=0.05),
        lambda: tercet.STM(subsolver=tercet.Dense),
        lambda: tercet.SCR(subsolver="dense"),
        lambda: tercet.SCR(sigma=1.0),
        lambda: tercet.STM(worth=-1.0),
        lambda: tercet.STM(worth=np.nan),
        lambda: tercet.SGD(batch=0.0),
        lambda: tercet.SGD(batch=1.5),
        lambda: tercet.SGD(step=0.0),
        lambda: tercet.SGD(step=np.inf),
    ],
)
def test_a_method_with_a_part_that_does_not_fit_is_refused(make):
    with pytest.raises(ValueError, match=r"(STM|SCR|SGD)\(\w+="):
        make()


def test_a_function_that_returns_a_vector_is_refused():
    with pytest.raises(ValueError, match="scalar"):
        tercet.minimize(lambda x: x**2, np.ones(2))
