"""The parts of a run: which sub-solver a problem is given."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tercet import STM, Dense, Krylov, LinearModel, Subspace, minimize
from tercet.critical.tolerances import Tolerances
from tercet.methods.parts import DEAR, Parts
from tercet.methods.run import Run
from tercet.objectives.metered import Meter

RNG = np.random.default_rng(0)
WIDE = RNG.standard_normal((60, 400))
LABELS = (WIDE[:, 0] > 0).astype(float)
MODELS = {
    "much data of few variables": (LinearModel(WIDE[:, :20], LABELS, l2=1e-2), Dense),
    "more variables than rows": (LinearModel(WIDE, LABELS, "logistic", l2=1e-2), Krylov),
    "too many variables": (LinearModel(sp.csr_array((3, 3001)), LABELS[:3]), Subspace),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_hessian_is_factored_where_that_is_not_dear_beside_products(name):
    model, expected = MODELS[name]
    run = Run.of(model, np.zeros(model.d), 0, Tolerances(1e-8), Meter(model.n))
    assert isinstance(Parts.of(STM(), run).subsolver, expected)
    assert (model.traits.hessian_products > DEAR) == (expected is not Dense)
    assert isinstance(Parts.of(STM(subsolver=Dense()), run).subsolver, Dense)  # what is asked for is taken


def test_products_lead_where_a_factored_hessian_does():
    model = MODELS["more variables than rows"][0]
    free, formed = (minimize(model, method=STM(subsolver=s), tol=1e-8, order=1) for s in (None, Dense()))
    assert free.success
    assert formed.success
    np.testing.assert_allclose(free.x, formed.x, atol=1e-6)


def test_a_sample_of_light_rows_begins_with_as_many_as_cost_no_time():
    """As many as take as long as the rest of an iteration; 20 d where that is more."""
    rng = np.random.default_rng(0)
    for d, m in ((3, 10_000), (30, 1000), (60, 1200)):
        X = rng.standard_normal((60_000, d))
        for A, least in ((X, m), (sp.csr_array(X * (rng.random(X.shape) < 0.2)), 20 * d)):
            model = LinearModel(A, (X[:, 0] > 0).astype(float), "logistic", l2=1e-3)
            assert minimize(model, max_iterations=1).trace.rows[0].sizes.value >= least
        first = minimize(LinearModel(X, (X[:, 0] > 0).astype(float), "logistic", l2=1e-3), max_iterations=1).trace.rows[
            0
        ]
        assert first.sizes.value in (m, m + 1)  # a multiple of d is rounded
