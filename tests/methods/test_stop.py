"""The stop test: each reason to end, each to turn, and that it moves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status
from tercet.control.judge import EPS
from tercet.critical.looks import WayDown
from tercet.critical.tolerances import Tolerances
from tercet.methods.phases import DESCENT, PATIENCE, Leaving, asked
from tercet.methods.step import restart
from tercet.methods.stop import End, Turn, stop
from tercet.objectives.base import NotFiniteError
from tercet.objectives.metered import Known, MeteredPoint
from tercet.records import Certificate, Sizes
from tests.methods.walks import MODEL, D, Flat, N, Told, Walk

BEST = tercet.minimize(MODEL, tol=1e-11).x
SMALL = Told(lambda n, d: Sizes(300, 300, 300, 300))


def verdict(walk: Walk, **changes: Any) -> End | Turn | None:
    """What the test says at x, with some of the expansion changed."""
    at = replace(walk.expand(), **changes)
    ask = asked(walk.parts, walk.state, at)
    return stop(walk.run, walk.parts, walk.state, at, ask, lambda: restart(walk.run, walk.parts, walk.state))


def status(walk: Walk, **changes: Any) -> Status:
    said = verdict(walk, **changes)
    assert isinstance(said, End)
    return said.status


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_or_a_gradient_that_is_not_finite_is_no_place_to_be(bad):
    walk = Walk.of(tercet.STM(tercet.Full()))
    for known in (Known(bad, np.ones(D)), Known(1.0, np.array([0.0, 0, bad, 0, 0]))):
        walk.state = replace(walk.state, point=MeteredPoint(walk.run.full, walk.run.x0, known=known))
        with pytest.raises(NotFiniteError):
            walk.expand()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_gradient_whose_square_overflows_is_finite():
    walk = Walk.of(tercet.STM(tercet.Full()))
    known = Known(1.0, np.full(D, 1e200))
    walk.state = replace(walk.state, point=MeteredPoint(walk.run.full, walk.run.x0, known=known))
    assert walk.expand().norm == np.inf
    assert verdict(walk) is None


def test_a_fall_beyond_any_sensible_value_ends_the_run_only_over_all_terms():
    walk, sampled = Walk.of(tercet.STM(tercet.Full())), Walk.of(tercet.STM(SMALL))
    assert walk.state.scale == abs(walk.state.point.value())
    assert status(walk, f=-1.001e20) is Status.UNBOUNDED
    assert verdict(walk, f=-0.999e20) is None
    turn = verdict(sampled, f=-1.001e20)
    assert isinstance(turn, Turn)
    assert turn.state.sizes == Sizes(N, N, N, N)
    assert np.array_equal(turn.state.x, walk.state.x)  # where a run over all terms begins


def test_the_scale_of_a_sensible_value_is_f_at_the_start():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.state = replace(walk.state, scale=1e3)
    assert verdict(walk, f=-0.999e23) is None
    assert status(walk, f=-1.001e23) is Status.UNBOUNDED


def test_without_hope_the_run_ends_with_the_certificate_that_failed():
    walk = Walk.of(tercet.STM(tercet.Full()))
    failed = Certificate(1.0, 1.0, 1.0, 1e-8, 1e-8, 1e-8, 1e-3, 3, N, N, "by hand")
    walk.state = replace(walk.state, certificate=failed)
    walk.remember(hopeless=True)
    said = verdict(walk)
    assert isinstance(said, End)
    assert said.status is Status.NOT_CERTIFIED
    assert said.certificate is failed


@pytest.mark.parametrize(("noisy", "reason"), [(True, Status.NOISE), (False, Status.ROUNDING)])
def test_patience_ends_after_as_many_steps_as_it_has(noisy, reason, monkeypatch):
    """Where the certificate sees no way down either."""
    walk = Walk.of(tercet.STM(tercet.Full()))
    failed = Certificate(1.0, 1.0, 1.0, 1e-8, 1e-8, 1e-8, 1e-3, 3, N, N, "by hand")
    monkeypatch.setattr(tercet.methods.stop, "certify_in", lambda *a: (failed, None))
    walk.remember(stuck=PATIENCE - 1, noisy=noisy)
    assert verdict(walk) is None
    walk.remember(stuck=PATIENCE)
    assert status(walk) is reason


def test_a_small_gradient_over_a_sample_or_with_replacement_or_on_a_way_down_certifies_nothing():
    g = {"g": np.zeros(D), "norm": 0.0}
    assert verdict(Walk.of(tercet.STM(SMALL)), **g) is None
    assert verdict(Walk.of(tercet.STM(tercet.Fixed(0.5, 1.0, 1.0))), **g) is None
    assert verdict(Walk.of(tercet.STM(tercet.Fixed(1.0, 1.0, 0.5, replacement=True))), **g) is None
    walk = Walk.of(tercet.STM(tercet.Full()), start=BEST)
    assert status(walk) is Status.CERTIFIED
    walk.state = replace(walk.state, phase=Leaving(WayDown(np.ones(D), 1.0, 2)))
    assert verdict(walk) is None


def test_a_gradient_above_the_tolerance_goes_on_and_one_below_it_is_certified():
    walk = Walk.of(tercet.STM(tercet.Full()), start=BEST)
    norm = walk.expand().norm
    assert norm <= 1e-8
    assert verdict(walk, norm=1.01e-8) is None
    said = verdict(walk, norm=0.99e-8)
    assert isinstance(said, End)
    assert said.status is Status.CERTIFIED
    assert said.certificate.holds
    assert said.certificate.chi1 == pytest.approx(norm, rel=1e-6)
    assert said.certificate.terms == N
    walk.remember(closer=0.5 * norm / 1e-8)  # a gradient still closer was asked for
    assert verdict(walk) is None


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_without_a_tol_a_certificate_is_asked_for_where_newtons_step_is_small_beside_x(scale, monkeypatch):
    """(x - 1)^2 in any units of f: at 1 + 1e-6 a step is taken, at 1 + 1e-9 the point is looked at."""
    asked: list[Any] = []
    monkeypatch.setattr(tercet.methods.stop, "certify_in", lambda *a: asked.append(a))
    problem = tercet.LinearModel(np.eye(1), np.ones(1), lambda z, y: scale * (z - y) ** 2)
    for off, looked in ((1e-6, False), (1e-9, True)):
        walk = Walk.of(tercet.STM(tercet.Full()), problem, np.array([1.0 + off]))
        walk.run = replace(walk.run, tolerances=Tolerances.half(EPS, 3))
        walk.state = replace(walk.state, origin=replace_value(walk.state.origin, scale))
        if looked:
            with pytest.raises(TypeError):  # the stand-in gives nothing back
                verdict(walk)
        else:
            assert verdict(walk) is None
        assert len(asked) == looked


def replace_value(origin: Any, value: float) -> Any:
    """The start, where f was this high."""
    return MeteredPoint(origin.view, origin.x, known=Known(value))


def test_a_certificate_that_does_not_hold_yet_is_followed_by_a_step_and_asked_again_only_closer(monkeypatch):
    walk = Walk.of(tercet.STM(tercet.Full()), start=BEST)
    failed = Certificate(1e-9, 0.0, 0.0, 1e-8, 1e-8, 1e-8, 1e-3, 3, N, N, "by hand", rounding_f=1e-17)
    monkeypatch.setattr(tercet.methods.stop, "certify_in", lambda *a: (failed, None))
    turn = verdict(walk)
    assert isinstance(turn, Turn)
    assert turn.due
    assert turn.state.memory.closer == pytest.approx(0.1)
    assert turn.state.memory.rounding == 1e-17
    walk.remember(closer=0.9e-8)
    assert status(walk, norm=0.0) is Status.NOT_CERTIFIED


def test_a_certificate_that_sees_a_way_down_leads_there():
    A = np.random.default_rng(0).standard_normal((400, 3))
    walk = Walk.of(tercet.STM(tercet.Full()), tercet.LinearModel(A, np.zeros(400), loss=Flat()), np.zeros(3))
    turn = verdict(walk)
    assert isinstance(turn, Turn)
    assert turn.state.phase.order == 3
    assert not turn.state.certificate.holds
    assert turn.state.certificate.chi3 > turn.state.certificate.eps3
    assert turn.state.certificate.way_down == tuple(turn.state.phase.way.s)
    assert turn.state.certificate.fall == turn.state.phase.way.fall > 0
    assert turn.state.kept is not None
    assert turn.state.point is walk.state.point


def test_a_certified_point_that_is_worse_than_the_start_is_left_for_the_start():
    walk = Walk.of(tercet.STM(tercet.Full()), start=BEST)
    walk.state = replace(walk.state, sampled=True)
    assert status(walk) is Status.CERTIFIED
    walk.state = replace(walk.state, origin=replace_value(walk.state.origin, walk.state.point.value() - 1.0))
    turn = verdict(walk)
    assert isinstance(turn, Turn)
    assert not turn.state.sampled
    assert np.array_equal(turn.state.x, walk.run.x0)
    walk.state = replace(walk.state, sampled=False)  # without a sample there is nothing to compare
    assert status(walk) is Status.CERTIFIED


def test_a_point_that_owes_its_margins_to_the_steps_before_is_looked_at_again():
    walk = Walk.of(tercet.STM(tercet.Full(), tercet.Subspace()))
    while walk.expand().norm > 1e-8:
        walk.step()
    assert walk.expand().slope.inexact == 0
    end = verdict(walk)
    assert isinstance(end, End)
    assert end.point is not None
    assert end.point.inexact == 4
    assert np.array_equal(end.point.x, walk.state.x)
    exactly = MODEL.over(None).at(walk.state.x)
    assert end.point.value() == exactly.value()
    np.testing.assert_array_equal(end.point.gradient(), exactly.gradient())
    assert end.certificate is not None
    assert end.certificate.chi1 == np.linalg.norm(exactly.gradient())


def test_the_test_moves_nothing():
    walk = Walk.of(tercet.STM(tercet.Full()), start=BEST)
    before = walk.state.arrays()
    verdict(walk)
    after = walk.state.arrays()
    assert np.array_equal(before.pop("x"), after.pop("x"))
    before.pop("point"), after.pop("point")
    assert repr(before) == repr(after)
    assert walk.state.phase is DESCENT
    assert walk.state.kept is walk.state.certificate is None


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_steps_that_shrink_at_zero_end_before_they_underflow(kind):
    result = tercet.minimize(
        lambda x: 0.0 if x[0] == 0 else np.nan, np.zeros(1), grad=lambda x: np.ones(1), method=kind()
    )
    assert result.status is tercet.Status.ROUNDING
    assert result.fun == 0.0
