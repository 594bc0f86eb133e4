"""Linear models: every derivative against automatic differentiation of the plain formula, and the reuse of Hessians."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tercet.objectives import linear, tables
from tercet.objectives.linear import LinearModel, Reference
from tercet.objectives.tables import Picked

LOSSES = {
    "sigmoid_squares": lambda z, y: 0.5 * (1 / (1 + jnp.exp(-z)) - y) ** 2,
    "logistic": lambda z, y: jnp.log(1 + jnp.exp(z)) - y * z,
    "squares": lambda z, y: 0.5 * (z - y) ** 2,
    "cauchy": lambda z, y: 0.5 * 1.7**2 * jnp.log(1 + ((z - y) / 1.7) ** 2),
}
N, D = 47, 5


def data(seed=0, n=N, d=D, density=0.6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    y = (rng.random(n) < 0.5).astype(float)
    return X, y, rng


def build(loss="sigmoid_squares", *, sparse=False, weighted=False, intercept=False, l2=0.0, alpha=0.0, **sizes):
    X, y, rng = data(**sizes)
    weights = rng.random(len(y)) + 0.1 if weighted else None
    model = LinearModel(
        sp.csr_array(X) if sparse else X,
        y,
        loss,
        l2=l2,
        alpha=alpha,
        scale=1.7 if loss == "cauchy" else None,
        weights=weights,
        intercept=intercept,
    )
    return model, (X, y, weights)


@partial(jax.jit, static_argnums=0)
def automatic(loss, A, y, w, mask, l2, alpha, x):
    """(1/m) sum w_i l(a_i'x, y_i) + penalty and its first three derivatives."""

    def f(x):
        penalty = l2 / 2 * jnp.sum(mask * x**2) + alpha * jnp.sum(mask * x**2 / (1 + x**2))
        return jnp.sum(w * LOSSES[loss](A @ x, y)) / len(y) + penalty

    return f(x), jax.grad(f)(x), jax.hessian(f)(x), jax.jacfwd(jax.hessian(f))(x)


def plain(loss, X, y, weights, l2, alpha, intercept, rows=None):
    """The derivatives of the plain formula over some rows, with weights of mean one over all rows."""
    w = np.ones(len(y)) if weights is None else weights * len(y) / weights.sum()
    A = np.column_stack([X, np.ones(len(y))]) if intercept else X
    index = np.arange(len(y)) if rows is None else rows
    mask = np.ones(A.shape[1])
    mask[-1] = 0.0 if intercept else 1.0

    def at(x):
        with jax.enable_x64(True):
            parts = automatic(loss, A[index], y[index], w[index], mask, float(l2), float(alpha), x)
            return [np.asarray(part) for part in parts]

    return at


def assert_derivatives(point, plain_at, x, rng, rtol=1e-11, atol=1e-13):
    """Value, gradient, Hessian and third derivative of a point, formed and as products, against JAX."""
    d = len(x)
    value, g, B, T = plain_at(x)
    u, v = rng.standard_normal((2, d))
    V = rng.standard_normal((d, 3))
    np.testing.assert_allclose(point.value(), value, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.gradient(), g, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.hessian(), B, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.hessian_product(v), B @ v, rtol=rtol, atol=atol)
    np.testing.assert_allclose(point.third_product(u, v), T @ v @ u, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_product(u, u), T @ u @ u, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_tensor(np.eye(d)), T, rtol=1e-10, atol=1e-12)
    expected = np.einsum("abc,ai,bj,ck->ijk", T, V, V, V)
    np.testing.assert_allclose(point.third_tensor(V), expected, rtol=1e-10, atol=1e-11)


# derivatives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("weighted", "intercept", "l2", "alpha"), [(False, False, 0, 0), (True, True, 0.3, 0.2)])
def test_derivatives_equal_automatic_differentiation(loss, sparse, weighted, intercept, l2, alpha):
    model, given = build(loss, sparse=sparse, weighted=weighted, intercept=intercept, l2=l2, alpha=alpha)
    rng = np.random.default_rng(1)
    x = rng.standard_normal(model.d)
    assert_derivatives(model.over(None).at(x), plain(loss, *given, l2, alpha, intercept), x, rng)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sample_with_repeats_is_the_mean_over_its_list(sparse):
    model, given = build(sparse=sparse, weighted=True, intercept=True, l2=0.1, alpha=0.4)
    rng = np.random.default_rng(2)
    rows = np.array([3, 3, 3, 0, 46, 17, 17, 9])
    x = rng.standard_normal(model.d)
    point = model.over(rows).at(x)
    assert point.terms == 8
    assert_derivatives(point, plain("sigmoid_squares", *given, 0.1, 0.4, True, rows), x, rng)


def test_the_whole_is_the_mean_of_single_rows():
    model, _ = build(weighted=True, l2=0.2)
    x = np.random.default_rng(3).standard_normal(D)
    singles = [model.over(np.array([i])).at(x) for i in range(N)]
    whole = model.over(None).at(x)
    np.testing.assert_allclose(np.mean([p.value() for p in singles]), whole.value(), rtol=1e-13)
    np.testing.assert_allclose(np.mean([p.gradient() for p in singles], axis=0), whole.gradient(), atol=1e-14)
    np.testing.assert_allclose(np.mean([p.hessian() for p in singles], axis=0), whole.hessian(), atol=1e-14)


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
    np.testing.assert_allclose(b.third_product(x, x), a.third_product(x, x), rtol=1e-12, atol=1e-14)
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
        ours, theirs = (A.data if sp.issparse(A) else A for A in (model.A, given))
        assert np.shares_memory(ours, theirs)
        x = rng.standard_normal(D)
        for rows in (None, np.array([3, 1, 1]), np.arange(30)):
            point = model.over(rows).at(x)
            (
                point.value(),
                point.gradient_errors(),
                point.hessian(),
                point.third_square(x),
                point.third_tensor(np.eye(D)),
            )
            model.over(rows).settle(x)
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
            point.value(), point.gradient(), point.hessian(), point.third_product(x, x)
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


def test_bind_starts_at_zero_or_at_a_copy_of_x0():
    model, _ = build(intercept=True)
    np.testing.assert_array_equal(model.bind(None).x0, np.zeros(D + 1))
    x0 = np.arange(D + 1)
    bound = model.bind(x0)
    assert bound.x0.dtype == np.float64
    np.testing.assert_array_equal(bound.x0, x0)
    np.testing.assert_array_equal(bound.restore(bound.x0), x0)


# the Gram matrix ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gram_of_no_rows_at_all_is_zero(sparse):
    model, _ = build(sparse=sparse)
    np.testing.assert_array_equal(model.rows.table.gram(np.zeros(N)), np.zeros((D, D)))


# reuse of Hessians --------------------------------------------------------------------------------------------------


def rule(A, w, loss, y, past, x, stale, terms, penalty):
    """The rule of reuse, written out: rows within `stale` of the coefficient they were formed with keep it."""
    c = loss.derivatives(A @ x, y)[2] * (1.0 if w is None else w)
    new = np.isnan(past) | (np.abs(c - past) > stale * np.abs(past))
    kept = np.where(new, c, past)
    return int(new.sum()), A.T @ np.diag(kept) @ A / terms + np.diag(penalty.curvature(x)), c, kept


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("stale", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("nested", ["same", "same in another order", "prefix", "prefix of all", "all"])
def test_a_reused_hessian_follows_the_rule_exactly_and_stays_within_its_bound(sparse, stale, nested):
    model, (X, _, _) = build(sparse=sparse, weighted=True, l2=0.3, alpha=0.1, n=80)
    rng = np.random.default_rng(6)
    order = rng.permutation(80)
    x1 = rng.standard_normal(D)
    x2 = x1 + 0.1 * rng.standard_normal(D)
    first, second = {
        "same": (order[:50], order[:50]),
        "same in another order": (order[:50], order[:50][::-1]),
        "prefix": (order[:20], order[:50]),
        "prefix of all": (order[:50], None),
        "all": (None, None),
    }[nested]
    point = replace(model.over(first), stale=stale).at(x1)
    point.hessian()
    view = replace(model.over(second), stale=stale)
    reused = view.at(x2, near=point)

    where = np.arange(80) if second is None else np.sort(second)
    past_by_row = np.full(80, np.nan)
    past_by_row[np.arange(80) if first is None else np.sort(first)] = point.coefficients(2)
    past, A = past_by_row[where], X[where]
    price, expected, c, kept = rule(A, view.w, model.loss, view.y, past, x2, stale, len(where), view.penalty)
    assert reused.hessian_price() == price
    np.testing.assert_allclose(reused.hessian(), expected, rtol=1e-12, atol=1e-14)

    fresh = view.at(x2)
    assert fresh.hessian_price() == len(where)
    # Bound: v'(B - B_fresh)v = (1/m) sum (kept - c)(a'v)^2, and |kept - c| <= stale |kept|.
    bound = np.linalg.norm(A.T @ np.diag(stale * np.abs(kept)) @ A / len(where), 2)
    assert np.linalg.norm(reused.hessian() - fresh.hessian(), 2) <= bound + 1e-14
    if stale == 0.0:
        np.testing.assert_allclose(reused.hessian(), fresh.hessian(), rtol=1e-12, atol=1e-14)
    else:
        assert 0 < price < len(where), "the example must keep some rows and renew others"
        assert np.any(kept != c)


def test_a_chain_of_reuse_does_not_drift():
    """Every row stays within `stale` of the exact coefficient however many small steps were made."""
    model, (X, _, _) = build(n=80)
    view, rng = model.over(None), np.random.default_rng(7)
    x, direction = rng.standard_normal(D), rng.standard_normal(D)
    point = view.at(x)
    point.hessian()
    kept_once = 0
    for _ in range(40):
        x = x + 0.02 * direction
        point = view.at(x, near=point)
        B, exact = point.hessian(), view.at(x)
        kept_once += point.hessian_price() < 80
        kept = point.reference.c
        assert np.all(np.abs(kept - exact.coefficients(2)) <= view.stale * np.abs(kept) * (1 + 1e-15))
        bound = np.linalg.norm(X.T @ np.diag(view.stale * np.abs(kept)) @ X / 80, 2)
        assert np.linalg.norm(B - exact.hessian(), 2) <= bound + 1e-13
    assert kept_once == 40


def test_nothing_is_reused_from_a_point_whose_hessian_was_never_formed():
    model, _ = build()
    x = np.ones(D)
    untouched = model.over(None).at(x)
    untouched.gradient()
    assert model.over(None).at(x, near=untouched).hessian_price() == N


def test_the_same_point_again_costs_nothing_and_gives_the_same():
    model, _ = build(l2=0.1)
    x = np.ones(D)
    p = model.over(None).at(x)
    B = p.hessian()
    again = model.over(None).at(x, near=p)
    assert again.hessian_price() == 0
    np.testing.assert_allclose(again.hessian(), B, rtol=1e-14)


@pytest.mark.parametrize(
    ("reference", "view"),
    [([0, 1, 2], [0, 1, 3, 4]), (None, [0, 1, 2]), ([0, 1, 2, 3], [0, 1, 2]), ([0, 0, 1], [0, 1, 2]), ([5], [0, 1])],
    ids=["other rows", "all into a sample", "longer into shorter", "repeats", "beyond the last row"],
)
def test_sets_that_are_not_nested_share_nothing(reference, view):
    model, _ = build()
    x = np.ones(D)
    p = model.over(None if reference is None else np.array(reference)).at(x)
    p.hessian()
    q = model.over(np.array(view)).at(x, near=p)
    assert q.hessian_price() == len(view)
    np.testing.assert_allclose(q.hessian(), model.over(np.array(view)).at(x).hessian(), rtol=1e-15)


def test_a_reference_with_repeated_rows_does_not_spoil_the_full_hessian():
    """A sample drawn with replacement holds a row twice in its Gram matrix; the full sum holds it once."""
    model, _ = build()
    x = np.ones(D)
    p = model.over(np.array([0, 0, 1, 2, 2])).at(x)
    p.hessian()
    q = model.over(None).at(x, near=p)
    np.testing.assert_allclose(q.hessian(), model.over(None).at(x).hessian(), rtol=1e-12, atol=1e-14)


def test_the_hessian_that_is_handed_out_may_be_written_to():
    model, _ = build(l2=0.1)
    x = np.ones(D)
    p = model.over(None).at(x)
    B = p.hessian()
    before = B.copy()
    B[:] = 0.0
    np.testing.assert_array_equal(p.hessian(), before)


def test_a_sample_drawn_twice_in_another_order_is_the_same_sample():
    model, _ = build(weighted=True, l2=0.1)
    x, rows = np.ones(D), np.array([9, 2, 30, 2, 17])
    one, other = model.over(rows).at(x), model.over(rows[[4, 1, 0, 3, 2]]).at(x)
    assert one.value() == other.value()
    np.testing.assert_array_equal(one.gradient(), other.gradient())
    np.testing.assert_array_equal(one.gradient_errors(), other.gradient_errors())
    np.testing.assert_array_equal(one.hessian(), other.hessian())


ROWS = np.array([1, 4, 6])
REFERENCE = Reference(ROWS, np.array([1.0, 2.0, 3.0]), np.eye(2))


@pytest.mark.parametrize(
    ("rows", "terms", "expected"),
    [
        (ROWS, 3, [1, 2, 3]),
        (ROWS.copy(), 3, [1, 2, 3]),
        (np.array([0, 1, 4, 5, 6, 8]), 6, [np.nan, 1, 2, np.nan, 3, np.nan]),
        (np.array([1, 4, 5, 6]), 4, [1, 2, np.nan, 3]),
        (None, 9, [np.nan, 1, np.nan, np.nan, 2, np.nan, 3, np.nan, np.nan]),
        (None, 7, [np.nan, 1, np.nan, np.nan, 2, np.nan, 3]),
        (np.array([0, 0, 1, 4, 6]), 5, [np.nan, np.nan, 1, 2, 3]),
        (np.array([1, 4]), 2, None),
        (np.array([1, 4, 5]), 3, None),
        (np.array([0, 2, 3]), 3, None),
        (np.array([7, 8, 9]), 3, None),
        (np.array([1, 1, 4, 6]), 4, None),
    ],
    ids=str,
)
def test_a_reference_is_laid_out_over_a_larger_set_of_rows(rows, terms, expected):
    found = REFERENCE.over(rows, terms)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(found, expected)


def test_a_reference_over_all_rows_serves_all_rows_only():
    full = Reference(None, np.arange(4.0), np.eye(2))
    np.testing.assert_array_equal(full.over(None, 4), np.arange(4.0))
    assert full.over(np.arange(4), 4) is None
    assert full.over(np.array([0, 1]), 2) is None


def test_a_reference_with_a_row_twice_is_not_laid_out_over_rows_that_hold_it_once():
    twice = Reference(np.array([0, 2, 2]), np.array([1.0, 2.0, 2.0]), np.eye(2))
    assert twice.over(None, 4) is None
    assert twice.over(np.array([0, 1, 2]), 3) is None
    np.testing.assert_array_equal(twice.over(np.array([0, 2, 2]), 3), twice.c)


def test_what_a_reference_lays_out_can_be_written_to_without_changing_it():
    found = REFERENCE.over(None, 9)
    found[:] = 0.0
    np.testing.assert_array_equal(REFERENCE.c, [1, 2, 3])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_point_that_reuses_does_not_change_the_one_it_borrowed_from(compiled):
    model, _ = build(weighted=True, n=80)
    view, rng = replace(model.over(None), compiled=compiled), np.random.default_rng(15)
    x = rng.standard_normal(D)
    p = view.at(x)
    B, c, gram = p.hessian(), p.reference.c.copy(), p.reference.gram.copy()
    for _ in range(3):
        view.at(x + 0.05 * rng.standard_normal(D), near=p).hessian()
    np.testing.assert_array_equal(p.reference.c, c)
    np.testing.assert_array_equal(p.reference.gram, gram)
    np.testing.assert_array_equal(p.hessian(), B)


def test_a_reference_that_was_not_formed_gives_way_to_what_the_point_knew():
    model, _ = build(n=80)
    view, x = model.over(None), np.ones(D)
    p = model.over(np.arange(50)).at(x)
    p.hessian()
    q = view.at(x + 0.01, near=p)
    q.gradient()  # and no Hessian
    r = view.at(x, near=q)
    assert r.known is p.reference
    assert r.hessian_price() == 30
    q.hessian()
    assert view.at(x, near=q).known is q.reference


def test_a_memento_brings_back_the_same_hessian_over_a_sample_and_over_all():
    model, _ = build(weighted=True, n=80)
    order, x = np.random.default_rng(16).permutation(80), np.ones(D)
    for first, second in ((order[:30], order[:30]), (order[:30], order[:60]), (order[:30], None), (None, None)):
        p = model.over(first).at(x)
        p.hessian()
        q = model.over(second).at(x + 0.02, near=p)
        again = model.over(second).recall(x + 0.02, q.memento())
        assert again.hessian_price() == q.hessian_price() < q.terms
        np.testing.assert_array_equal(again.hessian(), q.hessian())
    fresh = model.over(None).at(x)
    assert fresh.memento() == {}
    assert model.over(None).recall(x, {}).hessian_price() == 80


# third derivatives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_third_square_with_nothing_left_out_is_the_third_product(sparse):
    model, _ = build(sparse=sparse, weighted=True, alpha=0.2)
    view, rng = replace(model.over(None), straight=0.0), np.random.default_rng(8)
    s = rng.standard_normal(D)
    point = view.at(rng.standard_normal(D))
    np.testing.assert_allclose(point.third_square(s), point.third_product(s, s), rtol=1e-13, atol=1e-15)
    used = np.count_nonzero((point.coefficients(3) != 0) & (view.table.times(s) != 0))
    assert point.third_square_price(s) == used


@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 10.0])
def test_third_square_is_within_the_bound_of_the_rows_left_out(length):
    """Rows with 1/2 |l''' a's| <= straight |l''| are left out: each misses at most 2 straight |l'' a's| |a|."""
    model, (X, _, _) = build(n=80, weighted=True, alpha=0.2)
    view, rng = model.over(None), np.random.default_rng(9)
    point, s = view.at(rng.standard_normal(D)), rng.standard_normal(D)
    s *= length / np.linalg.norm(s)
    c2, c3, As = point.coefficients(2), point.coefficients(3), X @ s
    out = 0.5 * np.abs(c3 * As) <= view.straight * np.abs(c2)
    assert point.third_square_price(s) == 80 - out.sum()
    missing = np.abs(point.third_square(s) - point.third_product(s, s))
    bound = np.abs(X).T @ np.where(out, 2 * view.straight * np.abs(c2 * As), 0.0) / 80
    assert np.all(missing <= bound + 1e-15)
    expected = X.T @ np.where(out, 0.0, c3 * As**2) / 80 + view.penalty.third(point.x) * s * s
    np.testing.assert_allclose(point.third_square(s), expected, rtol=1e-12, atol=1e-15)


def test_third_square_notices_another_step_at_the_same_point():
    model, _ = build()
    point, rng = model.over(None).at(np.ones(D)), np.random.default_rng(10)
    for s in rng.standard_normal((3, D)):
        fresh = model.over(None).at(np.ones(D))
        np.testing.assert_array_equal(point.third_square(s), fresh.third_square(s))


@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy"])
@pytest.mark.parametrize("k", [1, 2, D])
def test_third_bound_is_never_exceeded(loss, k):
    model, _ = build(loss, weighted=True, alpha=0.5, l2=0.1)
    rng = np.random.default_rng(11)
    for _ in range(5):
        point = model.over(rng.integers(0, N, 20)).at(rng.standard_normal(D))
        V = np.linalg.qr(rng.standard_normal((D, k)))[0]
        Z = rng.standard_normal((400, k))
        Z /= np.linalg.norm(Z, axis=1)[:, None]
        T = point.third_tensor(V)
        largest = np.abs(np.einsum("abc,ia,ib,ic->i", T, Z, Z, Z)).max()
        assert 0 < largest <= point.third_bound(V)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 2, D])
def test_the_bounds_on_the_third_derivative_are_ordered_by_their_effort(sparse, k):
    """Over the span of V with |V'a_i|, with |a_i|, and over all directions: each at least the one before."""
    model, _ = build(sparse=sparse, weighted=True, alpha=0.5, l2=0.1)
    rng = np.random.default_rng(18)
    for rows in (None, rng.integers(0, N, 20), np.array([3, 7])):
        point = model.over(rows).at(rng.standard_normal(D))
        V = np.linalg.qr(rng.standard_normal((D, k)))[0]
        Z = rng.standard_normal((400, k))
        Z /= np.linalg.norm(Z, axis=1)[:, None]
        largest = np.abs(np.einsum("abc,ia,ib,ic->i", point.third_tensor(V), Z, Z, Z)).max()
        tight, plain_bound, everywhere = point.third_bound(V, tight=True), point.third_bound(V), point.third_bound(None)
        assert 0 < largest <= tight <= plain_bound * (1 + 1e-12)
        assert plain_bound <= everywhere * (1 + 1e-12)
        assert np.isfinite(everywhere)


# the sampling error of the gradient ---------------------------------------------------------------------------------


def assert_covariance(squares, expected, power):
    """The mean of many estimates is the covariance they estimate, within its own standard error."""
    mean, error = squares.mean(axis=0), squares.std(axis=0) / np.sqrt(len(squares))
    assert np.all(np.abs(mean - expected) <= 4.5 * error)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.all(4.5 * error <= power * scale), "too few draws to tell"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [20, 64])
def test_gradient_errors_estimate_the_covariance_of_the_sampled_gradient(sparse, m):
    """The groups are the same for every sample of m rows; rows in random order make them random for the data."""
    model, (X, y, weights) = build(sparse=sparse, weighted=True, l2=0.5, n=200, d=3)
    rng = np.random.default_rng(12)
    x = rng.standard_normal(3)
    every = X * model.over(None).at(x).coefficients(1)[:, None]
    expected = np.cov(every.T, bias=True) / m  # of the mean of m independent draws
    squares, gradients = [], []
    for _ in range(1500):
        order = rng.permutation(200)
        shuffled = LinearModel(model.A[order], y[order], l2=0.5, weights=weights[order])
        point = shuffled.over(rng.integers(0, 200, m)).at(x)
        e = point.gradient_errors()
        squares.append(e.T @ e)
        gradients.append(point.gradient())
    assert_covariance(np.array(squares), expected, power=0.1)
    away = np.array(gradients) - model.over(None).at(x).gradient()
    assert_covariance(away[:, :, None] * away[:, None, :], expected, power=0.25)


def test_gradient_errors_of_a_single_row_are_its_gradient_and_of_equal_rows_vanish():
    model, _ = build()
    point = model.over(np.array([3])).at(np.ones(D))
    assert point.gradient_errors().shape == (1, D)
    own = point.gradient() - point.view.penalty.gradient(point.x)  # the penalty is no matter of sampling
    np.testing.assert_allclose(point.gradient_errors()[0], own, rtol=1e-13)
    same = model.over(np.full(40, 3)).at(np.ones(D)).gradient_errors()
    np.testing.assert_allclose(same, 0.0, atol=1e-16)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [2, 15, 16, 48])
def test_gradient_errors_come_from_up_to_16_groups_of_equal_size(sparse, m):
    model, (X, _, _) = build(sparse=sparse, weighted=True, l2=0.5, n=200, d=3)
    rng = np.random.default_rng(17)
    x, picked = rng.standard_normal(3), Picked.of(rng.permutation(200)[:m])
    every = (X * model.over(None).at(x).coefficients(1)[:, None])[picked.rows]
    K = min(16, m)
    means = np.array([every[picked.labels == k].mean(axis=0) for k in range(K)])
    errors = model.over(picked.rows).at(x).gradient_errors()
    np.testing.assert_allclose(errors, (means - means.mean(axis=0)) / np.sqrt(K * (K - 1)), rtol=1e-10, atol=1e-15)


# settle -------------------------------------------------------------------------------------------------------------


def low_rank(rng, m, d, rank, sparse):
    A = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d))
    return sp.csr_array(A) if sparse else A


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rank", [2, 4])
def test_settle_keeps_the_margins_and_minimizes_the_penalty(sparse, intercept, rank):
    rng = np.random.default_rng(13)
    A = low_rank(rng, 30, 6, rank, sparse)
    model = LinearModel(A, rng.integers(0, 2, 30), l2=0.7, intercept=intercept)
    x = 5 * rng.standard_normal(model.d)
    for rows in (None, np.array([2, 5])):
        view = model.over(rows)
        settled = view.settle(x)
        dense = (model.A.toarray() if sparse else model.A)[slice(None) if rows is None else rows]
        np.testing.assert_allclose(dense @ settled, dense @ x, rtol=1e-9, atol=1e-9)
        assert view.penalty.value(settled) < view.penalty.value(x)
        # The best is the minimizer of |mask * x'|^2 over x' = x + N t, N a basis of the kernel of A.
        _, values, Vt = np.linalg.svd(dense)
        N = Vt[np.count_nonzero(values > 1e-9 * values[0]) :].T
        mask = view.penalty.mask
        t = np.linalg.lstsq(mask[:, None] * N, -mask * x, rcond=None)[0]
        np.testing.assert_allclose(view.penalty.value(settled), view.penalty.value(x + N @ t), rtol=1e-9)
        slopes = mask > 0
        np.testing.assert_allclose(settled[slopes], (x + N @ t)[slopes], rtol=1e-8, atol=1e-9)


def test_settle_does_nothing_where_all_directions_are_seen_or_nothing_is_penalized():
    model, _ = build(l2=0.1)
    x = np.random.default_rng(14).standard_normal(D)
    np.testing.assert_allclose(model.over(None).settle(x), x, rtol=1e-14)
    rows = np.array([0, 1])
    np.testing.assert_array_equal(build(l2=0.0)[0].over(rows).settle(x), x)
    np.testing.assert_array_equal(build(l2=0.1, alpha=0.1)[0].over(rows).settle(x), x)


def test_settle_leaves_an_intercept_alone_that_the_rows_see():
    X = np.zeros((4, 3))
    X[:, 0] = [1, 2, 3, 4]
    model = LinearModel(X, [0, 1, 0, 1], l2=1.0, intercept=True)
    settled = model.over(None).settle(np.array([2.0, 3.0, 4.0, 100.0]))
    np.testing.assert_allclose(settled, [2, 0, 0, 100], atol=1e-10)


def test_settle_keeps_the_margins_of_a_badly_scaled_column():
    """A column in small units is seen by the rows all the same: its coefficient must survive."""
    X = np.array([[1.0, 0.0], [1.0, 1e-7], [2.0, -1e-7]])
    view = LinearModel(X, [0, 1, 0], l2=1e-3).over(None)
    x = np.array([0.5, 2e7])
    np.testing.assert_allclose(X @ view.settle(x), X @ x, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_settle_of_many_variables_clears_the_columns_without_entries(sparse, monkeypatch):
    monkeypatch.setattr(linear, "DENSE_LIMIT", 3)
    X = np.zeros((4, 5))
    X[:, [0, 3]] = [[1, 2], [3, 4], [5, 6], [7, 9]]
    model = LinearModel(sp.csr_array(X) if sparse else X, [0, 1, 0, 1], l2=1.0, intercept=True)
    settled = model.over(None).settle(np.array([1.0, 2, 3, 4, 5, 6]))
    np.testing.assert_array_equal(settled, [1, 0, 0, 4, 0, 6])


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


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy", "own"])
@pytest.mark.parametrize("compiled", [False, True])
def test_many_pieces_give_what_one_gives(sparse, loss, compiled, monkeypatch):
    """All that a point computes, over all rows and over a sample, with the rows cut into pieces of 64 and uncut."""

    class Own:
        """A loss that gives all its derivatives together."""

        def derivatives(self, z, y):
            t = np.tanh(z - y)
            u = 1 - t * t
            return 0.5 * t * t, t * u, u * (1 - 3 * t * t), u * (12 * t**3 - 8 * t)

    def looks(view):
        near = view.at(x)
        near.hessian()
        point = view.at(x + 0.3 * s, near)
        yield from (point.value(), point.gradient(), point.gradient_errors(), float(point.hessian_price()))
        yield from (point.hessian(), point.reference.c, point.hessian_product(s), point.third_product(s, x))
        yield from (float(point.third_square_price(s)), point.third_square(s), point.third_tensor(np.eye(D)))

    X, y, rng = data(n=500)
    x, s, weights = rng.standard_normal(D), rng.standard_normal(D), rng.random(500)
    rows, scale = rng.permutation(500)[:300], 1.7 if loss == "cauchy" else None
    monkeypatch.setattr(linear, "COMPILED", 1 if compiled else 10_000)
    found = []
    for piece in (64, 1 << 15):
        monkeypatch.setattr(tables, "PIECE", piece)
        monkeypatch.setattr(tables, "BLOCK", 8 * D * piece)
        A = sp.csr_array(X) if sparse else X
        model = LinearModel(A, y, Own() if loss == "own" else loss, scale=scale, weights=weights)
        views = (model.over(None), model.over(rows))
        assert [len(view.table.pieces) for view in views] == ([8, 5] if piece == 64 else [1, 1])
        found.append([look for view in views for look in looks(view)])
    for cut, uncut in zip(*found, strict=True):
        np.testing.assert_allclose(cut, uncut, rtol=1e-12, atol=1e-14)
