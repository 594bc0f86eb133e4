"""Residuals over shards are those in memory: the same f, J'J and rest from passes, the same bits on any threads."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import Residuals, Shards
from tercet.objectives.capabilities import result_of
from tercet.objectives.sharded import residuals
from tercet.objectives.sharded.engine import Local
from tercet.objectives.sharded.sums import Product, Value
from tercet.objectives.sharded.traced import Rest, Root, Triangle

jnp = pytest.importorskip("jax.numpy")
RNG = np.random.default_rng(0)
N, D = 900, 4
X = RNG.standard_normal((N, D)) * np.array([1.0, 2.0, 0.5, 1.0])
TARGETS = np.tanh(X @ np.array([0.5, -0.3, 0.8, 0.1])) + 0.1 * RNG.standard_t(3, N)
W = RNG.uniform(0.1, 3.0, N)
CUTS = (0, 300, 301, 700, N)
SMALL = 200 * 8 * (D + 2)


def residual(w, x, y):
    return jnp.stack([jnp.tanh(x @ w) - y, 0.1 * w[0] * x[1]])


def cut(values):
    return [values[a:b] for a, b in itertools.pairwise(CUTS)]


def shards_of(w=None):
    return Shards(cut(X), cut(TARGETS), weights=None if w is None else cut(w))


def bound(problem):
    return problem.bind(np.zeros(D)).objective


@pytest.mark.parametrize("beside", [0, 64])
@pytest.mark.parametrize("loss", ["squares", "cauchy"])
def test_every_answer_is_that_of_the_residuals_in_memory(monkeypatch, beside, loss):
    """With J of which the gradient is made, and apart."""
    monkeypatch.setattr(residuals, "BESIDE", beside)
    x, s = RNG.standard_normal(D) / 3, RNG.standard_normal(D)
    whole = bound(Residuals(residual, (X, TARGETS), loss, W, l2=1e-2)).over(None).at(x)
    objective = bound(Residuals(residual, shards_of(W), loss, l2=1e-2))
    objective.driver.survey()
    point, close = objective.over(None).at(x), {"rtol": 1e-9, "atol": 1e-12}
    f, g = point.first()
    assert objective.traffic.rounds == 2
    root, mine = result_of(whole.linear()), result_of(point.linear())
    assert objective.traffic.rounds == (2 if beside else 3)
    assert f == pytest.approx(whole.value(), rel=1e-12)
    np.testing.assert_allclose(g, result_of(whole.gradient()), **close)
    np.testing.assert_allclose(mine.gram, root.gram, **close)
    np.testing.assert_allclose(mine.root.T @ mine.image, root.root.T @ root.image, **close)
    np.testing.assert_allclose(result_of(point.rest()), result_of(whole.rest()), **close)
    np.testing.assert_allclose(result_of(point.hessian()), result_of(whole.hessian()), **close)
    for name in ("slope", "image", "square"):
        np.testing.assert_allclose(getattr(point.curve(s), name), getattr(whole.curve(s), name), **close)
    np.testing.assert_allclose(point.product(2, s), whole.product(2, s), **close)
    np.testing.assert_allclose(point.product(3, s, x), whole.product(3, s, x), **close)
    np.testing.assert_allclose(point.third_tensor(np.eye(D)), whole.third_tensor(np.eye(D)), **close)


def test_what_is_asked_together_takes_one_pass_and_a_point_remembers():
    objective = bound(Residuals(residual, shards_of()))
    point, v = objective.over(None).at(np.ones(D)), np.ones(D)
    f, root, rest, bent = point.together(Value(), Root(), Rest(), Product(3, (v, v)))
    assert objective.traffic.rounds == 1
    assert isinstance(root, Triangle)
    assert root.rows.shape == (D + 1, D + 1)
    fresh = objective.over(None).at(np.ones(D))
    B = result_of(fresh.hessian())
    rounds = objective.traffic.rounds
    np.testing.assert_array_equal(B, result_of(fresh.rest()) + fresh.root().gram)
    assert fresh.value() == f
    assert objective.traffic.rounds == rounds == 2
    np.testing.assert_allclose(root.rows[:, :D].T @ root.rows[:, :D] + 0.5 * (rest + rest.T), B, rtol=1e-12)
    np.testing.assert_allclose(bent, fresh.product(3, v, v), rtol=1e-12)


def test_a_run_finds_the_minimizer_with_the_same_bits_on_any_threads_and_resumes(tmp_path):
    options = {"loss": "cauchy", "scale": 0.2, "l2": 1e-3}
    whole = tercet.minimize(Residuals(residual, (X, TARGETS), **options), np.zeros(D))

    def problem(threads=1):
        shards = shards_of()
        return Residuals(residual, shards, sample_bytes=SMALL, engine=Local(shards, threads=threads), **options)

    result, other = (tercet.minimize(problem(threads), np.zeros(D)) for threads in (1, 3))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, whole.x, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(other.x, result.x)
    assert 3 <= result.rounds <= 30
    path = tmp_path / "run.ckpt"
    tercet.minimize(problem(), np.zeros(D), checkpoint=path, max_iterations=3)
    again = tercet.resume(path, problem(), max_iterations=100)
    np.testing.assert_array_equal(again.x, result.x)
    np.testing.assert_array_equal(again.trace["f"], result.trace["f"])


def test_numbers_that_are_not_finite_are_named_before_the_run():
    tables, weights = cut(np.array(X)), cut(np.array(W))
    tables[3][12, 1] = np.inf
    with pytest.raises(ValueError, match="shard 3, row 12, column 1: X holds inf"):
        tercet.minimize(Residuals(residual, Shards(tables, cut(TARGETS))), np.zeros(D))
    weights[0][5] = -1.0
    with pytest.raises(ValueError, match="shard 0, row 5: its weight is below 0"):
        tercet.minimize(Residuals(residual, Shards(cut(X), cut(TARGETS), weights=weights)), np.zeros(D))
    with pytest.raises(ValueError, match=r"Residuals\(shards\): the weights sum to 0"):
        tercet.minimize(Residuals(residual, shards_of(np.zeros(N))), np.zeros(D))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Residuals(residual, Shards([sp.csr_array(X)], [TARGETS])), "rows of these shards are CSR"),
        (lambda: Residuals(residual, shards_of(), weights=W), "shards have their own"),
        (lambda: Residuals(residual, shards_of(), "logistic"), "unknown loss"),
        (lambda: Residuals(residual, shards_of(), l2=-1.0), "l2=-1"),
        (lambda: Residuals(3, shards_of()), "residual=3"),
        (lambda: Residuals(residual, shards_of(), sample_bytes=0), "sample_bytes=0"),
        (lambda: Residuals(residual, shards_of()).bind(None), "pass params0"),
        (lambda: Residuals(lambda w, x: x, shards_of()).bind(np.zeros(D)), "JAX could not trace"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
