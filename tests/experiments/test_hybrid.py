"""Anandkumar and Ge's hybrid: what a third-order step promises, and where one is made."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.experiments import methods
from tercet.experiments.hybrid import Bend, Hybrid, Learnt, possible
from tercet.objectives.metered import Meter, Metered

RNG = np.random.default_rng(0)


def cubic(x):
    """Flat in d - 1 directions of six but for a cubic form, which holds a quartic: its third derivative varies by 24 L.

    f = x_5^2 / 2 + mean of (c_j'x)^3 / 6 + (x'x)^2 / 8, whose fourth derivative is at most 3 long.
    """
    form = (COEFFICIENTS @ x) ** 3
    return 0.5 * x[5] ** 2 + form.sum() / 6 + (x @ x) ** 2 / 8


COEFFICIENTS = 0.3 * RNG.standard_normal((4, 6))
LIPSCHITZ = 3.0  # of the third derivative of (x'x)^2 / 8, whose fourth is |y|^4 3


def point_at(x, view=None):
    metered = Metered.of(tercet.methods.minimize.as_problem(cubic, {}).bind(x).objective, Meter(1))
    return metered.over(None).at(x)


@pytest.fixture(scope="module", autouse=True)
def _jax():
    pytest.importorskip("jax")


def test_a_third_order_step_falls_as_promised():
    for seed in range(10):
        x = np.zeros(6)
        x[:5] = 0.0 if seed == 0 else 1e-4 * np.random.default_rng(seed).standard_normal(5)
        way = Bend.of(point_at(x), LIPSCHITZ, None).way(LIPSCHITZ, np.random.default_rng(seed))
        assert way is not None
        assert np.linalg.norm(way.u) == pytest.approx(1.0)
        assert float(cubic(x)) - float(cubic(x + way.length(LIPSCHITZ) * way.u)) >= way.fall(LIPSCHITZ) > 0.0


def test_the_competitive_subspace_is_the_largest_that_its_definition_admits():
    values = np.array([-1e-3, 0.0, 1e-5, 2e-3, 0.7])
    T = RNG.standard_normal((5, 5, 5))
    T = sum(T.transpose(order) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)))
    for lipschitz in (1e-2, 1.0, 1e2, 1e4, 1e6):
        k, C, Q = Bend(values, np.eye(5), T, 0.0, None).competitive(lipschitz)
        admitted = [
            j for j in range(1, 6) if values[j - 1] <= np.linalg.norm(T[:j, :j, :j]) ** 2 / (12 * lipschitz * j**3)
        ]
        assert k == max(admitted)
        assert pytest.approx(np.linalg.norm(T[:k, :k, :k])) == C
        assert k**1.5 == Q
        bound = max(abs(np.einsum("ijk,i,j,k", T, v, v, v)) for v in np.linalg.qr(RNG.standard_normal((5, 5)))[0])
        assert possible(values, 10 * bound, lipschitz, None) >= k


@pytest.mark.parametrize("seed", [0, 1])
def test_it_leaves_a_degenerate_point_where_second_order_stays(seed):
    from benchmarks.problems.degenerate import PROBLEMS

    monkey = next(problem for problem in PROBLEMS if problem.name == "monkey_saddle")
    stays = tercet.minimize(monkey.fun, monkey.start, method=tercet.SCR(tercet.Full()), order=2)
    assert np.array_equal(stays.x, monkey.start)
    result = tercet.minimize(monkey.fun, monkey.start, method=Hybrid(), seed=seed)
    assert result.success
    assert result.certificate.order == 3
    assert result.fun == pytest.approx(-27 / 256)
    escapes = result.trace["escape"] == 3
    assert escapes[0]
    assert np.all(result.trace["gradient_norm"][escapes] <= 1e-4)
    assert np.all(result.trace["ratio"][escapes] >= 1.0)  # of what was promised
    assert result.trace["sigma"][escapes][0] >= 1.0  # L


def test_third_derivatives_are_taken_only_where_the_gradient_is_small():
    X = RNG.standard_normal((400, 3))
    y = (X @ np.ones(3) + RNG.standard_normal(400) > 0).astype(float)
    problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3)
    result = tercet.minimize(problem, 2 * np.ones(3), method=Hybrid())
    assert result.success
    far = result.trace["gradient_norm"] > 1e-4
    assert np.all(result.trace["third"][far] == 0)
    assert result.trace["third"][-1] < 6 * 400  # a bound was looked at, by which T need not be formed
    assert not result.trace["escape"].any()


def test_it_resumes_bit_for_bit_and_refuses_other_checkpoints(tmp_path, monkeypatch):
    X = RNG.standard_normal((200, 3))
    problem = tercet.LinearModel(X, (X[:, 0] > 0).astype(float), "sigmoid_squares", l2=1e-2)
    path, options = tmp_path / "run.ckpt", {"seed": 3, "tol": 1e-12}
    whole = tercet.minimize(problem, np.ones(3), method=Hybrid(), **options)
    tercet.minimize(problem, np.ones(3), method=Hybrid(), max_iterations=4, checkpoint=path, **options)
    resumed = tercet.resume(path, problem, method=Hybrid(), max_iterations=1000)
    assert resumed.x.tobytes() == whole.x.tobytes()
    monkeypatch.setattr(Learnt, "arrays", lambda self: {"lipschitz": 1.0})
    tercet.minimize(problem, np.ones(3), method=Hybrid(), max_iterations=4, checkpoint=path, **options)
    with pytest.raises(tercet.CheckpointError, match="method"):
        tercet.resume(path, problem, method=Hybrid())


def test_settings_and_objectives_are_checked():
    for wrong in ({"epsilon": 0.0}, {"lipschitz": -1.0}, {"share": 0.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Hybrid(**wrong)
    with pytest.raises(ValueError, match="Hybrid knows no bounds"):
        tercet.minimize(cubic, np.ones(6), method=Hybrid(), bounds=[(0, 2)] * 6)
    assert methods.make(methods.plan("hybrid")) == Hybrid()
