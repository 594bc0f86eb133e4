"""Processes and hosts of their own: workers that join, a host that is cut off, a scheduler that is killed."""

import time

import numpy as np
import pytest

import tercet
import tercet.dask
from tercet import Shards, Status
from tests.dask.data import OPTIONS, SHAPES, D, Read, shards_of
from tests.dask.hosts import Hosts, cluster, forbidden, given_up_after, hosts, join

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("default")]


def model(folder, client, **options):
    return tercet.dask.LinearModel(Shards(Read(str(folder)), shapes=SHAPES), client=client, **OPTIONS, **options)


def at_iteration(k, act):
    """A callback that acts once, after iteration k."""
    return lambda info: (act(), None)[1] if info.iteration == k else None


@pytest.fixture(scope="module")
def alone():
    return tercet.minimize(tercet.LinearModel(shards_of(), **OPTIONS))


def assert_same(one, other):
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.trace["f"], other.trace["f"])


def test_a_scheduler_that_is_killed_ends_the_run_and_a_new_cluster_resumes_it_bit_for_bit(client, tmp_path, alone):
    made, path = Hosts(), tmp_path / "run.ckpt"
    with cluster(made, 1) as other:
        model(tmp_path, other).over(None).at(np.ones(D)).value()  # the worker has what it imports
        begun = time.monotonic()
        stop = at_iteration(alone.nit - 4, lambda: made.kill(0))
        result = tercet.minimize(model(tmp_path, other, patience=4.0), callback=stop, checkpoint=path)
        assert time.monotonic() - begun < 60
    assert result.status is Status.FUNCTION_ERROR
    assert isinstance(result.error, tercet.dask.ClusterError)
    assert np.linalg.norm(result.x) > 0
    assert_same(tercet.resume(path, model(tmp_path, client)), alone)


def test_on_several_hosts_a_worker_joins_and_one_that_is_cut_off_costs_a_retry(tmp_path, alone):
    """The scheduler and each worker in a network namespace of its own, the driver here. A host whose link goes down is
    given up by the scheduler after its worker-ttl, and its tasks are done elsewhere."""
    reason = forbidden()
    if reason is not None:
        pytest.skip(reason)
    with hosts(3) as made, cluster(made, 1) as client:
        found = tercet.minimize(model(tmp_path, client), callback=at_iteration(2, lambda: join(made, 2)))
        assert_same(found, alone)
        client.wait_for_workers(2, timeout=60)
        model(tmp_path, client).over(None).at(np.ones(D)).value()  # both have what they import
        assert len({address.split(":")[1] for address in client.scheduler_info()["workers"]}) == 2  # two hosts
        given_up_after(client, 3.0)
        cut = at_iteration(alone.nit - 3, lambda: made.unplug(2))
        result = tercet.minimize(model(tmp_path, client), callback=cut)
        assert_same(result, alone)
        assert result.status is alone.status
        assert result.retries >= 1
        begun, silent = time.monotonic(), at_iteration(3, lambda: made.unplug(0))
        lost = tercet.minimize(model(tmp_path, client, patience=3.0), callback=silent)
        assert lost.status is Status.FUNCTION_ERROR
        assert isinstance(lost.error, tercet.dask.ClusterError)
        assert time.monotonic() - begun < 60
