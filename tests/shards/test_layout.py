"""Rows are numbered through, windows depend on the shape alone, and a room is used again."""

import itertools

import numpy as np

from tercet.shards.layout import Extent, Layout, Room, windows


def test_rows_are_numbered_through():
    layout = Layout(tuple(Extent(rows, 3, "<f8", False, False, 24 * rows) for rows in (5, 1, 4)))
    assert layout.starts.tolist() == [0, 5, 6, 10]
    assert [layout.where(row) for row in (0, 4, 5, 6, 9)] == [(0, 0), (0, 4), (1, 0), (2, 0), (2, 3)]
    assert (layout.n, layout.columns, layout.bytes, layout.row_bytes) == (10, 3, 240, 40)


def test_windows_cover_all_rows_once():
    for rows, columns in ((1, 1), (63, 5), (1000, 5000), (300_000, 10)):
        cuts = list(windows(rows, columns))
        assert cuts[0][0] == 0
        assert cuts[-1][1] == rows
        assert all(one[1] == other[0] for one, other in itertools.pairwise(cuts))
        assert max(b - a for a, b in cuts) <= max(64, (1 << 21) // (8 * columns))


def test_a_room_is_used_again_by_name_and_grows():
    room = Room()
    first, other = room.array("X", (3, 5), np.float64), room.array("y", (3,), np.float32)
    first[:], other[:] = 1.0, 2.0
    assert not np.shares_memory(first, other)
    assert (first.shape, other.dtype) == ((3, 5), np.float32)
    assert np.shares_memory(room.array("X", (2, 5), np.float64), first)
    assert room.array("X", (30, 5), np.float64).shape == (30, 5)
    assert np.all(other == 2.0)
