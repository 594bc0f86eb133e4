"""Where a step ends: never above what was seen, at the lowest of the looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tercet
from tercet.control.ray import Ray
from tercet.methods.search import AlongStep, OneLook, gone
from tests.methods.walks import MODEL, D, Walk, dearer


def look(walk: Walk, search: Any) -> tuple[Any, Any, list[float]]:
    """The step and the point that a search gives, and f wherever it looked."""
    at, seen = walk.expand(), []
    move, ask = walk.solve(at)
    before = walk.run.meter.counts().value
    step, point, f = search.look(walk.parts, walk.state, at, move, ask)
    assert f == point.value()
    looked = (walk.run.meter.counts().value - before) // walk.run.n
    seen.extend([looked, MODEL.over(None).at(at.point.x + at.model.frame.lift(move.s)).value()])
    return step, point, seen


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_few_looks_along_a_step_end_no_higher_than_the_step_itself(seed, kind):
    start = 3.0 * np.random.default_rng(seed).standard_normal(D)
    walk = Walk.of(kind(tercet.Full()), start=start)
    step, point, (looked, whole) = look(walk, AlongStep())
    assert point.value() <= whole * (1 + 1e-12)
    assert 1 <= step.looks == looked <= 3
    at = walk.expand()
    np.testing.assert_allclose(point.x, at.point.x + at.model.frame.lift(step.s), rtol=1e-12, atol=1e-14)
    assert point.value() == pytest.approx(MODEL.over(None).at(point.x).value(), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_one_look_takes_the_correction_only_where_it_is_lower(seed):
    start = 3.0 * np.random.default_rng(seed).standard_normal(D)
    problem = dearer(tercet.LinearModel(MODEL.A, MODEL.rows.y, l2=1e-3), 2.0)
    walk = Walk.of(tercet.STM(tercet.Full()), problem, start)
    step, point, (looked, whole) = look(walk, OneLook())
    assert step.looks == looked in (1, 2)
    assert point.value() <= whole * (1 + 1e-12)


def test_a_part_of_a_step_has_the_slope_of_the_model_there_and_the_promise_of_the_whole():
    walk = Walk.of(tercet.SCR(tercet.Full()))
    at = walk.expand()
    move, _ = walk.solve(at)
    part = gone(at, move, 0.5, 2)
    g, B = at.model.taylor.g, at.model.taylor.B.hessian()
    np.testing.assert_allclose(part.s, 0.5 * move.s)
    np.testing.assert_allclose(part.quadratic.gradient, g + B @ part.s, rtol=1e-9, atol=1e-12)
    assert part.quadratic.decrease == move.quadratic.decrease
    assert gone(at, move, 1.0, 1) == replace(move, looks=1) or gone(at, move, 1.0, 1).s is move.s


def test_the_ray_of_a_step_has_its_slope_and_its_curvature():
    walk = Walk.of(tercet.SCR(tercet.Full()))
    at = walk.expand()
    move, _ = walk.solve(at)
    ray, B = Ray.of(at.model.taylor.g, move), at.model.taylor.B.hessian()
    assert ray.c1 == pytest.approx(at.model.taylor.g @ move.s)
    assert ray.c2 == pytest.approx(move.s @ B @ move.s, rel=1e-9)
    assert ray.c3 == 0.0
