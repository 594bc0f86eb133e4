"""A linear model on a cluster: the same bits as out of core, from shards and from collections of every kind."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import tercet
import tercet.dask
from tests.dask.data import CUTS, OPTIONS, D, N, W, X, Y, cut, files, shards_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("default")]


def assert_same(one, other):
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.trace["f"], other.trace["f"])
    assert one.counts == other.counts
    assert (one.status, one.rounds) == (other.status, other.rounds)


def chunked(values):
    parts = [da.from_array(part, chunks=part.shape) for part in cut(values)]
    return da.concatenate(parts)


def test_a_run_on_a_cluster_has_the_bits_of_a_run_out_of_core(client, tmp_path):
    alone = tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))
    assert alone.success
    assert_same(tercet.minimize(tercet.dask.LinearModel(files(tmp_path), client=client, **OPTIONS)), alone)
    assert_same(tercet.minimize(tercet.dask.LinearModel(chunked(X), chunked(Y), client=client, **OPTIONS)), alone)


def test_weights_and_an_intercept(client):
    options = {**OPTIONS, "intercept": True}
    alone = tercet.minimize(tercet.LinearModel(shards_of(w=W), **options))
    model = tercet.dask.LinearModel(chunked(X), chunked(Y), weights=chunked(W), client=client, **options)
    assert_same(tercet.minimize(model), alone)


def test_sparse_chunks(client):
    table = sp.csr_array(X * (np.abs(X) > 0.5))
    alone = tercet.minimize(tercet.LinearModel(shards_of(table), **OPTIONS))
    dense = da.concatenate([da.from_array(part.toarray(), chunks=part.shape) for part in cut(table)])
    lazy = dense.map_blocks(sp.csr_array, dtype=float)
    assert_same(tercet.minimize(tercet.dask.LinearModel(lazy, chunked(Y), client=client, **OPTIONS)), alone)


def test_dataframes_of_unknown_lengths_with_empty_partitions(client):
    frame = pd.DataFrame({**{f"c{j}": X[:, j] for j in range(D)}, "y": Y, "w": W})
    parts = dd.from_map(lambda k: frame.iloc[CUTS[k] : CUTS[k + 1]] if k < 5 else frame.iloc[:0], range(6))
    alone = tercet.minimize(tercet.LinearModel(shards_of(w=W), **OPTIONS))
    for y, w in (("y", "w"), (parts["y"], parts["w"])):
        table = parts if isinstance(y, str) else parts.drop(columns=["y", "w"])
        assert_same(tercet.minimize(tercet.dask.LinearModel(table, y, weights=w, client=client, **OPTIONS)), alone)


def test_columns_that_are_cut_and_targets_cut_otherwise_are_cut_like_the_rows(client):
    alone = tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))
    table, y = chunked(X).rechunk((CUTS_OF_ROWS, 2)), da.from_array(Y, chunks=77)
    assert_same(tercet.minimize(tercet.dask.LinearModel(table, y, client=client, **OPTIONS)), alone)


CUTS_OF_ROWS = tuple(np.diff(CUTS).tolist())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: tercet.dask.LinearModel(shards_of(), Y, client=c), "leave both out"),
        (lambda c: tercet.dask.LinearModel(X, Y, client=c), "X=ndarray.*give Shards"),
        (lambda c: tercet.dask.LinearModel(chunked(X), client=c), "y=None"),
        (lambda c: tercet.dask.LinearModel(chunked(Y), chunked(Y), client=c), "give rows and columns"),
        (lambda c: tercet.dask.LinearModel(chunked(X), chunked(Y)[:-1], client=c), "X has 3000 rows"),
        (lambda c: tercet.dask.LinearModel(chunked(X), [1.0], client=c), "y=list.*give a dask array"),
        (lambda c: tercet.dask.LinearModel(chunked(X), chunked(Y), client="tcp://x"), "give a distributed.Client"),
        (lambda c: tercet.dask.LinearModel(chunked(X), chunked(Y), client=c, patience=0), "patience=0"),
        (lambda c: tercet.dask.LinearModel(chunked(X).astype("U8"), chunked(Y), client=c), "chunk 0 holds <U8"),
    ],
)
def test_what_does_not_fit_is_refused(client, make, message):
    with pytest.raises(ValueError, match=message):
        make(client)


def test_numbers_that_no_model_takes_are_refused_with_shard_and_row(client):
    spoilt = np.array(X)
    spoilt[1702, 3] = np.nan
    with pytest.raises(ValueError, match="shard 3, row 2, column 3: X holds nan"):
        tercet.minimize(tercet.dask.LinearModel(chunked(spoilt), chunked(Y), client=client))
    labels = np.array(Y)
    labels[N - 1] = 7.0
    with pytest.raises(ValueError, match=r"shard 4, row 499: .* y holds \[7.0\]"):
        tercet.minimize(tercet.dask.LinearModel(chunked(X), chunked(labels), client=client))


def test_a_checkpoint_of_a_cluster_is_resumed_out_of_core_and_the_other_way(client, tmp_path):
    whole = tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))
    models = [
        lambda: tercet.dask.LinearModel(chunked(X), chunked(Y), client=client, **OPTIONS),
        lambda: tercet.LinearModel(shards_of(), **OPTIONS),
    ]
    for one, other in (models, models[::-1]):
        path = tmp_path / "run.ckpt"
        tercet.minimize(one(), checkpoint=path, max_iterations=whole.nit - 2)
        again = tercet.resume(path, other(), max_iterations=100)
        np.testing.assert_array_equal(again.x, whole.x)
        np.testing.assert_array_equal(again.trace["f"], whole.trace["f"])
        path.unlink()
