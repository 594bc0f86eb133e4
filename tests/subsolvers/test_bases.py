"""Two factorizations of one Gauss-Newton matrix give one step, and the cheap one says where it has not the digits."""

import numpy as np
import pytest

from tercet.objectives.residuals.linearized import Linearized
from tercet.subsolvers.base import Ask
from tercet.subsolvers.bases import Singular, Squared, is_heavy


def problem(m, d, condition, seed=0):
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((m, min(m, d))))[0]
    V = np.linalg.qr(rng.standard_normal((d, min(m, d))))[0]
    J = (U * np.geomspace(1.0, 1.0 / condition, min(m, d))) @ V.T
    linear = Linearized(np.concatenate([J, rng.standard_normal((m, 1))], axis=1))
    return linear, J, J.T @ linear.rows[:, -1]


def squared(linear, g):
    return Squared.of(linear.gram, g, lambda work, matrix: work(matrix))


@pytest.mark.parametrize(("sigma", "power", "radius"), [(0.0, 4, 0.3), (0.0, 4, np.inf), (0.5, 3, np.inf)])
def test_both_take_the_same_step_which_solves_a_shifted_system(sigma, power, radius):
    linear, J, g = problem(60, 12, 30.0)
    for basis in (squared(linear, g), Singular(linear, g, whole=False)):
        c, mu, solve = basis.minimize(Ask(sigma, sigma, power, radius, False, 0.0))
        s = basis.outside(c)
        np.testing.assert_allclose(J.T @ (J @ s) + mu * s, -g, atol=1e-11)
        assert np.linalg.norm(s) <= radius * (1 + 1e-9)
        assert (mu > 0) == (np.isfinite(radius) or sigma > 0)
        np.testing.assert_allclose(basis.inside(s), c, atol=1e-12)
        np.testing.assert_allclose(basis.outside(basis.times(c)), J.T @ (J @ s), atol=1e-12)
        v = np.arange(12.0)
        expected = np.linalg.solve(J.T @ J + mu * np.eye(12), v)
        np.testing.assert_allclose(basis.outside(solve(basis.inside(v))), expected, rtol=1e-9)


def test_the_square_refuses_what_it_has_no_digits_for_and_takes_it_with_a_shift():
    linear, J, g = problem(80, 20, 1e9)
    basis = squared(linear, g)
    assert basis.minimize(Ask(0.0, 0.0, 4, np.inf, False, 0.0)) is None
    exact = Singular(linear, g, whole=False).minimize(Ask(0.0, 0.0, 4, np.inf, False, 0.0))
    expected = -np.linalg.lstsq(J, linear.rows[:, -1], rcond=None)[0]
    np.testing.assert_allclose(Singular(linear, g, whole=False).outside(exact[0]), expected, rtol=1e-5)
    found = basis.minimize(Ask(0.0, 0.0, 4, 1.0, False, 0.0))
    assert found is not None
    shifted = np.linalg.solve(J.T @ J + found[1] * np.eye(20), -g)
    np.testing.assert_allclose(basis.outside(found[0]), shifted, rtol=1e-5, atol=1e-8)


def test_the_refusal_is_by_the_digits_of_the_step_not_by_luck():
    # whatever the condition, a step that is given agrees with the one of the singular values
    given = 0
    for seed in range(40):
        linear, _, g = problem(50, 15, 10.0 ** (seed / 4), seed)
        for radius in (0.01, 1.0, 100.0, np.inf):
            ask = Ask(0.0, 0.0, 4, radius, False, 0.0)
            basis, exact = squared(linear, g), Singular(linear, g, whole=False)
            found = basis.minimize(ask)
            if found is None:
                continue
            given += 1
            s, t = basis.outside(found[0]), exact.outside(exact.minimize(ask)[0])
            assert np.linalg.norm(s - t) <= 0.02 * np.linalg.norm(t)
    assert given >= 60


@pytest.mark.parametrize("whole", [False, True])
def test_fewer_rows_than_variables_take_coordinates_of_the_rows_alone_unless_all_are_asked_for(whole):
    linear, J, g = problem(5, 30, 10.0)
    basis = Singular(linear, g, whole)
    c, mu, _ = basis.minimize(Ask(0.0, 0.0, 4, np.inf, False, 0.0))
    assert len(c) == (30 if whole else 5)
    assert mu == 0.0
    np.testing.assert_allclose(basis.outside(c), -np.linalg.pinv(J) @ linear.rows[:, -1], atol=1e-11)
    assert not is_heavy(linear)


def test_units_are_taken_from_what_was_factored_once():
    linear, J, g = problem(40, 6, 5.0)
    E = np.geomspace(0.1, 10.0, 6)
    scaled = linear.scaled(E)
    np.testing.assert_allclose(scaled.gram, (J * E).T @ (J * E), atol=1e-13)
    np.testing.assert_allclose(scaled.root.T @ scaled.image, E * g, atol=1e-12)
    assert scaled.along(np.ones(6)) == pytest.approx(float(np.sum((J @ E) ** 2)))
    assert scaled.own.triangle is linear.triangle
