"""The order by keys: the same for every cut into shards, nested, and uniform."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tercet.shards.keys import below, by_key, keys, threshold


@given(st.integers(0, 2**32), st.integers(0, 500), st.integers(0, 500), st.integers(0, 10**12))
def test_a_key_depends_on_the_seed_and_the_row_alone(seed, a, b, far):
    start, stop = sorted((a, b))
    np.testing.assert_array_equal(keys(seed, start, stop), keys(seed, 0, 500)[start:stop])
    np.testing.assert_array_equal(keys(seed, far + start, far + stop), keys(seed, far, far + 500)[start:stop])


def test_seeds_and_rows_give_other_keys():
    assert len(np.unique(keys(0, 0, 10_000))) == 10_000
    assert not np.any(keys(0, 0, 1000) == keys(1, 0, 1000))


def test_samples_are_nested_and_the_rows_below_a_threshold_have_them():
    n, each = 20_000, keys(3, 0, 20_000)
    order = by_key(np.arange(n), each)
    for m in (1, 10, 500, 5000):
        rows, own = below(3, 0, n, threshold(m, n))
        assert m <= len(rows) <= m + 12 * np.sqrt(m) + 80
        np.testing.assert_array_equal(rows[by_key(rows, own)][:m], order[:m])
    rows, _ = below(3, 0, n, threshold(n, n))
    assert len(rows) == n


def test_every_row_is_as_likely_as_the_others():
    """Of 400 samples of 50 of 200 rows each row is in a quarter, within five standard deviations."""
    counts = np.zeros(200)
    for seed in range(400):
        counts[by_key(np.arange(200), keys(seed, 0, 200))[:50]] += 1
    assert np.all(np.abs(counts - 100) <= 5 * np.sqrt(400 * 0.25 * 0.75))
