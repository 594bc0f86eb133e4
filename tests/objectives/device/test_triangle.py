"""What can be told of the kernel without a device; its products are compared in test_cuda."""

import pytest

from tercet.objectives.device import triangle

EVERY = range(1, triangle.MOST + 1)
SHARED = 227 * 1024  # bytes that a block may have on a device of this kind


def test_lanes_of_a_half_warp_read_from_banks_of_their_own():
    for d in EVERY:
        stride = triangle.stride_of(d)
        assert stride >= d
        banks = {(t * stride + g) % 16 for t in range(4) for g in range(4)}
        assert len(banks) == 16


def test_a_stage_holds_what_tiles_read_and_all_stages_fit():
    for d in EVERY:
        read = (triangle.ROWS - 1) * triangle.stride_of(d) + 8 * -(-d // 8)  # of the last row, to the end of its tiles
        assert read <= triangle.ROWS * triangle.stride_of(d) + 8
        assert triangle.shared_of(d) <= SHARED


@pytest.mark.parametrize("m", [1, 63, 64, 65, 8192, 1_000_003])
@pytest.mark.parametrize("parts", [1, 7, 132])
def test_parts_cover_the_rows(m, parts):
    share = triangle.shares_of(m, parts)
    assert share % triangle.ROWS == 0
    assert share * parts >= m > share * parts - parts * triangle.ROWS


def test_pairs_are_fetched_only_where_they_lie_on_sixteen_bytes():
    assert triangle.wide_of(100, 100, 1, 4096) == 2
    for other in ((99, 100, 1, 4096), (100, 101, 1, 4096), (100, 100, 2, 4096), (100, 100, 1, 4104)):
        assert triangle.wide_of(*other) == 1


def test_the_source_is_that_of_its_size():
    source = triangle.source_of(100, 2)
    assert "#define N 13\n" in source
    assert "#define STRIDE 100\n" in source
