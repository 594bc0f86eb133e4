"""The accelerated methods in `minimize`: certified, restarted, refused, resumed."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import AcceleratedCubic, AcceleratedTensor, EstimateSequence, NearOptimal, Status, Unaccelerated
from tercet.objectives.base import Traits
from tests.methods.worst import Chain

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1500, 10)) * np.geomspace(1.0, 0.1, 10)
Y = (X @ RNG.standard_normal(10) + 0.5 * RNG.standard_normal(1500) > 0).astype(float)
KINDS = (AcceleratedTensor, AcceleratedCubic)
SCHEMES = (NearOptimal(), EstimateSequence(), Unaccelerated())


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_convex_sum_is_solved_and_certified(kind, scheme, l2):
    problem = tercet.LinearModel(X, Y, "logistic", l2=l2)
    reference = tercet.minimize(problem, method=tercet.STM(tercet.Full()))
    result = tercet.minimize(problem, method=kind(scheme))
    assert result.status is Status.CERTIFIED
    assert result.fun == pytest.approx(reference.fun, abs=1e-13)
    np.testing.assert_allclose(result.x, reference.x, atol=1e-5)
    assert (result.counts.third > 0) == (kind is AcceleratedTensor or not result.certificate.bound_x)
    assert np.all(np.diff(result.trace["f"]) <= 1e-14)


class Wide(Chain):
    """The same by products only."""

    @property
    def traits(self):
        return Traits(dense=False)


@pytest.mark.parametrize("kind", KINDS)
def test_products_alone_lead_to_the_same_points(kind):
    p = 3 if kind is AcceleratedTensor else 2
    formed, products = (
        tercet.minimize(make(12, p), np.zeros(12), method=kind(), tol=1e-7, order=1) for make in (Chain, Wide)
    )
    assert formed.success
    assert products.success
    assert products.fun == pytest.approx(Chain(12, p).lowest, abs=1e-8)
    assert products.nit <= 2 * formed.nit


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_make_a_strongly_convex_sum_fast_again(kind):
    chain = Chain(12, 3 if kind is AcceleratedTensor else 2)

    class Strong:
        """The chain and |x|^2 / 2."""

        n = d = terms = 1
        traits = chain.traits

        def over(self, rows):
            return self

        def at(self, x, carry=None):
            return StrongPoint(chain.at(x), x)

    class StrongPoint:
        def __init__(self, point, x):
            self.point, self.x = point, x

        def value(self):
            return self.point.value() + 0.5 * self.x @ self.x

        def gradient(self):
            return self.point.gradient() + self.x

        def product(self, order, *v):
            return self.point.product(order, *v) + (v[0] if order == 2 else 0.0)

    Strong.d = chain.d
    taken = [
        tercet.minimize(Strong(), np.zeros(12), method=kind(EstimateSequence(), chain.lipschitz, restart), tol=1e-9).nit
        for restart in (True, False)
    ]
    assert 2 * taken[0] < taken[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_constant_is_found(kind):
    chain = Chain(6, 3 if kind is AcceleratedTensor else 2)
    result = tercet.minimize(chain, np.zeros(6), method=kind(), order=1, tol=1e-6)
    assert result.success
    assert np.max(result.trace["sigma"]) <= 4.0 * chain.lipschitz


@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy", "welsch", "geman_mcclure"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_is_not_convex_is_refused_before_any_work(kind, loss):
    with pytest.raises(ValueError, match=rf"{kind.__name__}.*not convex.*STM"):
        tercet.minimize(tercet.LinearModel(X, Y, loss, l2=1e-3), method=kind())


def test_a_penalty_or_score_that_is_not_convex_is_refused_too():
    for problem in (
        tercet.LinearModel(X, Y, "logistic", alpha=0.1),
        tercet.ClassModel(X, Y.astype(int), "brier"),
    ):
        with pytest.raises(ValueError, match="not convex"):
            tercet.minimize(problem, method=AcceleratedTensor())


class Saddle:
    """x^2 - y^2 + y^4."""

    n, d, terms = 1, 2, 1

    def over(self, rows):
        return self

    def at(self, x, carry=None):
        return SaddlePoint(x)


class SaddlePoint:
    def __init__(self, x):
        self.x = x

    def value(self):
        a, b = self.x
        return a**2 - b**2 + b**4

    def gradient(self):
        a, b = self.x
        return np.array([2 * a, -2 * b + 4 * b**3])

    def product(self, order, *v):
        _, b = self.x
        if order == 2:
            return np.array([2.0, 12 * b**2 - 2]) * v[0]
        return np.array([0.0, 24 * b]) * v[0] * v[1]


@pytest.mark.parametrize("start", [[1.0, 0.3], [0.0, 0.1], [2.0, 3.0]])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_negative_curvature_ends_the_run_with_advice_and_the_best_point(kind, scheme, start):
    result = tercet.minimize(Saddle(), np.array(start), method=kind(scheme))
    before = SaddlePoint(np.array(start)).value()
    assert result.fun <= before
    if start == [2.0, 3.0]:  # from where f is convex it may come down to a minimizer
        assert result.status in (Status.CERTIFIED, Status.NOT_CONVEX)
        return
    assert result.status is Status.NOT_CONVEX
    assert "STM" in result.message
    assert not result.success


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_minimizer_ends_as_unbounded_or_flat(kind):
    line = tercet.minimize(
        lambda x: x[0] - 2.0 * x[1], np.zeros(2), grad=lambda x: np.array([1.0, -2.0]),
        hess=lambda x: np.zeros((2, 2)), tvp=lambda x, u, v: np.zeros(2), method=kind(),
    )  # fmt: skip
    assert line.status is Status.UNBOUNDED
    apart = tercet.LinearModel(np.array([[-1.0], [-2.0], [1.0], [3.0]]), [0, 0, 1, 1], "logistic")
    assert tercet.minimize(apart, method=kind()).status is Status.FLAT


@pytest.mark.parametrize("kind", KINDS)
def test_an_x0_that_is_the_minimizer_ends_at_once(kind):
    result = tercet.minimize(tercet.LinearModel(np.eye(3), np.zeros(3), "squares"), method=kind())
    assert result.success
    assert result.nit <= 1


@pytest.mark.parametrize(
    "settings",
    [{"scheme": "near"}, {"scheme": NearOptimal}, {"lipschitz": 0.0}, {"lipschitz": np.nan}, {"restart": 1}],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_checked(kind, settings):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\({next(iter(settings))}="):
        kind(**settings)


@pytest.mark.parametrize("change", [{"weight": "1"}, {"start": np.zeros(3)}, {"away": 1}, {"pull": None}])
def test_a_checkpoint_with_another_momentum_is_refused(change, tmp_path, monkeypatch):
    from tercet.methods.schemes import Momentum

    problem, path = tercet.LinearModel(X, Y, "logistic", l2=1e-3), tmp_path / "run.ckpt"
    whole = Momentum.arrays
    monkeypatch.setattr(Momentum, "arrays", lambda self: {**whole(self), **change})
    tercet.minimize(problem, method=AcceleratedTensor(), max_iterations=2, checkpoint=path)
    with pytest.raises(tercet.CheckpointError, match=r"momentum|truth|number"):
        tercet.resume(path, problem)
