"""Files are paired by what their wildcards stand for, and what does not pair is refused by name."""

import numpy as np
import pytest

from tercet.shards.files import found, natural, paired


@pytest.fixture
def folder(tmp_path):
    for k in (1, 2, 10):
        for name in "Xy":
            np.save(tmp_path / f"{name}-{k}.npy", np.zeros(1))
        if k != 2:
            np.save(tmp_path / f"t-{k}.npy", np.zeros(1))
    return tmp_path


def test_numbers_are_ordered_as_numbers(folder):
    assert sorted(["a10", "a9", "a1b"], key=natural) == ["a1b", "a9", "a10"]
    assert [path.rsplit("-")[-1] for path in found("X", folder / "X-*.npy")] == ["1.npy", "2.npy", "10.npy"]


def test_patterns_pair_by_their_wildcards_and_lists_by_their_order(folder):
    for X, y in (("X-*.npy", "y-*.npy"), ("X-[0-9]*.npy", "y-[0-9]*.npy")):
        left, right = paired(str(folder / X), str(folder / y), "y")
        assert [path.replace("X-", "y-") for path in left] == right
    left, right = paired([folder / "X-2.npy"], [folder / "y-10.npy"], "y")
    assert (left[0][-7:], right[0][-8:]) == ("X-2.npy", "y-10.npy")


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("Z-*.npy", "y-*.npy", "no file matches"),
        ("*.npy", "y-*.npy", "overlap"),
        ("X-*.npy", "t-*.npy", "X-2.npy', but y has no file for '2'"),
        (["X-1.npy", "X-1.npy"], ["y-1.npy", "y-2.npy"], "appears twice"),
        (["X-1.npy", "X-2.npy"], ["y-1.npy"], "2 files of X and 1 of y"),
        (["X-3.npy"], ["y-1.npy"], "X-3.npy' is not there"),
    ],
)
def test_what_does_not_pair_is_refused_by_name(folder, X, y, message):
    def inside(pattern):
        return [folder / one for one in pattern] if isinstance(pattern, list) else str(folder / pattern)

    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        paired(inside(X), inside(y), "y")
