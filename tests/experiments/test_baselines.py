"""SVRG and SAGA: they reach the minimizer at a linear rate where SGD with the same step ends at its noise."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.experiments.baselines import SAGA, SVRG

RNG = np.random.default_rng(0)
X = RNG.standard_normal((500, 4))
Y = (X @ np.ones(4) + RNG.standard_normal(500) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "logistic", l2=1e-1)
BEST = tercet.minimize(PROBLEM).fun
RUN = {"max_iterations": 3000, "max_epochs": 120, "order": 1, "tol": 1e-20}


@pytest.mark.parametrize("method", [SVRG(0.02, 0.5), SAGA(50, 0.5)], ids=["SVRG", "SAGA"])
def test_they_converge_where_sgd_does_not(method):
    result = tercet.minimize(PROBLEM, method=method, **RUN)
    plain = tercet.minimize(PROBLEM, method=tercet.SGD(0.02, 0.5), **RUN)
    assert result.fun - BEST < 1e-10
    assert plain.fun - BEST > 1e-5


def test_what_an_iteration_costs():
    svrg = tercet.minimize(PROBLEM, method=SVRG(0.02, 0.1, passes=0.1), max_iterations=6, order=1, tol=1e-20)
    counts = np.diff(svrg.trace["gradient"], prepend=0)
    np.testing.assert_array_equal(counts, [500, 20, 20, 20, 20, 500])
    saga = tercet.minimize(PROBLEM, method=SAGA(50, 0.1), max_iterations=4, order=1, tol=1e-20)
    np.testing.assert_array_equal(np.diff(saga.trace["gradient"], prepend=0), [500, 10, 10, 10])


@pytest.mark.parametrize("method", [SVRG(0.02, 0.5, passes=0.5), SAGA(20, 0.5)], ids=["SVRG", "SAGA"])
def test_they_resume_bit_for_bit(method, tmp_path):
    path = tmp_path / "run.ckpt"
    options = {"order": 1, "tol": 1e-20, "seed": 3}
    whole = tercet.minimize(PROBLEM, method=method, max_iterations=40, **options)
    tercet.minimize(PROBLEM, method=method, max_iterations=17, checkpoint=path, **options)
    resumed = tercet.resume(path, PROBLEM, method=method, max_iterations=40)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.counts == whole.counts


@pytest.mark.parametrize(
    ("make", "name"),
    [(lambda: SVRG(step=0.0), "step"), (lambda: SVRG(passes=-1.0), "passes"), (lambda: SVRG(batch=2.0), "batch"),
     (lambda: SAGA(blocks=0), "blocks"), (lambda: SAGA(step=np.nan), "step")],
)  # fmt: skip
def test_settings_are_checked(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("method", [SVRG(), SAGA()], ids=["SVRG", "SAGA"])
def test_bounds_are_refused(method):
    with pytest.raises(ValueError, match=f"{type(method).__name__} knows no bounds"):
        tercet.minimize(PROBLEM, bounds=[(0, 1)] * 4, method=method)


def test_a_step_that_diverges_ends_the_run():
    result = tercet.minimize(PROBLEM, method=SVRG(0.02, 1e3), max_iterations=50)
    assert not result.success
    assert result.fun <= np.log(2) + 1e-12
