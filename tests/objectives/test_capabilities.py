"""What an engine does not offer is made of its eight members, is right, and is counted as what it took."""

import numpy as np
import pytest

from tercet.objectives.base import Priced, group_errors
from tercet.objectives.capabilities import abilities, add_up, hessian_from_products, result_of, tensor_of_products
from tercet.objectives.metered import NOTHING, Meter, Metered, engine_of, exact, variance
from tercet.records import Counts
from tests.objectives.engines import AtOncePoint, SinesPoint, TwicePoint, sines

N, D = 60, 4
X = np.random.default_rng(1).standard_normal(D)
ROWS = np.random.default_rng(2).permutation(N)[:37]
V = np.random.default_rng(3).standard_normal((D, 3))
SAMPLES = {"all": None, "a sample": ROWS, "few": ROWS[:5], "one": ROWS[:1], "repeats": ROWS[[0, 0, 3, 3, 3, 1] * 5]}


def point_of(rows, kind=SinesPoint):
    """A counted point of an engine with the required members, what was asked of the engine, and its meter."""
    objective = sines(N, D, kind)
    metered = Metered.of(objective, Meter(N))
    assert objective.asked == []  # what its points can do is seen without asking them
    return metered.over(rows).at(X), objective.asked, metered.meter


def terms_of(rows):
    return sines(N, D).A if rows is None else sines(N, D).A[rows]


# defaults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", SAMPLES)
def test_a_hessian_is_made_of_a_product_for_each_variable_and_counted_so(rows):
    point, asked, meter = point_of(SAMPLES[rows])
    A = terms_of(SAMPLES[rows])
    B = point.hessian()
    np.testing.assert_allclose(B, -A.T @ (np.sin(A @ X)[:, None] * A) / len(A), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(B, B.T)
    assert asked == [("product 2", len(A))] * D
    assert meter.counts() == Counts(hessian=D * len(A), n=N)
    point.hessian(), point.hessian_product(X)
    assert meter.counts() == Counts(hessian=D * len(A), n=N)  # remembered, and its products are free


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("rows", SAMPLES)
def test_a_third_derivative_over_directions_is_made_of_its_products_and_counted_so(rows, k):
    point, asked, meter = point_of(SAMPLES[rows])
    A, W = terms_of(SAMPLES[rows]), V[:, :k]
    expected = -np.einsum("i,ia,ib,ic->abc", np.cos(A @ X), A @ W, A @ W, A @ W) / len(A)
    np.testing.assert_allclose(point.third_tensor(W), expected, rtol=1e-11, atol=1e-13)
    assert asked == [("product 3", len(A))] * (k * (k + 1) // 2)
    assert meter.counts() == Counts(third=len(A) * k * (k + 1) // 2, n=N)


def test_a_third_square_is_a_product():
    point, asked, meter = point_of(ROWS)
    np.testing.assert_array_equal(point.third_square(X), point.third_product(X, X))
    assert asked == [("product 3", 37)] * 2
    assert meter.counts() == Counts(third=2 * 37, n=N)


@pytest.mark.parametrize("rows", [name for name in SAMPLES if name != "all"])
def test_the_gradient_of_a_sample_and_its_errors_come_from_groups_of_its_terms(rows):
    point, asked, meter = point_of(SAMPLES[rows])
    A = terms_of(SAMPLES[rows])
    m = len(A)
    single = A * np.cos(A @ X)[:, None]
    np.testing.assert_allclose(point.gradient(), np.mean(single, axis=0), rtol=1e-12, atol=1e-15)
    sums = np.stack([np.sum(single[k::16], axis=0) for k in range(min(16, m))])
    np.testing.assert_allclose(point.errors(), group_errors(sums, m), rtol=1e-11, atol=1e-15)
    assert asked == [("gradient", len(range(k, m, 16))) for k in range(min(16, m))]
    assert meter.counts() == Counts(gradient=m, n=N)


def test_errors_of_a_sample_estimate_the_covariance_of_its_gradient():
    """sum e e' is on average S/32, S the covariance of single gradients, for independent draws of 32 terms."""
    objective, rng = sines(N, 2), np.random.default_rng(4)
    metered, x = Metered.of(objective, Meter(N)), np.array([0.3, -0.8])
    single = objective.A * np.cos(objective.A @ x)[:, None]
    squares = []
    for _ in range(1500):
        e = metered.over(rng.integers(0, N, 32)).at(x).errors()
        squares.append(e.T @ e)
    expected = np.cov(single.T, bias=True) / 32
    mean, error = np.mean(squares, axis=0), np.std(squares, axis=0) / np.sqrt(len(squares))
    assert np.all(np.abs(mean - expected) <= 4.5 * error)
    assert np.all(4.5 * error <= 0.1 * np.sqrt(np.outer(np.diag(expected), np.diag(expected))))


def test_the_gradient_of_all_terms_is_asked_at_once_and_has_no_error():
    point, asked, meter = point_of(None)
    A = terms_of(None)
    np.testing.assert_allclose(point.gradient(), A.T @ np.cos(A @ X) / N, rtol=1e-13)
    np.testing.assert_array_equal(point.errors(), np.zeros((1, D)))
    assert asked == [("gradient", N)]
    assert meter.counts() == Counts(gradient=N, n=N)


def test_a_bound_and_variances_that_nobody_knows_cost_nothing():
    point, asked, meter = point_of(ROWS)
    assert point.third_bound(np.eye(D)) == point.third_bound(None) == np.inf
    assert np.all(np.isnan([variance(point, order) for order in (1, 2, 3)]))
    assert asked == []
    assert meter.counts() == Counts(n=N)


def test_a_point_that_carries_nothing_is_exact_and_hands_on_nothing_of_its_engine():
    point, asked, _ = point_of(ROWS)
    assert point.inexact == 4
    assert exact(point) is point
    assert point.carry.engine is None
    assert point.carry.formed is None
    assert point.given is NOTHING
    assert asked == []


def test_a_start_that_is_not_improved_is_the_start():
    point, asked, _ = point_of(ROWS)
    assert point.view.start(X) is X
    assert asked == []


def test_value_and_gradient_that_do_not_come_together_are_not_asked_before_their_time():
    point, asked, meter = point_of(ROWS)
    again = point.view.first_at(X)
    assert asked == []
    again.value()
    assert asked == [("value", 37)]
    assert meter.counts() == Counts(value=37, n=N)


# capabilities -------------------------------------------------------------------------------------------------------


def test_value_and_gradient_that_come_together_count_one_each_and_are_asked_once():
    point, asked, meter = point_of(None, AtOncePoint)
    both = point.view.first_at(X)
    assert asked[0] == ("first", N)
    assert meter.counts() == Counts(N, N, n=N)
    A, before = terms_of(None), len(asked)
    assert both.value() == pytest.approx(np.mean(np.sin(A @ X)), rel=1e-13)
    np.testing.assert_allclose(both.gradient(), A.T @ np.cos(A @ X) / N, rtol=1e-13)
    assert len(asked) == before
    assert meter.counts() == Counts(N, N, n=N)


def test_a_gradient_that_comes_with_the_value_but_without_its_error_is_not_taken_of_a_sample():
    point, asked, meter = point_of(ROWS, AtOncePoint)
    both = point.view.first_at(X)
    both.value(), both.gradient()
    assert np.linalg.norm(both.errors()) > 0
    assert ("first", 37) not in asked
    assert meter.counts() == Counts(37, 37, n=N)


class GroupedPoint(SinesPoint):
    """Tells its groups: the even terms and the odd ones."""

    @property
    def group_sums(self):
        single = self.A * np.cos(self.A @ self.x)[:, None]
        return np.stack([np.sum(single[k::2], axis=0) for k in range(2)])


def test_an_engine_that_tells_its_groups_is_asked_for_the_gradient_as_it_is():
    point, asked, meter = point_of(ROWS, GroupedPoint)
    A = terms_of(ROWS)
    point.gradient()
    np.testing.assert_allclose(point.errors(), group_errors(GroupedPoint(engine_of(point).view, X).group_sums, len(A)))
    assert asked == [("gradient", 37)]
    assert meter.counts() == Counts(gradient=37, n=N)


class FormedPoint(SinesPoint):
    """Forms B, T over directions, T[s, s] and a bound in one go."""

    def hessian(self):
        return hessian_from_products(SinesPoint(self.view, self.x), D, 1).result

    def third_tensor(self, V):
        return tensor_of_products(SinesPoint(self.view, self.x), V, 1).result

    def third_square(self, s):
        return Priced(SinesPoint(self.view, self.x).product(3, s, s), third=7)

    def third_bound(self, V, tight=False):
        return 3.0 if tight else 5.0

    def variance(self, order):
        return float(order)


def test_what_an_engine_offers_is_asked_of_it_and_counted_at_its_own_price():
    point, _, meter = point_of(ROWS, FormedPoint)
    plain = point_of(ROWS)[0]
    np.testing.assert_array_equal(point.hessian(), plain.hessian())
    assert meter.counts() == Counts(hessian=37, n=N)
    np.testing.assert_array_equal(point.third_tensor(V), plain.third_tensor(V))
    assert meter.counts() == Counts(hessian=37, third=6 * 37, n=N)  # as its products
    np.testing.assert_array_equal(point.third_square(X), plain.third_square(X))
    assert meter.counts() == Counts(hessian=37, third=6 * 37 + 7, n=N)
    assert (point.third_bound(V), point.third_bound(V, tight=True)) == (5.0, 3.0)
    assert meter.counts() == Counts(hessian=37, third=8 * 37 + 7, n=N)


def test_the_variance_of_what_was_paid_for_is_free():
    point, _, meter = point_of(ROWS, FormedPoint)
    assert [variance(point, order) for order in (1, 2, 3)] == [1.0, 2.0, 3.0]
    assert meter.counts() == Counts(0, 37, 37, 37, n=N)
    point.gradient(), point.hessian()
    before = meter.counts()
    variance(point, 1), variance(point, 2)
    assert meter.counts() == before
    variance(point, 3)
    assert meter.counts().third == before.third + 37


def test_abilities_are_looked_up_once_for_a_class_of_points():
    assert abilities(SinesPoint) is abilities(SinesPoint)
    plain, formed = abilities(SinesPoint), abilities(FormedPoint)
    optional = ("first", "hessian", "third_square", "third_tensor", "third_bound", "variance")
    assert all(getattr(plain, name) is None for name in optional)
    assert not plain.grouped
    assert not plain.carries
    assert formed.hessian is FormedPoint.hessian
    assert formed.first is None
    assert abilities(GroupedPoint).grouped


# prices -------------------------------------------------------------------------------------------------------------


def test_an_answer_that_comes_with_its_price_counts_that_at_every_order():
    point, _, meter = point_of(None, TwicePoint)
    point.value()
    assert meter.counts() == Counts(value=2 * N, n=N)
    point.gradient()
    assert meter.counts() == Counts(2 * N + 1, 2 * N, n=N)
    point.hessian_product(X)
    assert meter.counts() == Counts(2 * N + 2, 2 * N, 2 * N, n=N)
    point.third_square(X)
    assert meter.counts() == Counts(2 * N + 3, 2 * N, 2 * N, 2 * N, n=N)


def test_what_is_made_of_priced_answers_costs_their_sum():
    point, _, meter = point_of(ROWS, TwicePoint)
    point.gradient(), point.errors()  # of 16 groups
    assert meter.counts() == Counts(16, 2 * 37, n=N)
    point.hessian()
    assert meter.counts() == Counts(16 + D, 2 * 37, D * 2 * 37, n=N)
    point.third_tensor(V)
    assert meter.counts() == Counts(16 + D + 6, 2 * 37, D * 2 * 37, 6 * 2 * 37, n=N)


class SometimesPoint(SinesPoint):
    """Gradients of two terms are known beforehand, and say so; products along the first axis cost nothing."""

    def gradient(self):
        g = super().gradient()
        return Priced(g) if len(self.A) == 2 else g

    def product(self, order, *vectors):
        Bv = super().product(order, *vectors)
        return Priced(Bv) if vectors[0][0] == 1.0 else Bv


def test_answers_with_and_without_a_price_add_up():
    point, _, meter = point_of(ROWS, SometimesPoint)
    point.gradient()  # 5 groups of three terms, 11 of two
    assert meter.counts() == Counts(gradient=5 * 3, n=N)
    point.hessian()
    assert meter.counts() == Counts(gradient=15, hessian=(D - 1) * 37, n=N)
    point.third_tensor(np.eye(D)[:, :2])  # (0, 0), (1, 0) and (1, 1), of which the first begins with that axis
    assert meter.counts() == Counts(gradient=15, hessian=(D - 1) * 37, third=2 * 37, n=N)


def test_prices_add_up_by_order():
    answers = [Priced(1.0, value=1, hessian=3), np.ones(2), Priced(None, gradient=2, third=4), 5.0]
    total = add_up("made of them", answers, "hessian", 10)
    assert total.result == "made of them"
    assert (total.value, total.gradient, total.hessian, total.third) == (1, 2, 23, 4)


def test_the_result_of_an_answer_is_without_its_price():
    array = np.ones(2)
    assert result_of(Priced(array, value=1)) is array
    assert result_of(array) is array
