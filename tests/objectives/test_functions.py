"""Plain functions: traced by JAX, or called; which of them it is, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tercet
from tercet.objectives.callables import DENSE_LIMIT, FORMED_THIRD, CallObjective
from tercet.objectives.functions import Function, JaxObjective
from tercet.objectives.metered import Meter, Metered
from tests.objectives.sines import X0, A, D, U, V, W, fun, grad, hess, hvp, third, tvp


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
    assert bound.objective.traits.provenance == "derivatives by JAX"
    point = Metered.of(bound.objective, Meter(1)).over(None).at(X0)
    np.testing.assert_allclose(point.value(), fun(X0), rtol=1e-13)
    np.testing.assert_allclose(point.gradient(), grad(X0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(point.hessian_product(V), hvp(X0, V), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(point.hessian(), hess(X0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(point.third_product(U, V), tvp(X0, U, V), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(point.third_square(U), tvp(X0, U, U), rtol=1e-11, atol=1e-13)
    formed = np.einsum("abc,ai,bj,ck->ijk", third(X0), W, W, W)
    np.testing.assert_allclose(point.third_tensor(W), formed, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(point.errors(), np.zeros((1, D)))


def test_a_function_with_a_derivative_is_called_also_where_jax_could_trace_it():
    assert isinstance(Function(traceable).bind(X0).objective, JaxObjective)
    assert isinstance(Function(traceable, grad=grad).bind(X0).objective, CallObjective)


@pytest.mark.parametrize(
    ("d", "dense", "forms_third"),
    [(FORMED_THIRD, True, True), (FORMED_THIRD + 1, True, False), (DENSE_LIMIT + 1, False, False)],
)
def test_what_is_worth_forming_by_jax_depends_on_the_number_of_variables(d, dense, forms_third):
    traits = Function(lambda x: jnp.sum(x**2)).bind(np.ones(d)).objective.traits
    assert (traits.dense, traits.forms_third) == (dense, forms_third)


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
    assert isinstance(bound.objective, CallObjective)
    assert "differences" in bound.objective.traits.provenance


def test_a_function_that_is_not_scalar_is_refused():
    with pytest.raises(ValueError, match="a scalar is needed"):
        Function(lambda x: x * 2).bind(X0)


def test_the_users_choice_of_precision_for_jax_is_left_alone():
    before = jax.config.jax_enable_x64
    Function(traceable).bind(X0).objective.at(X0).hessian()
    assert jax.config.jax_enable_x64 == before


def shifted(x, a, b):
    return float((x[0] - a) ** 2 + (x[1] - b) ** 2)


@pytest.mark.parametrize("plain", [True, False], ids=["NumPy", "JAX"])
def test_args_are_what_a_function_is_called_with_beside_x(plain):
    def traced(x, a, b):
        return (x[0] - a) ** 2 + (x[1] - b) ** 2

    fun = shifted if plain else traced
    result = tercet.minimize(fun, np.zeros(2), args=(3.0, -4.0))
    assert result.success
    np.testing.assert_allclose(result.x, [3.0, -4.0], rtol=1e-7)
    assert tercet.certify(fun, result.x, args=(3.0, -4.0)).holds
    one = tercet.minimize(lambda x, a: float((x[0] - a) ** 2), np.zeros(1), args=2.0, grad=lambda x, a: 2 * (x - a))
    np.testing.assert_allclose(one.x, [2.0], rtol=1e-7)


def test_a_run_goes_on_with_the_args_that_it_began_with_and_no_others(tmp_path):
    path = tmp_path / "run"
    tercet.minimize(shifted, np.zeros(2), args=(3.0, -4.0), checkpoint=path, max_iterations=1)
    with pytest.raises(ValueError, match="args"):
        tercet.resume(path, shifted, args=(3.0, 4.0))
    assert tercet.resume(path, shifted, args=(3.0, -4.0), max_iterations=100).success


def test_args_of_a_problem_that_takes_none_are_refused():
    with pytest.raises(ValueError, match=r"minimize\(args="):
        tercet.minimize(tercet.LinearModel(np.eye(3), np.ones(3), "squares"), args=(1.0,))
