"""A JAX sum on a cluster: the same bits as out of core, also after a worker was killed."""

import dask.array as da
import numpy as np
import pytest

import tercet
import tercet.dask
from tercet import Shards
from tests.dask.data import SHAPES, D, Read, W, X, Y, cut, shards_of

jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("default")]
OPTIONS = {"sample_bytes": 500 * 8 * (D + 2)}


def loss(w, x, y, weight=1.0):
    return weight * (jax.numpy.logaddexp(0.0, x @ w) - y * (x @ w)) + 5e-4 * w @ w


def chunked(values):
    return da.concatenate([da.from_array(part, chunks=part.shape) for part in cut(values)])


def run(problem, **options):
    return tercet.minimize(problem, np.zeros(D), order=2, **options)


def assert_same(one, other):
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.trace["f"], other.trace["f"])
    assert (one.counts, one.status, one.rounds) == (other.counts, other.status, other.rounds)


def test_shards_and_chunks_on_a_cluster_have_the_bits_of_a_run_out_of_core(client):
    alone = run(tercet.FiniteSum(loss, shards_of(w=W), **OPTIONS))
    assert alone.success
    assert_same(run(tercet.dask.FiniteSum(loss, shards_of(w=W), client=client, **OPTIONS)), alone)
    lazy = tercet.dask.FiniteSum(loss, chunked(X), chunked(Y), weights=chunked(W), client=client, **OPTIONS)
    assert_same(run(lazy), alone)


def test_residuals_on_a_cluster_have_the_bits_of_a_run_out_of_core(client):
    def residual(w, x, y):
        return jax.numpy.tanh(x @ w) - y

    options = {"loss": "cauchy", "l2": 1e-3, **OPTIONS}
    alone = run(tercet.Residuals(residual, shards_of(w=W), **options))
    assert alone.success
    lazy = tercet.dask.Residuals(
        residual, chunked(X), chunked(Y), "cauchy", weights=chunked(W), client=client, l2=1e-3, **OPTIONS
    )
    assert_same(run(lazy), alone)


def test_a_killed_worker_costs_a_retry_and_its_sums_have_the_same_bits(processes, tmp_path):
    x = np.linspace(-0.5, 0.5, D)
    value, gradient = run_less(tercet.FiniteSum(loss, shards_of(), **OPTIONS)).over(None).at(x).first()
    read = Shards(Read(str(tmp_path)), shapes=SHAPES)
    objective = run_less(tercet.dask.FiniteSum(loss, read, client=processes, **OPTIONS))
    objective.driver.survey()
    (tmp_path / "kill").touch()
    f, g = objective.over(None).at(x).first()
    assert (tmp_path / "killed").exists()
    assert f == value
    np.testing.assert_array_equal(g, gradient)
    assert objective.traffic.retries >= 1


def run_less(problem):
    return problem.bind(np.zeros(D)).objective


def test_what_does_not_fit_is_refused_in_its_own_name(client):
    with pytest.raises(ValueError, match=r"tercet.dask.FiniteSum\(y=None\)"):
        tercet.dask.FiniteSum(loss, chunked(X), client=client)
    with pytest.raises(ValueError, match=r"tercet.dask.FiniteSum\(shards, y"):
        tercet.dask.FiniteSum(loss, shards_of(), Y, client=client)
    spoilt = np.array(X)
    spoilt[1702, 3] = np.nan
    with pytest.raises(ValueError, match="shard 3, row 2, column 3: X holds nan"):
        run(tercet.dask.FiniteSum(loss, chunked(spoilt), chunked(Y), client=client))
