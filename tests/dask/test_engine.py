"""Faults: a worker that is killed, a shard that cannot be read, a cluster that is gone or asleep. Nothing hangs."""

import time

import distributed
import numpy as np
import pytest

import tercet
import tercet.dask
from tercet import Shards, Status
from tercet.dask import ClusterError
from tests.dask.data import OPTIONS, SHAPES, D, Read, shards_of

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("default")]


def model(folder, client, **options):
    return tercet.dask.LinearModel(Shards(Read(str(folder)), shapes=SHAPES), client=client, **OPTIONS, **options)


def at_iteration(k, act):
    """A callback that acts once, after iteration k."""
    return lambda info: act() if info.iteration == k else None


def test_a_killed_worker_costs_a_retry_and_the_answer_has_the_same_bits(processes, tmp_path):
    alone = tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))
    problem = model(tmp_path, processes)
    result = tercet.minimize(problem, callback=at_iteration(alone.nit - 4, (tmp_path / "kill").touch))
    assert (tmp_path / "killed").exists()
    assert result.success, result.message
    np.testing.assert_array_equal(result.x, alone.x)
    np.testing.assert_array_equal(result.trace["f"], alone.trace["f"])
    assert result.retries >= 1
    assert "done again" in str(result)


def test_a_read_that_fails_once_is_tried_again(client, tmp_path):
    (tmp_path / "flaky-2").touch()
    problem = model(tmp_path, client)
    assert (
        problem.over(None).at(np.ones(D)).value()
        == tercet.LinearModel(shards_of(), **OPTIONS).over(None).at(np.ones(D)).value()
    )
    assert problem.traffic.retries == 1


def test_a_shard_that_cannot_be_read_ends_the_run_with_its_number_and_the_best_point(client, tmp_path):
    result = tercet.minimize(
        model(tmp_path, client), callback=at_iteration(6, (tmp_path / "fail-1").touch), max_iterations=50
    )
    assert result.status is Status.FUNCTION_ERROR
    assert isinstance(result.error, ClusterError)
    assert "shard 1 (read(1)) cannot be read: it raised OSError: no such tape" in result.message
    assert np.linalg.norm(result.x) > 0


def test_the_clock_ends_a_run_while_workers_are_slow(client, tmp_path):
    begun = time.monotonic()
    slow = (tmp_path / "slow").touch
    result = tercet.minimize(model(tmp_path, client), callback=at_iteration(6, slow), max_seconds=2.0)
    assert result.status is Status.MAX_SECONDS
    assert time.monotonic() - begun < 40


def test_a_cluster_without_workers_is_given_up_after_its_patience(tmp_path):
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        begun = time.monotonic()
        with pytest.raises(ClusterError, match=r"no task ended within 0.5 seconds, 4 are waiting"):
            tercet.minimize(model(tmp_path, client, patience=0.5))
        assert time.monotonic() - begun < 30


def test_a_scheduler_that_dies_ends_the_run_and_another_cluster_goes_on_bit_for_bit(client, tmp_path):
    whole = tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))
    path = tmp_path / "run.ckpt"
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    other = distributed.Client(cluster, set_as_default=False)
    stop = at_iteration(whole.nit - 4, lambda: (other.close(timeout=5), None)[1])
    result = tercet.minimize(model(tmp_path, other), callback=stop, checkpoint=path)
    assert result.status is Status.FUNCTION_ERROR
    assert "the client is closed" in result.message
    assert np.linalg.norm(result.x) > 0
    cluster.close(timeout=5)
    with pytest.raises(ValueError, match="the client is closed"):
        model(tmp_path, other)
    again = tercet.resume(path, model(tmp_path, client))
    np.testing.assert_array_equal(again.x, whole.x)
    np.testing.assert_array_equal(again.trace["f"], whole.trace["f"])


def test_tasks_are_named_groups(client, tmp_path):
    model(tmp_path, client).over(None).at(np.ones(D)).first()
    groups = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.task_prefixes))
    assert {"tercet-survey", "tercet-value-gradient"} <= set(groups)


def test_no_scheduler_at_an_address():
    with pytest.raises(ValueError, match="no scheduler answers there"):
        tercet.dask.connect("tcp://127.0.0.1:1", timeout=0.5)


def test_an_address_that_is_none_is_refused_at_once():
    begun = time.monotonic()
    for address in ("nonsense", "tcp://host", "tcp://host:port"):
        with pytest.raises(ValueError, match=f"tercet.dask.connect.'{address}'.: no scheduler answers there"):
            tercet.dask.connect(address)
    assert time.monotonic() - begun < 5
