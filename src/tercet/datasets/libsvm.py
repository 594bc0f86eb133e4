"""The LIBSVM text format, read exactly, in blocks, and strictly.

A line is `label [qid:N] index:value index:value ... [# comment]` with indices that start at 1 and increase. What is
not of this form is refused with the file and the line; nothing is guessed or skipped.

Each block of text is cut after its last white space, so that a compiled scan sees only whole words. The scan stores
the numbers that one correctly rounded division or product gives exactly; the few others go through Python's float.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import IO, Any, Literal, TypeAlias, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.checks import open_data
from tercet.datasets.scan import (
    AT_LABEL,
    ENTRIES,
    LAST,
    LEFT,
    LINES,
    PLACE,
    POSITION,
    ROWS,
    WIDEST,
    WIDEST_LINE,
    compiled_scan,
)
from tercet.datasets.unpack import Where, chunks_of, unpacked

LONGEST_WORD = 1 << 20  # bytes; words up to here are always read, longer ones may be refused to bound the memory
LARGEST_INDEX = 2**31 - 2
WIDE = 2**22  # so many features are always taken; more where the text has as many bytes
NARROW = 2**31 - 1  # entries up to which X has int32 indices
SLOW = 1 << 14  # numbers left to Python's float in one call of the scan, at most

Source: TypeAlias = str | os.PathLike[str] | IO[bytes] | IO[str]

EXPECTED_ITEM = "expected index:value with index 1, 2, ... and a finite decimal value"


@overload
def load_libsvm(
    path_or_file: Source, n_features: int | None = None, *, binary_labels: Literal[False] = False
) -> tuple[Any, NDArray[np.float64]]: ...


@overload
def load_libsvm(
    path_or_file: Source, n_features: int | None = None, *, binary_labels: Literal[True]
) -> tuple[Any, NDArray[np.float64], dict[float, int]]: ...


def load_libsvm(path_or_file: Source, n_features: int | None = None, *, binary_labels: bool = False) -> Any:
    """X (CSR, float64) and y (float64) of a LIBSVM file; every number is what Python's float makes of its text.

    The file may be plain or packed with gzip, bzip2 or xz, which is seen from its first bytes, and may be a path or
    an open file. `n_features` fixes the number of columns; without it X has as many as the largest index, which is then
    at most 2^22 or the number of bytes of the text: one index of 10^9 would make vectors that dwarf the file.
    Entries that are written as 0 are stored. With `binary_labels` y is 0 for the smaller and 1 for the larger of two
    label values, and the third value is the map {label in the file: 0 or 1}.

    Raises ValueError `file:line: what was found, what was expected` for anything that is not of the format.
    Memory: the result, an eighth of it for growth, and a constant.
    """
    largest, remedy = _largest_index(n_features)
    where = Where(_name(path_or_file))
    with _opened(path_or_file) as file:
        table = _Table(largest, remedy)
        for text in _words(unpacked(chunks_of(file, where), where), where):
            table.add(text, where)
    X, y = table.result(n_features, where)
    return (X, *_binary(y, where.name)) if binary_labels else (X, y)


# --- arguments and errors


def _largest_index(n_features: int | None) -> tuple[int, str]:
    """The largest index to accept, and the words that explain it."""
    if n_features is None:
        return LARGEST_INDEX, f"at most {LARGEST_INDEX} (2^31 - 2)"
    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer):
        raise TypeError(f"load_libsvm(n_features={n_features!r}): n_features must be an integer or None.")
    if not 1 <= n_features <= LARGEST_INDEX:
        raise ValueError(f"load_libsvm(n_features={n_features}): n_features must be from 1 to {LARGEST_INDEX}.")
    return int(n_features), f"at most n_features={n_features}"


def _name(source: Source) -> str:
    """How the source is called in errors."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if not hasattr(source, "read"):
        raise TypeError(f"load_libsvm({source!r}): pass a path or an open file.")
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else "<stream>"


def _opened(source: Source) -> Any:
    """The source as a file in a `with`; a file that the caller opened stays open."""
    return open_data("load_libsvm", source) if isinstance(source, str | os.PathLike) else nullcontext(source)


# --- from the file to blocks of whole words


def _words(chunks: Iterator[bytes], where: Where) -> Iterator[bytes]:
    """The text in pieces that end with white space; the last one ends with a line."""
    rest, ended = b"", True
    for chunk in chunks:
        ended = chunk.endswith(b"\n") if chunk else ended
        cut = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b" "), chunk.rfind(b"\t"))
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
        if len(rest) > LONGEST_WORD:
            raise where.error(f"found {_quoted(rest)} of more than {LONGEST_WORD} bytes, expected shorter words")
    if not ended:  # also a last line of blanks counts
        yield rest + b"\n"


# --- from text to numbers


class _Table:
    """The rows read so far, in arrays that grow in place."""

    def __init__(self, largest: int, remedy: str) -> None:
        self.largest, self.remedy = largest, remedy
        self.labels, self.values = np.empty(0), np.empty(0)
        self.counts, self.columns = np.zeros(1, np.int32), np.empty(0, np.int32)  # counts[i]: entries of row i - 1
        self.left = np.empty((SLOW, 3), np.int64)
        self.state = np.zeros(9, np.int64)
        self.bytes = 0

    def add(self, text: bytes, where: Where) -> None:
        """Append the rows of a text that ends with white space."""
        self._grow(len(text))
        self.bytes += len(text)
        state, scan, begin = self.state, compiled_scan(), where.line
        state[POSITION] = 0
        array, arrays = np.frombuffer(text, np.uint8), (self.labels, self.counts, self.columns, self.values, self.left)
        while state[POSITION] < len(text):
            good = scan(array, self.largest, state, *arrays)
            where.line = begin
            self._finish(text, where)
            where.line = 1 + int(state[LINES])
            if not good:
                raise where.error(self._complaint(text[state[POSITION] :]))

    def _finish(self, text: bytes, where: Where) -> None:
        """Store the numbers that the scan left to Python; `where` is at the beginning of the text."""
        left = self.left[: self.state[LEFT]]
        numbers = np.array([float(text[start:end]) for start, end, _ in left.tolist()])
        finite = np.isfinite(numbers)
        if not finite.all():
            start, end = left[np.argmin(finite), :2].tolist()
            where.line += text.count(b"\n", 0, start)
            raise where.error(f"found {_quoted(text[start:end])}, expected a number within the range of float64")
        slots = left[:, 2]
        self.labels[~slots[slots < 0]] = numbers[slots < 0]
        self.values[slots[slots >= 0]] = numbers[slots >= 0]

    def _grow(self, size: int) -> None:
        """Room for what `size` bytes can hold: a row takes at least two of them, an entry four."""
        rows, entries = int(self.state[ROWS]), int(self.state[ENTRIES])
        for array, filled, more in (
            (self.labels, rows, size // 2 + 1),
            (self.counts, rows + 1, size // 2 + 1),
            (self.columns, entries, size // 4 + 1),
            (self.values, entries, size // 4 + 1),
        ):
            if array.size < filled + more:
                array.resize(max(filled + more, filled + filled // 8), refcheck=False)

    def _complaint(self, text: bytes) -> str:
        """What is wrong with the word that the text begins with."""
        place, last = self.state[PLACE], int(self.state[LAST])
        word = re.split(rb"[ \t\n\r#]", text, maxsplit=1)[0]
        if b"\0" in word:
            return "found a NUL byte, expected plain text"
        if text.startswith(b"\r"):
            return "found a carriage return within a line, expected lines that end with LF or CR LF"
        if place == AT_LABEL:
            return _label_complaint(word)
        return _item_complaint(word, last, self.largest, self.remedy)

    def _check_width(self, where: Where) -> None:
        """Refuse more columns than the text has bytes: a vector of so many numbers would dwarf the file."""
        widest, most = int(self.state[WIDEST]), max(WIDE, self.bytes)
        if widest > most:
            where.line = int(self.state[WIDEST_LINE])
            raise where.error(
                f"found the index {widest}, expected at most {most} in a file of {self.bytes} bytes, as vectors of so "
                "many features would dwarf it; correct the line, or pass n_features to allow it"
            )

    def result(self, n_features: int | None, where: Where) -> tuple[Any, NDArray[np.float64]]:
        """X and y; no array is copied unless X has 2^31 entries or more."""
        rows, entries = int(self.state[ROWS]), int(self.state[ENTRIES])
        if rows == 0:
            found = "an empty file" if self.state[LINES] == 0 else "only blank lines and comments"
            where.line = max(1, int(self.state[LINES]))
            raise where.error(f"found {found}, expected at least one line `label index:value ...`")
        if n_features is None:
            self._check_width(where)
        for array, filled in ((self.labels, rows), (self.counts, rows + 1), (self.columns, entries)):
            array.resize(filled, refcheck=False)
        self.values.resize(entries, refcheck=False)
        wide = entries > NARROW
        starts = np.cumsum(self.counts, dtype=np.int64) if wide else np.cumsum(self.counts, out=self.counts)
        columns = self.columns.astype(np.int64) if wide else self.columns
        d = int(n_features) if n_features is not None else int(columns.max(initial=-1)) + 1
        X = sp.csr_array((self.values, columns, starts), shape=(rows, d), copy=False)
        X.has_canonical_format = True  # indices increase strictly within each row
        return X, self.labels


class LibsvmRows:
    """Rows of LIBSVM text as they are read, for who does not want to keep them all."""

    def __init__(self, n_features: int | None) -> None:
        self.n_features, self.ended, self.rest = n_features, True, b""
        self.table = _Table(*_largest_index(n_features))
        self.found = 0

    def add(self, chunk: bytes, where: Where) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """The rows that a chunk of text completes."""
        self.ended = chunk.endswith(b"\n") if chunk else self.ended
        cut = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b" "), chunk.rfind(b"\t"))
        if cut:
            self.table.add(self.rest + chunk[:cut], where)
            self.rest = chunk[cut:]
            yield from self._taken()
        else:
            self.rest += chunk
        if len(self.rest) > LONGEST_WORD:
            raise where.error(f"found {_quoted(self.rest)} of more than {LONGEST_WORD} bytes, expected shorter words")

    def end(self, where: Where) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """The rows that the end of the text completes."""
        if not self.ended:
            self.table.add(self.rest + b"\n", where)
        yield from self._taken()
        if self.found == 0:
            raise where.error("found no row, expected at least one line `label index:value ...`")

    def columns(self, where: Where) -> int:
        """How many columns there are, once all was read."""
        if self.n_features is not None:
            return self.n_features
        self.table._check_width(where)
        return max(1, int(self.table.state[WIDEST]))

    def _taken(self) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """Rows that are complete, let go of by the table; one that is still being read stays."""
        table, state = self.table, self.table.state
        rows, entries = int(state[ROWS]), int(state[ENTRIES])
        kept = 0 if state[PLACE] == AT_LABEL else 1
        if rows <= kept:
            return
        whole = rows - kept
        starts = np.cumsum(table.counts[: whole + 1], dtype=np.int64)
        last, more = int(starts[-1]), entries - int(starts[-1])
        columns, values, labels = table.columns[:last].copy(), table.values[:last].copy(), table.labels[:whole].copy()
        if kept:
            table.labels[0], table.counts[1] = table.labels[rows - 1], more
            table.columns[:more], table.values[:more] = table.columns[last:entries], table.values[last:entries]
        table.counts[0], state[ROWS], state[ENTRIES] = 0, kept, more
        self.found += whole
        width = max(1, int(state[WIDEST])) if self.n_features is None else self.n_features
        X = sp.csr_array((values, columns, starts.astype(np.int32)), shape=(whole, width), copy=False)
        yield X, labels


def _quoted(word: bytes) -> str:
    """The beginning of a word, as it may be printed."""
    text = word[:40].decode("ascii", "backslashreplace")
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return f"'{shown}...'" if len(word) > 40 else f"'{shown}'"


def _label_complaint(word: bytes) -> str:
    """Why a word is no label."""
    if b":" in word:
        return f"found {_quoted(word)} without a label before it, expected the label first"
    return f"found {_quoted(word)} as the label, expected a finite decimal number"


def _item_complaint(word: bytes, last: int, largest: int, remedy: str) -> str:
    """Why a word is no index:value after the index `last`."""
    found = f"found {_quoted(word)}"
    if word.startswith(b"qid:"):
        if last != -1:
            return f"{found} after the first place, expected qid:N directly after the label"
        return f"{found}, expected qid:N with an integer N"
    index, colon, value = word.partition(b":")
    if not colon:
        return f"{found} without a colon, {EXPECTED_ITEM}"
    if not re.fullmatch(rb"-?\d+", index):
        return f"{found}, {EXPECTED_ITEM}"
    number = int(index.lstrip(b"-0")[:20] or b"0")  # 20 digits tell that an index is too large
    if number < 1 or index.startswith(b"-"):
        return f"found the index {_quoted(index)}, expected indices from 1"
    if number > largest:
        return f"found the index {_quoted(index)}, expected {remedy}"
    if number <= last:
        kind = "the repeated" if number == last else "the decreasing"
        return f"found {kind} index {number} after {last}, expected indices that increase within a line"
    if not value:
        return f"{found} without a value, {EXPECTED_ITEM}"
    return f"found {_quoted(value)} as the value of index {number}, expected a finite decimal number"


def _binary(y: NDArray[np.float64], name: str) -> tuple[NDArray[np.float64], dict[float, int]]:
    """y as 0 and 1, and the map from the two label values to them."""
    low, high = float(y.min()), float(y.max())
    larger = y == high
    if low == high or not np.all(larger | (y == low)):
        values = np.unique(y)
        some = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
        raise ValueError(f"{name}: found {len(values)} label value(s) ({some}), expected two with binary_labels=True.")
    return larger.astype(np.float64), {low: 0, high: 1}
