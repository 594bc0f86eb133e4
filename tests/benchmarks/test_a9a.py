"""The paper's data at the default settings: few passes, certified."""

import numpy as np
import pytest

import tercet
from benchmarks import a9a
from benchmarks.data import folder, load

pytestmark = pytest.mark.skipif(
    not (folder() / "a9a").exists(), reason="the LIBSVM file a9a is not in $TERCET_DATA or in shared/data"
)


@pytest.mark.parametrize(("l2", "scale", "most"), [(1e-3, 3.0, 15.0), (1e-6, 1.0, 30.0), (3.07e-8, 0.0, 45.0)])
def test_default_stm_reaches_the_minimum_in_few_epochs_and_no_more_than_scr(l2, scale, most):
    problem = tercet.LinearModel(*load("a9a"), "sigmoid_squares", l2=l2)
    lowest = a9a.reference(problem)
    starts = [scale * np.random.default_rng([seed, 7]).standard_normal(problem.d) for seed in range(10)]
    stm, scr = (
        np.mean([a9a.epochs_to_gap(problem, method, x0, seed, lowest) for seed, x0 in enumerate(starts)])
        for method in (tercet.STM(), tercet.SCR())
    )
    assert stm <= most
    assert stm <= 1.1 * scr
