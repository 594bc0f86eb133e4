"""Variance reduction: unbiased differences whose error is told, anchors, samples that lead to the minimizer."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import Fixed, Growing, PaperSigma, Reduced, Status
from tercet.methods.reduced import Anchor, Difference
from tercet.objectives.metered import Meter, Metered

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1200, 6)) * np.geomspace(1.0, 0.2, 6)
Y = (X @ RNG.standard_normal(6) + 0.5 * RNG.standard_normal(1200) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "sigmoid_squares", l2=1e-3)
START = RNG.standard_normal(6)
PAPER = {"sizes": Fixed(), "sigma": PaperSigma()}


def pieces(m, seed, away=0.3):
    """A difference over m drawn terms, and the derivatives over all of them at x."""
    metered = Metered.of(PROBLEM, Meter(1200))
    x = START + away * np.random.default_rng(1).standard_normal(6)
    whole, there = metered.over(None).at(x), metered.over(None).at(START)
    anchor = Anchor(START, there.gradient(), there.hessian(), there.third_tensor(np.eye(6)))
    rows = np.random.default_rng(seed).choice(1200, m, replace=False)
    view = metered.over(rows)
    return Difference(view.at(x), view.at(START), anchor), whole


def test_over_all_terms_a_difference_is_the_derivative_itself():
    difference, whole = pieces(1200, 0)
    np.testing.assert_allclose(difference.gradient(), whole.gradient(), atol=1e-14)
    np.testing.assert_allclose(difference.hessian(), whole.hessian(), atol=1e-14)
    V = np.random.default_rng(2).standard_normal((6, 3))
    np.testing.assert_allclose(difference.third_tensor(V), whole.third_tensor(V), atol=1e-13)
    v = V[:, 0]
    np.testing.assert_allclose(difference.hessian_product(v), whole.hessian_product(v), atol=1e-13)


def test_differences_are_unbiased_and_their_errors_are_as_large_as_they_say():
    _, whole = pieces(60, 0)
    off, told, plain = [], [], []
    for seed in range(400):
        difference, _ = pieces(60, seed)
        off.append(difference.gradient() - whole.gradient())
        plain.append(difference.here.gradient() - whole.gradient())
        told.append(np.sum(difference.errors() ** 2) * (1 - 60 / 1200))
    spread = np.mean(np.sum(np.square(off), axis=1))
    assert np.linalg.norm(np.mean(off, axis=0)) <= 4 * np.sqrt(spread / 400)
    assert np.mean(told) == pytest.approx(spread, rel=0.15)
    assert spread < 0.5 * np.mean(np.sum(np.square(plain), axis=1))


def test_the_error_shrinks_with_the_way_from_the_anchor():
    sizes = [np.mean([np.sum(pieces(60, s, away)[0].errors() ** 2) for s in range(40)]) for away in (0.1, 0.01, 0.001)]
    assert sizes[0] > 50 * sizes[1] > 2500 * sizes[2]


@pytest.mark.parametrize("orders", [(1,), (1, 2), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_samples_of_five_percent_lead_to_the_minimizer_and_not_to_their_noise(kind, orders):
    best = tercet.minimize(PROBLEM, START).fun
    for seed in range(3):
        plain = tercet.minimize(PROBLEM, START, method=kind(**PAPER), seed=seed, max_iterations=150)
        result = tercet.minimize(PROBLEM, START, method=kind(**PAPER, policy=Reduced(orders=orders)), seed=seed)
        assert result.fun - best <= 1e-12
        assert result.status in (Status.CERTIFIED, Status.ROUNDING, Status.NOISE)
        assert plain.fun - best > 1e-6
        assert np.all(np.diff(result.trace["f"]) <= 1e-15)  # but for rounding
        assert set(result.trace["size_gradient"]) == {60}


def test_a_direction_that_samples_rarely_see_does_not_run_away():
    wide = np.hstack([X, np.zeros((1200, 1))])
    wide[:8, 6] = 3.0  # of a sample of 60 two thirds see none of these
    problem = tercet.LinearModel(wide, Y, "sigmoid_squares", l2=1e-6)
    best = tercet.minimize(problem, np.append(START, 0.0))
    for seed in range(3):
        result = tercet.minimize(
            problem, np.append(START, 0.0), method=tercet.STM(**PAPER, policy=Reduced()), seed=seed, max_iterations=200
        )
        assert result.fun <= best.fun + 1e-8
        assert abs(result.x[6]) <= 10 * max(1.0, abs(best.x[6]))


def test_anchors_are_counted_and_only_renewed_where_the_rule_says():
    rare, often = (
        tercet.minimize(PROBLEM, START, method=tercet.STM(**PAPER, policy=Reduced(anchor)), tol=1e-5, order=1)
        for anchor in (2.0, 0.05)
    )
    assert rare.counts.gradient / rare.nit < often.counts.gradient / often.nit
    assert rare.counts.hessian / rare.nit < often.counts.hessian / often.nit
    assert often.counts.gradient >= 1200 + 2 * 60  # the first anchor, and a sample at two points


def test_there_is_no_anchor_before_plain_samples_tell_too_little():
    plain, none, one = (
        tercet.minimize(PROBLEM, START, method=tercet.STM(**PAPER, policy=policy), max_iterations=1)
        for policy in (None, Reduced(2.0), Reduced(0.01))
    )
    assert none.x.tobytes() == plain.x.tobytes()
    assert none.counts.gradient == plain.counts.gradient
    assert one.counts.gradient >= plain.counts.gradient + 1200


def test_samples_that_grow_to_all_terms_are_those_of_the_rule():
    result = tercet.minimize(PROBLEM, START, method=tercet.STM(Growing(0.2, 3.0), policy=Reduced()))
    assert result.success
    assert result.trace["size_gradient"][-1] == 1200


@pytest.mark.parametrize(
    ("rule", "said"),
    [(tercet.Progressive(), "nested"), (tercet.Full(), "nested"), (Fixed(nested=True), "nested"),
     (tercet.Theory(0.5, 0.1, tercet.Ranges(1.0, 1.0, 1.0)), "promises")],
    ids=["Progressive", "Full", "nested", "Theory"],
)  # fmt: skip
def test_a_rule_that_cannot_serve_is_refused_before_any_work(rule, said):
    with pytest.raises(ValueError, match=said):
        tercet.minimize(PROBLEM, START, method=tercet.STM(rule, policy=Reduced()))


def test_terms_that_are_read_in_passes_and_residuals_are_refused():
    shards = tercet.Shards([X[:600], X[600:]], [Y[:600], Y[600:]])
    with pytest.raises(ValueError, match="not in memory"):
        tercet.minimize(tercet.LinearModel(shards, sample_bytes=2000), method=tercet.STM(Fixed(), policy=Reduced()))
    pytest.importorskip("jax")
    residuals = tercet.Residuals(lambda w, x, y: x @ w - y, (X, Y))
    with pytest.raises(ValueError, match="residuals"):
        tercet.minimize(residuals, START, method=tercet.STM(Fixed(), policy=Reduced()))


@pytest.mark.parametrize("settings", [{"anchor": 0}, {"anchor": "1"}, {"orders": (2,)}, {"orders": "123"}], ids=str)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=rf"Reduced\({next(iter(settings))}="):
        Reduced(**settings)
    with pytest.raises(ValueError, match="policy"):
        tercet.STM(policy="reduced")


@pytest.mark.parametrize("change", [{"x": np.zeros(3)}, {"B": np.zeros(6)}, {"more": 1}])
def test_a_checkpoint_with_another_anchor_is_refused(change, tmp_path, monkeypatch):
    path, whole = tmp_path / "run.ckpt", Anchor.arrays
    monkeypatch.setattr(Anchor, "arrays", lambda self: {**whole(self), **change})
    method = tercet.STM(**PAPER, policy=Reduced(0.05))
    tercet.minimize(PROBLEM, START, method=method, max_iterations=3, checkpoint=path)
    with pytest.raises(tercet.CheckpointError, match="anchor"):
        tercet.resume(path, PROBLEM)
