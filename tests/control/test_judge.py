"""The ratio of achieved and predicted decrease, and when rounding makes it worthless."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.control.judge import EPS, judge, rounded

numbers = st.just(0.0) | st.floats(1e-200, 1e100) | st.floats(-1e100, -1e-200)  # no ratio of theirs underflows


def test_the_ratio_is_the_decrease_of_f_over_the_one_that_was_predicted():
    assert judge(5.0, 2.0, 4.0).ratio == 0.5
    assert judge(5.0, 2.0, 3.0).ratio == 1.0
    assert judge(5.0, 2.0, 9.0).ratio == -2.0
    assert judge(-5.0, 0.5, -7.0).ratio == 4.0


@pytest.mark.parametrize("after", [np.nan, np.inf, -np.inf])
def test_a_trial_point_where_f_is_not_finite_has_the_worst_ratio(after):
    assert judge(5.0, 2.0, after).ratio == -np.inf


@pytest.mark.parametrize("decrease", [0.0, -1.0, -np.inf, np.nan])
@pytest.mark.parametrize("after", [4.0, 5.0, 6.0])
def test_a_step_that_was_not_predicted_to_go_down_has_the_worst_ratio_whatever_f_does(decrease, after):
    assert judge(5.0, decrease, after).ratio == -np.inf


@pytest.mark.parametrize("f", [3.0, -3.0, 1e-200, -1e200])
def test_a_prediction_is_lost_in_rounding_up_to_64_units_of_f(f):
    edge = 64 * EPS * abs(f)
    assert judge(f, edge, f).rounding
    assert not judge(f, np.nextafter(edge, np.inf), f).rounding
    assert judge(f, -edge, f).rounding
    assert not judge(f, -np.nextafter(edge, np.inf), f).rounding


def test_where_f_is_zero_only_no_prediction_at_all_is_lost_in_rounding():
    assert judge(0.0, 0.0, 0.0).rounding
    assert not judge(0.0, 1e-300, 0.0).rounding


@pytest.mark.parametrize("f", [0.0, 3.0, -1e200])
def test_a_rounding_of_f_that_was_seen_hides_up_to_four_times_as_much_and_never_less_than_without(f):
    seen = 1e-3 * max(abs(f), 1.0)
    assert judge(f, 4 * seen, f, seen).rounding
    assert not judge(f, np.nextafter(4 * seen, np.inf), f, seen).rounding
    least = 64 * EPS * abs(f)
    assert judge(f, least, f, 1e-3 * EPS * abs(f)).rounding
    assert rounded(f, least) == judge(f, least, f).rounding


@given(f=numbers, decrease=st.floats(1e-50, 1e50), after=numbers)
def test_the_ratio_is_positive_exactly_where_f_falls(f, decrease, after):
    assert (judge(f, decrease, after).ratio > 0) == (f - after > 0)


def test_a_rise_by_half_of_the_digits_of_f_is_no_rounding():
    """f jumps where next to nothing was promised: the step is not taken for a smaller gradient."""
    assert judge(0.25, 1e-15, 0.25 + 1e-9).rounding
    assert not judge(0.25, 1e-15, 1.25).rounding
    assert judge(0.25, 1e-15, 1.25, rounding=0.1).rounding
