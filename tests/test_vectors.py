"""Arithmetic on vectors, against NumPy's general functions."""

import numpy as np
import pytest

from tercet.vectors import combine, fits, largest, length

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("d", [1, 2, 7, 1000])
def test_the_length_and_the_largest_entry_are_those_of_numpy(d):
    for v in (RNG.standard_normal(d), -np.abs(RNG.standard_normal(d)), np.zeros(d)):
        assert length(v) == pytest.approx(np.linalg.norm(v), rel=1e-14)
        assert largest(v) == np.max(np.abs(v))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_combination_is_the_weighted_sum_and_leaves_its_vectors_alone(k):
    V, a = [RNG.standard_normal(30) for _ in range(k)], RNG.standard_normal(k)
    before = [v.copy() for v in V]
    np.testing.assert_allclose(combine(a, V), a @ np.array(V), rtol=1e-12, atol=1e-14)
    for v, kept in zip(V, before, strict=True):
        np.testing.assert_array_equal(v, kept)


@pytest.mark.parametrize("size", [1e-149, 1.0, 1e149])
def test_a_direction_has_a_square_that_is_a_number(size):
    assert fits(np.array([size, 0.0]))
    assert not fits(np.array([0.0, 0.0]))
