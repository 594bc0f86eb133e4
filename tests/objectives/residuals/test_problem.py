"""`Residuals`: the root of the Gauss-Newton matrix, what batches and samples give, and what is refused."""

import numpy as np
import pytest

import tercet
from tercet.objectives.residuals import traced

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(3)
X = RNG.standard_normal((50, 3))
Y = np.tanh(X @ np.array([0.5, -1.0, 0.3])) + 0.2 * RNG.standard_normal(50)
P = np.array([0.2, -0.4, 0.7])


def residual(p, x, y):
    return jnp.tanh(x @ p) - y


def point(loss="squares", rows=None, weights=None, **options):
    problem = tercet.Residuals(residual, (X, Y), loss, weights, **options)
    return problem.bind(P).objective.over(rows).at(P)


@pytest.mark.parametrize("loss", ["squares", "cauchy", "welsch", "huber"])
@pytest.mark.parametrize("chunk", [7, 2048])
@pytest.mark.parametrize("kept", [1, 1 << 24])
def test_the_root_and_the_rest_make_the_hessian(loss, chunk, kept, monkeypatch):
    monkeypatch.setattr(traced, "KEPT", kept)  # the Jacobian is kept, or gone through batch by batch
    rows = RNG.integers(0, 50, 23)
    w = np.linspace(0.2, 2.0, 50)
    at = point(loss, rows, w, chunk=chunk)
    linear, rest = at.linear(False).result, at.rest().result
    w = (w / w.mean())[rows]

    def f(p):
        r = jnp.tanh(X[rows] @ p) - Y[rows]
        return jnp.mean(w * traced.Outer(loss).value(r, jnp))

    with jax.enable_x64(True):
        g, B = np.asarray(jax.grad(f)(P)), np.asarray(jax.hessian(f)(P))
    np.testing.assert_allclose(linear.root.T @ linear.image, g, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(linear.root.T @ linear.root + rest, B, rtol=1e-9, atol=1e-13)
    assert linear.root.shape[0] <= 4


@pytest.mark.parametrize("kept", [1, 1 << 24])
def test_the_curve_is_the_second_derivative_of_the_residuals(kept, monkeypatch):
    monkeypatch.setattr(traced, "KEPT", kept)
    s, h = np.array([0.3, 0.1, -0.5]), 1e-4
    curve = point("cauchy").curve(s)
    r = lambda t: np.tanh(X @ (P + t * s)) - Y  # noqa: E731
    b = (r(h) - 2 * r(0) + r(-h)) / h**2
    J = (1 - np.tanh(X @ P) ** 2)[:, None] * X
    slope, weight = traced.Outer("cauchy").weights(r(0))
    np.testing.assert_allclose(curve.slope, J.T @ (weight * b) / 50, rtol=1e-5)
    assert curve.image == pytest.approx(slope @ b / 50, rel=1e-5)
    assert curve.square == pytest.approx((weight * b) @ b / 50, rel=1e-5)


def test_a_jacobian_is_counted_once_with_the_gradient():
    at = point()
    assert at.gradient().gradient == 50
    assert at.linear(False).gradient == 0
    assert point().linear(False).gradient == 50
    assert point().linear(True).gradient == 0  # it was paid with a gradient before a checkpoint


def test_digits_that_the_square_of_the_jacobian_loses_are_kept():
    # columns that are parallel to 1e-9: J'J is singular in double precision, J is not
    t = np.linspace(0.0, 1.0, 40)
    A = np.stack([np.ones(40), 1.0 + 1e-9 * t], axis=1)
    p = np.array([2.0, 3.0])
    problem = tercet.Residuals(lambda p, a, y: a @ p - y, (A, A @ p))
    at = problem.bind(np.zeros(2)).objective.over(None).at(np.zeros(2))
    linear = at.linear(False).result
    step = -np.linalg.lstsq(linear.root, linear.image, rcond=None)[0]
    np.testing.assert_allclose(step, p, rtol=1e-4)


def test_the_whole_vector_is_the_sum_and_examples_are_the_mean():
    whole = tercet.Residuals.of(lambda p: jnp.tanh(X @ p) - Y).bind(P).objective.over(None).at(P)
    assert whole.value() == pytest.approx(50 * point().value(), rel=1e-13)


@pytest.mark.parametrize(
    "jac", [None, lambda p: (1 - np.tanh(X @ p) ** 2)[:, None] * X], ids=["differences", "as given"]
)
def test_callables_give_what_jax_gives(jac):
    def fun(p):
        return np.tanh(X @ np.asarray(p, dtype=float)) - Y

    mine = tercet.Residuals.of(fun, jac, loss="cauchy").bind(P).objective.at(P)
    other = tercet.Residuals.of(lambda p: jnp.tanh(X @ p) - Y, loss="cauchy").bind(P).objective.over(None).at(P)
    close = 1e-8 if jac is None else 1e-12
    np.testing.assert_allclose(mine.gradient().result, other.gradient().result, rtol=close)
    np.testing.assert_allclose(mine.hessian().result, other.hessian().result, rtol=1e-4, atol=1e-5)
    s = np.array([1e-3, 2e-3, -1e-3])
    np.testing.assert_allclose(mine.curve(s).result.slope, other.curve(s).slope, rtol=1e-2)
    said = tercet.minimize(tercet.Residuals.of(fun, jac), P).certificate.how
    assert "by differences of " + ("the residuals" if jac is None else "jac") in said


def test_a_tree_of_parameters_comes_back_as_it_was():
    result = tercet.minimize(
        tercet.Residuals(lambda p, x, y: jnp.tanh(x @ p["w"]) + p["b"] - y, (X, Y)), {"w": P, "b": np.array(0.1)}
    )
    assert result.success
    assert set(result.x) == {"w", "b"}


def test_integers_among_the_data_stay_integers():
    group = np.arange(50) % 2
    result = tercet.minimize(tercet.Residuals(lambda p, k, y: p[k] - y, (group, Y)), np.zeros(2))
    np.testing.assert_allclose(result.x, [Y[::2].mean(), Y[1::2].mean()], rtol=1e-8)


def test_fewer_residuals_than_parameters_have_many_minimizers():
    result = tercet.minimize(tercet.Residuals.of(lambda p: jnp.stack([p[0] * p[1] - 1.0])), np.array([2.0, 3.0]))
    assert result.fun <= 1e-20
    assert result.certificate.strict is not True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"residual": 3}, "is a function"),
        ({"data": (X, Y[:-1])}, "same number"),
        ({"data": (X, np.where(Y > 0, Y, np.nan))}, "nan or inf"),
        ({"data": (X, np.ma.masked_array(Y, Y > 0))}, "no array"),
        ({"loss": "absolute"}, "unknown loss"),
        ({"weights": np.ones(3)}, "one per example"),
        ({"weights": -np.ones(50)}, "at least 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        tercet.Residuals(**{"residual": residual, "data": (X, Y), **arguments})


def test_residuals_that_change_their_number_end_the_run():
    def fun(p):
        return np.ones(3 if p[0] == 1.0 else 2) * float(p[0])

    with pytest.raises(ValueError, match="keep their number"):
        tercet.minimize(tercet.Residuals.of(fun), np.array([1.0]))


@pytest.mark.parametrize("kept", [1 << 24, 1])
def test_a_penalty_is_that_of_residuals_of_its_own(kept, monkeypatch):
    from tercet.objectives.base import Priced

    monkeypatch.setattr(traced, "KEPT", kept)
    rng = np.random.default_rng(3)
    A, y, x, v = rng.standard_normal((30, 4)), rng.standard_normal(30), rng.standard_normal(4), rng.standard_normal(4)
    l2 = np.array([0.3, 0.0, 2.0, 0.1])

    def f(p):
        r = jax.numpy.sin(A @ p) - y
        return 0.5 * jax.numpy.mean(r * r) + 0.5 * jax.numpy.sum(l2 * p * p)

    problem = tercet.Residuals(lambda p, a, b: jax.numpy.sin(a @ p) - b, (A, y), l2=l2, chunk=16)
    at = problem.bind(x).objective.over(None).at(x)
    plain = lambda a: a.result if isinstance(a, Priced) else a  # noqa: E731
    with jax.enable_x64(True):
        g, B = np.asarray(jax.grad(f)(x)), np.asarray(jax.hessian(f)(x))
        assert plain(at.value()) == pytest.approx(float(f(x)), rel=1e-12)
    np.testing.assert_allclose(plain(at.gradient()), g, rtol=1e-10)
    np.testing.assert_allclose(plain(at.hessian()), B, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(plain(at.product(2, v)), B @ v, rtol=1e-9, atol=1e-12)
    linear = plain(at.linear())
    np.testing.assert_allclose(linear.root.T @ linear.image, g, rtol=1e-10)
    result = tercet.minimize(problem, x)
    assert result.success
    assert float(np.linalg.norm(np.asarray(plain(problem.bind(x).objective.over(None).at(result.x).gradient())))) < 1e-7


@pytest.mark.parametrize("l2", [-1.0, np.inf, np.nan, np.array([1.0, -1.0])])
def test_a_penalty_that_is_none_is_refused(l2):
    with pytest.raises(ValueError, match="l2"):
        tercet.Residuals(lambda p, a: a * p, np.ones(3), l2=l2)
    with pytest.raises(ValueError, match="structure"):
        tercet.Residuals(lambda p, a: a * p[0], np.ones(3), l2=np.ones(3)).bind(np.ones(2))
