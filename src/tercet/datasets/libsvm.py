"""The LIBSVM text format, read exactly, in blocks, and strictly.

A line is `label [qid:N] index:value index:value ... [# comment]` with indices that start at 1 and increase. What is
not of this form is refused with the file and the line; nothing is guessed or skipped.

Each block of text is cut after its last white space, so that a compiled scan sees only whole words. The scan stores
the numbers that one correctly rounded division or product gives exactly; the few others go through Python's float.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, Literal, Protocol, TypeAlias, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BLOCK = 1 << 22  # bytes of text that are scanned at once
LONGEST_WORD = 1 << 20  # bytes; words up to here are always read, longer ones may be refused to bound the memory
LARGEST_INDEX = 2**31 - 2
NARROW = 2**31 - 1  # entries up to which X has int32 indices
XZ_MEMORY = 1 << 29  # bytes that the dictionary of an xz archive may take
SLOW = 1 << 14  # numbers left to Python's float in one call of the scan, at most

Source: TypeAlias = str | os.PathLike[str] | IO[bytes] | IO[str]

# 10^22 is the last power of ten that float64 holds exactly; a vectorized power may be off in the last bit
EXACT_POWERS = np.array([float(10**k) for k in range(23)])
AT_LABEL, AT_ITEM, IN_COMMENT = 0, 1, 2
# The state of the scan between two calls: the next byte, lines ended, rows, entries, where in a line, the last index of
# the row (-1 where qid may still come), numbers left to Python.
POSITION, LINES, ROWS, ENTRIES, PLACE, LAST, LEFT = range(7)
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
    an open file. `n_features` fixes the number of columns; without it X has as many as the largest index.
    Entries that are written as 0 are stored. With `binary_labels` y is 0 for the smaller and 1 for the larger of two
    label values, and the third value is the map {label in the file: 0 or 1}.

    Raises ValueError `file:line: what was found, what was expected` for anything that is not of the format.
    Memory: the result, an eighth of it for growth, and a constant.
    """
    largest, remedy = _largest_index(n_features)
    where = _Where(_name(path_or_file))
    with _opened(path_or_file) as file:
        table = _Table(largest, remedy)
        for text in _words(_unpacked(_chunks(file, where), where), where):
            table.add(text, where)
    X, y = table.result(n_features, where)
    return (X, *_binary(y, where.name)) if binary_labels else (X, y)


# --- arguments and errors


@dataclass
class _Where:
    """The file and the line that is read now."""

    name: str
    line: int = 1

    def error(self, text: str) -> ValueError:
        """The refusal of this line."""
        return ValueError(f"{self.name}:{self.line}: {text}.")


def _largest_index(n_features: int | None) -> tuple[int, str]:
    """The largest index to accept, and the words that explain it."""
    if n_features is None:
        most = _memory() // 8
        if most < LARGEST_INDEX:
            remedy = "as a vector of more features does not fit into the memory here; pass n_features to allow it"
            return most, f"at most {most}, {remedy}"
        return LARGEST_INDEX, f"at most {LARGEST_INDEX} (2^31 - 2)"
    if isinstance(n_features, bool) or not isinstance(n_features, int | np.integer):
        raise TypeError(f"load_libsvm(n_features={n_features!r}): n_features must be an integer or None.")
    if not 1 <= n_features <= LARGEST_INDEX:
        raise ValueError(f"load_libsvm(n_features={n_features}): n_features must be from 1 to {LARGEST_INDEX}.")
    return int(n_features), f"at most n_features={n_features}"


def _memory() -> int:
    """Bytes of memory in this machine, or more than any index needs where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * LARGEST_INDEX


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
    return open(source, "rb", buffering=0) if isinstance(source, str | os.PathLike) else nullcontext(source)


# --- from the file to blocks of whole words


def _chunks(file: Any, where: _Where) -> Iterator[bytes]:
    """The bytes of a file as it gives them; text is taken as UTF-8."""
    while chunk := _read(file, where):
        yield chunk.encode("utf-8", "backslashreplace") if isinstance(chunk, str) else chunk


def _read(file: Any, where: _Where) -> bytes | str:
    """The next part of an open file, empty at its end."""
    try:
        chunk = file.read(BLOCK)
    except UnicodeDecodeError as error:
        raise where.error(f"found bytes that are no text ({error}), expected text or a binary file object") from error
    if not isinstance(chunk, bytes | str):
        raise TypeError(f"load_libsvm({where.name}): read() gave {type(chunk).__name__}, expected bytes or str.")
    return chunk


class _Unpacker(Protocol):
    """What bz2 and lzma offer for one stream of an archive, and _Gzip for gzip."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """One gzip stream, checksum included, in the manner of bz2 and lzma."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


ARCHIVES: list[tuple[bytes, str, Callable[[], _Unpacker]]] = [
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)),
]


def _unpacked(chunks: Iterator[bytes], where: _Where) -> Iterator[bytes]:
    """The plain text of the chunks, unpacked where they begin as an archive does."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= 6:
            break
    for magic, kind, make in ARCHIVES:
        if first.startswith(magic):
            yield from _streams(first, chunks, kind, make, where)
            return
    yield first
    yield from chunks


def _streams(
    data: bytes, chunks: Iterator[bytes], kind: str, make: Callable[[], _Unpacker], where: _Where
) -> Iterator[bytes]:
    """The text of all streams of an archive, one after the other, in pieces of at most a block."""
    stream = make()
    while True:
        try:
            text = stream.decompress(data, BLOCK)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise where.error(f"found damaged {kind} data ({error}), expected an intact {kind} archive") from error
        if text:
            yield text
        data = b""
        if stream.eof:
            # archives may be padded with zero bytes between their streams and at their end
            data = stream.unused_data.lstrip(b"\0")
            while not data:
                if (chunk := next(chunks, None)) is None:
                    return
                data = chunk.lstrip(b"\0")
            stream = make()
        elif stream.needs_input and not text:
            if (chunk := next(chunks, None)) is None:
                raise where.error(f"found the end of a truncated {kind} archive, expected more data")
            data = chunk


def _words(chunks: Iterator[bytes], where: _Where) -> Iterator[bytes]:
    """The text in pieces that end with white space; the last one ends with a line."""
    rest = b""
    for chunk in chunks:
        cut = 1 + max(chunk.rfind(b"\n"), chunk.rfind(b" "), chunk.rfind(b"\t"))
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
        if len(rest) > LONGEST_WORD:
            raise where.error(f"found {_quoted(rest)} of more than {LONGEST_WORD} bytes, expected shorter words")
    if rest:
        yield rest + b"\n"


# --- from text to numbers


class _Table:
    """The rows read so far, in arrays that grow in place."""

    def __init__(self, largest: int, remedy: str) -> None:
        self.largest, self.remedy = largest, remedy
        self.labels, self.values = np.empty(0), np.empty(0)
        self.counts, self.columns = np.zeros(1, np.int32), np.empty(0, np.int32)  # counts[i]: entries of row i - 1
        self.left = np.empty((SLOW, 3), np.int64)
        self.state = np.zeros(7, np.int64)

    def add(self, text: bytes, where: _Where) -> None:
        """Append the rows of a text that ends with white space."""
        self._grow(len(text))
        state, scan, begin = self.state, _compiled(), where.line
        state[POSITION] = 0
        array, arrays = np.frombuffer(text, np.uint8), (self.labels, self.counts, self.columns, self.values, self.left)
        while state[POSITION] < len(text):
            good = scan(array, self.largest, state, *arrays)
            where.line = begin
            self._finish(text, where)
            where.line = 1 + int(state[LINES])
            if not good:
                raise where.error(self._complaint(text[state[POSITION] :]))

    def _finish(self, text: bytes, where: _Where) -> None:
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

    def result(self, n_features: int | None, where: _Where) -> tuple[Any, NDArray[np.float64]]:
        """X and y; no array is copied unless X has 2^31 entries or more."""
        rows, entries = int(self.state[ROWS]), int(self.state[ENTRIES])
        if rows == 0:
            found = "an empty file" if self.state[LINES] == 0 else "only blank lines and comments"
            where.line = max(1, int(self.state[LINES]))
            raise where.error(f"found {found}, expected at least one line `label index:value ...`")
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


# --- the compiled scan; Numba sees the functions below, so they use its part of Python only


@cache
def _compiled() -> Callable[..., bool]:
    """The scan as machine code. Numba is imported here and not before, because that takes a while."""
    import numba
    from numba.extending import register_jitable

    for helper in (_decimal, _index, _qid_end, _ends_word):
        register_jitable(helper)
    return numba.njit(cache=True, nogil=True)(_scan)


def _decimal(text: Any, i: int) -> tuple[int, bool, float]:
    """The end of the decimal number that starts at i (or i, if there is none), whether its value is exact, the value.

    A whole number up to 2^53, times or divided by a power of ten up to 10^22, is rounded once and therefore exact.
    """
    begin, negative = i, text[i] == 45
    if negative or text[i] == 43:
        i += 1
    mantissa, significant, digits, power = np.uint64(0), 0, 0, 0
    fraction = False
    while True:
        digit = np.uint8(text[i] - np.uint8(48))
        if digit < 10:
            digits += 1
            power -= fraction
            if significant > 0 or digit > 0:
                significant += 1
            mantissa = mantissa * np.uint64(10) + np.uint64(digit)
        elif text[i] == 46 and not fraction:
            fraction = True
        else:
            break
        i += 1
    if digits == 0:
        return begin, False, 0.0
    if text[i] == 101 or text[i] == 69:
        i += 1
        minus = text[i] == 45
        if minus or text[i] == 43:
            i += 1
        start, exponent = i, 0
        while 48 <= text[i] <= 57:
            exponent = min(10 * exponent + text[i] - 48, 10**9)
            i += 1
        if i == start:
            return begin, False, 0.0
        power += -exponent if minus else exponent
    exact, value = significant <= 19 and bool(mantissa <= np.uint64(2**53)) and -22 <= power <= 22, 0.0
    if exact:
        value = float(mantissa)
        value = value / EXACT_POWERS[-power] if power < 0 else value * EXACT_POWERS[power]
    return i, exact, -value if negative else value


def _index(text: Any, i: int, largest: int) -> tuple[int, int]:
    """The end of the whole number that starts at i, and its value or `largest + 1`, whichever is less."""
    value = 0
    while 48 <= text[i] <= 57:
        value = min(10 * value + text[i] - 48, largest + 1)
        i += 1
    return i, value


def _qid_end(text: Any, i: int) -> int:
    """The end of the `qid:` with an integer that starts at i, or i, if there is none."""
    begin = i
    for c in (113, 105, 100, 58):
        if text[i] != c:
            return begin
        i += 1
    if text[i] == 45 or text[i] == 43:
        i += 1
    start = i
    while 48 <= text[i] <= 57:
        i += 1
    return i if i > start else begin


def _ends_word(c: int) -> bool:
    """Whether a byte is white space, the end of a line, or the beginning of a comment."""
    return c == 32 or c == 9 or c == 10 or c == 13 or c == 35


def _scan(text: Any, largest: int, state: Any, labels: Any, counts: Any, columns: Any, values: Any, left: Any) -> bool:
    """Read words from state[POSITION] until the text or the room for numbers left to Python ends; False at a bad word.

    The text ends with white space, so that no word runs past its end. A bad word is where state[POSITION] points.
    """
    i, lines, rows, entries = state[POSITION], state[LINES], state[ROWS], state[ENTRIES]
    place, last = state[PLACE], state[LAST]
    waiting, counted, good = 0, entries, True
    while i < len(text) and waiting < len(left):
        c = text[i]
        if c == 32 or c == 9:
            i += 1
            continue
        if c == 10:
            if place != AT_LABEL and rows > 0:
                counts[rows] += entries - counted
                counted = entries
            lines += 1
            place = AT_LABEL
            i += 1
            continue
        if c == 13 and text[i + 1] == 10:
            i += 1
            continue
        if place == IN_COMMENT:
            if c == 0 or c == 13:
                good = False
                break
            i += 1
            continue
        if c == 35:
            place = IN_COMMENT
            i += 1
            continue
        begin, index = i, 0
        if place == AT_ITEM:
            if last == -1 and c == 113:
                i = _qid_end(text, i)
                if i == begin or not _ends_word(text[i]):
                    i, good = begin, False
                    break
                last = 0
                continue
            i, index = _index(text, i, largest)
            if text[i] != 58 or index <= max(last, 0) or index > largest:
                i, good = begin, False
                break
            i += 1
        start = i
        i, exact, value = _decimal(text, start)
        if i == start or not _ends_word(text[i]):
            i, good = begin, False
            break
        if not exact:
            left[waiting, 0], left[waiting, 1] = start, i
            left[waiting, 2] = entries if place == AT_ITEM else ~rows
            waiting += 1
        if place == AT_ITEM:
            columns[entries] = index - 1
            values[entries] = value
            entries += 1
            last = index
        else:
            labels[rows] = value
            rows += 1
            counts[rows] = 0
            place, last = AT_ITEM, -1
    if rows > 0:
        counts[rows] += entries - counted
    state[POSITION], state[LINES], state[ROWS], state[ENTRIES] = i, lines, rows, entries
    state[PLACE], state[LAST], state[LEFT] = place, last, waiting
    return good
