"""Plain functions: by JAX, with NumPy callables, and by differences; each to the accuracy its formula implies."""

from itertools import chain, combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tercet.objectives.functions import EPS, Function

D = 4
RNG = np.random.default_rng(0)
A = RNG.standard_normal((6, D))
X0 = RNG.standard_normal(D)
U, V = RNG.standard_normal((2, D))
W = RNG.standard_normal((D, 2))

# f(x) = sum sin(a_i'x), whose derivatives are all known and of size one.


def fun(x):
    return float(np.sum(np.sin(A @ x)))


def grad(x):
    return A.T @ np.cos(A @ x)


def hess(x):
    return -A.T @ (np.sin(A @ x)[:, None] * A)


def hvp(x, v):
    return -A.T @ (np.sin(A @ x) * (A @ v))


def third(x):
    return -np.einsum("i,ia,ib,ic->abc", np.cos(A @ x), A, A, A)


def tvp(x, u, v):
    return -A.T @ (np.cos(A @ x) * (A @ u) * (A @ v))


GIVEN = {"grad": grad, "hess": hess, "hvp": hvp, "third": third, "tvp": tvp}
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
    bound = Function(fun, **{name: GIVEN[name] for name in names}).bind(X0)
    return bound, bound.objective.over(None).at(X0)


@pytest.mark.parametrize("names", ALL, ids=lambda names: "+".join(names) or "fun only")
def test_every_combination_of_given_derivatives_gives_all_of_them(names):
    _, point = numpy_point(names)
    g, B, T = accuracies(names)
    assert point.value() == fun(X0)
    np.testing.assert_allclose(point.gradient(), grad(X0), rtol=0, atol=g)
    np.testing.assert_allclose(point.hessian(), hess(X0), rtol=0, atol=B)
    np.testing.assert_allclose(point.hessian_product(V), hess(X0) @ V, rtol=0, atol=B * np.linalg.norm(V))
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
def test_how_says_what_was_made_by_differences(names):
    bound, _ = numpy_point(names)
    how, has = bound.objective.how, set(names)
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
    return bound.objective.over(None).at(X0), calls


def spent(point):
    return {order: n for order, n in point.extra().items() if n}


@pytest.mark.parametrize(
    ("names", "ask", "extra", "called"),
    [
        ((), lambda p: p.value(), {}, {"fun": 1}),
        ((), lambda p: p.gradient(), {"value": 2 * D}, {"fun": 2 * D}),
        ((), lambda p: p.hessian_product(V), {"value": 4 * D}, {"fun": 4 * D}),
        ((), lambda p: p.hessian(), {"value": 4 * D * D}, {"fun": 4 * D * D}),
        ((), lambda p: p.third_product(U, V), {"value": 8 * D}, {"fun": 8 * D}),
        (("grad",), lambda p: p.gradient(), {}, {"grad": 1}),
        (("grad",), lambda p: p.hessian_product(V), {"gradient": 2}, {"grad": 2}),
        (("grad",), lambda p: p.hessian(), {"gradient": 2 * D}, {"grad": 2 * D}),
        (("grad",), lambda p: p.third_product(U, V), {"gradient": 4}, {"grad": 4}),
        (("grad",), lambda p: p.third_tensor(W), {"gradient": 12}, {"grad": 12}),
        (("grad", "hess"), lambda p: p.hessian(), {}, {"hess": 1}),
        (("grad", "hess"), lambda p: [p.hessian(), p.hessian_product(V), p.hessian_product(U)], {}, {"hess": 1}),
        (("grad", "hess"), lambda p: p.third_product(U, V), {"hessian": 2}, {"hess": 2}),
        (("grad", "hess"), lambda p: p.third_tensor(W), {"hessian": 4}, {"hess": 4}),  # two for each column
        (
            ("grad", "hvp"),
            lambda p: p.hessian(),
            {"hessian": D - 1},
            {"hvp": D},
        ),  # one of D is counted by whoever asked
        (("grad", "hvp"), lambda p: p.third_product(U, V), {"hessian": 2}, {"hvp": 2}),
        (("grad", "hess", "third"), lambda p: [p.third_product(U, V), p.third_tensor(W)], {}, {"third": 1}),
        (("grad", "hess", "tvp"), lambda p: p.third_product(U, V), {}, {"tvp": 1}),
        (("grad", "hess", "tvp"), lambda p: p.third_tensor(W), {}, {"tvp": 3}),
    ],
)
def test_extra_says_how_many_evaluations_the_differences_took(names, ask, extra, called):
    point, calls = counted(names)
    ask(point)
    assert spent(point) == extra
    assert spent(point) == {}, "each is told once"
    assert {name: n for name, n in calls.items() if n} == called


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
    kept = here.gradient(), here.hessian(), here.third_product(U, V)
    there.gradient(), there.hessian(), there.third_product(U, V)
    np.testing.assert_array_equal(kept[0], grad(X0))
    np.testing.assert_allclose(kept[1], hess(X0), rtol=1e-15)
    np.testing.assert_allclose(here.third_product(U, V), kept[2], rtol=1e-15)
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
    point.value(), point.gradient(), point.hessian_product(v), point.third_product(v, v)
    np.testing.assert_array_equal(x, X0)
    np.testing.assert_array_equal(v, V)


@pytest.mark.parametrize(
    ("name", "wrong", "ask"),
    [
        ("fun", lambda x: np.ones(2), lambda p: p.value()),
        ("grad", lambda x: np.ones(D + 1), lambda p: p.gradient()),
        ("grad", lambda x: np.ones((D, 1)), lambda p: p.gradient()),
        ("hess", lambda x: np.ones(D), lambda p: p.hessian()),
        ("hvp", lambda x, v: np.ones((D, D)), lambda p: p.hessian_product(V)),
        ("third", lambda x: np.ones((D, D)), lambda p: p.third_product(U, V)),
        ("tvp", lambda x, u, v: 1.0, lambda p: p.third_product(U, V)),
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
    assert point.value() == 5.0


def test_a_list_of_whole_numbers_is_a_start():
    bound = Function(fun, grad=grad).bind([1, 2, 3, 4])
    assert bound.x0.dtype == np.float64
    np.testing.assert_array_equal(bound.restore(bound.x0), [1, 2, 3, 4])


@pytest.mark.parametrize("x0", [None, [], [[1.0, 2.0]], [np.nan, 1.0], [np.inf], ["a"], 3.0, [1j]])
def test_a_bad_start_is_refused_by_name(x0):
    with pytest.raises(ValueError, match="x0"):
        Function(fun, grad=grad).bind(x0)


def test_two_forms_of_one_derivative_are_refused():
    with pytest.raises(ValueError, match=r"hess=\.\.\., hvp=\.\.\."):
        Function(fun, grad=grad, hess=hess, hvp=hvp)
    with pytest.raises(ValueError, match=r"third=\.\.\., tvp=\.\.\."):
        Function(fun, grad=grad, third=third, tvp=tvp)


def test_a_derivative_that_is_no_function_is_refused():
    with pytest.raises(ValueError, match=r"grad=3"):
        Function(fun, grad=3)


# JAX ----------------------------------------------------------------------------------------------------------------


def traceable(x):
    return jnp.sum(jnp.sin(A @ x))


def test_a_jax_function_has_exact_derivatives():
    bound = Function(traceable).bind(X0)
    assert bound.objective.how == "derivatives by JAX"
    point = bound.objective.over(None).at(X0)
    np.testing.assert_allclose(point.value(), fun(X0), rtol=1e-13)
    np.testing.assert_allclose(point.gradient(), grad(X0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(point.hessian(), hess(X0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(point.hessian_product(V), hvp(X0, V), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(point.third_product(U, V), tvp(X0, U, V), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(point.third_square(U), tvp(X0, U, U), rtol=1e-11, atol=1e-13)
    formed = np.einsum("abc,ai,bj,ck->ijk", third(X0), W, W, W)
    np.testing.assert_allclose(point.third_tensor(W), formed, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(point.gradient_errors(), np.zeros((1, D)))


def test_a_jax_function_may_take_a_tree_and_gives_it_back():
    tree = {"a": np.array([1.0, 2.0]), "b": np.float64(3.0)}
    bound = Function(lambda t: jnp.sum(t["a"] ** 2) * t["b"]).bind(tree)
    point = bound.objective.over(None).at(bound.x0)
    assert point.value() == 15.0
    gradient = bound.restore(point.gradient())
    np.testing.assert_array_equal(gradient["a"], [6, 12])
    assert gradient["b"] == 5.0


def test_one_function_serves_float32_and_float64_starts_in_turn():
    for dtype in (np.float32, np.float64, np.float32):
        bound = Function(traceable).bind(X0.astype(dtype))
        g = bound.objective.over(None).at(bound.x0).gradient()
        error = np.abs(g - grad(bound.x0)).max()
        assert error <= (1e-13 if dtype == np.float64 else 1e-5)
        assert (error > 1e-10) == (dtype == np.float32)
        assert bound.restore(bound.x0).dtype == dtype


def test_a_function_that_jax_cannot_trace_is_called():
    bound = Function(fun).bind(X0)
    assert "differences" in bound.objective.how


def test_a_function_that_is_not_scalar_is_refused():
    with pytest.raises(ValueError, match="a scalar is needed"):
        Function(lambda x: x * 2).bind(X0)


def test_the_users_choice_of_precision_for_jax_is_left_alone():
    before = jax.config.jax_enable_x64
    Function(traceable).bind(X0).objective.at(X0).hessian()
    assert jax.config.jax_enable_x64 == before
