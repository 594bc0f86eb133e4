"""When third derivatives are bought, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.control.third import Purchase

misses = st.floats(0.0, 1e300)


@pytest.mark.parametrize(
    ("worth", "missed", "bought"),
    [
        (5.0, 0.19, False),
        (5.0, 0.21, True),
        (5.0, 3.0, True),
        (5.0, np.inf, True),
        (0.0, 3.0, False),
        (0.0, np.inf, False),
        (1.0, 0.99, False),
        (1.0, 1.0, True),
    ],
)
@pytest.mark.parametrize("reuses", [False, True])
def test_they_are_bought_where_the_second_order_step_missed_more_than_their_worth(worth, missed, bought, reuses):
    rule = Purchase(worth, False, reuses)
    assert rule.buys(1.0 - missed, 1.0, False) == bought
    assert not rule.first


@pytest.mark.parametrize(("worth", "formed", "first"), [(np.inf, False, True), (0.5, True, True), (0.5, False, False)])
def test_where_t_is_formed_or_always_bought_it_belongs_to_the_model_from_the_beginning(worth, formed, first):
    assert Purchase(worth, formed, False).first == first


@given(worth=st.floats(1e-3, 1e3) | st.just(np.inf), missed=misses, lags=st.booleans(), formed=st.booleans())
def test_what_belongs_to_the_model_from_the_beginning_is_not_bought_again(worth, missed, lags, formed):
    rule = Purchase(worth, formed, True)
    assert not (rule.first and rule.buys(-missed, 1.0, lags))


@given(missed=misses, lags=st.booleans(), formed=st.booleans(), dear=st.booleans())
def test_those_of_no_worth_are_never_bought_also_where_t_is_formed(missed, lags, formed, dear):
    rule = Purchase(0.0, formed, dear)
    assert not rule.first
    assert not rule.buys(-missed, 1.0, lags)


@pytest.mark.parametrize(("reuses", "lags"), [(False, False), (False, True), (True, False), (True, True)])
@given(missed=st.floats(0.5, 1e300))
def test_what_a_hessian_that_is_used_again_missed_on_a_small_sample_is_not_mended_by_t(reuses, lags, missed):
    assert Purchase(2.0, False, reuses).buys(1.0 - missed, 1.0, lags) != (reuses and lags)
