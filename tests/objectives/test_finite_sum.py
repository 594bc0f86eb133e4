"""Finite sums of JAX functions, against a direct mean over the examples."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import tercet
from tercet.objectives.base import Traits
from tercet.objectives.finite_sum import GROUPS, FiniteSum
from tercet.objectives.metered import Meter, Metered
from tercet.records import Counts

N = 53  # no multiple of any chunk
RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((N, 3))
LABELS = RNG.integers(0, 2, N)
PARAMS = {"hidden": {"W": RNG.standard_normal((3, 2)), "b": RNG.standard_normal(2)}, "out": RNG.standard_normal(2)}
D = 10


def mlp(params, x, label):
    h = jnp.tanh(x @ params["hidden"]["W"] + params["hidden"]["b"])
    z = h @ params["out"]
    return jnp.log1p(jnp.exp(z)) - label * z + 0.01 * jnp.sum(params["out"] ** 2)


def mean_loss(flat, often):
    """The mean over the examples, each counted as often as `often` says, by one vmap over all of them."""
    _, unravel = jax.flatten_util.ravel_pytree(PARAMS)
    terms = jax.vmap(lambda a, b: mlp(unravel(flat), a, b))(jnp.asarray(INPUTS), jnp.asarray(LABELS))
    return jnp.sum(often * terms) / jnp.sum(often)


@jax.jit
def direct(x, often, V):
    """Value, gradient, Hessian, and the third derivative over the columns of V and the whole space."""

    def gradient(p):
        return jax.grad(mean_loss)(p, often)

    def product(u, v):
        return jax.jvp(lambda p: jax.jvp(gradient, (p,), (v,))[1], (x,), (u,))[1]

    third = jax.vmap(lambda u: jax.vmap(lambda v: product(u, v))(V.T))(V.T)  # T[v_i, v_j], vectors
    return mean_loss(x, often), gradient(x), jax.jacfwd(gradient)(x), third


def over(objective, rows):
    """Some terms, with every evaluation counted."""
    return Metered.of(objective, Meter(objective.n)).over(rows)


@pytest.fixture(scope="module")
def bounds():
    made = {}

    def get(chunk):
        if chunk not in made:
            made[chunk] = FiniteSum(mlp, (INPUTS, LABELS), chunk=chunk).bind(PARAMS)
        return made[chunk]

    return get


SAMPLES = {
    "all": None,
    "some": np.random.default_rng(1).permutation(N)[:21],
    "one": np.array([7]),
    "repeats": np.array([5, 5, 5, 0, 52, 52, 17]),
    "one chunk": np.arange(16),
    "chunk and one": np.arange(17),
    "more than n": np.random.default_rng(1).integers(0, N, 2 * N),
}


@pytest.mark.parametrize("chunk", [16, 1024])
@pytest.mark.parametrize("rows", SAMPLES)
def test_all_derivatives_equal_those_of_the_direct_mean(bounds, chunk, rows):
    bound, index = bounds(chunk), SAMPLES[rows]
    rng = np.random.default_rng(2)
    x, V = rng.standard_normal(D), rng.standard_normal((D, 3))
    u, v = V.T[:2]
    point = over(bound.objective, index).at(x)
    m = N if index is None else len(index)
    assert point.terms == m
    often = np.bincount(np.arange(N) if index is None else index, minlength=N).astype(float)
    with jax.enable_x64(True):
        value, g, B, third = (np.asarray(part) for part in direct(x, often, V))
    np.testing.assert_allclose(point.value(), value, rtol=1e-12)
    np.testing.assert_allclose(point.gradient(), g, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(point.hessian_product(v), B @ v, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.hessian(), B, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(point.third_product(u, v), third[0, 1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_square(u), third[0, 0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(point.third_tensor(V), third @ V, rtol=1e-10, atol=1e-11)
    # a Hessian and a product with it, T[u, v], T[u, u] and the six products of three directions: each term once
    assert point.view.meter.counts() == Counts(m, m, 2 * m, 8 * m, N)


def test_the_flat_start_goes_back_to_the_same_tree(bounds):
    bound = bounds(16)
    assert bound.x0.shape == (D,)
    assert bound.x0.dtype == np.float64
    tree = bound.restore(bound.x0)
    assert jax.tree_util.tree_structure(tree) == jax.tree_util.tree_structure(PARAMS)
    jax.tree_util.tree_map(np.testing.assert_array_equal, tree, PARAMS)
    assert all(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in jax.tree_util.tree_leaves(tree))


def test_float32_parameters_stay_float32_for_the_user_and_float64_inside():
    seen = []

    def loss(params, x, label):
        seen.append((params["out"].dtype, x.dtype, label.dtype))
        return mlp(params, x, label)

    small = jax.tree_util.tree_map(lambda a: a.astype(np.float32), PARAMS)
    bound = FiniteSum(loss, (INPUTS, LABELS)).bind(small)
    point = bound.objective.over(None).at(bound.x0)
    assert point.gradient().dtype == np.float64
    assert all(a.dtype == np.float32 for a in jax.tree_util.tree_leaves(bound.restore(bound.x0)))
    assert all(p == x == np.float32 and label.kind == "i" for p, x, label in seen)
    with jax.enable_x64(True):
        exact = np.asarray(jax.grad(mean_loss)(bound.x0, np.ones(N)))
    np.testing.assert_allclose(point.gradient(), exact, atol=2e-6)  # a few float32 roundings of terms near 1
    assert np.any(point.gradient() != exact), "the sums really ran in float32"


def test_parameters_of_mixed_or_whole_number_type_are_float64():
    for tree in ({"a": np.float32(1), "b": np.float64(2)}, {"a": 1, "b": 2}):
        bound = FiniteSum(lambda p, x: (p["a"] * x - p["b"]) ** 2, np.arange(3.0)).bind(tree)
        assert all(a.dtype == np.float64 for a in jax.tree_util.tree_leaves(bound.restore(bound.x0)))


def test_integer_data_stays_integer_and_can_index():
    table = np.arange(12.0).reshape(4, 3)
    words = np.array([0, 3, 1, 1, 2])

    def loss(params, word):
        assert word.dtype.kind == "i"
        return jnp.sum((params[word] - 1.0) ** 2)

    bound = FiniteSum(loss, words).bind(table)
    expected = np.mean([np.sum((table[w] - 1) ** 2) for w in words])
    np.testing.assert_allclose(bound.objective.over(None).at(bound.x0).value(), expected, rtol=1e-15)


def test_data_may_be_any_tree():
    data = ({"x": INPUTS, "label": LABELS},)
    bound = FiniteSum(lambda p, e: mlp(p, e["x"], e["label"]), data).bind(PARAMS)
    with jax.enable_x64(True):
        expected = float(mean_loss(bound.x0, np.ones(N)))
    np.testing.assert_allclose(bound.objective.over(None).at(bound.x0).value(), expected, rtol=1e-13)


def test_a_growing_sample_compiles_nothing_new():
    traces = []

    def loss(params, x, label):
        traces.append(1)  # Python runs this line only while JAX traces
        return mlp(params, x, label)

    objective = FiniteSum(loss, (INPUTS, LABELS), chunk=16).bind(PARAMS).objective
    v = np.ones(D)

    def everything(rows):
        point = over(objective, rows).at(v)
        point.value(), point.gradient(), point.errors(), point.hessian_product(v), point.hessian()
        point.third_product(v, v), point.third_tensor(np.eye(D)[:, :2])

    everything(np.arange(3))
    everything(None)  # whose gradient needs no groups, and is a sum of its own
    before = len(traces)
    for m in (4, 16, 17, 32, 50):
        everything(np.arange(m))
    assert len(traces) == before > 0


def test_binding_again_with_the_same_structure_compiles_nothing_new():
    traces = []

    def loss(params, x):
        traces.append(1)
        return jnp.sum((params - x) ** 2)

    problem, counts = FiniteSum(loss, np.ones((5, 2))), []
    for start in (np.zeros(2), np.ones(2)):
        bound = problem.bind(start)
        bound.objective.over(None).at(bound.x0).value()
        counts.append(len(traces))
    assert counts[0] == counts[1] > 0


def test_the_users_choice_of_precision_for_jax_is_left_alone():
    before = jax.config.jax_enable_x64
    bound = FiniteSum(lambda p, x: jnp.sum((p - x) ** 2), np.ones((5, 2))).bind(np.zeros(2))
    bound.objective.over(None).at(bound.x0).gradient()
    assert jax.config.jax_enable_x64 == before


# the sampling error of the gradient ---------------------------------------------------------------------------------


def check_errors(n, m, chunk, draws=400):
    rng = np.random.default_rng(3)
    data = rng.standard_normal((n, 2)) * [1.0, 3.0]
    bound = FiniteSum(lambda p, x: 0.5 * jnp.sum((p - x) ** 2), data, chunk=chunk).bind(np.zeros(2))
    squares = []
    for _ in range(draws):
        e = over(bound.objective, rng.integers(0, n, m)).at(bound.x0).errors()
        squares.append(e.T @ e)
    expected = np.cov(data.T, bias=True) / m  # the gradient of one term is -x_i
    mean, error = np.mean(squares, axis=0), np.std(squares, axis=0) / np.sqrt(draws)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.all(np.abs(mean - expected) <= 4.5 * error + 1e-12 * scale)
    assert np.all(4.5 * error <= 0.2 * scale), "too few draws to tell"


@pytest.mark.parametrize(("m", "chunk"), [(GROUPS, 16), (2 * GROUPS, 16), (64, 64), (128, 64)])
def test_errors_estimate_the_covariance_of_the_sampled_gradient(m, chunk):
    check_errors(200, m, chunk)


def test_errors_of_a_sample_much_smaller_than_a_chunk_estimate_it_too():
    """A first sample of 10 d terms of large data lies in one chunk; its error must not come out as nothing."""
    check_errors(2000, 32, 1024)


def test_errors_do_not_vanish_for_any_sample_of_two_examples_or_more():
    data = np.random.default_rng(4).standard_normal((2000, 2))
    bound = FiniteSum(lambda p, x: 0.5 * jnp.sum((p - x) ** 2), data).bind(np.zeros(2))
    for m in (2, 5, 20, 63, 64, 65, 500):
        point = over(bound.objective, np.arange(m)).at(bound.x0)
        exact = np.trace(np.cov(data[:m].T)) / m
        estimate = np.sum(point.errors() ** 2)
        # Chi-square with at least min(m, 16) - 1 degrees of freedom in each of two directions; a factor 10 either way.
        assert exact / 10 <= estimate <= 10 * exact, f"m = {m}: {estimate} instead of {exact}"


# misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [lambda p, x: p * x, lambda p, x: (jnp.sum(p), jnp.sum(x)), lambda p, x: None],
    ids=["vector", "two", "none"],
)
def test_a_loss_that_is_not_scalar_is_refused(loss):
    with pytest.raises(ValueError, match=r"FiniteSum\(loss="):
        FiniteSum(loss, np.ones((5, 2))).bind(np.ones(2))


def test_a_loss_that_is_not_a_function_is_refused():
    with pytest.raises(ValueError, match=r"FiniteSum\(loss=3\)"):
        FiniteSum(3, np.ones((5, 2)))


@pytest.mark.parametrize(
    "data",
    [(np.ones((5, 2)), np.ones(4)), np.ones((0, 2)), np.float64(3.0), (), (np.ones((5, 2)), 1.0)],
    ids=["lengths", "no examples", "scalar", "nothing", "one scalar"],
)
def test_data_without_one_common_number_of_examples_is_refused(data):
    with pytest.raises(ValueError, match=r"FiniteSum\(data="):
        FiniteSum(lambda p, *x: jnp.sum(p), data)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_is_not_finite_is_refused(bad):
    X = np.ones((5, 2))
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"FiniteSum\(data="):
        FiniteSum(lambda p, x: jnp.sum(p), X)


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True, "16"])
def test_a_chunk_that_is_no_count_is_refused(chunk):
    with pytest.raises(ValueError, match=r"FiniteSum\(chunk="):
        FiniteSum(lambda p, x: jnp.sum(p), np.ones((5, 2)), chunk=chunk)


@pytest.mark.parametrize(
    "x0",
    [None, {"w": np.array([np.nan])}, {"w": np.zeros(0)}, {}, {"w": "a"}, {"w": np.array([1j])}],
    ids=["none", "nan", "empty", "no leaves", "text", "complex"],
)
def test_a_bad_start_is_refused_by_name(x0):
    with pytest.raises(ValueError, match="x0"):
        FiniteSum(lambda p, x: jnp.sum(x), np.ones((5, 2))).bind(x0)


@pytest.mark.parametrize("rows", SAMPLES)
def test_value_and_gradient_are_the_same_alone_and_together(bounds, rows):
    view = over(bounds(16).objective, SAMPLES[rows])
    x, m = np.linspace(-1, 1, D), view.terms
    both = view.first_at(x)
    assert view.meter.counts() == Counts(m, m, n=N)
    assert both.value() == pytest.approx(view.at(x).value(), rel=1e-14)
    np.testing.assert_allclose(both.gradient(), view.at(x).gradient(), rtol=1e-14)
    np.testing.assert_array_equal(both.errors(), view.at(x).errors())
    assert view.meter.counts() == Counts(2 * m, 3 * m, n=N)  # what came together is not paid again


def test_the_sums_of_groups_add_up_to_the_gradient_and_none_is_empty(bounds):
    objective, x = bounds(16).objective, np.linspace(-1, 1, D)
    for m in (1, 5, 15, 16, 17, 40):
        point = objective.over(np.arange(m)).at(x)
        assert point.group_sums.shape == (min(m, GROUPS), D)
        np.testing.assert_allclose(np.sum(point.group_sums, axis=0) / m, point.gradient(), rtol=1e-12, atol=1e-15)
        singles = [objective.over(np.array([i])).at(x).gradient() for i in range(m)]
        dealt = [np.sum(singles[k::GROUPS], axis=0) for k in range(min(m, GROUPS))]
        np.testing.assert_allclose(point.group_sums, dealt, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("d", "dense", "cost"), [(8, True, 2.0), (160, True, 20.0), (200, True, 25.0), (201, False, 25.125)]
)
def test_a_hessian_takes_a_product_for_each_variable_and_eight_of_them_as_long_as_a_gradient(d, dense, cost):
    bound = FiniteSum(lambda p, x: jnp.sum((p - x) ** 2), np.ones((3, d))).bind(np.zeros(d))
    assert bound.objective.traits == Traits(dense, cost, provenance="derivatives by JAX")


@pytest.mark.parametrize("sizes", [tercet.Fixed(20, 20, 20), tercet.Progressive()])
def test_gradients_come_with_values_only_where_both_are_over_the_same_terms(sizes):
    """Function values over all terms bring no gradients along that a sampled method has no use for."""
    result = tercet.minimize(
        FiniteSum(mlp, (INPUTS, LABELS)), PARAMS, method=tercet.SCR(sizes), max_iterations=4, order=1
    )
    last = result.trace.rows[-1].counts
    if sizes.nested:
        assert last.gradient >= last.value - N  # f(x0) is taken alone
    else:
        assert last.gradient == 20 * result.nit
        assert last.value >= N * result.nit


def test_arrays_of_jax_are_not_copied_to_the_host(monkeypatch):
    import jax

    X = jax.numpy.asarray(np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3))
    problem = tercet.FiniteSum(lambda w, x: (x @ w - 1.0) ** 2, X)
    assert problem.data[0] is X
    monkeypatch.setattr(np, "asarray", refuse_large(np.asarray, 59))  # less than the data
    bound = problem.bind(np.ones(3, dtype=np.float32))
    value = bound.objective.over(None).at(bound.x0).value()
    monkeypatch.undo()
    assert value == pytest.approx(float(np.mean((np.asarray(X) @ np.ones(3) - 1.0) ** 2)), rel=1e-5)
    with pytest.raises(ValueError, match="nan or inf"):
        tercet.FiniteSum(lambda w, x: x @ w, X.at[3, 1].set(np.nan))


def refuse_large(own, most):
    def asarray(values, *arguments, **options):
        assert np.size(values) <= most
        return own(values, *arguments, **options)

    return asarray


def test_a_device_takes_larger_chunks_and_gives_the_same(monkeypatch):
    from tercet.objectives import finite_sum

    X = np.random.default_rng(0).standard_normal((300, 3))

    def loss(w, x):
        return (x @ w) ** 4 + w[0] * w[1] * w[2]

    small = tercet.FiniteSum(loss, X, chunk=32).bind(np.ones(3)).objective.over(None).at(np.ones(3))
    monkeypatch.setattr(finite_sum, "platform_of", lambda jax, data: "gpu")
    problem = tercet.FiniteSum(loss, X)
    assert problem.chunk == 304
    large = problem.bind(np.ones(3)).objective.over(None).at(np.ones(3))
    np.testing.assert_allclose(large.gradient(), small.gradient(), rtol=1e-12)
    np.testing.assert_allclose(large.hessian(), small.hessian(), rtol=1e-12)
