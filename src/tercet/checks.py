"""Is a value what a setting or an array has to be? Each check gives it back, or raises a ValueError that names it.

What only looks like a number is refused and not converted: a truth value, a numeric string, a masked entry.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from math import inf, nan
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# settings -------------------------------------------------------------------------------------------------------------


def number(value: Any) -> float:
    """A real number as a float; nan for anything else: a truth value too, and a whole number beyond float64."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond float64
        return nan


def positive(call: str, name: str, value: Any, most: float = inf) -> float:
    """A positive finite number that is not above `most`, or a ValueError that names it."""
    if not (0 < number(value) < inf and number(value) <= most):
        bound = "" if most == inf else f" that is at most {most:g}"
        raise ValueError(f"{call}({name}={value!r}): {name} must be a positive finite number{bound}.")
    return float(value)


def above_one(call: str, name: str, value: Any, otherwise: str) -> float:
    """A finite number above 1, or a ValueError that says what would happen otherwise."""
    if not 1 < number(value) < inf:
        raise ValueError(f"{call}({name}={value!r}): {name} must be a finite number above 1, or {otherwise}.")
    return float(value)


def probability(call: str, name: str, value: Any) -> float:
    """A number strictly between 0 and 1, or a ValueError that names it."""
    if not 0 < number(value) < 1:
        raise ValueError(f"{call}({name}={value!r}): {name} is a probability strictly between 0 and 1.")
    return float(value)


def whole(call: str, name: str, value: Any, least: int = 1, most: float = inf) -> int:
    """A whole number from `least` to `most`, or a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bound = "" if most == inf else f" and at most {most:g}"
        raise ValueError(f"{call}({name}={value!r}): {name} must be a whole number that is at least {least}{bound}.")
    return int(value)


def flag(call: str, name: str, value: Any) -> bool:
    """True or False, or a ValueError that names it."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{call}({name}={value!r}): {name} is True or False.")
    return bool(value)


def three(value: Any) -> tuple[float, float, float]:
    """Three numbers; nan in place of what is none."""
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 3 else (nan,) * 3
    first, second, third = (number(part) for part in parts)
    return first, second, third


# arrays ---------------------------------------------------------------------------------------------------------------


def plain_array(values: Any) -> NDArray[Any]:
    """An array of real numbers of any dtype; ValueError for masked entries, text, complex numbers and other objects.

    An array of objects is taken entry by entry, so that None is refused and not nan, and "1" is no number.
    """
    refuse_masked(values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is not a rectangular array of numbers: {error}") from error
    if array.dtype.kind == "O":
        return of_objects(array)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"it has dtype {array.dtype}; give real numbers")
    return array


def refuse_masked(values: Any) -> None:
    """ValueError where an array, or one in a list of them, has masked entries, which NumPy would take as they are."""
    parts = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise ValueError("it has masked entries; fill or drop them first")


def of_objects(array: NDArray[Any]) -> NDArray[np.float64]:
    """Objects that are real numbers, as floats."""
    for entry in array.flat:
        scalar = isinstance(entry, np.ndarray) and entry.dtype.kind in "fiub"
        if not (scalar or isinstance(entry, Real | np.bool_)):
            raise ValueError(f"it has dtype object and holds a {type(entry).__name__}; give real numbers")
    try:
        return np.array([float(entry) for entry in array.flat], dtype=np.float64).reshape(array.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error)) from error


def valid_indices(X: Any) -> Any:
    """A SciPy sparse matrix whose indices were seen to lie within it; ValueError for any other.

    Compiled loops do not look where an index points, so this comes before any of them. The arrays are those that were
    given under a new head: what SciPy remembers of the order of the indices may no longer be true.
    """
    try:
        if X.format in ("csr", "csc", "bsr"):
            if any(index.dtype.kind not in "iu" for index in (X.indices, X.indptr)):
                raise ValueError("its indices are not whole numbers")
            if np.any(np.diff(X.indptr.astype(np.int64)) < 0):  # unseen by SciPy where the last one is 0 or less
                raise ValueError("its indptr falls")
            X = type(X)((X.data, X.indices, X.indptr), shape=X.shape, copy=False)
            X.check_format(full_check=True)
        elif X.format == "coo":
            X = type(X)((X.data, X.coords), shape=X.shape, copy=False)
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"it is not a valid sparse matrix: {error}") from error
    return X


def sparse_matrix(X: Any) -> Any:
    """A SciPy sparse matrix of real numbers as a CSR array with sorted columns and none twice; ValueError otherwise."""
    import scipy.sparse as sp

    if X.ndim != 2:
        raise ValueError(f"it has {X.ndim} axes; give a table of rows and columns")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"it holds {X.dtype}; give real numbers")
    A = valid_indices(sp.csr_array(valid_indices(X))).astype(np.float64, copy=False)
    if not A.has_canonical_format:
        A = A.copy()  # the user's own is not rearranged
        A.sum_duplicates()
    return A


# files and memory -----------------------------------------------------------------------------------------------------

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """What lies there, in words, where it is no regular file; None where it is one, or nothing is there."""
    try:
        mode = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return None
    return None if mode == stat.S_IFREG else KINDS.get(mode, "no regular file")


def leading_orders(call: str, orders: Any) -> tuple[int, ...]:
    """The orders of a Taylor polynomial: (1,), (1, 2) or (1, 2, 3)."""
    good = isinstance(orders, tuple | list) and all(type(each) is int for each in orders)
    if not good or sorted(orders) not in ([1], [1, 2], [1, 2, 3]):
        raise ValueError(f"{call}(orders={orders!r}): give (1,), (1, 2) or (1, 2, 3): no order without those below it.")
    return tuple(sorted(orders))


def regular_file(call: str, path: str | os.PathLike[str]) -> Path:
    """A path whose file can be read whole: reading a FIFO may never begin, and reading a device never end."""
    kind = kind_of_file(path)
    if kind is not None:
        raise ValueError(f"{call}({str(path)!r}): this is {kind}; name a regular file.")
    return Path(path)


def open_data(call: str, path: str | os.PathLike[str]) -> io.FileIO:
    """A file of data, open without a buffer; a pipe too, if somebody writes to it: to open another would never end."""
    if kind_of_file(path) != "a FIFO":
        return io.FileIO(regular_file(call, path))
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    if not pipe_has_writer(path, file.fileno()):
        file.close()
        raise ValueError(f"{call}({str(path)!r}): this is a FIFO that nobody writes to; name a regular file.")
    os.set_blocking(file.fileno(), True)
    return file


def pipe_has_writer(path: str | os.PathLike[str], descriptor: int) -> bool:
    """Whether a pipe that was opened without blocking holds data, or somebody may still write some."""
    import select

    # A pipe says that it was hung up only after somebody has written; so we are that somebody, for a moment.
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    events = select.poll()
    events.register(descriptor, select.POLLIN)
    found = sum(flags for _, flags in events.poll(0))
    return bool(found & select.POLLIN) or not found & select.POLLHUP


def memory() -> int:
    """Bytes of memory in this machine; a terabyte where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40
