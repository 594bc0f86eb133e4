"""Functions with NumPy callables: what is given is asked, the rest made by differences to the accuracy they imply."""

from itertools import chain, combinations
from time import perf_counter

import numpy as np
import pytest

from tercet.objectives.callables import DENSE_LIMIT, EPS, FORMED_THIRD, CallObjective
from tercet.objectives.capabilities import result_of
from tercet.objectives.functions import Function
from tercet.objectives.metered import DeadlineError, Meter, Metered, engine_of
from tercet.records import ORDERS
from tests.objectives.sines import GIVEN, X0, A, D, U, V, W, fun, grad, hess, hvp, third, tvp

ALL = [
    names
    for names in chain.from_iterable(combinations(GIVEN, k) for k in range(6))
    if not {"hess", "hvp"} <= set(names) and not {"third", "tvp"} <= set(names)
]
# Central differences with displacement h of something good to e: h^2/6 times a fifth-power-of-|A| derivative + e / h.
ONE, WIDE = EPS ** (1 / 3) * max(1.0, np.linalg.norm(X0)), EPS ** (1 / 5) * max(1.0, np.linalg.norm(X0))
SIZE = 6 * np.linalg.norm(A, 2) ** 5  # above every derivative of f up to order five


def made(step, error_below):
    return SIZE * step**2 + 4 * SIZE * error_below / step


def accuracies(names):
    """What g, B and T are good to, by what they are made from."""
    exact = 1e-15 * SIZE
    g = exact if "grad" in names else made(ONE, EPS)
    if {"hess", "hvp"} & set(names):
        B = exact
    else:
        B = made(ONE, EPS) if "grad" in names else made(WIDE, made(ONE, EPS) / SIZE)
    if {"third", "tvp"} & set(names):
        T = exact
    else:
        T = made(ONE, EPS) if {"hess", "hvp"} & set(names) else made(WIDE, B / SIZE)
    return g, B, T


def numpy_point(names):
    # Given no derivative at all, the function is traced by JAX where it can be: float() here forbids that.
    objective = Function(fun, **{name: GIVEN[name] for name in names}).bind(X0).objective
    assert isinstance(objective, CallObjective)
    return objective, Metered.of(objective, Meter(1)).over(None).at(X0)


@pytest.mark.parametrize("names", ALL, ids=lambda names: "+".join(names) or "fun only")
def test_every_combination_of_given_derivatives_gives_all_of_them(names):
    _, point = numpy_point(names)
    g, B, T = accuracies(names)
    assert point.value() == fun(X0)
    np.testing.assert_allclose(point.gradient(), grad(X0), rtol=0, atol=g)
    np.testing.assert_allclose(point.hessian_product(V), hess(X0) @ V, rtol=0, atol=B * np.linalg.norm(V))
    np.testing.assert_allclose(point.hessian(), hess(X0), rtol=0, atol=B)
    size = np.linalg.norm(U) * np.linalg.norm(V)
    np.testing.assert_allclose(point.third_product(U, V), tvp(X0, U, V), rtol=0, atol=T * size)
    np.testing.assert_allclose(point.third_square(U), tvp(X0, U, U), rtol=0, atol=T * np.linalg.norm(U) ** 2)
    formed = np.einsum("abc,ai,bj,ck->ijk", third(X0), W, W, W)
    np.testing.assert_allclose(point.third_tensor(W), formed, rtol=0, atol=T * np.linalg.norm(W, 2) ** 3 * 2)
    assert point.third_bound(W) == np.inf


@pytest.mark.parametrize(
    ("names", "bounds"),
    [
        ((), (1e-8, 1e-4, 0.05)),
        (("grad",), (1e-13, 1e-8, 1e-4)),
        (("grad", "hess"), (1e-13, 1e-13, 1e-8)),
        (("grad", "hvp"), (1e-13, 1e-13, 1e-8)),
        (("grad", "hess", "third"), (1e-13, 1e-13, 1e-13)),
        (("grad", "hess", "tvp"), (1e-13, 1e-13, 1e-13)),
    ],
    ids=lambda a: "+".join(map(str, a)) or "fun only",
)
def test_differences_are_as_good_as_they_can_be(names, bounds):
    """Measured, with little room: relative errors near EPS^(2/3) for one difference, worse for nested ones."""
    _, point = numpy_point(names)
    found = point.gradient(), point.hessian(), point.third_tensor(np.eye(D))
    for ours, exact, bound in zip(found, (grad(X0), hess(X0), third(X0)), bounds, strict=True):
        assert np.linalg.norm(ours - exact) <= bound * np.linalg.norm(exact)


@pytest.mark.parametrize("names", ALL, ids=lambda names: "+".join(names) or "fun only")
def test_the_provenance_says_what_was_made_by_differences(names):
    objective, _ = numpy_point(names)
    how, has = objective.traits.provenance, set(names)
    assert ("gradient" in how) == ("grad" not in has)
    assert ("Hessian" in how) == (not has & {"hess", "hvp"})
    assert ("third derivative" in how) == (not has & {"third", "tvp"})
    assert ("differences" in how) == (len(has) < 3)


def test_formed_derivatives_are_symmetric():
    for names in ALL:
        _, point = numpy_point(names)
        B, T = point.hessian(), point.third_tensor(W)
        np.testing.assert_array_equal(B, B.T)
        for axes in ((1, 0, 2), (0, 2, 1), (1, 2, 0)):
            np.testing.assert_allclose(T, T.transpose(axes), rtol=1e-12, atol=1e-12 * np.abs(T).max())


@pytest.mark.parametrize("names", [(), ("grad",), ("grad", "hess"), ("grad", "hvp")], ids="+".join)
def test_products_along_zero_are_zero(names):
    _, point = numpy_point(names)
    zero = np.zeros(D)
    np.testing.assert_array_equal(point.hessian_product(zero), zero)
    np.testing.assert_array_equal(point.third_product(zero, V), zero)
    np.testing.assert_array_equal(point.third_product(V, zero), zero)


@pytest.mark.parametrize("names", [("grad",), ("grad", "hess"), ("grad", "hvp")], ids="+".join)
def test_products_scale_with_their_directions(names):
    """The displacement of a difference does not depend on the length of the direction."""
    _, point = numpy_point(names)
    for c in (1e-8, 1e8):
        np.testing.assert_allclose(
            point.third_product(c * U, V), c * point.third_product(U, V), rtol=1e-5, atol=1e-4 * c
        )
        np.testing.assert_allclose(point.hessian_product(c * V), c * point.hessian_product(V), rtol=1e-7, atol=1e-7 * c)


# what is formed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "d", "dense", "forms_third"),
    [
        (("grad",), 2, True, False),  # a third derivative of differences is no model to step by
        (("grad",), DENSE_LIMIT, True, False),
        (("grad",), DENSE_LIMIT + 1, False, False),
        (("grad", "third"), DENSE_LIMIT, True, True),
        (("grad", "hvp"), FORMED_THIRD, True, False),
        (("grad", "hvp"), FORMED_THIRD + 1, False, False),
    ],
)
def test_what_is_worth_forming_depends_on_what_is_given_and_on_the_number_of_variables(names, d, dense, forms_third):
    traits = CallObjective(d, fun, {name: GIVEN[name] for name in names}).traits
    assert (traits.dense, traits.forms_third) == (dense, forms_third)


# counting -----------------------------------------------------------------------------------------------------------


def counted(names):
    calls = dict.fromkeys(("fun", *GIVEN), 0)

    def counting(name, call):
        def wrapped(*arguments):
            calls[name] += 1
            return call(*arguments)

        return wrapped

    derivatives = {name: counting(name, GIVEN[name]) for name in names}
    bound = Function(counting("fun", fun), **derivatives).bind(X0)
    calls["fun"] = 0  # without derivatives JAX has tried to trace it once
    return Metered.of(bound.objective, Meter(1)).over(None).at(X0), calls


def spent(point):
    counts = point.view.meter.counts()
    return {order: getattr(counts, order) for order in ORDERS if getattr(counts, order)}


@pytest.mark.parametrize(
    ("names", "ask", "own", "extra", "called"),
    [
        ((), lambda p: p.value(), {"value": 1}, {}, {"fun": 1}),
        ((), lambda p: p.gradient(), {"gradient": 1}, {"value": 2 * D}, {"fun": 2 * D}),
        ((), lambda p: p.hessian_product(V), {"hessian": 1}, {"value": 4 * D}, {"fun": 4 * D}),
        ((), lambda p: p.hessian(), {"hessian": 1}, {"value": D * (D + 1) + 1}, {"fun": D * (D + 1) + 1}),
        ((), lambda p: p.third_product(U, V), {"third": 1}, {"value": 8 * D}, {"fun": 8 * D}),
        (("grad",), lambda p: p.gradient(), {"gradient": 1}, {}, {"grad": 1}),
        (("grad",), lambda p: p.hessian_product(V), {"hessian": 1}, {"gradient": 2}, {"grad": 2}),
        (("grad",), lambda p: p.hessian(), {"hessian": 1}, {"gradient": 2 * D}, {"grad": 2 * D}),
        (("grad",), lambda p: p.third_product(U, V), {"third": 1}, {"gradient": 4}, {"grad": 4}),
        (("grad",), lambda p: p.third_tensor(W), {"third": 3}, {"gradient": 7}, {"grad": 7}),  # and that at x
        (
            ("grad",),
            lambda p: [p.gradient(), p.third_square(U)],
            {"gradient": 1, "third": 1},
            {"gradient": 2},
            {"grad": 3},
        ),
        (("grad", "hess"), lambda p: p.hessian(), {"hessian": 1}, {}, {"hess": 1}),
        (
            ("grad", "hess"),
            lambda p: [p.hessian_product(U), p.hessian(), p.hessian_product(V), p.hessian_product(U)],
            {"hessian": 2},  # once as a product and once formed; the user is asked once
            {},
            {"hess": 1},
        ),
        (("grad", "hess"), lambda p: p.third_product(U, V), {"third": 1}, {"hessian": 2}, {"hess": 2}),
        (("grad", "hess"), lambda p: p.third_tensor(W), {"third": 3}, {"hessian": 4}, {"hess": 4}),  # two for a column
        (("grad", "hvp"), lambda p: p.hessian(), {}, {"hessian": D}, {"hvp": D}),
        (("grad", "hvp"), lambda p: p.third_product(U, V), {"third": 1}, {"hessian": 2}, {"hvp": 2}),
        (
            ("grad", "hess", "third"),
            lambda p: [p.third_product(U, V), p.third_tensor(W)],
            {"third": 4},
            {},
            {"third": 1},
        ),
        (("grad", "hess", "tvp"), lambda p: p.third_product(U, V), {"third": 1}, {}, {"tvp": 1}),
        (("grad", "hess", "tvp"), lambda p: p.third_tensor(W), {"third": 3}, {}, {"tvp": 3}),
    ],
)
def test_an_answer_counts_itself_and_the_evaluations_that_differences_took(names, ask, own, extra, called):
    point, calls = counted(names)
    ask(point)
    assert spent(point) == {name: own.get(name, 0) + extra.get(name, 0) for name in {**own, **extra}}
    assert {name: n for name, n in calls.items() if n} == called
    assert not any(engine_of(point).differences.made.values()), "each is told once"


# the clock ----------------------------------------------------------------------------------------------------------


def test_the_clock_is_looked_at_before_each_call_of_the_user():
    looks, calls = [], []
    own = CallObjective(D, fun, {"grad": lambda x: (calls.append(len(looks)), grad(x))[1]})
    timed = own.clocked(lambda: looks.append(1))
    timed.over(None).at(X0).hessian()
    assert calls == list(range(1, 2 * D + 1))
    own.over(None).at(X0).hessian()
    assert len(looks) == 2 * D  # the one that was given is left alone


def test_differences_that_outlast_the_time_end_where_it_ends():
    meter, calls = Meter(1, perf_counter() + 3600.0), []

    def slow(x):
        calls.append(1)
        if len(calls) == 3:
            meter.deadline = -np.inf
        return grad(x)

    point = Metered.of(CallObjective(D, fun, {"grad": slow}), meter).over(None).at(X0)
    with pytest.raises(DeadlineError):
        point.hessian()
    assert len(calls) == 3


# what the user's functions may do -----------------------------------------------------------------------------------


def test_functions_that_use_one_buffer_again_are_copied():
    g, B, T = np.empty(D), np.empty((D, D)), np.empty((D, D, D))

    def into(buffer, call):
        def wrapped(*arguments):
            buffer[...] = call(*arguments)
            return buffer

        return wrapped

    objective = Function(fun, grad=into(g, grad), hess=into(B, hess), third=into(T, third)).bind(X0).objective
    here, there = objective.at(X0), objective.at(X0 + 1.0)
    kept = [result_of(answer) for answer in (here.gradient(), here.hessian(), here.product(3, U, V))]
    there.gradient(), there.hessian(), there.product(3, U, V)
    np.testing.assert_array_equal(kept[0], grad(X0))
    np.testing.assert_allclose(kept[1], hess(X0), rtol=1e-15)
    np.testing.assert_allclose(result_of(here.product(3, U, V)), kept[2], rtol=1e-15)
    np.testing.assert_allclose(kept[2], tvp(X0, U, V), rtol=1e-12)


def test_functions_that_write_into_x_do_no_harm():
    def spoiling(call):
        def wrapped(x, *more):
            out = call(x, *more)
            for a in (x, *more):
                a[:] = np.nan
            return out

        return wrapped

    x, v = X0.copy(), V.copy()
    point = Function(spoiling(fun), grad=spoiling(grad), hvp=spoiling(hvp), tvp=spoiling(tvp)).bind(x).objective.at(x)
    point.value(), point.gradient(), point.product(2, v), point.product(3, v, v)
    np.testing.assert_array_equal(x, X0)
    np.testing.assert_array_equal(v, V)


@pytest.mark.parametrize(
    ("name", "wrong", "ask"),
    [
        ("fun", lambda x: np.ones(2), lambda p: p.value()),
        ("grad", lambda x: np.ones(D + 1), lambda p: p.gradient()),
        ("grad", lambda x: np.ones((D, 1)), lambda p: p.gradient()),
        ("hess", lambda x: np.ones(D), lambda p: p.hessian()),
        ("hvp", lambda x, v: np.ones((D, D)), lambda p: p.product(2, V)),
        ("third", lambda x: np.ones((D, D)), lambda p: p.product(3, U, V)),
        ("tvp", lambda x, u, v: 1.0, lambda p: p.product(3, U, V)),
    ],
)
def test_a_wrong_shape_is_refused_with_the_function_and_both_shapes(name, wrong, ask):
    arguments = {"fun": fun, "grad": grad, name: wrong}
    point = Function(arguments.pop("fun"), **arguments).bind(X0).objective.at(X0)
    with pytest.raises(ValueError, match=rf"{name} returned shape \(.*\), but \(.*\) is needed"):
        ask(point)


def test_a_value_in_an_array_of_one_entry_is_taken():
    point = (
        Function(lambda x: np.array([[x @ x]]), grad=lambda x: 2 * x).bind([1.0, 2.0]).objective.at(np.array([1.0, 2]))
    )
    assert result_of(point.value()) == 5.0
