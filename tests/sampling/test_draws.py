"""Draws: nested beginnings, independent samples with and without repeats, and seeds."""

import numpy as np
import pytest

from tercet.sampling.draws import Draws


@pytest.mark.parametrize("m", [1, 7, 99])
def test_without_replacement_no_row_comes_twice(m):
    draws = Draws(100, 0)
    for _ in range(20):
        rows = draws.independent(m)
        assert len(rows) == len(np.unique(rows)) == m
        assert rows.min() >= 0
        assert rows.max() < 100


@pytest.mark.parametrize("m", [100, 250])
def test_without_replacement_all_rows_are_all_rows(m):
    assert Draws(100, 0).independent(m) is None


def test_with_replacement_the_full_size_is_still_a_draw():
    rows = Draws(100, 0, replacement=True).independent(100)
    assert rows.shape == (100,)
    assert len(np.unique(rows)) < 100


@pytest.mark.parametrize("replacement", [False, True])
def test_every_row_is_drawn_equally_often(replacement):
    """Each of 20 rows is drawn in a fraction 1/20 of 20000 places: binomial, within 4.5 standard deviations."""
    draws = Draws(20, 3, replacement)
    counts = np.bincount(np.concatenate([draws.independent(5) for _ in range(4000)]), minlength=20)
    assert np.all(np.abs(counts - 1000) <= 4.5 * np.sqrt(20000 * 0.05 * 0.95))


def test_with_replacement_pairs_coincide_as_often_as_chance_says():
    draws = Draws(20, 4, replacement=True)
    same = np.mean([a == b for a, b in (draws.independent(2) for _ in range(4000))])
    assert abs(same - 0.05) <= 4.5 * np.sqrt(0.05 * 0.95 / 4000)


def test_beginnings_are_nested_and_in_the_end_all_rows():
    draws = Draws(50, 1)
    small, large = draws.beginning(10), draws.beginning(30)
    assert len(np.unique(large)) == len(large) == 30
    np.testing.assert_array_equal(large[:10], small)
    np.testing.assert_array_equal(draws.order[:30], large)
    np.testing.assert_array_equal(np.sort(draws.order), np.arange(50))
    assert draws.beginning(50) is None
    assert draws.beginning(51) is None


def test_the_first_row_of_the_order_is_any_row():
    first = np.bincount([Draws(10, seed).beginning(1)[0] for seed in range(2000)], minlength=10)
    assert np.all(np.abs(first - 200) <= 4.5 * np.sqrt(2000 * 0.1 * 0.9))


@pytest.mark.parametrize("replacement", [False, True])
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(replacement):
    def sequence(seed):
        draws = Draws(1000, seed, replacement)
        return np.concatenate([draws.beginning(50), *(draws.independent(50) for _ in range(3))])

    np.testing.assert_array_equal(sequence(5), sequence(5))
    for other in (6, 7, 8):
        assert np.mean(sequence(5) == sequence(other)) < 0.1


def test_draws_one_after_the_other_differ_and_do_not_touch_the_order():
    draws = Draws(1000, 5)
    before = draws.beginning(100).copy()
    first, second = draws.independent(100), draws.independent(100)
    assert np.mean(first == second) < 0.1
    np.testing.assert_array_equal(draws.beginning(100), before)
    np.testing.assert_array_equal(Draws(1000, 5).independent(100), first)  # whether or not the order was looked at
