"""Steps that no model can vouch for: which they are, and how sigma is raised until there is one that it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tercet.control.limit import TRIES, limit, trusted
from tercet.records import Forecast, Step
from tercet.subsolvers.base import Ask

ASK = Ask(0.5, 2.0, power=3, radius=7.0, buy_third=False, unexplained=0.25)


def step(s: Any, decrease: float = 1.0, cubic: float | None = None, trial: Any = None, sigma: float = 1.0) -> Step:
    s = np.atleast_1d(np.asarray(s, dtype=float))
    third = None if cubic is None else Forecast(cubic, np.zeros_like(s))
    return Step(s, Forecast(decrease, np.zeros_like(s)), third, 1, sigma, trial)


@pytest.mark.parametrize(("x", "reach"), [([0.0, 0.0], 3.0), ([0.5, -1.0], 3.0), ([0.5, -4.0], 12.0)])
def test_a_step_is_trusted_up_to_three_times_the_largest_entry_of_x_or_of_one(x, reach):
    for sign in (1.0, -1.0):
        assert trusted(step([0.0, sign * reach]), np.array(x), 1.0)
        assert not trusted(step([0.0, sign * np.nextafter(reach, np.inf)]), np.array(x), 1.0)


@pytest.mark.parametrize(("f", "most"), [(0.0, 1e3), (-1.0, 1e3), (5.0, 5e3), (-5.0, 5e3)])
def test_a_promise_is_trusted_up_to_a_thousand_times_f_or_one(f, most):
    assert trusted(step(1.0, most), np.zeros(1), f)
    assert not trusted(step(1.0, np.nextafter(most, np.inf)), np.zeros(1), f)


def test_the_promise_that_counts_is_the_one_of_the_highest_order_that_was_bought():
    assert trusted(step(1.0, 1e9, cubic=1.0), np.zeros(1), 1.0)
    assert not trusted(step(1.0, 1.0, cubic=1e9), np.zeros(1), 1.0)


def test_a_step_whose_f_was_looked_at_needs_no_promise():
    assert trusted(step(1e9, 1e9, trial=object()), np.zeros(1), 1.0)


def test_a_step_that_is_not_a_number_is_not_trusted():
    assert not trusted(step(np.nan), np.zeros(1), 1.0)
    assert not trusted(step(1.0, np.nan), np.zeros(1), 1.0)


def test_sigma_is_raised_tenfold_until_a_step_can_be_trusted_and_nothing_else_changes():
    asked: list[Ask] = []

    def solve(ask: Ask) -> Step:
        asked.append(ask)
        return step(1e4 / ask.sigma3, sigma=ask.sigma3)

    found, ask = limit(solve, ASK, np.zeros(1), 1.0)
    assert [a.sigma3 for a in asked] == [2.0, 20.0, 200.0, 2000.0, 20000.0]
    assert [a.sigma2 for a in asked] == [0.5, 5.0, 50.0, 500.0, 5000.0]
    assert all(replace(a, sigma2=ASK.sigma2, sigma3=ASK.sigma3) == ASK for a in asked)
    assert found.sigma == ask.sigma3 == 20000.0
    assert ask == asked[-1]


def test_a_step_that_is_trusted_at_once_is_asked_for_once_as_it_was_asked():
    asked: list[Ask] = []

    def solve(ask: Ask) -> Step:
        asked.append(ask)
        return step(1.0)

    assert limit(solve, ASK, np.zeros(1), 1.0)[1] is ASK
    assert asked == [ASK]


def test_a_step_that_no_sigma_makes_short_is_given_back_after_the_last_try():
    asked: list[Ask] = []

    def solve(ask: Ask) -> Step:
        asked.append(ask)
        return step(1e9, sigma=ask.sigma3)

    found, ask = limit(solve, ASK, np.zeros(1), 1.0)
    assert len(asked) == TRIES + 1
    assert found.sigma == ask.sigma3 == pytest.approx(2.0 * 10.0**TRIES)
