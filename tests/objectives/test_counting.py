"""Counting: every component evaluation once, what a grown sample takes over, deadlines and user errors."""

import time

import numpy as np
import pytest

from tercet.objectives.counting import Counted, CountedPoint, DeadlineError, EvaluationError, Meter
from tercet.objectives.functions import Function
from tercet.objectives.linear import LinearModel
from tercet.records import Counts

N, D = 60, 4
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, D)), (RNG.random(N) < 0.5).astype(float)
WEIGHTS = RNG.random(N) + 0.2
ORDER = RNG.permutation(N)
AT = RNG.standard_normal(D)


@pytest.fixture
def counted():
    model = LinearModel(X, Y, l2=0.1, alpha=0.2, weights=WEIGHTS)
    return Counted(model, Meter(N))


def tally(counted):
    c = counted.meter.counts()
    return c.value, c.gradient, c.hessian, c.third


def test_nothing_is_counted_before_it_is_asked_for(counted):
    point = counted.over(None).at(AT)
    counted.over(ORDER[:5]).settle(np.zeros(D))
    assert point.terms == N
    assert tally(counted) == (0, 0, 0, 0)


def test_value_gradient_and_hessian_are_paid_once(counted):
    point = counted.over(ORDER[:20]).at(AT)
    for _ in range(3):
        point.value(), point.gradient(), point.gradient_errors(), point.hessian()
    assert tally(counted) == (20, 20, 20, 0)


@pytest.fixture
def dear(counted):
    counted.objective.hessian_cost = 10.0
    return counted


def test_a_dear_hessian_serves_nearby_over_the_same_terms_until_it_is_renewed(dear):
    here = dear.over(ORDER[:20]).at(AT)
    B = here.hessian()
    near = dear.over(ORDER[:20]).at(AT + 1.0, here)
    further = dear.over(ORDER[:20]).at(AT + 2.0, near)
    assert near.hessian() is further.hessian() is B
    assert tally(dear) == (0, 0, 20, 0)
    assert here.is_exact()
    assert not near.is_exact()
    assert further.renew()
    assert not further.renew()
    assert not np.allclose(further.hessian(), B)
    assert tally(dear)[2] > 20


def test_a_dear_hessian_over_other_terms_is_handed_on_but_not_used(dear):
    sample = dear.over(ORDER[:20]).at(AT)
    B = sample.hessian()
    full = dear.over(None).at(AT + 1.0, sample)
    assert dear.over(ORDER[:20]).at(AT + 1.0, full).hessian() is B
    assert not np.allclose(full.hessian(), B)
    assert dear.over(ORDER[:20]).at(AT + 1.0, full).hessian() is not B  # the newer one is handed on


def test_a_hessian_that_is_not_dear_is_formed_at_each_point(counted):
    here = counted.over(None).at(AT)
    here.hessian()
    near = counted.over(None).at(AT + 1.0, here)
    assert not near.renew()
    assert not np.allclose(near.hessian(), here.hessian())


def test_a_certificate_does_not_use_a_hessian_from_nearby(dear):
    here = dear.over(None).at(AT)
    here.hessian()
    near = dear.over(None).at(AT + 1.0, here)
    near.value(), near.gradient()
    exact = dear.over(None).exact(near)
    np.testing.assert_allclose(exact.hessian(), dear.objective.over(None).at(AT + 1.0).hessian(), rtol=1e-12)
    assert tally(dear) == (N, N, 2 * N, 0)


def test_value_and_gradient_taken_together_count_one_each(counted):
    point, taken = counted.over(None).at(AT), []
    assert point.together() is point
    assert tally(counted) == (0, 0, 0, 0)  # a linear model has no way to do so
    object.__setattr__(point.point, "together", lambda: taken.append(1))
    point.together().value(), point.gradient()
    assert tally(counted) == (N, N, 0, 0)
    assert taken == [1]


def test_gradient_errors_alone_cost_a_gradient(counted):
    counted.over(ORDER[:20]).at(AT).gradient_errors()
    assert tally(counted) == (0, 20, 0, 0)


def test_products_with_the_hessian_count_one_each_until_it_is_formed(counted):
    point, v = counted.over(ORDER[:20]).at(AT), np.ones(D)
    products = [point.hessian_product(v) for _ in range(3)]
    assert tally(counted) == (0, 0, 60, 0)
    B = point.hessian()
    assert tally(counted) == (0, 0, 80, 0)
    np.testing.assert_allclose(point.hessian_product(v), B @ v, rtol=1e-15)
    np.testing.assert_allclose(products[0], B @ v, rtol=1e-12)
    assert tally(counted) == (0, 0, 80, 0)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_third_derivatives_count_their_products(counted, k):
    point, rng = counted.over(ORDER[:20]).at(AT), np.random.default_rng(1)
    u, v = rng.standard_normal((2, D))
    point.third_product(u, v)
    assert tally(counted) == (0, 0, 0, 20)
    point.third_tensor(rng.standard_normal((D, k)))
    assert tally(counted) == (0, 0, 0, 20 + 20 * k * (k + 1) // 2)


def test_third_square_pays_only_the_rows_that_bend(counted):
    point = counted.over(ORDER[:20]).at(AT)
    s = 0.7 * np.ones(D)
    price = point.third_square_price(s)
    assert tally(counted) == (0, 0, 0, 0)
    assert 0 < price < 20
    point.third_square(s)
    assert tally(counted) == (0, 0, 0, price)


def test_a_finite_third_bound_counts_each_term_once_and_an_infinite_one_nothing(counted):
    counted.over(ORDER[:20]).at(AT).third_bound(np.eye(D)[:, :2])
    assert tally(counted) == (0, 0, 0, 20)
    bound = Function(lambda x: x @ x, grad=lambda x: 2 * x).bind(np.ones(2))
    meter = Meter(1)
    assert Counted(bound.objective, meter).over(None).at(bound.x0).third_bound(np.eye(2)) == np.inf
    assert meter.counts() == Counts(n=1)


def test_a_hessian_that_is_partly_reused_counts_the_rows_formed_again(counted):
    view = counted.over(None)
    here = view.at(AT)
    here.hessian()
    there = view.at(AT + 0.02 * np.ones(D), near=here)
    price = there.hessian_price()
    assert 0 < price < N
    there.hessian()
    assert tally(counted) == (0, 0, N + price, 0)


def test_evaluations_that_differences_took_are_counted_at_their_own_order():
    bound = Function(lambda x: float(np.sum(x**4)), grad=lambda x: 4 * x**3).bind(np.ones(3))
    meter = Meter(1)
    point = Counted(bound.objective, meter).over(None).at(bound.x0)
    point.hessian()
    assert meter.counts() == Counts(0, 6, 1, 0, 1)  # two gradients for each of 3 columns
    point.third_product(np.ones(3), np.ones(3))
    assert meter.counts() == Counts(0, 10, 1, 1, 1)


def test_epochs_are_all_evaluations_over_n():
    counts = Counts(10, 20, 30, 40, 50)
    assert counts.epochs == 2.0
    assert counts.as_dict() == {"value": 10, "gradient": 20, "hessian": 30, "third": 40, "n": 50, "epochs": 2.0}


# samples that grow --------------------------------------------------------------------------------------------------


def grown(counted, cuts=(15, 40, 60), hessians=True):
    """x over a sample that grows, looked at anew over each."""
    point = None
    for m in cuts:
        point = counted.over(ORDER[:m] if m < N else None).at(AT, point)
        if hessians:
            point.hessian()
    return point


@pytest.mark.parametrize("cuts", [(15, 40, 60), (1, 60), (15, 40)])
def test_a_point_over_a_grown_sample_is_the_point_over_those_rows(counted, cuts):
    point = grown(counted, cuts)
    whole = counted.over(ORDER[: cuts[-1]]).at(AT)
    rng = np.random.default_rng(2)
    u, v = rng.standard_normal((2, D))
    V = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    assert point.terms == whole.terms == cuts[-1]
    np.testing.assert_array_equal(point.x, AT)
    for name, arguments in (
        ("value", ()),
        ("gradient", ()),
        ("hessian_product", (v,)),
        ("hessian", ()),
        ("hessian_product", (u,)),
        ("third_product", (u, v)),
        ("third_square", (u,)),
        ("third_square_price", (u,)),
        ("third_tensor", (V,)),
    ):
        np.testing.assert_allclose(
            getattr(point, name)(*arguments), getattr(whole, name)(*arguments), rtol=1e-11, atol=1e-14
        )
    T = whole.third_tensor(V)
    Z = rng.standard_normal((200, 2))
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    assert np.abs(np.einsum("abc,ia,ib,ic->i", T, Z, Z, Z)).max() <= point.third_bound(V)


def test_a_grown_sample_pays_all_rows_for_f_and_g_and_the_new_ones_for_the_hessian(counted):
    first = counted.over(ORDER[:15]).at(AT)
    first.value(), first.gradient(), first.hessian()
    assert tally(counted) == (15, 15, 15, 0)
    point = counted.over(ORDER[:40]).at(AT, near=first)
    assert tally(counted) == (15, 15, 15, 0)
    assert point.hessian_price() == 25
    for _ in range(2):
        point.value(), point.gradient(), point.hessian(), point.gradient_errors()
    assert tally(counted) == (55, 55, 40, 0)
    larger = counted.over(None).at(AT, near=point)
    assert larger.hessian_price() == 20
    larger.value(), larger.gradient(), larger.hessian()
    assert tally(counted) == (115, 115, 60, 0)


def test_products_over_a_grown_sample_count_every_row(counted):
    point = grown(counted, hessians=False)
    point.hessian_product(np.ones(D))
    point.third_product(np.ones(D), AT)
    assert tally(counted) == (0, 0, N, N)
    point.third_tensor(np.eye(D)[:, :2])
    assert tally(counted) == (0, 0, N, 4 * N)


def test_a_point_over_a_grown_sample_lends_its_hessian_to_the_next_point(counted):
    point = grown(counted)
    again = counted.over(None).at(AT, near=point)
    assert again.hessian_price() == 0
    np.testing.assert_allclose(again.hessian(), point.hessian(), rtol=1e-12, atol=1e-14)
    assert tally(counted) == (0, 0, N, 0)


def test_a_point_whose_hessian_was_not_formed_lends_what_it_knew(counted):
    first = counted.over(ORDER[:15]).at(AT)
    first.hessian()
    between = counted.over(ORDER[:40]).at(AT, near=first)
    assert counted.over(None).at(AT, near=between).hessian_price() == N - 15
    assert counted.over(None).at(AT, near=grown(counted, hessians=False)).hessian_price() == N


def test_a_point_gives_the_one_it_wraps(counted):
    view = counted.over(None)
    point = view.at(AT)
    assert point.point.view is view.view
    assert point.value() == point.point.value()


def test_a_hessian_of_its_own_is_made_for_a_point_that_borrowed_and_costs_all_rows(counted):
    view = counted.over(None)
    here = view.at(AT)
    here.value(), here.gradient(), here.hessian()
    assert here.is_exact()
    assert view.exact(here) is here
    there = view.at(AT + 0.02, near=here)
    there.value(), there.gradient()
    assert not there.is_exact()
    own = view.exact(there)
    assert own.is_exact()
    before = tally(counted)
    assert own.value() == there.value()
    np.testing.assert_array_equal(own.gradient(), there.gradient())
    assert tally(counted) == before  # value and gradient are paid for
    np.testing.assert_allclose(own.hessian(), counted.objective.over(None).at(AT + 0.02).hessian(), rtol=1e-13)
    assert tally(counted)[2] == before[2] + N


def test_a_saved_point_is_the_same_again_and_not_paid_twice(counted):
    view = counted.over(ORDER[:40])
    first = counted.over(ORDER[:15]).at(AT)
    first.hessian()
    point = view.at(AT + 0.02, near=first)
    point.value(), point.gradient()
    saved, price = point.saved(), point.hessian_price()
    before = tally(counted)
    again = view.recall(AT + 0.02, saved)
    assert again.value() == point.value()
    np.testing.assert_array_equal(again.gradient(), point.gradient())
    assert tally(counted) == before
    assert again.hessian_price() == price < 40
    np.testing.assert_array_equal(again.hessian(), point.hessian())


def test_errors_of_a_gradient_over_a_grown_sample_estimate_its_covariance():
    """48 of 60 rows, of which 16 came first: sum e e' is on average S/48, S the covariance of single rows with the
    divisor 59, and the mean over the sample strays from the one over all by (1 - 48/60) of that."""
    rng, whole = np.random.default_rng(3), LinearModel(X, Y).over(None).at(AT)
    every = X * whole.coefficients(1)[:, None]
    squares, away = [], []
    for _ in range(1500):
        order, rows = rng.permutation(N), rng.permutation(N)[:48]  # random order: the groups are random for the data
        counted = Counted(LinearModel(X[order], Y[order]), Meter(N))
        point = counted.over(rows).at(AT, near=counted.over(rows[:16]).at(AT))
        e, error = point.gradient_errors(), point.gradient() - whole.gradient()
        squares.append(e.T @ e)
        away.append(np.outer(error, error))
    expected = np.cov(every.T) / 48
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    for found, truth, power in ((squares, expected, 0.1), (away, expected * (1 - 48 / N), 0.25)):
        mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
        assert np.all(np.abs(mean - truth) <= 4.5 * error)
        assert np.all(4.5 * error <= power * scale)


# deadline and errors ------------------------------------------------------------------------------------------------


EVERYTHING = {
    "value": lambda p: p.value(),
    "gradient": lambda p: p.gradient(),
    "gradient_errors": lambda p: p.gradient_errors(),
    "hessian": lambda p: p.hessian(),
    "hessian_product": lambda p: p.hessian_product(np.ones(D)),
    "third_product": lambda p: p.third_product(np.ones(D), np.ones(D)),
    "third_square": lambda p: p.third_square(np.ones(D)),
    "third_tensor": lambda p: p.third_tensor(np.eye(D)),
    "third_bound": lambda p: p.third_bound(np.eye(D)),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_after_the_deadline_every_evaluation_raises_and_counts_nothing(name):
    meter = Meter(N, deadline=time.perf_counter() - 1.0)
    point = Counted(LinearModel(X, Y), meter).over(None).at(AT)
    with pytest.raises(DeadlineError):
        EVERYTHING[name](point)
    assert meter.counts() == Counts(n=N)


def test_before_the_deadline_nothing_is_raised():
    meter = Meter(N, deadline=time.perf_counter() + 1e6)
    Counted(LinearModel(X, Y), meter).over(None).at(AT).value()
    assert meter.counts().value == N


class Broken:
    """A point whose every evaluation fails."""

    terms = 3

    def __getattr__(self, name):
        if name not in {*EVERYTHING, "hessian_price", "third_square_price"}:
            raise AttributeError(name)

        def fail(*arguments):
            raise ZeroDivisionError(f"in {name}")

        return fail


@pytest.mark.parametrize("name", EVERYTHING)
def test_an_exception_of_the_objective_arrives_with_its_cause(name):
    point = CountedPoint(Broken(), AT, Meter(3))
    with pytest.raises(EvaluationError, match=r"ZeroDivisionError: in ") as caught:
        EVERYTHING[name](point)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_failed_evaluation_is_tried_again_not_remembered():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("once")
        return float(x @ x)

    bound = Function(fun, grad=lambda x: 2 * x).bind(np.ones(2))
    point = Counted(bound.objective, Meter(1)).over(None).at(bound.x0)
    with pytest.raises(EvaluationError, match="once"):
        point.value()
    assert point.value() == 2.0


def test_an_interrupt_from_the_keyboard_passes_through():
    def fun(x):
        raise KeyboardInterrupt

    bound = Function(fun, grad=lambda x: x).bind(np.ones(2))
    with pytest.raises(KeyboardInterrupt):
        Counted(bound.objective, Meter(1)).over(None).at(bound.x0).value()
