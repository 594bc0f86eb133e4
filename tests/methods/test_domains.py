"""Where f or a derivative is not finite another way is taken while there is one, and else the run ends."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import Status

jnp = pytest.importorskip("jax.numpy")


def weibull(n: int) -> tuple[tercet.FiniteSum, float]:
    """-log likelihood of three parameters (shape, scale, location); finite where the location is below all data."""
    y = 3.0 + 2.0 * np.random.default_rng(n).weibull(1.8, n)

    def loss(p, yi):
        z = (yi - p[2]) / p[1]
        return -(jnp.log(p[0] / p[1]) + (p[0] - 1) * jnp.log(z) - z ** p[0])

    return tercet.FiniteSum(loss, y), float(y.min())


@pytest.mark.parametrize("n", [2000, 20000])
def test_a_likelihood_whose_domain_depends_on_all_data_is_certified_from_any_feasible_start(n):
    """A step that is feasible for a sample may leave the domain of the whole sum."""
    problem, least = weibull(n)
    for seed in range(20):
        rng = np.random.default_rng(100 + seed)
        x0 = np.array([rng.uniform(1.1, 3), rng.uniform(0.5, 5), least - rng.uniform(0.05, 3)])
        result = tercet.minimize(problem, x0)
        assert result.success, f"seed {seed}: {result.message}"
        assert result.x[2] < least


@pytest.mark.parametrize("shape", [0.3, 0.8])
def test_a_likelihood_that_rises_without_end_at_the_edge_of_its_domain_is_unbounded(shape):
    """With a shape below 1 the location runs into the least observation, beside which nothing is finite."""
    problem, least = weibull(500)
    result = tercet.minimize(problem, np.array([shape, 2.0, least - 1e-3]))
    assert result.status is Status.UNBOUNDED
    assert least - result.x[2] < 1e-12


def walls(kind: str, edge: float):
    """(x - 2)^2 / 2 as given functions, of which one is nan beyond the edge, which the first steps may cross."""

    def beyond(x):
        return np.nan if x[0] > edge else 1.0

    f = {
        "value": lambda x: 0.5 * (x[0] - 2.0) ** 2 + 0.1 * x[0] ** 4,
        "grad": lambda x: np.array([x[0] - 2.0 + 0.4 * x[0] ** 3]),
        "hess": lambda x: np.array([[1.0 + 1.2 * x[0] ** 2]]),
        "third": lambda x: np.array([[[2.4 * x[0]]]]),
    }
    f[kind] = (lambda plain: lambda x: beyond(x) * plain(x))(f[kind])
    return f


@pytest.mark.parametrize("kind", ["value", "grad", "hess", "third"])
@pytest.mark.parametrize("start", [-3.0, -1.0, 0.0])
@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR()], ids=["STM", "SCR"])
def test_a_derivative_that_is_not_finite_beyond_the_minimum_does_not_end_the_run(kind, start, method):
    """The minimum lies at 1.2; what is asked beyond 1.5 is not finite."""
    f = walls(kind, 1.5)
    result = tercet.minimize(
        f["value"], np.array([start]), grad=f["grad"], hess=f["hess"], third=f["third"], method=method
    )
    assert result.success, result.message
    assert result.x[0] - 2.0 + 0.4 * result.x[0] ** 3 == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("kind", ["value", "grad", "hess"])
def test_a_start_outside_the_domain_ends_the_run_at_once(kind):
    f = walls(kind, -5.0)
    result = tercet.minimize(f["value"], np.array([0.0]), grad=f["grad"], hess=f["hess"], third=f["third"])
    assert result.status is Status.NOT_FINITE
    assert result.nit == 0
    assert result.x[0] == 0.0


def test_a_minimum_that_lies_outside_the_domain_of_the_hessian_ends_the_run_at_the_best_point():
    f = walls("hess", 0.5)
    result = tercet.minimize(f["value"], np.array([-1.0]), grad=f["grad"], hess=f["hess"], max_iterations=60)
    assert not result.success
    assert result.fun <= f["value"](np.array([-1.0]))
    assert np.isfinite(result.fun)


def test_a_run_that_went_back_resumes_as_if_it_had_not_been_interrupted(tmp_path):
    problem, least = weibull(2000)
    x0 = np.array([2.9, 0.6, least - 0.05])
    whole = tercet.minimize(problem, x0)
    path = tmp_path / "run.npz"
    tercet.minimize(problem, x0, max_iterations=6, checkpoint=path)
    again = tercet.resume(path, problem, max_iterations=1000)
    assert again.x.tobytes() == whole.x.tobytes()
    assert again.counts == whole.counts
