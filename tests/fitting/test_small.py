"""Small fits: the compiled loop takes the steps that `STM` takes, and hands over to it where anything is unusual."""

import numpy as np
import pytest

import tercet
from tercet.fitting.small import Small, SmallKernel

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(3)
T = np.linspace(0.1, 4.0, 30)
FINE = tercet.Tolerances(relative=1e-10)


def decay(p, t):
    return p[0] * jnp.exp(-p[1] * t) + p[2]


def peak(p, t):
    return p[0] * jnp.exp(-0.5 * ((t - p[1]) / p[2]) ** 2) + p[3]


def growth(p, t):
    return p[0] / (1.0 + jnp.exp(p[1] - p[2] * t)) ** (1.0 / p[3])


CASES = {
    "decay": (decay, [2.5, 1.3, 0.5], [1.0, 1.0, 1.0]),
    "decay, far": (decay, [2.5, 1.3, 0.5], [50.0, 0.01, -9.0]),
    "decay, units": (
        lambda p, t: 1e6 * decay([p[0] * 1e-3, p[1] * 1e5, p[2]], t),
        [2.5e3, 1.3e-5, 0.5],
        [1e3, 3e-5, 1.0],
    ),
    "peak": (peak, [2.0, 2.0, 0.4, 0.3], [1.0, 2.5, 1.0, 0.0]),
    "growth": (growth, [3.0, 2.0, 1.5, 0.8], [5.0, 1.0, 1.0, 1.0]),
}


def problem(name, loss="squares", noise=0.05):
    model, true, start = CASES[name]
    with jax.enable_x64(True):
        y = np.asarray(model(np.array(true), T))
    y = y + noise * np.ptp(y) * np.random.default_rng(4).standard_normal(len(T))
    scale = {} if loss == "squares" else {"scale": 0.2 * np.ptp(y)}
    return tercet.Residuals.of(lambda p: model(p, T) - y, loss=loss, **scale), np.array(start)


@pytest.mark.parametrize("loss", ["squares", "cauchy"])
@pytest.mark.parametrize("name", CASES)
def test_the_steps_are_those_of_stm(name, loss):
    given, start = problem(name, loss)
    whole, small = (tercet.minimize(given, start, method=m, tol=FINE) for m in (tercet.STM(), Small()))
    assert small.success
    assert whole.success
    assert small.nit == whole.nit > 2
    for column in ("f", "gradient_norm", "step_norm"):  # up to where rounding tells
        np.testing.assert_allclose(small.trace[column][:-2], whole.trace[column][:-2], rtol=1e-4)
    for column in ("accepted", "third_bought", "inner", "value", "gradient", "third"):
        np.testing.assert_array_equal(small.trace[column], whole.trace[column])
    assert small.counts.value == whole.counts.value
    assert small.counts.gradient == whole.counts.gradient
    assert small.counts.hessian <= whole.counts.hessian
    assert small.method == whole.method
    np.testing.assert_allclose(small.x, whole.x, rtol=1e-9)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_budget_ends_it(most):
    given, start = problem("peak")
    results = [tercet.minimize(given, start, method=m, tol=FINE, max_iterations=most) for m in (tercet.STM(), Small())]
    assert results[0].status == results[1].status == tercet.Status.MAX_ITERATIONS
    assert results[0].nit == results[1].nit == most
    np.testing.assert_allclose(results[0].x, results[1].x, rtol=1e-7)


def test_time_and_interruptions_end_it():
    given, start = problem("peak")
    assert tercet.minimize(given, start, method=Small(), tol=FINE, max_seconds=1e-9).status is tercet.Status.MAX_SECONDS

    def interrupt(info):
        if info.row.iteration == 1:
            raise KeyboardInterrupt

    result = tercet.minimize(given, start, method=Small(), tol=FINE, callback=interrupt)
    assert result.status is tercet.Status.INTERRUPTED
    assert result.fun < tercet.minimize(given, start, max_iterations=0).fun


def suits(given, start, **named):
    kinds = []

    class Watched(Small):
        def kernel(self, run):
            kernel = super().kernel(run)
            kinds.append(type(kernel))
            return kernel

    result = tercet.minimize(given, start, method=Watched(), **named)
    return kinds == [SmallKernel], result


def test_what_is_not_small_goes_to_stm():
    given, start = problem("decay")
    assert suits(given, start, tol=FINE)[0]
    assert not suits(given, start, tol=1e-6)[0]
    assert not suits(given, start, bounds=[(0.0, 9.0)] * 3)[0]
    assert not suits(tercet.Residuals.of(lambda p: np.exp(p) - 1.0), start)[0]  # differences
    assert not suits(tercet.Residuals.of(lambda p: jnp.exp(p) - 1.0), np.ones(21))[0]


@pytest.mark.parametrize(
    ("fun", "start"),
    [
        (lambda p: jnp.stack([p[0] - 1.0, p[1] - 2.0, 0.0 * p[2]]), [3.0, 3.0, 3.0]),
        (lambda p: jnp.stack([p[0] * p[1] - 1.0, p[0] * p[1] - 1.1]), [1.0, 3.0]),
        (lambda p: (p[0] + p[1]) * T - 2.0 * T, [0.0, 0.0]),
        (lambda p: jnp.stack([p[0] + p[1] - 1.0]), [5.0, 3.0]),
        (lambda p: p - 1.0, [1.0, 1.0]),
        (lambda p: jnp.log(p[0]) * T - T, [0.05]),
    ],
    ids=["a variable of no effect", "a product", "a sum", "fewer residuals", "at the minimum", "a domain"],
)
def test_what_is_unusual_ends_as_with_stm(fun, start):
    given = tercet.Residuals.of(fun)
    whole, small = (tercet.minimize(given, np.array(start), method=m, tol=FINE) for m in (tercet.STM(), Small()))
    assert small.status == whole.status
    assert small.certificate.strict == whole.certificate.strict
    assert small.fun == pytest.approx(whole.fun, abs=1e-20)


def test_rounding_of_small_residuals_is_not_taken_for_a_bad_step():
    # three exponentials, as in Lanczos' example: residuals are 1e-6 of the data, and f is good to ten digits
    true = np.array([0.1, 1.0, 0.9, 3.0, 1.5, 5.0])

    def f(t, a, b, c, d, e, g):
        return a * jnp.exp(-b * t) + c * jnp.exp(-d * t) + e * jnp.exp(-g * t)

    t = np.arange(24) / 20
    y = np.round(sum(true[k] * np.exp(-true[k + 1] * t) for k in (0, 2, 4)), 5)
    for seed in range(6, 11):
        start = true * (1.0 + 0.1 * np.random.default_rng(seed).standard_normal(6))
        fit = tercet.curve_fit(f, t, y, start)
        assert fit.success, fit.result
        assert fit.digits > 7
