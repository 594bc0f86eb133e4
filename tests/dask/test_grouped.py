"""Small shards share a task, so that a pass is not spent on tasks, and nothing else changes."""

import numpy as np
import pytest

import tercet.dask
from tercet.dask.engine import Cluster, joined, threads_of
from tercet.shards.shards import SHARD, Shards
from tests.dask.data import OPTIONS, D, X, Y

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("default")]


def test_shards_that_follow_each_other_are_joined_up_to_a_size():
    assert joined([0, 1, 2, 5, 6], [3, 3, 3, 20, 1], 7.0) == [[0, 1], [2], [5], [6]]
    assert joined([4], [100], 7.0) == [[4]]
    assert joined([0, 1, 2], [5, 5, 5], 5.0) == [[0], [1], [2]]


def test_every_worker_keeps_some_tasks_and_large_shards_their_own(client):
    shards = Shards([X[k::100] for k in range(100)], [Y[k::100] for k in range(100)])
    cluster = Cluster(shards, client)
    assert threads_of(client) == 2
    groups = cluster.groups(list(range(100)))
    assert 8 <= len(groups) <= 10
    assert [i for group in groups for i in group] == list(range(100))
    rows = SHARD // (8 * D) + 1
    large = Shards(lambda i: (X, Y), shapes=[(rows, D)] * 6)
    assert Cluster(large, client).groups([0, 2, 5]) == [[0], [2], [5]]


def test_the_bits_are_those_of_a_run_out_of_core_and_a_bad_row_is_named(client):
    tables, targets = [X[k::40] for k in range(40)], [Y[k::40] for k in range(40)]
    there = tercet.minimize(tercet.dask.LinearModel(Shards(tables, targets), client=client, **OPTIONS))
    here = tercet.minimize(tercet.LinearModel(Shards(tables, targets), **OPTIONS))
    np.testing.assert_array_equal(there.x, here.x)
    np.testing.assert_array_equal(there.trace["f"], here.trace["f"])
    tables[37] = tables[37].copy()
    tables[37][12, 3] = np.nan
    with pytest.raises(ValueError, match="shard 37, row 12, column 3: X holds nan"):
        tercet.minimize(tercet.dask.LinearModel(Shards(tables, targets), client=client, **OPTIONS))
