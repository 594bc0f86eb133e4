"""What every objective shares: traits, prices, the errors of a sampled gradient, checked starts, and digests."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tercet.objectives.base import (
    PRODUCTS,
    Priced,
    Traits,
    check_length,
    digest,
    group_errors,
    name_of,
    tensor_from_products,
    traits_of,
)
from tests.objectives.engines import sines


def test_an_objective_that_says_nothing_of_itself_takes_a_product_of_two_gradients_for_each_variable():
    assert traits_of(sines(d=4)) == Traits(dense=True, hessian_cost=8.0, provenance="derivatives as given")
    assert Traits.of(PRODUCTS).dense
    assert not Traits.of(PRODUCTS + 1).dense
    assert not Traits.of(4).forms_third
    assert not Traits.of(4).images


def test_what_an_objective_says_of_itself_is_taken():
    objective = sines(d=4)
    objective.traits = Traits(dense=False, hessian_cost=3.0)
    assert traits_of(objective) is objective.traits


def test_an_answer_costs_nothing_beside_what_it_says():
    answer = Priced(np.ones(2), third=4)
    assert (answer.value, answer.gradient, answer.hessian, answer.third) == (0, 0, 0, 4)
    with pytest.raises(FrozenInstanceError):
        answer.third = 0


@pytest.mark.parametrize("k", [1, 3])
def test_a_tensor_over_directions_takes_each_pair_of_them_once(k):
    rng, pairs = np.random.default_rng(0), []
    A, V = rng.standard_normal((6, 4)), rng.standard_normal((4, k))

    def product(u, v):
        pairs.append(1)
        return A.T @ ((A @ u) * (A @ v))

    T = tensor_from_products(product, V)
    np.testing.assert_allclose(T, np.einsum("ia,ib,ic->abc", A @ V, A @ V, A @ V), rtol=1e-12, atol=1e-13)
    assert len(pairs) == k * (k + 1) // 2


# the error of a sampled gradient ------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 15, 16, 32])
def test_groups_of_equal_size_err_by_the_spread_of_their_means(m):
    single, K = np.random.default_rng(m).standard_normal((m, 3)), min(16, m)
    means = np.stack([np.mean(single[k::K], axis=0) for k in range(K)])
    errors = group_errors(means * (m // K), m)
    np.testing.assert_allclose(errors, (means - means.mean(axis=0)) / np.sqrt(K * (K - 1)), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("m", [3, 17, 20, 31])
def test_errors_are_unbiased_also_where_groups_differ_in_size(m):
    """The mean of sum e e' over draws is the covariance of the mean of m independent gradients."""
    rng, squares = np.random.default_rng(m), []
    for _ in range(4000):
        single = rng.standard_normal((m, 2)) * [1.0, 3.0]
        e = group_errors(np.stack([np.sum(single[k::16], axis=0) for k in range(min(16, m))]), m)
        squares.append(e.T @ e)
    mean, error = np.mean(squares, axis=0), np.std(squares, axis=0) / np.sqrt(len(squares))
    expected = np.diag([1.0, 9.0]) / m
    assert np.all(np.abs(mean - expected) <= 4.5 * error)
    assert np.all(4.5 * np.diag(error) <= 0.1 * np.diag(expected))


def test_one_group_tells_nothing_of_its_error_and_the_gradient_stands_for_it():
    np.testing.assert_array_equal(group_errors(np.array([[2.0, 4.0]]), 4), [[0.5, 1.0]])


# starts and digests -------------------------------------------------------------------------------------------------


def test_a_start_is_a_float_vector_of_the_right_length():
    x = check_length("problem", [1, 2, 3], 3)
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, [1, 2, 3])
    given = np.ones(3)
    assert not np.shares_memory(check_length("problem", given, 3), given)


@pytest.mark.parametrize(
    ("x0", "match"),
    [
        ([[1.0], [2.0, 3.0]], "not a rectangular array"),
        (["a", "b", "c"], "has dtype"),
        ([1j, 0, 0], "has dtype complex128"),
        (np.ones(2), r"shape \(2,\), but the problem has 3 variables"),
        (np.ones((3, 1)), r"shape \(3, 1\)"),
        ([0.0, np.nan, 1.0], r"x0\[1\] is not finite"),
        ([0.0, 1.0, np.inf], r"x0\[2\] is not finite"),
    ],
)
def test_a_bad_start_is_refused_with_what_is_wrong(x0, match):
    with pytest.raises(ValueError, match=match):
        check_length("problem", x0, 3)


def test_a_digest_tells_arrays_apart_by_their_numbers_shapes_and_types():
    a = np.arange(6.0)
    given = (a, a.reshape(2, 3), a.astype(np.float32), a + 1e-15 * a, a[::-1])
    assert len({digest(array) for array in given}) == len(given)
    assert digest(a) == digest(a.copy()) == digest(np.repeat(a, 2)[::2])
    assert digest(a, a) != digest(a)
    assert digest(np.empty(0)) != digest(np.empty((0, 2)))


def test_a_function_is_known_by_its_name_and_code():
    def f(x):
        return x + 1

    one = name_of(f)

    def f(x):
        return x + 2

    assert name_of(f) != one
    assert one.startswith("test_a_function_is_known_by_its_name_and_code")
    assert name_of(3) == "3"
