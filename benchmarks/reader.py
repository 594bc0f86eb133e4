"""The LIBSVM reader against scikit-learn's, on covtype as plain text: equal to the last bit, and how much faster?

    python -m benchmarks.reader [--runs 5]

Both read the same uncompressed copy, in turn, in one process; the first call, which compiles or loads the kernel, is
not counted. The copy lies in a temporary directory.
"""

from __future__ import annotations

import argparse
import bz2
import io
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import load_svmlight_file

import tercet
from benchmarks.data import FILES, folder
from tercet.datasets import load_libsvm


def unpacked_covtype(directory: str) -> Path:
    """The covtype file as plain text in the directory."""
    name, _ = FILES["covtype"]
    source, target = folder() / name, Path(directory) / "covtype"
    if not source.exists():
        raise SystemExit(f"{source} is not there; set TERCET_DATA to a folder with the LIBSVM file {name}.")
    with bz2.open(source) as packed, open(target, "wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 22)
    return target


def differences(ours: tuple[Any, np.ndarray], theirs: tuple[Any, np.ndarray]) -> list[str]:
    """The names of the arrays that are not equal bit for bit."""
    (X, y), (A, b) = ours, theirs
    pairs = {
        "labels": (y.view(np.int64), b.view(np.int64)),
        "values": (X.data.view(np.int64), A.data.view(np.int64)),
        "indices": (X.indices, A.indices),
        "row starts": (X.indptr, A.indptr),
    }
    return [name for name, (one, other) in pairs.items() if not np.array_equal(one, other)]


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that the action took, and its result."""
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def main() -> None:
    """Time both in turn and print the medians, their ratio, and whether the data are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    load_libsvm(io.BytesIO(b"1 1:1\n"))
    seconds = []
    with tempfile.TemporaryDirectory() as directory:
        path = unpacked_covtype(directory)
        for _ in range(runs):
            mine, ours = timed(lambda: load_libsvm(path))
            other, theirs = timed(lambda: load_svmlight_file(str(path), zero_based=False))
            seconds.append((mine, other))
        size = path.stat().st_size / 1e6
    mine, other = np.median(seconds, axis=0)
    ratio = np.median([b / a for a, b in seconds])
    wrong = differences(ours, theirs)
    print(f"covtype, {size:.1f} MB of text, {ours[0].shape[0]} rows, {ours[0].nnz} entries; medians of {runs} runs")
    print(f"tercet {tercet.__version__:<12}{mine:8.3f} s {size / mine:8.1f} MB/s")
    print(f"scikit-learn {sklearn.__version__:<6}{other:8.3f} s {size / other:8.1f} MB/s")
    print(f"ratio {ratio:.2f} (at least 3 wanted); {'equal to the last bit' if not wrong else f'different: {wrong}'}")
    raise SystemExit(1 if wrong or ratio < 3 else 0)


if __name__ == "__main__":
    main()
