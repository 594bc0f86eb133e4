"""Counting: every component evaluation once, what points hand on to others, deadlines and user errors."""

import time
from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest

from tercet.objectives.base import NotFiniteError
from tercet.objectives.functions import Function
from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.point import STRAIGHT
from tercet.objectives.metered import (
    CHEAP_HESSIAN,
    NOTHING,
    Carry,
    DeadlineError,
    EvaluationError,
    Formed,
    Meter,
    Metered,
    engine_of,
    exact,
    renewed,
    saved,
    variance,
)
from tercet.records import Counts
from tests.objectives.engines import Sines, SinesPoint, SinesView, sines

N, D = 60, 4
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, D)), (RNG.random(N) < 0.5).astype(float)
WEIGHTS = RNG.random(N) + 0.2
ORDER = RNG.permutation(N)
AT = RNG.standard_normal(D)


def model(**traits):
    made = LinearModel(X, Y, l2=0.1, alpha=0.2, weights=WEIGHTS)
    made.traits = replace(made.traits, **traits)
    return made


@pytest.fixture
def counted():
    return Metered.of(model(), Meter(N))


def tally(counted):
    c = counted.meter.counts()
    return c.value, c.gradient, c.hessian, c.third


def test_nothing_is_counted_before_it_is_asked_for(counted):
    point = counted.over(None).at(AT)
    counted.over(ORDER[:5]).start(np.zeros(D))
    counted.over(None).first_at(AT)  # a linear model has no way to take f and its gradient at once
    assert point.terms == N
    assert tally(counted) == (0, 0, 0, 0)


def test_value_gradient_and_hessian_are_paid_once(counted):
    point = counted.over(ORDER[:20]).at(AT)
    for _ in range(3):
        point.value(), point.gradient(), point.errors(), point.hessian()
    assert tally(counted) == (20, 20, 20, 0)


# Hessians that serve for several points -----------------------------------------------------------------------------


@pytest.fixture
def dear():
    return Metered.of(model(hessian_cost=10.0), Meter(N))


def test_a_dear_hessian_serves_nearby_over_the_same_terms_until_it_is_renewed(dear):
    here = dear.over(ORDER[:20]).at(AT)
    B = here.hessian()
    near = dear.over(ORDER[:20]).at(AT + 1.0, here.carry)
    further = dear.over(ORDER[:20]).at(AT + 2.0, near.carry)
    assert near.hessian() is further.hessian() is B
    assert tally(dear) == (0, 0, 20, 0)
    assert here.inexact == 4
    assert near.inexact == 2
    own = renewed(further)
    assert own is not further
    assert renewed(own) is own
    assert not np.allclose(own.hessian(), B)
    assert tally(dear)[2] > 20
    assert further.hessian() is B  # the point that borrowed is as it was


def test_a_renewed_point_keeps_what_was_paid_for_and_pays_its_own_hessian(dear):
    here = dear.over(ORDER[:20]).at(AT)
    here.hessian()
    near = dear.over(ORDER[:20]).at(AT + 0.02, here.carry)
    near.value(), near.gradient(), near.hessian()
    own, before = renewed(near), tally(dear)
    assert own.value() == near.value()
    assert own.gradient() is near.gradient()
    assert tally(dear) == before
    own.hessian()
    assert tally(dear)[2] - before[2] == 20
    assert own.carry.formed.hessian is own.hessian()


def test_a_dear_hessian_over_other_terms_is_handed_on_but_not_used(dear):
    sample = dear.over(ORDER[:20]).at(AT)
    B = sample.hessian()
    full = dear.over(None).at(AT + 1.0, sample.carry)
    assert full.borrowed is None
    assert dear.over(ORDER[:20]).at(AT + 1.0, full.carry).hessian() is B
    assert not np.allclose(full.hessian(), B)
    assert dear.over(ORDER[:20]).at(AT + 1.0, full.carry).hessian() is not B  # the newer one is handed on


def test_a_hessian_that_is_not_dear_is_formed_at_each_point(counted):
    here = counted.over(None).at(AT)
    here.hessian()
    near = counted.over(None).at(AT + 1.0, here.carry)
    assert renewed(near) is near
    assert near.borrowed is None
    assert not np.allclose(near.hessian(), here.hessian())


def test_a_hessian_is_dear_where_it_takes_more_than_two_gradients():
    assert not Metered.of(model(hessian_cost=CHEAP_HESSIAN), Meter(N)).reuses_hessian
    assert Metered.of(model(hessian_cost=CHEAP_HESSIAN + 1e-9), Meter(N)).reuses_hessian


def test_a_certificate_does_not_use_a_hessian_from_nearby(dear):
    here = dear.over(None).at(AT)
    here.hessian()
    near = dear.over(None).at(AT + 1.0, here.carry)
    near.value(), near.gradient()
    own = exact(near)
    np.testing.assert_allclose(own.hessian(), dear.objective.over(None).at(AT + 1.0).hessian(), rtol=1e-12)
    assert tally(dear) == (N, N, 2 * N, 0)


# what a point hands on ----------------------------------------------------------------------------------------------


def test_what_is_handed_on_is_immutable_and_an_asked_point_may_hand_on_more(dear):
    here = dear.over(None).at(AT)
    before = here.carry
    assert before.formed is None
    with pytest.raises(FrozenInstanceError):
        before.formed = Formed(N, np.eye(D))
    B = here.hessian()
    assert before.formed is None
    assert here.carry.formed.hessian is B
    assert here.carry.formed.terms == N


def test_what_is_handed_on_without_its_hessian_keeps_what_the_engine_hands_on(moving):
    dear = replace(moving, reuses_hessian=True)
    here = dear.at(AT)
    here.hessian()
    assert here.carry.formed.hessian is here.hessian()
    fresh = here.carry.fresh()
    assert fresh.formed is None
    assert fresh.engine == here.carry.engine == Off(0.5)
    assert dear.at(AT, fresh).borrowed is None


def test_what_is_handed_on_is_told_as_arrays():
    class Steps:
        def arrays(self):
            return {"steps": np.ones(2)}

    assert NOTHING.arrays() == {}
    both = Carry(Formed(7, np.eye(2)), Steps()).arrays()
    assert both["formed"]["terms"] == 7
    np.testing.assert_array_equal(both["formed"]["hessian"], np.eye(2))
    np.testing.assert_array_equal(both["engine"]["steps"], np.ones(2))
    assert set(Carry(None, Steps()).arrays()) == {"engine"}


@dataclass(frozen=True)
class Off:
    """By how much a point is off that was reached from others."""

    by: float

    def arrays(self):
        return {"by": self.by}

    def exact(self):
        return None


class Moving(SinesPoint):
    """A point whose every derivative owes something to the one before."""

    carry, inexact = None, 4

    def __init__(self, view, x, off):
        super().__init__(view, x + off)
        self.carry, self.inexact = Off(off + 0.5), 0 if off else 4


class MovingView(SinesView):
    def at(self, x, carry=None):
        return Moving(self, x, 0.0 if carry is None else carry.by)

    def recall(self, arrays):
        return Off(**arrays)


class MovingSines(Sines):
    def over(self, rows):
        return MovingView(self, self.A if rows is None else self.A[rows])


@pytest.fixture
def moving():
    return Metered.of(MovingSines(X), Meter(N)).over(None)


def test_what_an_engine_hands_on_reaches_the_next_point_and_survives_being_saved(moving):
    first = moving.at(AT)
    second = moving.at(AT, first.carry)
    third = moving.at(AT, second.carry)
    assert (second.given.engine, third.given.engine) == (Off(0.5), Off(1.0))
    assert len({first.value(), second.value(), third.value()}) == 3
    again = moving.recall(AT, saved(third))
    np.testing.assert_array_equal(again.hessian_product(AT), third.hessian_product(AT))
    assert again.carry.engine == Off(1.5)


def test_a_point_that_owes_everything_to_others_is_looked_at_anew_for_all_of_it(moving):
    first = moving.at(AT)
    second = moving.at(AT, first.carry)
    first.value(), first.gradient(), second.value(), second.gradient()
    own = exact(second)
    assert (first.inexact, second.inexact, own.inexact) == (4, 0, 4)
    assert exact(own) is own
    assert own.value() == first.value() != second.value()
    np.testing.assert_array_equal(own.gradient(), first.gradient())
    assert moving.meter.counts() == Counts(3 * N, 3 * N, n=N)


# what is counted ----------------------------------------------------------------------------------------------------


def test_errors_alone_cost_a_gradient(counted):
    counted.over(ORDER[:20]).at(AT).errors()
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
    margins, As = engine_of(point).margins, X[np.sort(ORDER[:20])] @ s
    bends = np.abs(margins.coefficients(3) * As) / 2 > STRAIGHT * np.abs(margins.coefficients(2))
    assert tally(counted) == (0, 0, 0, 0)
    assert 0 < np.sum(bends) < 20
    point.third_square(s)
    assert tally(counted) == (0, 0, 0, np.sum(bends))


def test_a_finite_third_bound_counts_each_term_once_and_an_infinite_one_nothing(counted):
    counted.over(ORDER[:20]).at(AT).third_bound(np.eye(D)[:, :2])
    assert tally(counted) == (0, 0, 0, 20)
    bound = Function(lambda x: x @ x, grad=lambda x: 2 * x).bind(np.ones(2))
    meter = Meter(1)
    assert Metered.of(bound.objective, meter).over(None).at(bound.x0).third_bound(np.eye(2)) == np.inf
    assert meter.counts() == Counts(n=1)


def test_evaluations_that_differences_took_are_counted_at_their_own_order():
    bound = Function(lambda x: float(np.sum(x**4)), grad=lambda x: 4 * x**3).bind(np.ones(3))
    meter = Meter(1)
    point = Metered.of(bound.objective, meter).over(None).at(bound.x0)
    point.hessian()
    assert meter.counts() == Counts(0, 6, 1, 0, 1)  # two gradients for each of 3 columns
    point.third_product(np.ones(3), np.ones(3))
    assert meter.counts() == Counts(0, 9, 1, 1, 1)  # the gradient at x and to both sides


def test_epochs_are_all_evaluations_over_n():
    counts = Counts(10, 20, 30, 40, 50)
    assert counts.epochs == 2.0
    assert counts.as_dict() == {"value": 10, "gradient": 20, "hessian": 30, "third": 40, "n": 50, "epochs": 2.0}


# samples that grow --------------------------------------------------------------------------------------------------


def grown(counted, cuts=(15, 40, 60), hessians=True):
    """x over a sample that grows, looked at anew over each."""
    carry = NOTHING
    for m in cuts:
        point = counted.over(ORDER[:m] if m < N else None).at(AT, carry)
        if hessians:
            point.hessian()
        carry = point.carry
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
        ("third_tensor", (V,)),
    ):
        np.testing.assert_allclose(
            getattr(point, name)(*arguments), getattr(whole, name)(*arguments), rtol=1e-11, atol=1e-14
        )
    assert engine_of(point).third_square(u).third == engine_of(whole).third_square(u).third
    T = whole.third_tensor(V)
    Z = rng.standard_normal((200, 2))
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    assert np.abs(np.einsum("abc,ia,ib,ic->i", T, Z, Z, Z)).max() <= point.third_bound(V)


def test_a_grown_sample_pays_all_its_rows_for_every_derivative(counted):
    first = counted.over(ORDER[:15]).at(AT)
    first.value(), first.gradient(), first.hessian()
    assert tally(counted) == (15, 15, 15, 0)
    point = counted.over(ORDER[:40]).at(AT, first.carry)
    assert tally(counted) == (15, 15, 15, 0)
    for _ in range(2):
        point.value(), point.gradient(), point.hessian(), point.errors()
    assert tally(counted) == (55, 55, 55, 0)
    larger = counted.over(None).at(AT, point.carry)
    larger.value(), larger.gradient(), larger.hessian()
    assert tally(counted) == (115, 115, 115, 0)


def test_products_over_a_grown_sample_count_every_row(counted):
    point = grown(counted, hessians=False)
    point.hessian_product(np.ones(D))
    point.third_product(np.ones(D), AT)
    assert tally(counted) == (0, 0, N, N)
    point.third_tensor(np.eye(D)[:, :2])
    assert tally(counted) == (0, 0, N, 4 * N)


def test_a_point_gives_the_one_it_wraps(counted):
    view = counted.over(None)
    point = view.at(AT)
    assert engine_of(point).view is view.engine
    assert point.value() == engine_of(point).value()


def test_a_hessian_of_its_own_is_made_for_a_point_that_borrowed_and_costs_all_rows(dear):
    view = dear.over(None)
    here = view.at(AT)
    here.value(), here.gradient(), here.hessian()
    assert here.inexact == 4
    assert exact(here) is here
    there = view.at(AT + 0.02, here.carry)
    there.value(), there.gradient()
    assert there.inexact == 2
    own = exact(there)
    assert own.inexact == 4
    before = tally(dear)
    assert own.value() == there.value()
    np.testing.assert_array_equal(own.gradient(), there.gradient())
    assert tally(dear) == before  # value and gradient are paid for
    np.testing.assert_allclose(own.hessian(), dear.objective.over(None).at(AT + 0.02).hessian(), rtol=1e-13)
    assert tally(dear)[2] == before[2] + N


def test_a_saved_point_is_the_same_again_and_not_paid_twice(counted):
    view = counted.over(ORDER[:40])
    first = counted.over(ORDER[:15]).at(AT)
    first.hessian()
    point = view.at(AT + 0.02, first.carry)
    point.value(), point.gradient()
    kept, before = saved(point), tally(counted)
    again = view.recall(AT + 0.02, kept)
    assert again.value() == point.value()
    np.testing.assert_array_equal(again.gradient(), point.gradient())
    assert tally(counted) == before
    np.testing.assert_array_equal(again.hessian(), point.hessian())
    spent = tally(counted)[2] - before[2]
    assert spent == 2 * 40  # a Hessian is not saved: each has its own
    np.testing.assert_array_equal(again.errors(), point.errors())
    assert tally(counted)[:2] == before[:2]


def test_a_saved_point_whose_gradient_was_not_taken_pays_for_it(counted):
    view = counted.over(None)
    point = view.at(AT)
    point.value()
    again = view.recall(AT, saved(point))
    again.value(), again.gradient()
    assert tally(counted) == (N, N, 0, 0)


def test_a_hessian_that_was_borrowed_is_borrowed_again_by_a_saved_point(dear):
    here = dear.over(None).at(AT)
    B = here.hessian()
    near = dear.over(None).at(AT + 1.0, here.carry)
    near.value(), near.gradient()
    before = tally(dear)
    again = dear.over(None).recall(AT + 1.0, saved(near))
    assert again.borrowed.terms == N
    np.testing.assert_array_equal(again.hessian(), B)
    assert tally(dear) == before


def test_the_errors_of_a_gradient_that_was_recalled_are_those_of_the_gradient():
    """Also of an engine that does not tell them, whose gradient is then asked again for its groups."""
    view = Metered.of(sines(N, D), Meter(N)).over(ORDER[:40])
    point = view.at(AT)
    point.value(), point.gradient()
    again = view.recall(AT, saved(point))
    assert np.linalg.norm(point.errors()) > 0
    np.testing.assert_array_equal(again.errors(), point.errors())
    assert view.meter.counts() == Counts(40, 80, n=N)


def test_errors_of_a_gradient_over_a_grown_sample_estimate_its_covariance():
    """48 of 60 rows, of which 16 came first: sum e e' is on average S/48, S the covariance of single rows with the
    divisor 59, and the mean over the sample strays from the one over all by (1 - 48/60) of that."""
    rng, whole = np.random.default_rng(3), LinearModel(X, Y).over(None).at(AT)
    every = X * whole.margins.coefficients(1)[:, None]
    squares, away = [], []
    for _ in range(1500):
        order, rows = rng.permutation(N), rng.permutation(N)[:48]  # random order: the groups are random for the data
        counted = Metered.of(LinearModel(X[order], Y[order]), Meter(N))
        point = counted.over(rows).at(AT, counted.over(rows[:16]).at(AT).carry)
        e, error = point.errors(), point.gradient() - whole.gradient()
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
    "errors": lambda p: p.errors(),
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
    point = Metered.of(LinearModel(X, Y), meter).over(None).at(AT)
    with pytest.raises(DeadlineError):
        EVERYTHING[name](point)
    assert meter.counts() == Counts(n=N)


def test_before_the_deadline_nothing_is_raised():
    meter = Meter(N, deadline=time.perf_counter() + 1e6)
    Metered.of(LinearModel(X, Y), meter).over(None).at(AT).value()
    assert meter.counts().value == N


def failing(name):
    def fail(self, *arguments):
        raise ZeroDivisionError(f"in {name}")

    return fail


MEMBERS = ("value", "gradient", "product", "hessian", "third_square", "third_tensor", "third_bound")


def broken(*members):
    """The engine of sines with members whose every evaluation fails; `group_sums` may be among them."""
    parts = {name: property(failing(name)) if name == "group_sums" else failing(name) for name in members}
    return Metered.of(sines(N, D, type("Broken", (SinesPoint,), parts)), Meter(N))


@pytest.mark.parametrize("rows", [None, ORDER[:20]], ids=["all", "sample"])
@pytest.mark.parametrize("members", [MEMBERS, ("value", "gradient", "product")], ids=["everything", "required"])
@pytest.mark.parametrize("name", EVERYTHING)
def test_an_exception_of_the_objective_arrives_with_its_cause_and_is_not_counted(name, members, rows):
    metered = broken(*members)
    point = metered.over(rows).at(AT)
    if name == "third_bound" and name not in members:
        assert point.third_bound(None) == np.inf
        return
    with pytest.raises(EvaluationError, match=r"ZeroDivisionError: in ") as caught:
        EVERYTHING[name](point)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert tally(metered) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("member", "ask"),
    [
        ("first", lambda view: view.first_at(AT)),
        ("group_sums", lambda view: view.at(AT).errors()),
        ("variance", lambda view: variance(view.at(AT), 2)),
    ],
    ids=["first", "group sums", "variance"],
)
def test_an_exception_of_a_capability_arrives_with_its_cause(member, ask):
    with pytest.raises(EvaluationError, match=f"in {member}") as caught:
        ask(broken(member).over(None))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_derivative_that_is_not_finite_is_told_by_its_order(order, bad):
    class Bad(SinesPoint):
        def product(self, order, *vectors):
            return np.array([bad, 0.0, 0.0, 0.0])

    point = Metered.of(sines(N, D, Bad), Meter(N)).over(None).at(AT)
    name = "hessian" if order == 2 else "third"
    with pytest.raises(NotFiniteError, match=name):
        point.hessian_product(AT) if order == 2 else point.third_product(AT, AT)
    with pytest.raises(NotFiniteError, match=name), np.errstate(invalid="ignore"):
        point.hessian() if order == 2 else point.third_tensor(np.eye(D))


def test_a_value_or_gradient_that_is_not_finite_is_left_to_whoever_asked():
    class Bad(SinesPoint):
        def value(self):
            return np.nan

        def gradient(self):
            return np.full(D, np.inf)

    point = Metered.of(sines(N, D, Bad), Meter(N)).over(None).at(AT)
    assert np.isnan(point.value())
    assert np.all(np.isinf(point.gradient()))


def test_a_failed_evaluation_is_tried_again_not_remembered():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("once")
        return float(x @ x)

    bound = Function(fun, grad=lambda x: 2 * x).bind(np.ones(2))
    point = Metered.of(bound.objective, Meter(1)).over(None).at(bound.x0)
    with pytest.raises(EvaluationError, match="once"):
        point.value()
    assert point.value() == 2.0


def test_an_interrupt_from_the_keyboard_passes_through():
    def fun(x):
        raise KeyboardInterrupt

    bound = Function(fun, grad=lambda x: x).bind(np.ones(2))
    with pytest.raises(KeyboardInterrupt):
        Metered.of(bound.objective, Meter(1)).over(None).at(bound.x0).value()
