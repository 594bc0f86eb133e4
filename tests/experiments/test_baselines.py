"""SVRG and SAGA: they reach the minimizer at a linear rate where SGD with the same step ends at its noise.

SVRC: unbiased estimates whose variances shrink as |x - a|^4 and |x - a|^2, the schedule of its paper, local minima.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import tercet
from tercet.critical.tolerances import Tolerances
from tercet.experiments.baselines import SAGA, SVRC, SVRG
from tercet.methods.run import Run
from tercet.objectives.metered import Meter

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


@pytest.mark.parametrize(
    "method", [SVRG(0.02, 0.5, passes=0.5), SAGA(20, 0.5), SVRC(2.0, 0.1)], ids=["SVRG", "SAGA", "SVRC"]
)
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
     (lambda: SAGA(blocks=0), "blocks"), (lambda: SAGA(step=np.nan), "step"), (lambda: SVRC(penalty=0.0), "penalty"),
     (lambda: SVRC(epoch=-1.0), "epoch"), (lambda: SVRC(decay=-0.1), "decay"), (lambda: SVRC(decay=np.nan), "decay")],
)  # fmt: skip
def test_settings_are_checked(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("method", [SVRG(), SAGA(), SVRC()], ids=["SVRG", "SAGA", "SVRC"])
def test_bounds_are_refused(method):
    with pytest.raises(ValueError, match=f"{type(method).__name__} knows no bounds"):
        tercet.minimize(PROBLEM, bounds=[(0, 1)] * 4, method=method)


def test_a_step_that_diverges_ends_the_run():
    result = tercet.minimize(PROBLEM, method=SVRG(0.02, 1e3), max_iterations=50)
    assert not result.success
    assert result.fun <= np.log(2) + 1e-12


# --- SVRC


def begun(seed):
    """A run that was not begun."""
    return Run.of(PROBLEM, np.ones(4), seed, Tolerances(1e-8), Meter(PROBLEM.n))


def svrc_at(away, seed, gradient=0.2, hessian=0.5):
    """The kernel's estimates at an x beside its anchor, and the derivatives over all terms there."""
    run = begun(seed)
    kernel = SVRC(5.0, gradient, hessian).kernel(run)
    at_anchor, state = kernel.estimate(run, kernel.begin(run))
    np.testing.assert_array_equal(at_anchor.gradient, PROBLEM.over(None).at(np.ones(4)).gradient())
    x = np.ones(4) + away * np.array([0.5, -0.5, 0.5, 0.5])
    state = replace(state, point=run.full.at(x), memory=replace(state.memory, iteration=1))
    whole = PROBLEM.over(None).at(x)
    return kernel.estimate(run, state)[0], whole.gradient(), whole.hessian()


def test_the_estimates_of_svrc_are_unbiased_and_their_variance_shrinks_as_its_paper_says():
    spread = {}
    for away in (0.1, 0.01):
        off_g, off_B = [], []
        for seed in range(300):
            found, g, B = svrc_at(away, seed)
            off_g.append(found.gradient - g)
            off_B.append((found.B - B).ravel())
        spread[away] = [np.sqrt(np.mean(np.sum(np.square(off), axis=1))) for off in (off_g, off_B)]
        for off, size in zip((off_g, off_B), spread[away], strict=True):
            assert np.linalg.norm(np.mean(off, axis=0)) <= 4 * size / np.sqrt(300)
    for (far, near), power in zip(zip(*spread.values(), strict=True), (2, 1), strict=True):
        assert np.log10(far / near) == pytest.approx(power, abs=0.15)


def test_what_an_iteration_of_svrc_costs_and_that_no_value_of_f_is_taken():
    n, seen = PROBLEM.n, []
    tercet.minimize(
        PROBLEM, np.ones(4), method=SVRC(1.0, 0.5, 2.0), max_iterations=5, order=1, tol=1e-20,
        callback=lambda info: seen.append(info.row.counts),
    )  # fmt: skip
    steps, b, h = round(n**0.2), round(0.5 * n**0.8), round(2.0 * n**0.4 * np.log(4))
    assert steps == 3  # from one anchor to the next
    np.testing.assert_array_equal(np.diff([c.gradient for c in seen], prepend=0), [n, 2 * b, 2 * b, n, 2 * b])
    each = b + 2 * h  # B_I(a)(x - a) is one product of each term of I
    np.testing.assert_array_equal(np.diff([c.hessian for c in seen], prepend=0), [n, each, each, n, each])
    assert seen[-1].value == seen[-1].third == 0


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_svrc_converges_faster_than_a_gradient_method_can(decay):
    result = tercet.minimize(
        PROBLEM, np.ones(4), method=SVRC(1.0, 0.2, 1.0, 0.1, decay), order=1, tol=1e-20, max_epochs=25
    )
    assert result.fun - BEST < 1e-14


def test_the_penalty_falls_by_its_schedule():
    kernel = SVRC(1.0, penalty=4.0, decay=1.0).kernel(begun(0))
    assert [kernel.sigma(k) for k in (0, kernel.steps, 2 * kernel.steps)] == [2.0, 1.0, 0.5]  # sigma = M / 2
    constant = SVRC(1.0, penalty=4.0, decay=0.0).kernel(begun(0))
    assert constant.sigma(0) == constant.sigma(100) == 2.0


@dataclass(frozen=True)
class Double:
    """l = z^4/4 - z^2/2, with a maximum at 0."""

    def derivatives(self, z, y):
        return z**4 / 4 - z**2 / 2, z**3 - z, 3 * z**2 - 1, 6 * z


def test_svrc_leaves_a_point_of_negative_curvature():
    A = np.random.default_rng(1).standard_normal((400, 2))
    problem = tercet.LinearModel(A, np.zeros(400), Double())
    there = np.array([1e-6, 0.0])
    result = tercet.minimize(problem, there, method=SVRC(1.0, 0.3, 1.0, 30.0, 0.0), max_epochs=200)
    assert problem.over(None).at(there).hessian()[0, 0] < 0
    assert result.certificate.chi2 <= 1e-6  # no negative curvature is left
    assert result.success
    assert result.fun < problem.over(None).at(there).value() - 0.05
