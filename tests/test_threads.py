"""BLAS on one thread where that is better, and as it was afterwards."""

from dataclasses import replace

import numpy as np
import pytest

import tercet
from tercet.threads import one_thread
from tercet.watch import LONG

pool = pytest.importorskip("threadpoolctl")


@pytest.fixture
def two_threads():
    """BLAS on two threads, whatever the environment says."""
    with pool.threadpool_limits(limits=2, user_api="blas"):
        yield


def threads():
    return {lib["num_threads"] for lib in pool.threadpool_info() if lib["user_api"] == "blas"}


def test_blas_is_given_back_as_it_was(two_threads):
    with one_thread(), one_thread():
        assert threads() == {1}
    assert threads() == {2}


@pytest.mark.parametrize(
    ("d", "on_device", "expected"), [(3, True, {1}), (3, False, {2}), (LONG, True, {2})], ids=["device", "host", "wide"]
)
def test_a_run_beside_a_device_takes_one_thread_for_small_matrices(two_threads, d, on_device, expected):
    rng, seen = np.random.default_rng(0), []
    problem = tercet.LinearModel(rng.standard_normal((20, d)), rng.random(20) < 0.5, l2=0.1)
    problem.traits = replace(problem.traits, on_device=on_device)
    tercet.minimize(problem, max_iterations=1, callback=lambda info: seen.append(threads()))
    assert seen == [expected]
    assert threads() == {2}
