"""`GaussNewton`: its steps solve the models that they are said to solve, and its forecast is that of bent residuals."""

import numpy as np
import pytest

import tercet
from tercet.objectives.metered import Meter, Metered
from tercet.subsolvers.base import Ask, Taylor

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(5)
T = np.linspace(0.0, 3.0, 30)
Y = 2.0 * np.exp(-0.8 * T) + 0.4 + 0.1 * RNG.standard_normal(30)
P = np.array([2.1, 0.9, 0.45])


def residuals(p):
    return p[0] * jnp.exp(-p[1] * T) + p[2] - Y


def prepared(solver=None, p=P, third=True, residuals=residuals):
    objective = tercet.Residuals.of(residuals).bind(p).objective
    at = Metered.of(objective, Meter(1)).over(None).at(p)
    taylor = Taylor(at.gradient(), at, at if third else None, False)
    return (solver or tercet.GaussNewton()).prepare(taylor), at


def test_newton_where_the_hessian_is_positive_definite_and_gauss_newton_where_the_gradient_is_explained():
    workspace, at = prepared(tercet.GaussNewton(left=0.1))
    B, root, g = at.hessian(), at.residuals.linear().root, at.gradient()
    explained = workspace.solve(Ask(0.0, 0.0, 4, np.inf, False, 0.05))
    np.testing.assert_allclose(explained.s, -np.linalg.solve(root.T @ root, g), rtol=1e-9)
    workspace, _ = prepared(tercet.GaussNewton(left=0.1))
    not_explained = workspace.solve(Ask(0.0, 0.0, 4, np.inf, False, 0.5))
    np.testing.assert_allclose(not_explained.s, -np.linalg.solve(B, g), rtol=1e-9)
    assert explained.cubic is None


@pytest.mark.parametrize("radius", [1e-3, 0.02, 0.1])
@pytest.mark.parametrize("left", [0.0, 1.0])
def test_a_radius_that_binds_is_met_and_the_step_solves_a_shifted_system(radius, left):
    workspace, at = prepared(tercet.GaussNewton(left=left))
    step = workspace.solve(Ask(0.0, 0.0, 4, radius, False, 0.5))
    root = at.residuals.linear().root
    B = at.hessian() if left == 0.0 else root.T @ root
    assert np.linalg.norm(step.s) == pytest.approx(radius, rel=1e-9)
    pull = -(at.gradient() + B @ step.s)
    mu = float(pull @ step.s) / radius**2
    assert mu > 0
    np.testing.assert_allclose(pull, mu * step.s, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("power", [3, 4])
def test_a_regularizer_is_minimized(power):
    workspace, at = prepared(tercet.GaussNewton(left=1.0))
    s = workspace.solve(Ask(2.0, 2.0, power, np.inf, False, 0.5)).s
    root = at.residuals.linear().root
    gradient = at.gradient() + root.T @ (root @ s) + 2.0 * np.linalg.norm(s) ** (power - 2) * s
    np.testing.assert_allclose(gradient, 0, atol=1e-9)


def test_the_forecast_of_a_corrected_step_is_that_of_bent_residuals():
    workspace, _ = prepared()
    plain = workspace.solve(Ask(0.0, 0.0, 4, 0.05, False, 1.0)).s
    step = workspace.solve(Ask(0.0, 0.0, 4, 0.05, True, 1.0))
    u = step.s - plain
    with jax.enable_x64(True):
        r, J = np.asarray(residuals(P)), np.asarray(jax.jacfwd(residuals)(P))
        b = np.einsum("ijk,j,k->i", np.asarray(jax.jacfwd(jax.jacfwd(residuals))(P)), plain, plain)
    bent = r + J @ step.s + 0.5 * b
    assert 0 < np.linalg.norm(u) < 0.5 * np.linalg.norm(plain)
    assert step.cubic.decrease == pytest.approx(0.5 * (r @ r - bent @ bent), rel=1e-9)


def test_a_step_is_made_shorter_before_f_is_looked_at_where_the_valley_turns():
    def turning(p):
        return jnp.stack([100.0 * (p[1] - p[0] ** 2), 1.0 - p[0]])

    workspace, at = prepared(p=np.array([-1.2, 1.44]), residuals=turning)
    free = workspace.solve(Ask(0.0, 0.0, 4, 10.0, False, 1.0)).s
    bent = workspace.solve(Ask(0.0, 0.0, 4, 10.0, True, 1.0)).s
    assert np.linalg.norm(bent) < np.linalg.norm(free)
    assert at.view.meter.tally["value"] <= 1


def test_rows_fewer_than_variables():
    workspace, at = prepared(p=np.array([2.0, 3.0, 1.0]), residuals=lambda p: jnp.stack([p[0] * p[1] + p[2] - 1.0]))
    step = workspace.solve(Ask(0.0, 0.0, 4, np.inf, False, 0.0))
    assert np.all(np.isfinite(step.s))
    assert step.quadratic.decrease == pytest.approx(at.value(), rel=1e-9)


def test_an_objective_without_residuals_is_refused():
    method = tercet.STM(subsolver=tercet.GaussNewton())
    with pytest.raises(ValueError, match="does not know its residuals"):
        tercet.minimize(tercet.LinearModel(np.eye(3), np.ones(3), "squares"), method=method)


@pytest.mark.parametrize("settings", [{"left": -1.0}, {"bend": 0.0}, {"bend": np.inf}, {"left": np.nan}])
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match="GaussNewton"):
        tercet.GaussNewton(**settings)


def test_a_curved_valley_is_gone_through_in_few_looks():
    # MGH10 of NIST: MINPACK takes 126 evaluations from here
    t = np.arange(50.0, 130.0, 5.0)
    y = np.array(
        [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872.0]
    )
    problem = tercet.Residuals(lambda b, t, y: b[0] * jnp.exp(b[1] / (t + b[2])) - y, (t, y))
    result = tercet.minimize(problem, np.array([0.02, 4000.0, 250.0]))
    assert result.success
    np.testing.assert_allclose(result.x, [5.6096364710e-03, 6.1813463463e03, 3.4522363462e02], rtol=1e-7)
    assert result.counts.value / 16 <= 80
