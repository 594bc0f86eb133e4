"""`minimize` from outside: what can be passed in, what comes back, and that it can be trusted."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

import tercet
from tercet import Status

jax = pytest.importorskip("jax")
jnp = jax.numpy


def generated(n: int = 2000, d: int = 5, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ rng.standard_normal(d)))).astype(float)


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y.astype(float)


L2 = 1e-3
X, Y = generated()
LOGISTIC = tercet.LinearModel(X, Y, "logistic", l2=L2)
SIGMOID = tercet.LinearModel(X, Y, "sigmoid_squares", l2=L2)
CANCER = tercet.LinearModel(*breast_cancer(), "logistic", l2=L2)


def tree_loss(params: dict[str, Any], x: Any, y: Any) -> Any:
    z = x @ params["w"] + params["b"]
    penalty = 0.5 * L2 * (params["w"] @ params["w"] + params["b"] ** 2)
    return jnp.logaddexp(0.0, z) - y * z + penalty


TREE = tercet.FiniteSum(tree_loss, (X, Y))
TREE_START = {"w": np.zeros(5), "b": np.float64(0.0)}


def flat_loss(p: Any, a: Any) -> Any:
    """The mean over a has a flat minimum: (p0 - mean a)^2 + p1^4 + a constant."""
    return (p[0] - a) ** 2 + p[1] ** 4 + p[1] ** 2 * (a - A_MEAN)


A = np.random.default_rng(5).standard_normal(300)
A_MEAN = float(np.mean(A))
FLAT = tercet.FiniteSum(flat_loss, A)


# the Rosenbrock function, as NumPy callables ------------------------------------------------------------------------

ROSEN_START = np.array([-1.2, 1.0])


def rosen(x: np.ndarray) -> float:
    return float(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)


def rosen_grad(x: np.ndarray) -> np.ndarray:
    bend = x[1] - x[0] ** 2
    return np.array([-400.0 * x[0] * bend - 2.0 * (1.0 - x[0]), 200.0 * bend])


def rosen_hess(x: np.ndarray) -> np.ndarray:
    return np.array([[1200.0 * x[0] ** 2 - 400.0 * x[1] + 2.0, -400.0 * x[0]], [-400.0 * x[0], 200.0]])


def rosen_third(x: np.ndarray) -> np.ndarray:
    T = np.zeros((2, 2, 2))
    T[0, 0, 0] = 2400.0 * x[0]
    T[0, 0, 1] = T[0, 1, 0] = T[1, 0, 0] = -400.0
    return T


def rosen_hvp(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    return rosen_hess(x) @ v


def rosen_tvp(x: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (rosen_third(x) @ v) @ u


class Calls:
    """A function that counts how often it is called."""

    def __init__(self, function: Any):
        self.function, self.number = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.number += 1
        return self.function(*arguments)


# independent recomputation ------------------------------------------------------------------------------------------


def plain_logistic(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any, Any]:
    """f, its gradient and Hessian for the mean logistic loss with the l2 penalty, written down once more."""

    def margin(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = X @ x
        return z, 1.0 / (1.0 + np.exp(-z))

    def f(x: np.ndarray) -> float:
        z, _ = margin(x)
        return float(np.mean(np.logaddexp(0.0, z) - y * z) + 0.5 * L2 * x @ x)

    def g(x: np.ndarray) -> np.ndarray:
        return X.T @ (margin(x)[1] - y) / len(y) + L2 * x

    def h(x: np.ndarray) -> np.ndarray:
        p = margin(x)[1]
        return X.T @ ((p * (1 - p))[:, None] * X) / len(y) + L2 * np.eye(X.shape[1])

    return f, g, h


@functools.cache
def derivatives(f: Any) -> Any:
    """x -> (gradient, Hessian, third derivative), compiled once per function."""
    hessian = jax.hessian(f)
    return jax.jit(lambda x: (jax.grad(f)(x), hessian(x), jax.jacfwd(hessian)(x)))


def criticality(f: Any, x: np.ndarray, zeta: float) -> tuple[float, float, float]:
    """chi_1, chi_2, chi_3 of a JAX function; the near-kernel may have up to two dimensions."""
    with jax.enable_x64(True):
        g, B, T = (np.asarray(part) for part in derivatives(f)(x))
    values, vectors = np.linalg.eigh(B)
    V = vectors[:, np.abs(values) <= zeta]
    assert V.shape[1] <= 2
    chi3 = 0.0
    for angle in np.linspace(0.0, np.pi, 721) if V.shape[1] else ():
        y = V @ np.array([np.cos(angle), np.sin(angle)])[: V.shape[1]]
        y = y / max(float(np.linalg.norm(y)), 1e-300)
        chi3 = max(chi3, abs(float(((T @ y) @ y) @ y)))
    return float(np.linalg.norm(g)), max(0.0, -float(values[0])), chi3


def mean_logistic(x: Any) -> Any:
    z = X @ x
    return jnp.mean(jnp.logaddexp(0.0, z) - Y * z) + 0.5 * L2 * x @ x


def mean_sigmoid(x: Any) -> Any:
    return jnp.mean(0.5 * (jax.nn.sigmoid(X @ x) - Y) ** 2) + 0.5 * L2 * x @ x


def mean_flat(x: Any) -> Any:
    return jnp.mean(jax.vmap(lambda a: flat_loss(x, a))(A))


PROBLEMS = {
    "logistic": (LOGISTIC, np.zeros(5), mean_logistic),
    "sigmoid_squares": (SIGMOID, np.ones(5), mean_sigmoid),
    "flat minimum": (FLAT, np.array([0.3, 0.7]), mean_flat),
}


# what can be passed in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_matrix])
def test_a_linear_model_starts_at_zero_and_dense_and_sparse_data_give_the_same_minimum(form):
    problem = tercet.LinearModel(form(X), Y, loss="logistic", l2=L2)
    stopped = tercet.minimize(problem, max_iterations=0)
    assert np.array_equal(stopped.x, np.zeros(5))
    assert stopped.fun == pytest.approx(np.log(2.0), rel=1e-14)
    result = tercet.minimize(problem, seed=0)
    assert result.success
    np.testing.assert_allclose(result.x, tercet.minimize(LOGISTIC, tol=1e-11).x, rtol=0, atol=1e-6)
    assert result.fun == pytest.approx(plain_logistic(X, Y)[0](result.x), rel=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_finite_sum_gives_back_the_structure_and_dtype_of_its_parameters(dtype):
    start = {"w": np.zeros(5, dtype), "b": dtype(0.0)}
    result = tercet.minimize(TREE, start, tol=1e-8 if dtype is np.float64 else 1e-4)
    assert result.success
    assert set(result.x) == {"w", "b"}
    assert (result.x["w"].shape, result.x["w"].dtype) == ((5,), dtype)
    assert (np.shape(result.x["b"]), result.x["b"].dtype) == ((), dtype)
    f, g, _ = plain_logistic(np.hstack([X, np.ones((len(X), 1))]), Y)
    x = np.append(result.x["w"], result.x["b"]).astype(float)
    assert np.linalg.norm(g(x)) <= (1e-8 if dtype is np.float64 else 2e-4)
    assert result.fun == pytest.approx(f(x), rel=1e-13 if dtype is np.float64 else 1e-5)


def test_a_jax_function_is_differentiated_by_jax():
    result = tercet.minimize(lambda x: 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2, ROSEN_START)
    assert result.success
    assert "JAX" in result.certificate.how
    assert "differences" not in result.certificate.how
    np.testing.assert_allclose(result.x, 1.0, rtol=0, atol=1e-8)


def test_a_jax_function_of_a_tree_gives_back_the_tree():
    result = tercet.minimize(
        lambda p: (p["a"] - 2.0) ** 2 + jnp.sum((p["c"][0] - p["a"]) ** 4) + jnp.sum((p["c"][1] - 1.0) ** 2),
        {"a": 0.0, "c": [np.ones(1), np.zeros(2)]},
    )
    assert result.success
    assert set(result.x) == {"a", "c"}
    assert isinstance(result.x["c"], list)
    assert result.x["a"] == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize(
    ("derivatives", "made"),
    [
        ({"grad": rosen_grad, "hess": rosen_hess, "third": rosen_third}, ()),
        ({"grad": rosen_grad, "hvp": rosen_hvp, "tvp": rosen_tvp}, ()),
        ({"grad": rosen_grad, "hess": rosen_hess, "tvp": rosen_tvp}, ()),
        ({"grad": rosen_grad, "hvp": rosen_hvp}, ("third derivative",)),
        ({"grad": rosen_grad, "hess": rosen_hess}, ("third derivative",)),
        ({"grad": rosen_grad}, ("Hessian", "third derivative")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_numpy_callables_reach_the_minimum_and_the_certificate_says_what_was_made_by_differences(derivatives, made):
    result = tercet.minimize(rosen, ROSEN_START, **derivatives)
    assert result.success
    np.testing.assert_allclose(result.x, 1.0, rtol=0, atol=1e-8)
    by_differences = result.certificate.how.partition("by differences")
    assert bool(by_differences[1]) is bool(made)
    for name in ("gradient", "Hessian", "third derivative"):
        assert (name in by_differences[0]) is (name in made)
    assert result.certificate.how in result.message


def test_a_function_that_jax_cannot_trace_is_differentiated_by_differences_and_the_certificate_says_so():
    result = tercet.minimize(lambda x: float(np.exp(x[0]) - 2.0 * x[0] + x[1] ** 2), np.zeros(2), tol=1e-6)
    assert result.success
    assert "gradient, Hessian, third derivative by differences" in result.certificate.how
    np.testing.assert_allclose(result.x, [np.log(2.0), 0.0], rtol=0, atol=1e-6)


def test_differences_and_given_derivatives_lead_to_the_same_point():
    given = tercet.minimize(rosen, ROSEN_START, grad=rosen_grad, hess=rosen_hess, third=rosen_third)
    made = tercet.minimize(rosen, ROSEN_START, grad=rosen_grad)
    np.testing.assert_allclose(given.x, made.x, rtol=0, atol=1e-9)


def test_the_start_of_the_user_is_not_written_to():
    start = ROSEN_START.copy()
    tercet.minimize(rosen, start, grad=rosen_grad, hess=rosen_hess)
    assert np.array_equal(start, ROSEN_START)
    start = np.ones(5)
    tercet.minimize(LOGISTIC, start)
    assert np.array_equal(start, np.ones(5))


def test_a_function_that_keeps_and_overwrites_its_argument_does_not_disturb_the_run():
    def scribbling(function):
        def call(x):
            value = function(x)
            x[:] = np.nan
            return value

        return call

    clean = tercet.minimize(rosen, ROSEN_START, grad=rosen_grad, hess=rosen_hess)
    dirty = tercet.minimize(scribbling(rosen), ROSEN_START, grad=scribbling(rosen_grad), hess=scribbling(rosen_hess))
    assert np.array_equal(clean.x, dirty.x)


def test_a_function_whose_closure_changed_between_two_calls_is_differentiated_anew():
    target = {"at": 1.0}

    def fun(x: Any) -> Any:
        return jnp.sum((x - target["at"]) ** 2)

    assert tercet.minimize(fun, np.zeros(2)).x == pytest.approx([1.0, 1.0], abs=1e-7)
    target["at"] = 2.0
    assert tercet.minimize(fun, np.zeros(2)).x == pytest.approx([2.0, 2.0], abs=1e-7)


def test_one_function_in_single_then_in_double_precision_keeps_both_precisions():
    def fun(x: Any) -> Any:
        return jnp.sum((x - 1.0 / 3.0) ** 2) + jnp.sum(x) ** 4

    single = tercet.minimize(fun, np.zeros(3, np.float32), tol=1e-4)
    double = tercet.minimize(fun, np.zeros(3), tol=1e-12)
    assert (single.x.dtype, double.x.dtype) == (np.float32, np.float64)
    assert double.success
    x = double.x
    assert np.linalg.norm(2 * (x - 1 / 3) + 4 * np.sum(x) ** 3) <= 1e-12


# the minimum --------------------------------------------------------------------------------------------------------

METHODS = {
    "STM": tercet.STM(),
    "STM full": tercet.STM(sizes=tercet.Full()),
    "STM growing": tercet.STM(sizes=tercet.Growing()),
    "STM adaptive": tercet.STM(sizes=tercet.Adaptive()),
    "STM fixed, all terms": tercet.STM(sizes=tercet.Fixed(1.0, 1.0, 1.0)),
    "STM fixed, full gradient": tercet.STM(sizes=tercet.Fixed(1.0, 0.2, 0.2)),
    "STM paper sigma": tercet.STM(sigma=tercet.PaperSigma()),
    "STM always third": tercet.STM(worth=np.inf),
    "STM never third": tercet.STM(worth=0.0),
    "SCR": tercet.SCR(),
    "SCR full": tercet.SCR(sizes=tercet.Full()),
    "SCR growing": tercet.SCR(sizes=tercet.Growing()),
    "SCR adaptive": tercet.SCR(sizes=tercet.Adaptive()),
}
SUBSOLVERS = {
    "Dense": tercet.Dense(),
    "Krylov": tercet.Krylov(),
    "GradientDescent": tercet.GradientDescent(iterations=200),
    "Accelerated": tercet.Accelerated(iterations=200),
}


@pytest.fixture(scope="module")
def cancer_minimum() -> float:
    f, g, h = plain_logistic(*breast_cancer())
    run = scipy.optimize.minimize(f, np.zeros(30), jac=g, hess=h, method="trust-exact", options={"gtol": 1e-9})
    assert np.linalg.norm(g(run.x)) <= 1e-9
    return float(run.fun)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("start", [None, 1.0], ids=["from zero", "from ones"])
def test_the_minimum_agrees_with_scipy_on_breast_cancer(method, start, cancer_minimum):
    result = tercet.minimize(CANCER, None if start is None else np.full(30, start), method=method, tol=1e-8)
    assert result.success
    assert abs(result.fun - cancer_minimum) <= 1e-10
    assert result.fun == pytest.approx(plain_logistic(*breast_cancer())[0](result.x), rel=1e-13)


@pytest.mark.parametrize("subsolver", SUBSOLVERS.values(), ids=SUBSOLVERS)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("sizes", [tercet.Progressive(), tercet.Full()], ids=["progressive", "full"])
def test_every_subsolver_reaches_the_certified_minimum(subsolver, kind, sizes):
    f, g, h = plain_logistic(X, Y)
    best = scipy.optimize.minimize(f, np.zeros(5), jac=g, hess=h, method="trust-exact", options={"gtol": 1e-10}).fun
    result = tercet.minimize(LOGISTIC, method=kind(sizes=sizes, subsolver=subsolver))
    assert result.success
    assert abs(result.fun - best) <= 1e-10


@pytest.mark.parametrize("subsolver", SUBSOLVERS.values(), ids=SUBSOLVERS)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_every_subsolver_finds_the_minimum_of_a_curved_valley(subsolver, kind):
    result = tercet.minimize(
        rosen, ROSEN_START, grad=rosen_grad, hess=rosen_hess, third=rosen_third, method=kind(subsolver=subsolver)
    )
    assert result.success
    np.testing.assert_allclose(result.x, 1.0, rtol=0, atol=1e-7)


@pytest.mark.parametrize("rule", [tercet.Growing(), tercet.Growing(factor=100.0), tercet.Adaptive()], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_a_size_rule_that_grows_ends_certified_also_when_it_starts_beside_the_minimum(rule, seed):
    start = tercet.minimize(LOGISTIC).x + 1e-3
    result = tercet.minimize(LOGISTIC, start, method=tercet.STM(sizes=rule), seed=seed)
    assert result.success, result.status


def test_fixed_samples_with_the_default_sigma_end_at_the_noise_and_sigma_does_not_run_away():
    for seed in range(3):
        result = tercet.minimize(CANCER, method=tercet.STM(sizes=tercet.Fixed()), seed=seed)
        assert result.status is Status.NOISE
        assert "larger samples" in result.message
        assert np.max(result.trace["sigma"]) < 1e6


def test_sgd_on_all_terms_is_gradient_descent():
    _, g, _ = plain_logistic(X, Y)
    x = np.zeros(5)
    for _ in range(20):
        x = x - 0.5 * g(x)
    result = tercet.minimize(LOGISTIC, method=tercet.SGD(batch=1.0, step=0.5), max_iterations=20)
    np.testing.assert_allclose(result.x, x, rtol=0, atol=1e-13)
    assert result.status is Status.MAX_ITERATIONS
    assert result.nit == 20


def test_sgd_descends_on_small_batches_and_counts_only_its_gradients():
    result = tercet.minimize(LOGISTIC, method=tercet.SGD(batch=0.01, step=0.1), max_iterations=100)
    assert result.fun < 0.8 * np.log(2.0)
    assert not result.success
    assert np.array_equal(result.trace["gradient"], 20 * np.arange(1, 101))
    assert np.all(result.trace["value"] == 0)
    assert np.all(result.trace["hessian"] == 0)


# the certificate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1.0, 0.1, 0.01, 1e-3])
@pytest.mark.parametrize("x0", [(0.3, 0.7), (-1.0, 2.0), (0.0, 1e-3)])
def test_a_flat_minimum_is_certified_to_order_3_from_wherever_f_is_rounded_off(start, x0):
    """Where p1^4 is below the rounding of f, chi_3 = 24 p1 is still above its tolerance; but f was seen to rise."""
    method = tercet.STM(sigma=tercet.SignedEstimate(start=start))
    result = tercet.minimize(FLAT, np.array(x0), order=3, tol=1e-8, method=method)
    assert result.status is Status.CERTIFIED
    c = result.certificate
    assert c.rises or c.chi3 <= c.eps3
    assert abs(result.x[1]) <= c.error_x[1] <= 0.1  # and x is as close as it says


def test_a_flat_minimum_with_a_tolerance_from_numpy_leaves_a_checkpoint(tmp_path):
    path = tmp_path / "flat.npz"
    result = tercet.minimize(FLAT, np.array([0.3, 0.7]), order=3, tol=np.float64(1e-8), checkpoint=path)
    assert result.status is Status.CERTIFIED
    assert path.exists()


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_success_means_that_each_chi_recomputed_on_all_data_is_within_its_tolerance(order, name, kind):
    problem, start, f = PROBLEMS[name]
    result = tercet.minimize(problem, start, order=order, tol=1e-8, method=kind())
    c = result.certificate
    assert result.success
    assert c.holds
    assert (c.order, c.terms, c.n) == (order, problem.n, problem.n)
    assert (c.eps1, c.eps2, c.eps3) == (1e-8, 1e-8 ** (2 / 3), 1e-8 ** (1 / 3))
    chi1, chi2, chi3 = criticality(f, result.x, c.zeta)
    assert chi1 <= 1e-8 * (1 + 1e-6)
    assert chi1 == pytest.approx(c.chi1, rel=1e-3, abs=1e-13)
    if order >= 2:
        assert chi2 <= c.eps2
        assert chi2 == pytest.approx(c.chi2, rel=1e-3, abs=1e-12)
    if order >= 3:
        assert chi3 <= c.eps3 or c.rises  # where f was seen to rise the third derivative is not asked
        assert c.rises == (name == "flat minimum")
        assert c.chi3 >= chi3 * (1 - 1e-3) - 1e-10
    assert [np.isnan(chi) for chi in (c.chi1, c.chi2, c.chi3)] == [False, order < 2, order < 3]


def test_the_certificate_of_a_run_that_ended_early_is_that_of_its_point():
    result = tercet.minimize(SIGMOID, np.ones(5), max_iterations=2)
    chi1, chi2, _ = criticality(mean_sigmoid, result.x, result.certificate.zeta)
    assert not result.success
    assert result.certificate.chi1 == pytest.approx(chi1, rel=1e-10)
    assert result.certificate.chi2 == pytest.approx(chi2, rel=1e-10, abs=1e-14)


def saddle(x: Any) -> Any:
    """Gradient zero at 0, Hessian diag(2, -1), minima -1/16 at (0, +-1/sqrt(2)) ... with quartic walls."""
    return x[0] ** 2 - 0.5 * x[1] ** 2 + 0.5 * x[1] ** 4


def test_the_order_says_whether_a_saddle_is_good_enough():
    first = tercet.minimize(saddle, np.zeros(2), order=1)
    assert first.success
    assert np.array_equal(first.x, np.zeros(2))
    for order in (2, 3):
        result = tercet.minimize(saddle, np.zeros(2), order=order)
        assert result.success
        assert result.fun == pytest.approx(-0.125, abs=1e-12)
        assert 2 in result.trace["escape"]


def test_the_order_says_whether_a_degenerate_point_is_good_enough():
    def f(x: Any) -> Any:
        return x[0] ** 2 + x[1] ** 3 + x[1] ** 4

    for order in (1, 2):
        assert np.array_equal(tercet.minimize(f, np.zeros(2), order=order).x, np.zeros(2))
    result = tercet.minimize(f, np.zeros(2), order=3)
    assert result.success
    assert result.fun == pytest.approx(-27 / 256, abs=1e-12)
    assert 3 in result.trace["escape"]


# same seed, same result ---------------------------------------------------------------------------------------------


def assert_same(a: tercet.Result, b: tercet.Result) -> None:
    """Bit for bit, apart from the clock."""
    for one, other in zip(jax.tree_util.tree_leaves(a.x), jax.tree_util.tree_leaves(b.x), strict=True):
        assert one.tobytes() == other.tobytes()
    assert (a.fun, a.status, a.message, a.nit, a.counts) == (b.fun, b.status, b.message, b.nit, b.counts)
    one, other = (r.trace.frame().drop(columns="seconds") for r in (a, b))
    assert one.equals(other)


def jax_rosen(x: Any) -> Any:
    return 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2


RUNS = {
    "linear": lambda seed: tercet.minimize(
        LOGISTIC, np.ones(5), seed=seed, method=tercet.STM(tercet.Progressive(multiple=20))
    ),
    "sum": lambda seed: tercet.minimize(TREE, TREE_START, seed=seed),
    "function": lambda seed: tercet.minimize(jax_rosen, ROSEN_START, seed=seed),
    "callables": lambda seed: tercet.minimize(rosen, ROSEN_START, grad=rosen_grad, seed=seed),
    "growing": lambda seed: tercet.minimize(LOGISTIC, method=tercet.STM(sizes=tercet.Growing()), seed=seed),
    "adaptive": lambda seed: tercet.minimize(LOGISTIC, method=tercet.SCR(sizes=tercet.Adaptive()), seed=seed),
    "fixed": lambda seed: tercet.minimize(LOGISTIC, method=tercet.STM(sizes=tercet.Fixed(0.1, 0.1, 0.1)), seed=seed),
    "replacement": lambda seed: tercet.minimize(
        LOGISTIC, method=tercet.STM(sizes=tercet.Fixed(0.1, 0.1, 0.1, replacement=True)), seed=seed
    ),
    "sgd": lambda seed: tercet.minimize(LOGISTIC, method=tercet.SGD(), max_iterations=30, seed=seed),
}
SAMPLED = [name for name in RUNS if name not in ("function", "callables")]


@pytest.mark.parametrize("name", RUNS)
def test_the_same_seed_gives_the_same_result_bit_for_bit(name):
    assert_same(RUNS[name](3), RUNS[name](3))


@pytest.mark.parametrize("name", SAMPLED)
def test_different_seeds_draw_different_samples(name):
    column = "gradient_norm"  # of the first iteration: x is the same, so only the sample can differ
    first = {RUNS[name](seed).trace[column][0] for seed in range(4)}
    assert len(first) == 4


def test_a_numpy_integer_is_a_seed_like_any_other():
    assert_same(RUNS["linear"](7), RUNS["linear"](np.int64(7)))


@pytest.mark.parametrize("names", [("linear", "fixed"), ("sum", "sum"), ("function", "function"), ("linear", "sum")])
def test_two_calls_in_two_threads_equal_the_calls_alone(names):
    alone = [RUNS[name](seed) for seed, name in enumerate(names)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            together = list(pool.map(lambda job: RUNS[job[1]](job[0]), enumerate(names)))
            for one, other in zip(alone, together, strict=True):
                assert_same(one, other)


@pytest.mark.parametrize("outer", ["linear", "sum", "fixed"])
def test_a_minimize_inside_the_callback_of_another_does_not_disturb_it(outer):
    problem, start, method = {
        "linear": (LOGISTIC, np.ones(5), tercet.STM(tercet.Progressive(multiple=20))),
        "sum": (TREE, TREE_START, tercet.STM()),
        "fixed": (LOGISTIC, None, tercet.STM(sizes=tercet.Fixed(0.1, 0.1, 0.1))),
    }[outer]
    inner = RUNS["linear"](5)

    def nested(info: tercet.Info) -> None:
        assert_same(RUNS["linear"](5), inner)

    alone = tercet.minimize(problem, start, method=method, max_iterations=15, callback=lambda info: None)
    assert_same(tercet.minimize(problem, start, method=method, max_iterations=15, callback=nested), alone)


# counts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("grad", "hess", "tvp"), ("grad", "hess"), ("grad",), ("grad", "hess", "third")], ids="+".join
)
@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR()], ids=["STM", "SCR"])
@pytest.mark.parametrize("max_iterations", [0, 3, 1000])
def test_counts_equal_the_calls_that_the_users_functions_saw(names, method, max_iterations):
    every = {"grad": rosen_grad, "hess": rosen_hess, "third": rosen_third, "tvp": rosen_tvp}
    fun, calls = Calls(rosen), {name: Calls(every[name]) for name in names}
    counts = tercet.minimize(fun, ROSEN_START, method=method, max_iterations=max_iterations, **calls).counts
    assert counts.value == fun.number
    assert counts.gradient == calls["grad"].number
    if "hess" in names:
        assert counts.hessian == calls["hess"].number
    if "tvp" in names:
        assert counts.third == calls["tvp"].number


def test_a_hessian_product_of_the_user_counts_each_time_it_is_called():
    hvp = Calls(rosen_hvp)
    result = tercet.minimize(rosen, ROSEN_START, grad=rosen_grad, hvp=hvp, tvp=rosen_tvp)
    assert result.counts.hessian == hvp.number


def test_values_that_differences_take_are_counted():
    calls = Calls(lambda x: float(np.exp(x[0]) - 2.0 * x[0] + x[1] ** 2))
    result = tercet.minimize(calls, np.zeros(2), tol=1e-6)
    assert result.counts.value == calls.number - 1  # the first call only asks whether JAX can trace the function


@pytest.mark.parametrize("name", RUNS)
def test_epochs_are_the_sum_of_all_counts_over_n_and_never_fall_along_the_trace(name):
    result = RUNS[name](0)
    c = result.counts
    assert c.epochs == (c.value + c.gradient + c.hessian + c.third) / c.n
    for column in ("value", "gradient", "hessian", "third", "epochs", "seconds"):
        assert np.all(np.diff(result.trace[column]) >= 0)
        if column != "seconds":
            assert result.trace[column][-1] <= getattr(c, column)
    assert result.trace["seconds"][-1] <= result.seconds


# the callback -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [tercet.STM(sizes=tercet.Full()), tercet.SCR(sizes=tercet.Full())], ids=["STM", "SCR"]
)
def test_the_callback_sees_every_iteration_with_its_point_and_its_row(method):
    seen: list[tercet.Info] = []
    result = tercet.minimize(SIGMOID, 2 * np.ones(5), method=method, callback=seen.append)
    assert len(seen) == result.nit == len(result.trace)
    with jax.enable_x64(True):
        values = [float(mean_sigmoid(info.x)) for info in seen]
    for info, row, value in zip(seen, result.trace, values, strict=True):
        assert info.row == row
        assert info.fun == pytest.approx(value, rel=1e-13)
        for name in ("sigma", "ratio", "accepted", "step_norm", "gradient_norm", "inner", "iteration", "seconds"):
            assert getattr(info, name) == getattr(row, name)
        assert (info.f, info.epochs, info.size_value) == (row.f, row.counts.epochs, 2000)
    assert np.array_equal(seen[-1].x, result.x)
    assert seen[-1].fun == pytest.approx(result.fun, rel=1e-15)  # which is made without the sums over the steps
    with pytest.raises(AttributeError):
        seen[0].nonsense  # noqa: B018 - the look-up itself is the test


def test_the_callback_sees_the_structure_of_the_start():
    seen: list[Any] = []
    tercet.minimize(TREE, TREE_START, callback=lambda info: seen.append(info.x), max_iterations=2)
    assert [set(x) for x in seen] == [{"w", "b"}] * 2
    assert all(x["w"].shape == (5,) for x in seen)


def stop_by_true(info: tercet.Info) -> bool:
    return info.iteration >= 2


def stop_by_numpy_true(info: tercet.Info) -> Any:
    return np.bool_(info.iteration >= 2)


def stop_by_exception(info: tercet.Info) -> None:
    if info.iteration >= 2:
        raise StopIteration


@pytest.mark.parametrize("callback", [stop_by_true, stop_by_numpy_true, stop_by_exception])
@pytest.mark.parametrize("name", ["linear", "sum", "function", "sgd"])
def test_true_and_stop_iteration_end_the_run_cleanly(callback, name):
    problem, start, method = {
        "linear": (LOGISTIC, None, None),
        "sum": (TREE, TREE_START, None),
        "function": (jax_rosen, ROSEN_START, None),
        "sgd": (LOGISTIC, None, tercet.SGD()),
    }[name]
    result = tercet.minimize(problem, start, method=method, callback=callback)
    assert result.status is Status.CALLBACK
    assert result.nit == 3
    assert result.error is None
    assert not result.success
    assert result.fun < tercet.minimize(problem, start, max_iterations=0).fun


def test_other_return_values_of_the_callback_do_not_end_the_run():
    for value in (None, False, 0):
        assert tercet.minimize(LOGISTIC, callback=lambda info, value=value: value).success


def test_a_callback_that_writes_into_its_point_does_not_disturb_the_run():
    def scribble(info: tercet.Info) -> None:
        info.x[:] = 5.0

    assert_same(tercet.minimize(LOGISTIC, callback=scribble), tercet.minimize(LOGISTIC))


def test_points_kept_by_the_callback_stay_what_they_were():
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    tercet.minimize(LOGISTIC, callback=lambda info: kept.append((info.x, info.x.copy())))
    assert all(np.array_equal(x, copy) for x, copy in kept)
    assert len({x.tobytes() for x, _ in kept}) == len(kept)
