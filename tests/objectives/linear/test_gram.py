"""Hessians that are formed anew only in the rows that changed: the rule, its bound, and what is handed on."""

from dataclasses import replace

import numpy as np
import pytest

from tercet.objectives.base import Priced
from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.gram import Gram, Renewal, change
from tercet.objectives.linear.point import STALE
from tercet.objectives.losses import Formula
from tercet.objectives.metered import saved
from tests.objectives.linear.models import D, N, build, hessian_price, metered

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
def test_a_reused_hessian_follows_the_rule_exactly_and_stays_within_its_bound(sparse, stale, nested, monkeypatch):
    monkeypatch.setattr("tercet.objectives.linear.point.STALE", stale)
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
    counted = metered(model)
    here, view = counted.over(first).at(x1), counted.over(second)
    here.hessian()
    reused, rows = view.at(x2, here.carry), view.engine

    where = np.arange(80) if second is None else np.sort(second)
    past_by_row = np.full(80, np.nan)
    past_by_row[np.arange(80) if first is None else np.sort(first)] = here.engine.margins.coefficients(2)
    past, A = past_by_row[where], X[where]
    price, expected, c, kept = rule(A, rows.w, model.loss, rows.y, past, x2, stale, len(where), rows.penalty)
    assert reused.inexact == 2
    assert hessian_price(reused) == price
    assert reused.inexact == (4 if price == len(where) else 2)
    np.testing.assert_allclose(reused.hessian(), expected, rtol=1e-12, atol=1e-14)

    fresh = view.at(x2)
    assert hessian_price(fresh) == len(where)
    assert fresh.inexact == 4
    # Bound: v'(B - B_fresh)v = (1/m) sum (kept - c)(a'v)^2, and |kept - c| <= stale |kept|.
    bound = np.linalg.norm(A.T @ np.diag(stale * np.abs(kept)) @ A / len(where), 2)
    assert np.linalg.norm(reused.hessian() - fresh.hessian(), 2) <= bound + 1e-14
    if stale == 0.0:
        np.testing.assert_allclose(reused.hessian(), fresh.hessian(), rtol=1e-12, atol=1e-14)
    else:
        assert 0 < price < len(where), "the example must keep some rows and renew others"
        assert np.any(kept != c)


def test_a_chain_of_reuse_does_not_drift():
    """Every row stays within `STALE` of the exact coefficient however many small steps were made."""
    model, (X, _, _) = build(n=80)
    view, rng = metered(model).over(None), np.random.default_rng(7)
    x, direction = rng.standard_normal(D), rng.standard_normal(D)
    point = view.at(x)
    point.hessian()
    kept_once = 0
    for _ in range(40):
        x = x + 0.02 * direction
        point = view.at(x, point.carry)
        kept_once += hessian_price(point) < 80
        B, exact, kept = point.hessian(), view.at(x), point.engine.formed.c
        assert np.all(np.abs(kept - exact.engine.margins.coefficients(2)) <= STALE * np.abs(kept) * (1 + 1e-15))
        bound = np.linalg.norm(X.T @ np.diag(STALE * np.abs(kept)) @ X / 80, 2)
        assert np.linalg.norm(B - exact.hessian(), 2) <= bound + 1e-13
    assert kept_once == 40


def test_nothing_is_reused_from_a_point_whose_hessian_was_never_formed():
    view, x = metered(build()[0]).over(None), np.ones(D)
    untouched = view.at(x)
    untouched.gradient()
    assert hessian_price(view.at(x, untouched.carry)) == N


def test_the_same_point_again_costs_nothing_and_gives_the_same():
    view, x = metered(build(l2=0.1)[0]).over(None), np.ones(D)
    p = view.at(x)
    B = p.hessian()
    again = view.at(x, p.carry)
    assert hessian_price(again) == 0
    np.testing.assert_allclose(again.hessian(), B, rtol=1e-14)


def test_a_hessian_comes_with_its_price_only_where_rows_were_kept():
    """A plain answer costs every term once."""
    view, x = build()[0].over(None), np.ones(D)
    p = view.at(x)
    assert isinstance(p.hessian(), np.ndarray)
    near = view.at(x, p.carry).hessian()
    assert isinstance(near, Priced)
    assert (near.value, near.gradient, near.hessian, near.third) == (0, 0, 0, 0)
    far = view.at(x + 0.2, p.carry).hessian()
    assert 0 < far.hessian < N


@pytest.mark.parametrize(
    ("known", "view"),
    [([0, 1, 2], [0, 1, 3, 4]), (None, [0, 1, 2]), ([0, 1, 2, 3], [0, 1, 2]), ([0, 0, 1], [0, 1, 2]), ([5], [0, 1])],
    ids=["other rows", "all into a sample", "longer into shorter", "repeats", "beyond the last row"],
)
def test_sets_that_are_not_nested_share_nothing(known, view):
    counted, x = metered(build()[0]), np.ones(D)
    p = counted.over(None if known is None else np.array(known)).at(x)
    p.hessian()
    q = counted.over(np.array(view)).at(x, p.carry)
    assert hessian_price(q) == len(view)
    np.testing.assert_allclose(q.hessian(), counted.over(np.array(view)).at(x).hessian(), rtol=1e-15)


def test_a_matrix_with_repeated_rows_does_not_spoil_the_full_hessian():
    """A sample drawn with replacement holds a row twice in its Gram matrix; the full sum holds it once."""
    counted, x = metered(build()[0]), np.ones(D)
    p = counted.over(np.array([0, 0, 1, 2, 2])).at(x)
    p.hessian()
    q = counted.over(None).at(x, p.carry)
    np.testing.assert_allclose(q.hessian(), counted.over(None).at(x).hessian(), rtol=1e-12, atol=1e-14)


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
    counted = metered(model)
    one, other = counted.over(rows).at(x), counted.over(rows[[4, 1, 0, 3, 2]]).at(x)
    assert one.value() == other.value()
    np.testing.assert_array_equal(one.gradient(), other.gradient())
    np.testing.assert_array_equal(one.errors(), other.errors())
    np.testing.assert_array_equal(one.hessian(), other.hessian())


ROWS = np.array([1, 4, 6])
FORMED = Gram(ROWS, np.array([1.0, 2.0, 3.0]), np.eye(2))


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
def test_a_matrix_is_laid_out_over_a_larger_set_of_rows(rows, terms, expected):
    found = FORMED.over(rows, terms)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(found, expected)


def test_a_matrix_over_all_rows_serves_all_rows_only():
    full = Gram(None, np.arange(4.0), np.eye(2))
    np.testing.assert_array_equal(full.over(None, 4), np.arange(4.0))
    assert full.over(np.arange(4), 4) is None
    assert full.over(np.array([0, 1]), 2) is None


def test_a_matrix_with_a_row_twice_is_not_laid_out_over_rows_that_hold_it_once():
    twice = Gram(np.array([0, 2, 2]), np.array([1.0, 2.0, 2.0]), np.eye(2))
    assert twice.over(None, 4) is None
    assert twice.over(np.array([0, 1, 2]), 3) is None
    np.testing.assert_array_equal(twice.over(np.array([0, 2, 2]), 3), twice.c)


def test_what_a_matrix_lays_out_can_be_written_to_without_changing_it():
    found = FORMED.over(None, 9)
    found[:] = 0.0
    np.testing.assert_array_equal(FORMED.c, [1, 2, 3])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_point_that_reuses_does_not_change_the_one_it_borrowed_from(compiled):
    model, _ = build(weighted=True, n=80)
    view, rng = replace(model.over(None), compiled=compiled), np.random.default_rng(15)
    x = rng.standard_normal(D)
    p = view.at(x)
    B, c, gram = p.hessian(), p.formed.c.copy(), p.formed.matrix.copy()
    for _ in range(3):
        view.at(x + 0.05 * rng.standard_normal(D), p.carry).hessian()
    np.testing.assert_array_equal(p.formed.c, c)
    np.testing.assert_array_equal(p.formed.matrix, gram)
    np.testing.assert_array_equal(p.hessian(), B)


def test_a_matrix_that_was_not_formed_gives_way_to_what_the_point_knew():
    counted, x = metered(build(n=80)[0]), np.ones(D)
    view, p = counted.over(None), counted.over(np.arange(50)).at(x)
    p.hessian()
    q = view.at(x + 0.01, p.carry)
    q.gradient()  # and no Hessian
    r = view.at(x, q.carry)
    assert r.engine.carry is p.engine.formed
    assert hessian_price(r) == 30
    q.hessian()
    assert view.at(x, q.carry).engine.carry is q.engine.formed is not p.engine.formed


def test_what_was_carried_is_the_same_again_from_its_arrays_over_a_sample_and_over_all():
    model, _ = build(weighted=True, n=80)
    counted, order, x = metered(model), np.random.default_rng(16).permutation(80), np.ones(D)
    for first, second in ((order[:30], order[:30]), (order[:30], order[:60]), (order[:30], None), (None, None)):
        p, view = counted.over(first).at(x), counted.over(second)
        p.hessian()
        q = view.at(x + 0.02, p.carry)
        again = view.recall(x + 0.02, saved(q))
        assert hessian_price(again) == hessian_price(q) < q.terms
        np.testing.assert_array_equal(again.hessian(), q.hessian())
    view = counted.over(None)
    fresh = view.at(x)
    assert saved(fresh)["carry"] == {}
    assert hessian_price(view.recall(x, saved(fresh))) == 80


def test_nothing_of_a_matrix_leaves_a_point_exact():
    assert FORMED.exact() is None


# the rule on its own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("stale", [0.0, 0.1, 0.5])
def test_what_hardly_changed_is_kept(stale, compiled):
    rng, rule = np.random.default_rng(1), Renewal(stale, compiled).change()
    assert (rule is change) == (not compiled)
    past = rng.standard_normal(500)
    c = past * (1 + rng.uniform(-1, 1, 500))
    past[rng.random(500) < 0.2] = np.nan
    past[:3], c[:3] = 0.0, (0.0, 1e-300, -1.0)
    c[3] = past[3] = 0.25  # the same to the last digit
    fresh, known, gains = c.copy(), past.copy(), np.empty(500)
    count = rule(c, past, stale, gains)
    kept = np.abs(fresh - past) <= stale * np.abs(past)
    assert 0 < count == kept.sum() < 500
    np.testing.assert_array_equal(c, np.where(kept, past, fresh))
    np.testing.assert_array_equal(past, known)
    np.testing.assert_array_equal(gains[kept], 0.0)
    new = np.isnan(past)
    np.testing.assert_array_equal(gains[new], fresh[new])
    np.testing.assert_array_equal(gains[~kept & ~new], (fresh - past)[~kept & ~new])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_renewed_matrix_is_the_one_with_the_mixed_coefficients(sparse):
    """Rows that hardly changed keep their coefficient, the others and the new ones have their own."""
    table, rng = build(sparse=sparse, n=80)[0].over(None).table, np.random.default_rng(21)
    renewal, rows = Renewal(0.1, False), np.arange(0, 80, 2)
    old, new = rng.random(80) + 0.5, rng.random(80) + 0.5
    new[::3] = 1.05 * old[::3]
    known = Gram(rows, old[rows], table.gram(np.where(np.arange(80) % 2 == 0, old, 0.0)))
    gram, count = renewal.form(table, None, new.__getitem__, known)
    kept = (np.arange(80) % 2 == 0) & (np.abs(new - old) <= 0.1 * old)
    mixed = np.where(kept, old, new)
    assert kept.sum() >= 14
    assert count == 80 - kept.sum()
    assert gram.rows is None
    np.testing.assert_array_equal(gram.c, mixed)
    np.testing.assert_allclose(gram.matrix, table.gram(mixed), rtol=1e-12, atol=1e-13)
    whole, all_rows = renewal.form(table, None, new.__getitem__, None)
    assert all_rows == 80
    np.testing.assert_array_equal(whole.c, new)
    np.testing.assert_array_equal(whole.matrix, table.gram(new))


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("nested", [False, True])
def test_kept_rows_equal_the_branch_in_numpy(stale, nested, monkeypatch):
    monkeypatch.setattr("tercet.objectives.linear.model.COMPILED", 1)
    monkeypatch.setattr("tercet.objectives.linear.point.STALE", stale)
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((200, 4)), (rng.random(200) < 0.5).astype(float)
    model = LinearModel(X, y, weights=rng.random(200) * (rng.random(200) < 0.9))
    assert model.rows.compiled
    x1 = rng.standard_normal(4)
    x2 = x1 + 0.1 * rng.standard_normal(4)
    found = []
    for compiled in (True, False):
        whole = replace(model.rows, compiled=compiled, formula=Formula.of(model.loss, compiled))
        near = (whole.take(np.arange(0, 200, 3)) if nested else whole).at(x1)
        near.hessian()
        found.append(whole.at(x2, near.carry))
    one, other = (point.hessian() for point in found)
    assert 0 < one.hessian == other.hessian < 200
    np.testing.assert_allclose(one.result, other.result, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[0].formed.c, found[1].formed.c, rtol=1e-13, atol=1e-300)
    again, once_more = (point.hessian() for point in found)
    assert again.hessian == once_more.hessian == one.hessian  # the same after the Gram matrix was formed
