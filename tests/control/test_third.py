"""When third derivatives are bought, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.control.third import LEAST_SHARE, Purchase

shares = st.floats(1e-6, 1.0)


@pytest.mark.parametrize(
    ("worth", "unexplained", "bought"),
    [
        (5.0, 0.19, False),
        (5.0, 0.21, True),
        (5.0, 3.0, True),
        (0.0, 3.0, False),
        (np.inf, 1e-300, True),
        (np.inf, 0.0, True),
        (1.0, 0.99, False),
        (1.0, 1.0, True),
    ],
)
def test_over_all_terms_they_are_bought_where_the_last_quadratic_left_more_than_their_worth(worth, unexplained, bought):
    assert Purchase(worth, False, False).buys(unexplained, 1.0, False) == bought


@pytest.mark.parametrize(("share", "least"), [(0.01, 0.165), (0.3, 0.165), (0.8, 0.4), (1.0, 0.5)])
def test_over_a_sample_they_are_bought_for_less_but_not_for_less_than_a_third(share, least):
    rule = Purchase(2.0, False, False)
    assert not rule.buys(least * 0.99, share, False)
    assert rule.buys(least * 1.01, share, False)
    assert LEAST_SHARE == 0.33


@given(worth=st.floats(1e-3, 1e3), share=shares, unexplained=st.floats(0.0, 10.0), lags=st.booleans())
def test_where_t_is_formed_they_are_bought_always(worth, share, unexplained, lags):
    assert Purchase(worth, True, True).buys(unexplained, share, lags)


@given(share=shares, unexplained=st.floats(0.0, 1e300), lags=st.booleans(), formed=st.booleans(), dear=st.booleans())
def test_those_of_no_worth_are_never_bought_also_where_t_is_formed(share, unexplained, lags, formed, dear):
    assert not Purchase(0.0, formed, dear).buys(unexplained, share, lags)


@pytest.mark.parametrize(("reuses", "lags"), [(False, False), (False, True), (True, False), (True, True)])
def test_what_a_hessian_that_is_used_again_left_on_a_small_sample_has_the_full_price(reuses, lags):
    rule = Purchase(2.0, False, reuses)
    assert rule.buys(0.4, 0.1, lags) != (reuses and lags)
    assert rule.buys(0.6, 0.1, lags)
    assert not rule.buys(0.1, 0.1, lags)
