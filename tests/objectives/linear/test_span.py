"""f over the span of few directions equals f over all of them, seen from there; and margins that steps added up to."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.objectives.line import along
from tercet.objectives.linear.span import FRESH, STEPS, Path, Span, SpanImages
from tercet.objectives.metered import Carry, Meter, Metered, engine_of, exact, saved
from tercet.vectors import fits

N, D = 300, 40
RNG = np.random.default_rng(0)
A = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.3)
Y = (RNG.random(N) < 0.5).astype(float)
W = RNG.random(N) + 0.1

MODELS = {
    "plain": {"l2": 1e-2},
    "intercept": {"l2": 1e-2, "intercept": True},
    "alpha": {"l2": 1e-3, "alpha": 1e-2},
    "weights": {"l2": 1e-2, "weights": W},
    "no penalty": {},
    "logistic": {"loss": "logistic", "l2": 1e-2},
    "cauchy": {"loss": "cauchy", "scale": 2.0, "alpha": 1e-2},
}


def view_of(name="plain", sparse=True):
    model = tercet.LinearModel(sp.csr_array(A) if sparse else A, Y, **MODELS[name])
    return Metered.of(model, Meter(N)).over(None), model


def span_of(point, p):
    """f over p, x and the last steps, as a sub-solver asks for it."""
    images = engine_of(point).images(point)
    return images.span(p, images.along(p))


def walked(view, steps=2, seed=1):
    """A point a few steps from a random start, its path as a run makes it."""
    rng = np.random.default_rng(seed)
    point = view.at(rng.standard_normal(view.engine.table.shape[1]))
    for _ in range(steps):
        span = span_of(point, rng.standard_normal(len(point.x)))
        point = span.at(0.1 * rng.standard_normal(span.W.shape[1])).metered
    return point


def some_span(view, steps=2):
    point = walked(view, steps)
    return span_of(point, point.gradient())


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_value_gradient_and_hessian_over_the_span_are_those_of_all_variables(name, sparse):
    view, model = view_of(name, sparse)
    span = some_span(view)
    U = np.stack([span.lift(e) for e in np.eye(span.W.shape[1])])  # orthonormal directions
    np.testing.assert_allclose(U @ U.T, np.eye(len(U)), atol=1e-10)
    assert len(U) == 4  # g, x and two steps
    for c in (None, 0.3 * np.random.default_rng(2).standard_normal(len(U))):
        here = span.at(c)
        x = span.point.x + (0.0 if c is None else c @ U)
        there = model.over(None).at(x)
        assert here.value() == pytest.approx(there.value(), rel=1e-13)
        np.testing.assert_allclose(here.gradient(), U @ there.gradient(), atol=1e-13)
        np.testing.assert_allclose(here.hessian(), U @ there.hessian() @ U.T, atol=1e-12)
        np.testing.assert_allclose(here.point.x, x, atol=1e-13)
        np.testing.assert_allclose(here.metered.gradient(), there.gradient(), atol=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_the_halves_of_a_hessian_product(name):
    view, _ = view_of(name)
    point = walked(view)
    images, v = SpanImages(point), np.random.default_rng(3).standard_normal(len(point.x))
    Bv = engine_of(point).product(2, v)
    np.testing.assert_allclose(images.product(v, images.along(v)), Bv, atol=1e-14)
    assert images.curvature(v, images.along(v)) == pytest.approx(float(v @ Bv), rel=1e-12)


def test_directions_that_say_nothing_new_are_left_out():
    view, _ = view_of()
    point = view.at(np.zeros(D))
    g = point.gradient()
    span = span_of(point, g)
    assert span.W.shape == (1, 1)  # x = 0 is no direction
    moved = span.at(np.array([0.2])).metered  # x is now along the step, both are along the old gradient
    assert span_of(moved, g).W.shape == (3, 1)
    assert span_of(moved, moved.gradient()).W.shape == (3, 2)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200, np.inf, np.nan])
def test_what_is_no_direction(size):
    assert not fits(np.full(3, size))
    view, _ = view_of()
    point = view.at(np.full(D, size if np.isfinite(size) else 0.0))
    assert span_of(point, np.ones(D)).W.shape == (1, 1)


def test_only_the_last_steps_are_remembered_and_margins_are_computed_anew_after_some():
    view, _ = view_of()
    point = walked(view, FRESH + 1)
    path = engine_of(point).path
    assert len(path.steps) == len(path.images) == STEPS
    assert path.age == 1  # FRESH steps after the start they were computed again
    for s, As in zip(path.steps, path.images, strict=True):
        np.testing.assert_allclose(As, A @ s, atol=1e-13)
    np.testing.assert_allclose(path.margins, A @ point.x, atol=1e-12)
    assert engine_of(walked(view, FRESH)).path.age == FRESH


def test_rounding_of_a_far_start_is_not_carried_on():
    """From 1e9 the margins are known to 1e-7; a point that was reached from there says so and can be looked at anew."""
    view, model = view_of()
    far = view.at(1e9 * np.ones(D))
    span = span_of(far, far.x)
    near = span.at(span.project(1.0 - far.x)).metered  # to about 1: more than FAR times nearer
    there = model.over(None).at(near.x)
    assert near.inexact == 4
    assert near.value() == there.value()
    half = span.at(span.project(-0.9 * far.x)).metered
    assert half.inexact == 0
    assert np.max(np.abs(engine_of(half).margins.z - A @ half.x)) > 1e-9
    fresh = exact(half)
    assert fresh.inexact == 4
    np.testing.assert_array_equal(fresh.gradient(), model.over(None).at(half.x).gradient())
    assert len(engine_of(fresh).path.steps) == 1  # the steps stay


def test_a_point_whose_margins_added_up_pays_for_all_of_it_when_it_is_looked_at_anew():
    view, _ = view_of()
    point = walked(view)
    point.value(), point.gradient()
    before = view.meter.counts()
    fresh = exact(point)
    fresh.value(), fresh.gradient()
    assert view.meter.counts().value == before.value + N
    assert view.meter.counts().gradient == before.gradient + N
    assert exact(fresh) is fresh


def test_a_sample_that_is_left_is_not_kept():
    import gc
    import weakref

    _, model = view_of()
    view = Metered.of(model, Meter(N)).over(np.arange(100))
    point, table = walked(view), weakref.ref(view.engine.table)
    carry = point.carry
    del view, point
    gc.collect()
    assert table() is None
    assert len(carry.engine.steps) == 2


def test_a_path_is_used_over_its_own_rows_only():
    view, model = view_of()
    point = walked(view)
    path = point.carry.engine
    assert isinstance(path, Path)
    other = model.over(np.arange(100)).at(point.x, path)
    assert other.path is None
    np.testing.assert_allclose(other.margins.z, A[:100] @ point.x, atol=1e-13)
    assert model.over(None).at(point.x, path).path is path


def test_a_path_over_a_sample_serves_the_same_rows_gathered_again():
    _, model = view_of()
    counted, rows = Metered.of(model, Meter(N)), np.random.default_rng(4).permutation(N)[:100]
    path = walked(counted.over(rows)).carry.engine
    assert counted.over(rows[::-1]).engine.at(np.ones(D), path).path is path
    assert counted.over(rows[:-1]).engine.at(np.ones(D), path).path is None


def test_a_point_hands_on_its_steps_and_not_the_margins_that_they_added_up_to():
    view, _ = view_of()
    point = walked(view)
    carry = point.carry
    assert engine_of(point).path.margins is not None
    assert carry.engine.margins is None
    assert carry.engine.steps == engine_of(point).path.steps
    assert (carry.engine.age, carry.engine.moved) == (0, 0.0)
    assert carry.engine.exact().steps == carry.engine.steps
    again = view.at(point.x, Carry(None, engine_of(point).path.exact()))
    np.testing.assert_array_equal(again.gradient(), view.at(point.x).gradient())


def test_a_path_survives_a_checkpoint():
    view, _ = view_of()
    point = walked(view)
    again = view.recall(point.x, saved(point))
    a, b = engine_of(point).path, engine_of(again).path
    assert (a.age, a.moved) == (b.age, b.moved)
    np.testing.assert_array_equal(a.margins, b.margins)
    for one, other in zip((*a.steps, *a.images), (*b.steps, *b.images), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_f_along_a_step_is_f_there_at_the_price_of_one_product(name, sparse):
    view, model = view_of(name, sparse)
    here, s = walked(view), np.random.default_rng(5).standard_normal(model.d)
    line = along(here, s)
    before = view.meter.counts()
    for looks, t in enumerate((1.0, 0.3, -2.0), 1):
        (there, f), plain = line.at(t), model.over(None).at(here.x + t * s)
        assert f == there.value()
        np.testing.assert_array_equal(there.x, here.x + t * s)
        np.testing.assert_allclose(there.value(), plain.value(), rtol=1e-12)
        np.testing.assert_allclose(there.gradient(), plain.gradient(), rtol=1e-9, atol=1e-13)
        assert there.inexact == 0
        assert exact(there).inexact == 4
        assert engine_of(there).path.steps == ()
        assert view.meter.counts().value == before.value + looks * N
    assert view.meter.counts().hessian == before.hessian


def test_every_look_is_counted():
    view, _ = view_of()
    span = some_span(view)
    before = view.meter.counts()
    here = span.at(np.ones(span.W.shape[1]))
    for _ in range(2):  # the second time it is remembered
        here.value(), here.gradient(), here.hessian()
    images, v = SpanImages(span.metered), np.ones(D)
    Av = images.along(v)
    images.curvature(v, Av)
    images.product(v, Av)
    spent = view.meter.counts()
    assert spent.value - before.value == N
    assert spent.gradient - before.gradient == N
    assert spent.hessian - before.hessian == 2 * N  # over the span, and along v


def test_a_span_from_its_images_is_the_span_of_the_point():
    view, _ = view_of()
    point = walked(view)
    span = span_of(point, np.ones(D))
    assert isinstance(span, Span)
    assert span.metered is point
    np.testing.assert_allclose(span.Ap, A @ np.ones(D), atol=1e-13)
