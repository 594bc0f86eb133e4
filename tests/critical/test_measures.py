"""The measures behind a certificate, against dense grids and known spectra."""

import numpy as np
import pytest

import tercet
from tercet.critical.measures import (
    LANCZOS_VECTORS,
    kernel_measure,
    largest_cubic,
    lowest_eigenpairs,
    lowest_pair,
    third_order_measure,
)
from tests.critical.points import SPECTRA, Polynomial, grid_largest, rotated, symmetric


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_largest_cubic_is_that_of_a_dense_grid(k, seed):
    T = symmetric(np.random.default_rng(seed), k)
    value, y = largest_cubic(lambda y: (T @ y) @ y, k, starts=32, seed=0)
    least = grid_largest(T)
    assert np.linalg.norm(y) == pytest.approx(1.0, rel=1e-12)
    assert abs(np.einsum("abc,a,b,c", T, y, y, y)) == pytest.approx(value, rel=1e-8)
    assert value >= least * (1 - 1e-9)
    assert value <= least * (1 + 1e-4)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_measure_of_a_formed_tensor_is_never_too_large_and_close_to_the_grid(k, seed):
    T = symmetric(np.random.default_rng(seed), k)
    least = grid_largest(T)
    assert least * (1 - 1e-3) <= third_order_measure(T) <= least * (1 + 1e-4)


def test_the_measure_of_nothing_is_zero():
    assert third_order_measure(np.zeros((0, 0, 0))) == 0.0
    assert third_order_measure(np.zeros((3, 3, 3))) == 0.0


@pytest.mark.parametrize("k", [3, 12])
def test_a_rank_one_tensor_has_the_cube_of_its_vector(k):
    """max |(a'y)^3| = |a|^3; 12 directions take the path of products."""
    a = np.random.default_rng(0).standard_normal(k)
    point = Polynomial(np.zeros(k), np.zeros((k, k)), np.einsum("a,b,c->abc", a, a, a))
    value, y, how = kernel_measure(point, np.eye(k), 0.0, 0)
    assert value == pytest.approx(np.linalg.norm(a) ** 3, rel=1e-8)
    np.testing.assert_allclose(np.abs(y), np.abs(a) / np.linalg.norm(a), atol=1e-4)
    assert ("power iteration" in how) == (k == 12)


# lowest eigenpairs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_lanczos_finds_the_lowest_eigenvalue_of_the_dense_problem(spectrum):
    values = SPECTRA[spectrum]
    point = Polynomial(np.zeros(len(values)), rotated(values))
    found, vectors = lowest_eigenpairs(point, len(values), False, 1e-3, 0)
    assert len(found) >= LANCZOS_VECTORS
    assert len(found) == len(values) or found[-1] > 1e-3  # nothing at or below zeta is left out
    assert found[0] == pytest.approx(values.min(), abs=2e-5 * np.abs(values).max() + 1e-12)
    v = vectors[:, 0]
    assert np.linalg.norm(v) == pytest.approx(1.0, rel=1e-6)
    assert np.all(np.diff(found) >= 0)
    np.testing.assert_allclose(v @ point.B @ v, found[0], atol=1e-6 * np.abs(values).max() + 1e-12)


def test_few_variables_take_products_instead_of_lanczos():
    point = Polynomial(np.zeros(5), rotated(np.arange(5.0) - 1))
    values, _ = lowest_eigenpairs(point, 5, False, 1e-3, 0)
    np.testing.assert_allclose(values, np.arange(5.0) - 1, atol=1e-13)
    assert point.products == 5


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(3))
def test_the_lowest_ritz_value_is_never_below_the_lowest_eigenvalue_and_has_its_sign(spectrum, seed):
    values = SPECTRA[spectrum]
    B = rotated(values)
    found, vectors = lowest_pair(lambda v: B @ v, len(values), seed)
    tiny = 1e-10 * max(1.0, np.max(np.abs(values)))
    assert found[0] >= values.min() - tiny
    assert (found[0] < -tiny) == (values.min() < -tiny)
    v = vectors[:, 0]
    assert np.linalg.norm(v) == pytest.approx(1.0, rel=1e-8)
    assert v @ B @ v == pytest.approx(found[0], abs=10 * tiny)


@pytest.mark.parametrize("d", [4000, 20000])
@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_a_convex_quadratic_of_many_variables_is_certified(d, spread):
    """ARPACK did not converge on such spectra, and chi_2 was nan."""
    a = np.logspace(0, np.log10(spread), d) / spread
    result = tercet.minimize(
        lambda x: 0.5 * float(a @ (x - 1.0) ** 2),
        np.zeros(d),
        grad=lambda x: a * (x - 1.0),
        hvp=lambda x, v: a * v,
        tvp=lambda x, u, v: np.zeros(d),
        tol=1e-6,
    )
    assert result.success, result.message
    assert result.certificate.chi2 == 0.0
