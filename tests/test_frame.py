"""Coordinates of a step: derivatives seen through them are those of c -> f(x + Ec), and reach is what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.frame import NEVER_LESS, Reach, Same, Scaled

D = 3
seeds = st.integers(0, 10**6)
powers = st.integers(-9, 9).map(lambda k: 10.0**k)


class Cubic:
    """g's + 1/2 s'Bs + 1/6 T[s]^3 as a point."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.g, B, T = rng.standard_normal(D), rng.standard_normal((D, D)), rng.standard_normal((D, D, D))
        self.B = B + B.T
        self.T = sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)))

    def value(self, s: np.ndarray) -> float:
        return float(self.g @ s + s @ self.B @ s / 2 + self.T @ s @ s @ s / 6)

    def hessian(self) -> np.ndarray:
        return self.B.copy()

    def hessian_product(self, v: np.ndarray) -> np.ndarray:
        return self.B @ v

    def third_product(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.T @ v @ u

    def third_square(self, s: np.ndarray) -> np.ndarray:
        return self.third_product(s, s)

    def third_tensor(self, V: np.ndarray) -> np.ndarray:
        return np.einsum("abc,ai,bj,ck->ijk", self.T, V, V, V)


@given(seed=seeds, E=st.lists(powers, min_size=D, max_size=D))
def test_the_derivatives_of_a_scaled_point_are_those_of_f_in_the_coordinates(seed, E):
    f, frame = Cubic(seed), Scaled(np.array(E))
    seen = frame.point(f)
    c = np.random.default_rng(seed + 1).standard_normal(D) / np.array(E)  # so that all parts of f are of a size
    told = frame.slope(f.g) @ c + c @ seen.hessian() @ c / 2 + seen.third_tensor(np.eye(D)) @ c @ c @ c / 6
    parts = (f.g @ frame.lift(c), f.T @ frame.lift(c) @ frame.lift(c) @ frame.lift(c))
    assert told == pytest.approx(f.value(frame.lift(c)), rel=1e-9, abs=1e-9 * max(map(abs, parts)))


@given(seed=seeds, E=st.lists(powers, min_size=D, max_size=D))
def test_products_of_a_scaled_point_are_those_of_its_arrays(seed, E):
    seen = Scaled(np.array(E)).point(Cubic(seed))
    u, v = np.random.default_rng(seed).standard_normal((2, D))
    H, T = seen.hessian(), seen.third_tensor(np.eye(D))
    large = np.abs(T).max()
    np.testing.assert_allclose(seen.hessian_product(v), H @ v, rtol=1e-9, atol=1e-12 * np.abs(H).max())
    np.testing.assert_allclose(seen.third_product(u, v), T @ v @ u, rtol=1e-9, atol=1e-12 * large)
    np.testing.assert_allclose(seen.third_square(u), T @ u @ u, rtol=1e-9, atol=1e-12 * large)
    V = np.stack([u, v], axis=1)
    formed = np.einsum("abc,ai,bj,ck->ijk", T, V, V, V)
    np.testing.assert_allclose(seen.third_tensor(V), formed, rtol=1e-9, atol=1e-12 * large)


def test_a_scaled_point_leaves_the_hessian_of_the_point_as_it_was():
    class Kept(Cubic):
        def hessian(self) -> np.ndarray:
            return self.B

    f = Kept(0)
    before = f.B.copy()
    Scaled(np.full(D, 2.0)).point(f).hessian()
    np.testing.assert_array_equal(f.B, before)


@given(seed=seeds, E=st.lists(powers, min_size=D, max_size=D))
def test_lift_and_coordinates_undo_each_other_and_slopes_keep_their_products(seed, E):
    s, g = np.random.default_rng(seed).standard_normal((2, D))
    for frame in (Same(), Scaled(np.array(E))):
        np.testing.assert_allclose(frame.lift(frame.coordinates(s)), s, rtol=1e-14)
        np.testing.assert_allclose(frame.slope(g) * frame.coordinates(s), g * s, rtol=1e-14)
        rows = np.stack([g, s])
        np.testing.assert_array_equal(frame.slope(rows), [frame.slope(g), frame.slope(s)])


def test_x_itself_changes_nothing():
    point, v = Cubic(0), np.arange(3.0)
    assert Same().point(point) is point
    assert Same().lift(v) is Same().coordinates(v) is Same().slope(v) is v


# what was seen of each x_j --------------------------------------------------------------------------------------------


def test_reach_is_the_most_of_what_was_seen():
    x0 = np.array([1.0, -2.0])
    seen = Reach.of(x0).at(np.array([3.0, 1.0]), x0, np.array([4.0, -1.0])).at(np.zeros(2), x0, np.array([1.0, 5.0]))
    np.testing.assert_array_equal(seen.size, [3.0, 2.0])
    np.testing.assert_array_equal(seen.moved, [2.0, 3.0])
    np.testing.assert_array_equal(seen.bend, [4.0, 5.0])
    np.testing.assert_array_equal(seen.spans, [3.0, 3.0])
    same = seen.at(x0, x0, np.zeros(0))
    np.testing.assert_array_equal(same.bend, seen.bend)


def test_a_variable_that_never_left_0_reaches_as_far_as_f_changes_as_much_as_along_the_others():
    seen = Reach(np.array([2.0, 0.0]), np.zeros(2), np.array([1.0, 100.0]))
    np.testing.assert_allclose(seen.spans, [2.0, 0.2], rtol=1e-15)  # 2^2 1 = 0.2^2 100
    without = Reach(np.array([2.0, 0.0]), np.zeros(2))
    np.testing.assert_array_equal(without.spans, [2.0, 2.0])


def test_no_span_is_below_a_small_fraction_of_that_length():
    seen = Reach(np.array([2.0, 1e-30]), np.zeros(2), np.array([1.0, 1.0]))
    np.testing.assert_allclose(seen.spans, [2.0, NEVER_LESS * 2.0], rtol=1e-15)


def test_at_the_origin_spans_are_numbers_whatever_is_known():
    for bend in ([], [0.0, 0.0], [1.0, 0.0], [1e300, 1e-300], [np.inf, 1.0]):
        spans = Reach(np.zeros(2), np.zeros(2), np.array(bend)).spans
        assert np.all(np.isfinite(spans))
        assert np.all(spans > 0)


@given(seed=seeds, f=powers, columns=st.lists(powers, min_size=D, max_size=D))
def test_spans_and_lengths_follow_the_units(seed, f, columns):
    rng, c = np.random.default_rng(seed), np.array(columns)
    size, moved, bend = rng.uniform(0.5, 2.0, (3, D))
    size[0] = moved[0] = 0.0
    plain, other = Reach(size, moved, bend), Reach(c * size, c * moved, f * bend / c**2)
    np.testing.assert_allclose(other.spans, c * plain.spans, rtol=1e-12)
    lengths = other.lengths(other.spans)
    np.testing.assert_allclose(lengths, c / np.sqrt(f) * plain.lengths(plain.spans), rtol=1e-12)
