"""The exact minimizer of g's + 1/2 s'Bs + sigma/p |s|^p within a radius, against optimality conditions and grids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.subsolvers.spectral import Cholesky, Tridiagonal
from tercet.subsolvers.spectral import regularized_step as tridiagonal_step


def regularized_step(values, c, sigma, power, radius):
    """With B given by its eigenvalues: a diagonal matrix is tridiagonal."""
    return tridiagonal_step(Tridiagonal(values, np.zeros(len(values) - 1)), c, sigma, power, radius)


def model(values, c, sigma, power, s):
    return float(c @ s + 0.5 * (values * s) @ s + sigma / power * np.linalg.norm(s) ** power)


def grid_minimum(values, c, sigma, power, radius, angles=4001):
    """The least value over the disc in two variables: along each of many rays the minimum is exact."""
    best = 0.0
    for angle in np.linspace(0, 2 * np.pi, angles):
        u = np.array([np.cos(angle), np.sin(angle)])
        a, b = float(c @ u), float((values * u) @ u)
        slope = [sigma, 0.0, b, a] if power == 4 else [sigma, b, a]
        roots = np.roots(slope)
        lengths = [float(t.real) for t in roots if abs(t.imag) <= 1e-9 * abs(t) and 0 < t.real <= radius]
        if np.isfinite(radius):
            lengths.append(radius)
        best = min([best, *(model(values, c, sigma, power, t * u) for t in lengths)])
    return best


def assert_global_minimizer(values, c, sigma, power, radius, s, mu):
    """The conditions that are necessary and sufficient for the global minimizer in the ball.

    A shift that is rounded to mu (1 + eps) leaves lambda_min + mu with the relative error eps mu / (lambda_min + mu).
    """
    r = float(np.linalg.norm(s))
    scale = max(np.abs(values).max(), np.linalg.norm(c), mu, 1e-300)
    rtol = 1e-9 + (1e-15 * mu / (values[0] + mu) if c[0] != 0 else 0.0)
    assert r <= radius * (1 + rtol)
    assert values[0] + mu >= -1e-12 * scale
    np.testing.assert_allclose((values + mu) * s, -c, rtol=0, atol=1e-9 * max(scale * r, np.linalg.norm(c)))
    own = sigma * r ** (power - 2)
    if r < radius * (1 - 1e-6):
        np.testing.assert_allclose(mu, own, rtol=rtol, atol=2e-14 * scale)  # the shift is the regularizer's own
    else:
        assert mu >= own * (1 - rtol)  # the radius acts like a larger sigma


CASES = {
    "convex": ([0.5, 2.0], [1.0, -1.0]),
    "indefinite": ([-1.0, 2.0], [0.3, 1.0]),
    "both negative": ([-3.0, -1.0], [0.2, -0.4]),
    "hard": ([-1.0, 2.0], [0.0, 1e-3]),
    "hard with a double eigenvalue": ([-1.0, -1.0], [0.0, 0.0]),
    "hard in name only": ([-1.0, 2.0], [0.0, 50.0]),
    "singular": ([0.0, 1.0], [0.0, 1.0]),
    "singular with slope": ([0.0, 1.0], [1.0, 1.0]),
    "no gradient at a saddle": ([-2.0, 1.0], [0.0, 0.0]),
    "no curvature": ([0.0, 0.0], [1.0, 2.0]),
    "stiff": ([1e-6, 1e6], [1.0, 1.0]),
    "large gradient": ([-1.0, 1.0], [1e6, -1e6]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("sigma", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("radius", [np.inf, 0.1])
def test_the_step_is_the_global_minimizer(case, power, sigma, radius):
    values, c = (np.array(a) for a in CASES[case])
    s, mu = regularized_step(values, c, sigma, power, radius)
    assert_global_minimizer(values, c, sigma, power, radius, s, mu)
    least = grid_minimum(values, c, sigma, power, radius, angles=721)
    assert model(values, c, sigma, power, s) <= least + 1e-10 * abs(least)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [3, 4])
def test_no_point_of_a_fine_grid_is_lower_and_some_point_is_as_low(seed, power):
    rng = np.random.default_rng(seed)
    values, c = np.sort(rng.standard_normal(2)), rng.standard_normal(2)
    sigma, radius = 10 ** rng.uniform(-1, 1), rng.choice([np.inf, 0.5])
    s, _ = regularized_step(values, c, sigma, power, radius)
    found, least = model(values, c, sigma, power, s), grid_minimum(values, c, sigma, power, radius)
    assert found <= least + 1e-12
    assert least <= found + 1e-5 * abs(found)  # the rays are 1.6e-3 apart, and the error is quadratic in that


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.floats(-6, 6),
    st.sampled_from([3, 4]),
    st.sampled_from([np.inf, 10.0, 1e-3]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_optimality_conditions_hold_for_any_spectrum(values, seed, log_sigma, power, radius, hard):
    values = np.sort(np.round(values, 6))  # no squares that underflow
    c = np.random.default_rng(seed).standard_normal(len(values))
    if hard:
        c[values - values[0] <= 1e-3] = 0.0  # the hard case, up to the lowest eigenvalue's cluster
    s, mu = regularized_step(values, c, 10.0**log_sigma, power, radius)
    assert_global_minimizer(values, c, 10.0**log_sigma, power, radius, s, mu)


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-18, 1e-16, 1e-15, 1e-13, 1e-11])
@pytest.mark.parametrize("radius", [1.0, 1e-3])
def test_the_radius_holds_when_the_gradient_is_all_but_orthogonal_to_the_lowest_eigenvector(tiny, radius):
    values, c = np.array([-1.0, 1.0]), np.array([tiny, 0.5 * radius])
    s, _ = regularized_step(values, c, 0.0, 4, radius)
    np.testing.assert_allclose(np.linalg.norm(s), radius, rtol=1e-6)


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-18, 1e-16, 1e-15, 1e-13, 1e-11])
def test_the_length_is_the_regularizers_own_when_the_gradient_is_all_but_orthogonal(tiny):
    values, c = np.array([-1.0, 1.0]), np.array([tiny, 0.5])
    s, _ = regularized_step(values, c, 1.0, 4, np.inf)
    np.testing.assert_allclose(np.linalg.norm(s), 1.0, rtol=1e-6)  # sigma |s|^2 = 1 = -lambda_min


@pytest.mark.parametrize("power", [3, 4])
def test_without_gradient_at_a_saddle_the_step_is_along_the_first_eigenvector(power):
    s, mu = regularized_step(np.array([-4.0, 1.0, 3.0]), np.zeros(3), 2.0, power, np.inf)
    assert mu == pytest.approx(4.0, rel=1e-12)
    np.testing.assert_allclose(np.abs(s), [2.0 ** (1 / (power - 2)), 0, 0], rtol=1e-12)


def test_without_gradient_at_a_minimum_there_is_no_step():
    for values in ([0.0, 0.0], [0.0, 2.0], [1.0, 2.0]):
        s, _ = regularized_step(np.array(values), np.zeros(2), 1.0, 4, np.inf)
        np.testing.assert_array_equal(s, 0.0)


def test_without_regularization_a_convex_step_is_newtons():
    values, c = np.array([0.5, 2.0, 7.0]), np.array([1.0, -2.0, 3.0])
    s, _ = regularized_step(values, c, 0.0, 3, np.inf)
    np.testing.assert_allclose(s, -c / values, rtol=1e-12)


def test_a_larger_sigma_gives_a_shorter_step_and_a_larger_shift():
    rng = np.random.default_rng(1)
    values, c = np.sort(rng.standard_normal(5)), rng.standard_normal(5)
    steps = [regularized_step(values, c, sigma, 4, np.inf) for sigma in np.logspace(-6, 6, 25)]
    lengths, shifts = [np.linalg.norm(s) for s, _ in steps], [mu for _, mu in steps]
    assert np.all(np.diff(lengths) < 0)
    assert np.all(np.diff(shifts) > 0)


# the tridiagonal form -----------------------------------------------------------------------------------------------

dimensions = pytest.mark.parametrize("d", [1, 2, 3, 40])
kinds = pytest.mark.parametrize("kind", ["positive", "indefinite", "negative", "diagonal", "singular"])


def symmetric(d, kind, seed=0):
    rng = np.random.default_rng([seed, d])
    G = rng.standard_normal((d, d))
    if kind == "positive":
        return G @ G.T / d + 0.1 * np.eye(d)
    if kind == "negative":
        return -G @ G.T / d - 0.1 * np.eye(d)
    if kind == "diagonal":
        return np.diag(rng.standard_normal(d))
    if kind == "singular":
        return np.outer(G[0], G[0])
    return (G + G.T) / 2 - 0.5 * np.eye(d)


def as_matrix(T):
    off = T.off[: len(T.diag) - 1]
    return np.diag(T.diag) + np.diag(off, 1) + np.diag(off, -1)


@dimensions
@kinds
def test_the_tridiagonal_form_rotates_back_to_the_matrix(d, kind):
    B = symmetric(d, kind)
    before = B.copy()
    T = Tridiagonal.of(B)
    np.testing.assert_array_equal(B, before)
    Q = T.rotate(np.eye(d), back=True)
    np.testing.assert_allclose(Q.T @ Q, np.eye(d), atol=1e-13)
    np.testing.assert_allclose(T.rotate(np.eye(d)), Q.T, atol=1e-13)
    np.testing.assert_allclose(Q @ as_matrix(T) @ Q.T, B, atol=1e-13 * max(1.0, np.linalg.norm(B, 2)))


@dimensions
def test_rotations_take_vectors_and_columns_and_leave_them_alone(d):
    T, rng = Tridiagonal.of(symmetric(d, "indefinite")), np.random.default_rng(d)
    columns = rng.standard_normal((d, 5))
    before = columns.copy()
    for held in (columns, np.asfortranarray(columns)):
        there = T.rotate(held)
        assert there.shape == (d, 5)
        np.testing.assert_array_equal(held, before)
        np.testing.assert_allclose(T.rotate(there, back=True), columns, atol=1e-13)
        for k in range(5):
            one = T.rotate(held[:, k])
            assert one.shape == (d,)
            np.testing.assert_allclose(one, there[:, k], atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(there, axis=0), np.linalg.norm(columns, axis=0), rtol=1e-13)
    np.testing.assert_array_equal(columns, before)
    assert T.rotate(np.empty((d, 0))).shape == (d, 0)


@dimensions
@kinds
def test_floor_lowest_and_bound_are_those_of_the_spectrum(d, kind):
    B = symmetric(d, kind)
    T, (values, vectors) = Tridiagonal.of(B), np.linalg.eigh(B)
    size = max(1.0, np.abs(values).max())
    np.testing.assert_allclose(T.floor, max(0.0, -values[0]), rtol=1e-12, atol=1e-13 * size)
    assert T.floor >= 0.0
    if kind == "positive":
        assert T.floor == 0.0
    assert np.abs(values).max() <= T.bound * (1 + 1e-14)
    assert T.bound <= 3 * size * (1 + 1e-14)  # Gershgorin's discs of a tridiagonal matrix
    v = T.rotate(T.lowest(), back=True)
    np.testing.assert_allclose(np.linalg.norm(v), 1.0, rtol=1e-13)
    np.testing.assert_allclose(B @ v, values[0] * v, atol=1e-12 * size)
    if kind != "singular":  # there lambda_min is multiple
        np.testing.assert_allclose(np.abs(v @ vectors[:, 0]), 1.0, rtol=1e-9)


@dimensions
@kinds
@pytest.mark.parametrize("above", [1e-3, 1.0, 1e3])
def test_solver_and_solutions_are_those_of_the_shifted_matrix(d, kind, above):
    B, rng = symmetric(d, kind), np.random.default_rng(d)
    T, errors = Tridiagonal.of(B), rng.standard_normal((4, d))
    shift = max(0.0, -np.linalg.eigvalsh(B)[0]) + above
    inverse = np.linalg.inv(B + shift * np.eye(d))
    np.testing.assert_allclose(T.solve(errors.T, shift), inverse @ errors.T, rtol=1e-7, atol=1e-9 / above)
    np.testing.assert_array_equal(T.solve(errors[0], shift), T.solve(errors[:1].T, shift)[:, 0])
    solve = T.solver(above)
    np.testing.assert_allclose(T.rotate(solve(T.rotate(errors[0])), back=True), inverse @ errors[0], rtol=1e-8)


@dimensions
@kinds
def test_a_cholesky_factor_is_that_of_a_definite_matrix_and_of_no_other(d, kind):
    B, v = symmetric(d, kind), np.random.default_rng(d).standard_normal((d, 2))
    definite = B + (1.0 - np.linalg.eigvalsh(B)[0]) * np.eye(d)
    root = Cholesky.of(definite)
    assert root is not None
    np.testing.assert_allclose(definite @ root.solve(v), v, rtol=1e-9, atol=1e-9 * np.linalg.norm(definite, 2))
    np.testing.assert_allclose(root.solve(v[:, 0]), root.solve(v)[:, 0], rtol=1e-12)
    assert Cholesky.of(definite - 2.0 * np.linalg.eigvalsh(definite)[0] * np.eye(d)) is None


@dimensions
@kinds
def test_solutions_are_numbers_that_bend_up_where_the_matrix_is_all_but_singular(d, kind):
    T, ones = Tridiagonal.of(symmetric(d, kind)), np.ones((d, 1))
    found = float(np.sum(ones * T.solve(ones, T.floor)))
    assert np.isfinite(found)
    assert found > 0


@dimensions
def test_a_solver_is_refused_where_the_shift_leaves_negative_curvature(d):
    T = Tridiagonal.of(symmetric(d, "negative"))
    assert T.solver(-0.5 * T.floor) is None
    assert T.solver(0.5 * T.floor) is not None


@dimensions
@kinds
@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("radius", [np.inf, 0.1])
def test_the_minimizer_over_a_full_matrix_meets_the_conditions_in_its_eigenvectors(d, kind, power, sigma, radius):
    B = symmetric(d, kind, seed=1)
    values, vectors = np.linalg.eigh(B)
    g = np.random.default_rng(d).standard_normal(d)
    s, mu = Tridiagonal.of(B).minimize(g, sigma, power, radius)
    assert_global_minimizer(values, vectors.T @ g, sigma, power, radius, vectors.T @ s, mu)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("curvature", [-4.0, -1.0, 0.0, 1.0])
def test_an_eigenvalue_that_is_rounding_leads_nowhere(seed, curvature):
    """B is singular but for some eps: the step is Newton's over the others, not one as long as the radius."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 30))
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = 10.0 ** rng.uniform(-3, 0, d)
    values[0], values[-1] = curvature * np.finfo(float).eps, 1.0
    B = (Q * values) @ Q.T
    B = 0.5 * (B + B.T)
    g = 1e-9 * Q[:, 1:] @ rng.standard_normal(d - 1)
    s, _ = Tridiagonal.of(B).minimize(g, 0.0, 3, 1e3)
    exact = -Q[:, 1:] @ ((Q[:, 1:].T @ g) / values[1:])
    assert np.linalg.norm(s) <= 2 * np.linalg.norm(exact) + 1e-6
