"""Variance reduction: unbiased differences whose error is told, anchors, samples that lead to the minimizer."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import Fixed, Growing, PaperSigma, Reduced, Status
from tercet.methods.anchored import Anchor, ReducedView, Sample
from tercet.objectives.metered import Meter, Metered

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1200, 6)) * np.geomspace(1.0, 0.2, 6)
Y = (X @ RNG.standard_normal(6) + 0.5 * RNG.standard_normal(1200) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "sigmoid_squares", l2=1e-3)
START = RNG.standard_normal(6)
PAPER = {"sizes": Fixed(), "sigma": PaperSigma()}
ORDERS = [(1,), (1, 2), (1, 2, 3)]


def anchor_at(metered, x, orders):
    """What all terms tell at x, up to the highest order."""
    there = metered.over(None).at(x)
    B, T = there.hessian() if 2 in orders else None, there.third_tensor(np.eye(len(x))) if 3 in orders else None
    return Anchor(x, there.gradient(), B, T)


def pieces(m, seed, away=0.3, orders=(1, 2)):
    """F over m drawn terms, and f over all of them, at an x beside the anchor."""
    metered = Metered.of(PROBLEM, Meter(1200))
    x = START + away * np.random.default_rng(1).standard_normal(6)
    sample = Sample(metered, np.random.default_rng(seed).choice(1200, m, replace=False))
    view = ReducedView(sample, anchor_at(metered, START, orders).of_sample(sample))
    return view.at(x), metered.over(None).at(x)


@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_over_all_terms_it_is_f_itself(orders):
    reduced, whole = pieces(1200, 0, orders=orders)
    there, at_anchor = reduced.view.at(START), PROBLEM.over(None).at(START)
    assert reduced.value() - there.value() == pytest.approx(whole.value() - at_anchor.value(), abs=1e-14)
    np.testing.assert_allclose(reduced.gradient(), whole.gradient(), atol=1e-14)
    np.testing.assert_allclose(reduced.hessian(), whole.hessian(), atol=1e-13)
    V = np.random.default_rng(2).standard_normal((6, 3))
    np.testing.assert_allclose(reduced.third_tensor(V), whole.third_tensor(V), atol=1e-13)
    np.testing.assert_allclose(reduced.hessian_product(V[:, 0]), whole.hessian_product(V[:, 0]), atol=1e-13)


@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_over_a_sample_g_and_b_are_the_derivatives_of_its_values(orders):
    reduced, _ = pieces(60, 3, orders=orders)
    view, x, h = reduced.view, reduced.x, 1e-5
    beside = [[view.at(x + sign * h * e) for sign in (1, -1)] for e in np.eye(6)]
    slope = [(up.value() - down.value()) / (2 * h) for up, down in beside]
    np.testing.assert_allclose(reduced.gradient(), slope, atol=1e-9)
    if 2 in orders:
        bend = [(up.gradient() - down.gradient()) / (2 * h) for up, down in beside]
        np.testing.assert_allclose(reduced.hessian(), bend, atol=1e-8)


@pytest.mark.parametrize("orders", [(1,), (1, 2)], ids=str)
def test_they_are_unbiased_and_their_errors_are_as_large_as_they_say(orders):
    _, whole = pieces(60, 0)
    off, told, plain = [], [], []
    for seed in range(400):
        reduced, _ = pieces(60, seed, orders=orders)
        off.append(reduced.gradient() - whole.gradient())
        plain.append(reduced.here.gradient() - whole.gradient())
        told.append(np.sum(reduced.errors() ** 2) * (1 - 60 / 1200))
    spread = np.mean(np.sum(np.square(off), axis=1))
    assert np.linalg.norm(np.mean(off, axis=0)) <= 4 * np.sqrt(spread / 400)
    assert np.mean(told) == pytest.approx(spread, rel=0.15)
    assert spread < 0.5 * np.mean(np.sum(np.square(plain), axis=1))


@pytest.mark.parametrize(("orders", "power"), [((1,), 1), ((1, 2), 2)], ids=str)
def test_the_error_shrinks_with_a_power_of_the_way_from_the_anchor(orders, power):
    sizes = [
        np.sqrt(np.mean([np.sum(pieces(60, s, away, orders)[0].errors() ** 2) for s in range(40)]))
        for away in (0.1, 0.01, 0.001)
    ]
    for near, far in zip(sizes[1:], sizes, strict=False):
        assert np.log10(far / near) == pytest.approx(power, abs=0.15)


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_samples_of_five_percent_lead_to_the_minimizer_and_not_to_their_noise(kind, orders):
    best = tercet.minimize(PROBLEM, START).fun
    for seed in range(3):
        plain = tercet.minimize(PROBLEM, START, method=kind(**PAPER), seed=seed, max_iterations=150)
        result = tercet.minimize(PROBLEM, START, method=kind(**PAPER, policy=Reduced(orders=orders)), seed=seed)
        assert result.fun - best <= 1e-12
        assert result.status in (Status.CERTIFIED, Status.ROUNDING, Status.NOISE)
        assert plain.fun - best > 1e-6
        assert set(result.trace["size_gradient"]) <= {60, 1200}  # all terms only where rounding hides f
        near = result.trace["gradient_norm"] > 1e-6
        assert set(result.trace["size_gradient"][near]) == {60}


def gaps_and_epochs(policy, seed):
    """f over all terms less the least, after each iteration, and what had been paid by then."""
    best, seen = tercet.minimize(PROBLEM, START).fun, []
    tercet.minimize(
        PROBLEM, START, method=tercet.STM(**PAPER, policy=policy), seed=seed,
        callback=lambda info: seen.append((PROBLEM.over(None).at(info.x).value() - best, info.row.counts.epochs)),
    )  # fmt: skip
    return np.array(seen)


def test_values_of_samples_save_most_of_the_epochs():
    sampled, whole = [], []
    for seed in range(3):
        for policy, epochs in ((Reduced(), sampled), (Reduced(orders=(1,)), whole)):
            path = gaps_and_epochs(policy, seed)
            epochs.append(path[np.argmax(path[:, 0] <= 1e-8), 1])
    assert np.mean(sampled) < 0.6 * np.mean(whole)


def test_a_step_that_another_sample_says_to_rise_is_rejected_and_f_falls_over_all_terms():
    for seed in range(3):
        gaps = gaps_and_epochs(Reduced(), seed)[:, 0]
        assert np.all(np.diff(gaps) <= 1e-4)  # nowhere by more than a sample may miss
        assert gaps[-1] <= 1e-13


def test_the_trace_goes_on_from_one_sample_to_the_next_at_one_level():
    result = tercet.minimize(PROBLEM, START, method=tercet.STM(**PAPER, policy=Reduced()))
    f = result.trace["f"][result.trace["size_value"] < 1200]
    assert len(f) > 5
    assert np.all(np.diff(f) <= 1e-15)  # but for rounding


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
        tercet.minimize(PROBLEM, START, method=tercet.STM(**PAPER, policy=Reduced(anchor)), max_iterations=12)
        for anchor in (0.5, 0.001)
    )
    for order in ("gradient", "hessian"):
        few, many = (result.trace[order][-1] for result in (rare, often))
        assert few <= many - 3 * 1200
    assert often.counts.gradient >= 1200 + 2 * 60  # the first anchor, and a sample at two points


def test_there_is_no_anchor_before_plain_samples_tell_too_little():
    counts = [
        tercet.minimize(PROBLEM, START, method=tercet.STM(**PAPER, policy=policy), max_iterations=1).trace["gradient"]
        for policy in (Reduced(1e6), Reduced(1e-6))
    ]
    assert counts[0][0] == 60
    assert counts[1][0] == 60 + 1200 + 60  # the anchor, and the sample that judges there


def test_samples_of_other_sizes_for_b_and_t_serve_too():
    best = tercet.minimize(PROBLEM, START).fun
    for sizes in (Fixed(0.1, 0.05, 0.025), Fixed(0.05, 0.1, 0.1), Fixed(1.0, 0.05, 0.05), Fixed(replacement=True)):
        result = tercet.minimize(PROBLEM, START, method=tercet.STM(sizes, policy=Reduced()), max_iterations=60, seed=1)
        assert result.fun - best <= 1e-10


def test_samples_that_grow_to_all_terms_are_those_of_the_rule():
    result = tercet.minimize(PROBLEM, START, method=tercet.STM(Growing(0.2, 3.0), policy=Reduced()))
    assert result.success
    assert result.trace["size_gradient"][-1] == 1200


def test_a_degenerate_saddle_that_samples_lead_to_is_left_over_all_terms():
    pytest.importorskip("jax")
    weights = 0.5 + np.random.default_rng(0).random((400, 2))

    def term(x, a):
        return a[0] * x[0] ** 2 / 2 + a[1] * x[1] ** 3 / 3 + x[1] ** 4 / 4

    problem = tercet.FiniteSum(term, weights)
    result = tercet.minimize(problem, np.array([1.0, 0.0]), method=tercet.STM(Fixed(0.25), policy=Reduced()))
    assert result.success
    assert result.trace["escape"].max() >= 2
    assert result.fun == pytest.approx(-(np.mean(weights[:, 1]) ** 4) / 12, abs=1e-12)


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


@pytest.mark.parametrize(
    "settings", [{"anchor": 0}, {"anchor": "1"}, {"orders": (2,)}, {"orders": (1, 3)}, {"orders": "123"}], ids=str
)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=rf"Reduced\({next(iter(settings))}="):
        Reduced(**settings)
    with pytest.raises(ValueError, match="policy"):
        tercet.STM(policy="reduced")


@pytest.mark.parametrize(
    "change", [{"x": np.zeros(3)}, {"B": np.zeros(6)}, {"bends": np.zeros((2, 6, 6))}, {"more": 1}]
)
def test_a_checkpoint_with_another_anchor_is_refused(change, tmp_path, monkeypatch):
    path, whole = tmp_path / "run.ckpt", Anchor.arrays
    monkeypatch.setattr(Anchor, "arrays", lambda self: {**whole(self), **change})
    method = tercet.STM(**PAPER, policy=Reduced(0.05))
    tercet.minimize(PROBLEM, START, method=method, max_iterations=3, checkpoint=path)
    with pytest.raises(tercet.CheckpointError, match="anchor"):
        tercet.resume(path, PROBLEM)
