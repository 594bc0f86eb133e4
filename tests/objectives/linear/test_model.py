"""`LinearModel`: every form of data is taken or refused by name, and never written to."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tercet.objectives.base import Traits
from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.model import DENSE_LIMIT, hessian_products
from tests.objectives.linear.models import D, N, build, data, metered


def strided(X):
    big = np.zeros((2 * X.shape[0], 3 * X.shape[1]))
    big[::2, ::3] = X
    return big[::2, ::3]


@pytest.mark.parametrize(
    "form",
    [
        sp.csr_array,
        sp.csr_matrix,
        sp.csc_array,
        sp.coo_array,
        sp.lil_array,
        pd.DataFrame,
        np.asfortranarray,
        strided,
        lambda X: X.tolist(),
        lambda X: X.astype(np.int32),
        lambda X: sp.csc_array(X.astype(np.int64)),
        lambda X: X.astype(np.float32),
    ],
    ids=["csr", "csr_matrix", "csc", "coo", "lil", "pandas", "fortran", "strided", "list", "int", "int_csc", "float32"],
)
@pytest.mark.parametrize("intercept", [False, True])
def test_every_form_of_X_gives_the_same_model(form, intercept):
    X, y, rng = data(4)
    X = np.round(3 * X)  # whole numbers, so that the integer forms hold the same
    plain_model = LinearModel(X, y, l2=0.1, intercept=intercept)
    model = LinearModel(form(X), y, l2=0.1, intercept=intercept)
    x = rng.standard_normal(model.d)
    a, b = plain_model.over(None).at(x), model.over(None).at(x)
    np.testing.assert_allclose(b.value(), a.value(), rtol=1e-14)
    np.testing.assert_allclose(b.gradient(), a.gradient(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b.hessian(), a.hessian(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b.product(3, x, x), a.product(3, x, x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.margins(form(X), x), plain_model.margins(X, x), rtol=1e-12, atol=1e-13)


def test_coo_entries_given_twice_are_added_and_the_input_is_left_alone():
    rows, cols, vals = [0, 0, 1, 0], [2, 0, 1, 2], [1.0, 5.0, 2.0, 4.0]  # (0, 2) twice, columns out of order
    X = sp.coo_array((vals, (rows, cols)), shape=(2, 3))
    model = LinearModel(X, [0, 1], "squares")
    dense = LinearModel([[5.0, 0, 5], [0, 2, 0]], [0, 1], "squares")
    np.testing.assert_array_equal(model.over(None).at(np.ones(3)).hessian(), dense.over(None).at(np.ones(3)).hessian())
    assert X.nnz == 4


def test_an_unsorted_csr_matrix_is_not_changed_and_gives_the_right_hessian():
    X = sp.csr_array((np.array([3.0, 1.0, 2.0]), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    model = LinearModel(X, [0, 1], "squares")
    np.testing.assert_array_equal(X.indices, [2, 0, 1])
    A = X.toarray()
    np.testing.assert_allclose(model.over(None).at(np.zeros(3)).hessian(), A.T @ A / 2, rtol=1e-15)


def test_floats_that_are_already_in_order_are_not_copied_and_never_written_to():
    X, y, rng = data(6)
    for given in (X, np.asfortranarray(X), strided(X), sp.csr_array(X), sp.csr_matrix(X)):
        model = LinearModel(given, y, l2=0.1)
        counted = metered(model)
        ours, theirs = (A.data if sp.issparse(A) else A for A in (model.A, given))
        assert np.shares_memory(ours, theirs)
        x = rng.standard_normal(D)
        for rows in (None, np.array([3, 1, 1]), np.arange(30)):
            view = counted.over(rows)
            point = view.at(x)
            point.value(), point.errors(), point.hessian(), point.third_square(x), point.third_tensor(np.eye(D))
            point.hessian_product(x), point.third_bound(np.eye(D)), view.start(x)
        np.testing.assert_array_equal(given.toarray() if sp.issparse(given) else given, X)


def test_data_that_may_not_be_written_to_is_taken():
    X, y, rng = data(6)
    x = rng.standard_normal(D)
    expected = LinearModel(X.copy(), y.copy()).over(None).at(x)
    A = sp.csr_array(X)
    for array in (X, y, A.data, A.indices, A.indptr):
        array.flags.writeable = False
    for given in (X, A):
        for rows in (None, np.arange(30)):
            point = LinearModel(given, y).over(rows).at(x)
            point.value(), point.gradient(), point.hessian(), point.product(3, x, x)
        whole = LinearModel(given, y).over(None).at(x)
        np.testing.assert_allclose(whole.gradient(), expected.gradient(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(whole.hessian(), expected.hessian(), rtol=1e-12, atol=1e-15)


def test_weights_are_scale_free_and_a_zero_weight_removes_a_row():
    X, y, rng = data(5)
    w, x = rng.random(N), rng.standard_normal(D)
    one, ten = (LinearModel(X, y, weights=c * w).over(None).at(x) for c in (1, 10))
    np.testing.assert_allclose(one.gradient(), ten.gradient(), rtol=1e-13)
    w = np.ones(N)
    w[-1] = 0
    without = LinearModel(X[:-1], y[:-1]).over(None).at(x)
    with_zero = LinearModel(X, y, weights=w).over(None).at(x)
    np.testing.assert_allclose(with_zero.hessian(), without.hessian(), rtol=1e-12, atol=1e-15)


def test_a_model_says_what_is_worth_knowing_of_it():
    X, y, _ = data(5)
    traits = LinearModel(X, y).traits
    told = {"images": True, "provenance": "closed-form derivatives", "hessian_products": traits.hessian_products}
    told["fewest"] = traits.fewest
    assert traits == Traits(dense=True, hessian_cost=2.0, **told)
    assert 0.0 < traits.hessian_products < 1.0  # of little data it takes less than the bookkeeping of one product
    assert traits.fewest == 2 * LinearModel(np.hstack([X, X]), y).traits.fewest  # rows twice as long, half as many
    wide = LinearModel(sp.csr_array((3, DENSE_LIMIT + 1)), y[:3])
    assert not wide.traits.dense
    assert wide.over(None).wide
    assert not LinearModel(sp.csr_array((3, DENSE_LIMIT)), y[:3]).over(None).wide


def test_bind_starts_at_zero_or_at_a_copy_of_x0():
    model, _ = build(intercept=True)
    np.testing.assert_array_equal(model.bind(None).x0, np.zeros(D + 1))
    x0 = np.arange(D + 1)
    bound = model.bind(x0)
    assert bound.x0.dtype == np.float64
    np.testing.assert_array_equal(bound.x0, x0)
    np.testing.assert_array_equal(bound.restore(bound.x0), x0)


# misuse -------------------------------------------------------------------------------------------------------------

X3, Y3 = np.eye(3), np.array([0.0, 1.0, 0.0])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_entry_of_X_that_is_not_finite_is_refused(sparse, bad):
    X = X3.copy()
    X[1, 1] = bad
    with pytest.raises(ValueError, match=r"LinearModel\(X="):
        LinearModel(sp.csr_array(X) if sparse else X, Y3)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"X": np.zeros((0, 3)), "y": []}, "X"),
        ({"X": np.zeros((3, 0))}, "X"),
        ({"X": sp.csr_array((3, 0))}, "X"),
        ({"X": np.ones(3)}, "X"),
        ({"X": np.ones((3, 3, 1))}, "X"),
        ({"y": Y3[:2]}, "y"),
        ({"y": Y3[:, None]}, "y"),
        ({"y": [0, np.nan, 1], "loss": "squares"}, "y"),
        ({"y": [0, np.inf, 1], "loss": "squares"}, "y"),
        ({"y": [-1, 1, 1]}, "y"),
        ({"l2": -1e-9}, "l2"),
        ({"l2": np.nan}, "l2"),
        ({"l2": np.inf}, "l2"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": np.nan}, "alpha"),
        ({"weights": [1, 1]}, "weights"),
        ({"weights": [1, -1, 1]}, "weights"),
        ({"weights": [0, 0, 0]}, "weights"),
        ({"weights": [1, np.nan, 1]}, "weights"),
        ({"weights": [1, np.inf, 1]}, "weights"),
    ],
    ids=lambda a: "" if isinstance(a, dict) else a,
)
def test_misuse_raises_and_names_the_argument(arguments, name):
    with pytest.raises(ValueError, match=rf"LinearModel\(.*\b{name}\b"):
        LinearModel(**{"X": X3, "y": Y3, **arguments})


def test_an_X_of_words_is_refused_by_name():
    with pytest.raises(ValueError, match=r"LinearModel\(X="):
        LinearModel([["a", "b"], ["c", "d"]], [0, 1])


@pytest.mark.parametrize("x0", [np.zeros(2), np.zeros((3, 1)), [np.nan, 0, 0], ["a", "b", "c"], [1j, 0, 0]])
def test_a_bad_start_is_refused_by_name(x0):
    with pytest.raises(ValueError, match="x0"):
        LinearModel(X3, Y3).bind(x0)


def test_margins_of_new_rows_with_another_number_of_columns_raise():
    with pytest.raises(ValueError, match="matmul"):
        LinearModel(X3, Y3).margins(np.ones((2, 4)), np.ones(3))


def test_a_hessian_is_dear_where_its_factorization_is_beside_products_and_not_where_there_are_many_rows():
    assert hessian_products(10**6, 20) < hessian_products(1000, 300) < hessian_products(300, 1000)
    assert hessian_products(10**5, 1000, 10**6) < hessian_products(10**4, 1000, 10**5)  # as many in a row
    assert hessian_products(1000, 500, 500_000 // 50) > hessian_products(1000, 50, 500)  # a sparse product costs little
