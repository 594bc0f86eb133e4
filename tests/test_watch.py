"""Compiled work beside a clock: the same answer, the same error, and no longer than the clock allows."""

import threading
import time

import numpy as np
import pytest
import scipy.linalg

import tercet
from tercet.objectives.metered import DeadlineError, Meter
from tercet.watch import LONG, tridiagonalize, unwatched, watched


def test_watched_work_gives_what_it_gives_alone_or_raises_what_it_raises():
    M = np.eye(LONG)
    assert watched(lambda: None, np.trace, M) == LONG
    with pytest.raises(ZeroDivisionError):
        watched(lambda: None, lambda matrix: 1 / 0, M)
    here = threading.get_ident()
    assert watched(unwatched, lambda matrix: threading.get_ident(), M) == here
    assert watched(lambda: None, lambda matrix: threading.get_ident(), M[:5]) == here
    assert Meter(1).wait(lambda matrix: threading.get_ident(), M) == here
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        watched(lambda: None, lambda matrix: np.exp(1e5 * matrix), M)


def test_work_that_outlasts_the_deadline_is_not_waited_for():
    release, began = threading.Event(), time.perf_counter()
    with pytest.raises(DeadlineError):
        Meter(1, began + 0.1).wait(lambda matrix: release.wait(30.0), np.eye(LONG))
    assert time.perf_counter() - began < 5.0
    release.set()


@pytest.mark.parametrize("d", [3, 10, LONG + 20])
def test_the_tridiagonal_form_is_that_of_scipy_bit_for_bit(d):
    A = np.random.default_rng(d).standard_normal((d, d))
    A = A + A.T
    for ours, theirs in zip(tridiagonalize(A), scipy.linalg.lapack.dsytrd(A, lower=1, lwork=8 * d), strict=False):
        assert np.array_equal(ours, theirs)


def test_the_clock_is_looked_at_within_a_gram_matrix_and_beside_a_factorization():
    rng = np.random.default_rng(0)
    A, looks = rng.standard_normal((3000, 600)), []
    problem = tercet.LinearModel(A, (A[:, 0] > 0).astype(float), l2=1e-3)
    plain = problem.over(None).at(np.ones(600)).hessian()
    seen = problem.clocked(lambda: looks.append(1)).over(None).at(np.ones(600))
    assert np.array_equal(seen.hessian(), plain)
    assert len(looks) >= 5
    some = problem.clocked(lambda: looks.append(1)).over(np.arange(1000))
    looks.clear()
    some.table.gram(np.ones(1000))
    within = len(looks)
    looks.clear()
    some.start(np.ones(600))  # a Gram matrix and its eigenvalues
    assert len(looks) > within


def test_a_time_budget_bounds_a_run_whose_factorizations_take_longer():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2500, 2000))
    problem = tercet.LinearModel(A, (A[:, 0] > 0).astype(float), l2=1e-3)
    began = time.process_time()
    tercet.LinearModel(A[:, :600], (A[:, 0] > 0).astype(float), l2=1e-3).over(None).at(np.ones(600)).hessian()
    piece = time.process_time() - began  # a fortieth of what the first iteration takes
    began = time.perf_counter()
    result = tercet.minimize(problem, np.ones(2000), max_seconds=0.2)
    assert result.status is tercet.Status.MAX_SECONDS
    assert time.perf_counter() - began < 0.2 + 2.0 + 10 * piece
