"""Compiled elementwise formulas, each against its twin in NumPy."""

import numpy as np
import pytest

from tercet.objectives import kernels
from tercet.objectives.kernels import pack_sigmoid_squares, sigmoid_squares, sign_tails
from tercet.objectives.linear import point
from tercet.objectives.losses import SigmoidSquares

# losses -------------------------------------------------------------------------------------------------------------


Z = np.concatenate([np.linspace(-8, 8, 321), np.linspace(-700, 700, 141), [-0.0, 5e-324, -5e-324, 1e-300, 36.8, -36.8]])


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_sigmoid_squares_equals_the_formula_also_in_the_tails(order, target):
    y = np.full(len(Z), target)
    loss, much = SigmoidSquares(), SigmoidSquares().formula(True)
    found, expected = sigmoid_squares(order, pack_sigmoid_squares(Z, y), y), loss.derivatives(Z, y)[order]
    # exp and expit may differ in the last digits, and P^2 has twice the relative error; 0 where squares underflow.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16 if order == 3 else 1e-300)
    np.testing.assert_array_equal(much.part(order, much.pack(Z, y), y), found)
    assert loss.formula(False).part is None  # all four at once


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("far", [700.0, 745.0, 800.0, 1e5, np.inf])
def test_sigmoid_squares_has_its_limits_far_out(order, far):
    z, y = np.array([far, far, -far, -far]), np.array([0.0, 1.0, 0.0, 1.0])
    part = sigmoid_squares(order, pack_sigmoid_squares(z, y), y)
    np.testing.assert_allclose(part, [0.5, 0, 0, 0.5] if order == 0 else np.zeros(4), rtol=0, atol=1e-300)


def test_the_kernel_of_a_loss_does_not_write_into_its_arguments():
    z, y = np.linspace(-1, 1, 5), np.array([0.0, 1, 0, 1, 0])
    before = z.copy(), y.copy()
    packed = pack_sigmoid_squares(z, y)
    kept = packed.copy()
    for order in range(4):
        sigmoid_squares(order, packed, y)
    np.testing.assert_array_equal(packed, kept)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(y, before[1])


def test_a_tail_is_negative_where_the_margin_has_the_wrong_sign_also_where_it_underflows():
    z, y = np.array([2.0, 2.0, -2.0, -2.0, 800.0, 800.0]), np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    tails = np.exp(-np.abs(z))
    sign_tails(tails, z, y)
    np.testing.assert_array_equal(np.abs(tails), np.exp(-np.abs(z)))
    np.testing.assert_array_equal(np.signbit(tails), [True, False, False, True, True, False])
    np.testing.assert_array_equal(pack_sigmoid_squares(z, y), tails)


# rows that bend ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("straight", [0.0, 0.2, 1.0])
def test_what_bends_is_that_of_the_formula(straight):
    rng = np.random.default_rng(2)
    As, second, third = rng.standard_normal((3, 500))
    As[:20], second[10:30], third[20:40] = 0.0, 0.0, 0.0
    found, expected = np.empty(500), np.empty(500)
    count = kernels.bend(As, second, third, straight, found)
    assert 0 < count == point.bend(As, second, third, straight, expected) < 500
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert count == np.count_nonzero(found)
