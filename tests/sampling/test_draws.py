"""Draws: beginnings of one shuffled order, and a stream of independent samples with and without repeats."""

from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest

from tercet.sampling.draws import Shuffle, Stream


def drawn(n, seed, m, times, replacement=False):
    """Samples one after the other."""
    stream, samples = Stream.of(seed), []
    for _ in range(times):
        rows, stream = stream.draw(n, m, replacement)
        samples.append(rows)
    return samples


# independent samples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 7, 99])
def test_without_replacement_no_row_comes_twice(m):
    for rows in drawn(100, 0, m, 20):
        assert len(rows) == len(np.unique(rows)) == m
        assert rows.min() >= 0
        assert rows.max() < 100
        assert rows.dtype == np.intp


@pytest.mark.parametrize("m", [100, 250])
def test_without_replacement_all_rows_are_all_rows_and_take_nothing_from_the_stream(m):
    stream = Stream.of(0)
    assert stream.draw(100, m) == (None, stream)


def test_with_replacement_the_full_size_is_still_a_draw():
    (rows,) = drawn(100, 0, 100, 1, replacement=True)
    assert rows.shape == (100,)
    assert len(np.unique(rows)) < 100


@pytest.mark.parametrize("replacement", [False, True])
def test_every_row_is_drawn_equally_often(replacement):
    """Each of 20 rows is drawn in a fraction 1/20 of 20000 places: binomial, within 4.5 standard deviations."""
    counts = np.bincount(np.concatenate(drawn(20, 3, 5, 4000, replacement)), minlength=20)
    assert np.all(np.abs(counts - 1000) <= 4.5 * np.sqrt(20000 * 0.05 * 0.95))


def test_with_replacement_pairs_coincide_as_often_as_chance_says():
    same = np.mean([a == b for a, b in drawn(20, 4, 2, 4000, replacement=True)])
    assert abs(same - 0.05) <= 4.5 * np.sqrt(0.05 * 0.95 / 4000)


def test_draws_one_after_the_other_differ():
    first, second = drawn(1000, 5, 100, 2)
    assert np.mean(first == second) < 0.1


def test_a_stream_is_a_place_in_a_sequence_that_can_be_gone_on_from_again():
    stream = Stream.of(5)
    first, after = stream.draw(1000, 50)
    second, _ = after.draw(1000, 50)
    np.testing.assert_array_equal(stream.draw(1000, 50)[0], first)
    np.testing.assert_array_equal(after.draw(1000, 50)[0], second)
    np.testing.assert_array_equal(Stream(after.state).draw(1000, 50)[0], second)  # as a checkpoint keeps it
    with pytest.raises(FrozenInstanceError):
        stream.state = after.state


# the shuffled order -------------------------------------------------------------------------------------------------


def test_beginnings_are_nested_and_in_the_end_all_rows():
    shuffle = Shuffle(50, 1)
    small, large = shuffle.beginning(10), shuffle.beginning(30)
    assert len(np.unique(large)) == len(large) == 30
    np.testing.assert_array_equal(large[:10], small)
    np.testing.assert_array_equal(shuffle.order[:30], large)
    shuffle.beginning(49)
    np.testing.assert_array_equal(np.sort(shuffle.order), np.arange(50))
    assert shuffle.beginning(50) is None
    assert shuffle.beginning(51) is None


@pytest.mark.parametrize("n", [1, 2, 5000, 60_000])
def test_the_order_is_made_as_far_as_it_is_asked_for_and_holds_each_row_once(n):
    shuffle = Shuffle(n, 2)
    assert len(shuffle.order) == 0
    before = shuffle.order
    for m in sorted({1, n // 20, n // 7, n // 2, n - 1} - {0, n}):
        rows = shuffle.beginning(m)
        assert len(rows) == m
        assert len(np.unique(shuffle.order)) == len(shuffle.order) <= n
        np.testing.assert_array_equal(shuffle.order[: len(before)], before)
        before = shuffle.order
    if n > 1:
        np.testing.assert_array_equal(np.sort(shuffle.order), np.arange(n))
    assert shuffle.beginning(n) is None


def test_a_small_beginning_of_many_rows_draws_few():
    shuffle = Shuffle(10**6, 3)
    shuffle.beginning(100)
    assert len(shuffle.order) <= 4096
    assert shuffle.order.dtype == np.int32


@pytest.mark.parametrize("m", [500, 4000, 20_000])
def test_resting_between_two_beginnings_changes_nothing(m):
    one, other = Shuffle(60_000, 4), Shuffle(60_000, 4)
    one.beginning(m)
    other.beginning(m)
    other.rest()
    np.testing.assert_array_equal(one.beginning(50_000), other.beginning(50_000))


def test_each_extension_at_least_begins_to_double_the_order():
    shuffle, lengths = Shuffle(10**6, 5), []
    while len(shuffle.order) < 10**6:
        shuffle.extend()
        lengths.append(len(shuffle.order))
    assert all(later > 1.5 * earlier for earlier, later in pairwise(lengths))
    np.testing.assert_array_equal(np.sort(shuffle.order), np.arange(10**6))


def test_the_first_row_of_the_order_is_any_row():
    first = np.bincount([Shuffle(10, seed).beginning(1)[0] for seed in range(2000)], minlength=10)
    assert np.all(np.abs(first - 200) <= 4.5 * np.sqrt(2000 * 0.1 * 0.9))


def test_a_beginning_is_any_set_of_rows():
    """Each of 9000 rows is among the first 1000 of 400 orders in a ninth of them: within 5 standard deviations."""
    counts = np.zeros(9000)
    for seed in range(400):
        counts[Shuffle(9000, seed).beginning(1000)] += 1
    assert np.all(np.abs(counts - 400 / 9) <= 5 * np.sqrt(400 * (1 / 9) * (8 / 9)))


# seeds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [False, True])
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(replacement):
    def sequence(seed):
        return np.concatenate([Shuffle(1000, seed).beginning(50), *drawn(1000, seed, 50, 3, replacement)])

    np.testing.assert_array_equal(sequence(5), sequence(5))
    for other in (6, 7, 8):
        assert np.mean(sequence(5) == sequence(other)) < 0.1


def test_the_order_and_the_draws_of_one_seed_have_nothing_in_common():
    """Drawing leaves the order as it is, and the other way round: they are two streams."""
    shuffle = Shuffle(1000, 5)
    before = shuffle.beginning(100).copy()
    (first,) = drawn(1000, 5, 100, 1)
    np.testing.assert_array_equal(shuffle.beginning(100), before)
    assert np.mean(first == before) < 0.1
