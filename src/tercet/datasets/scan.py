"""The compiled scan of LIBSVM text; Numba sees these functions, so they use its part of Python only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# 10^22 is the last power of ten that float64 holds exactly; a vectorized power may be off in the last bit
EXACT_POWERS = np.array([float(10**k) for k in range(23)])
AT_LABEL, AT_ITEM, IN_COMMENT = 0, 1, 2
# The state of the scan between two calls: the next byte, lines ended, rows, entries, where in a line, the last index of
# the row (-1 where qid may still come), numbers left to Python, the largest index so far and its line.
POSITION, LINES, ROWS, ENTRIES, PLACE, LAST, LEFT, WIDEST, WIDEST_LINE = range(9)
WORD, SKIPPED, LINE_END, COMMENT, BAD = range(5)  # what a character is, between words


@cache
def compiled_scan() -> Callable[..., bool]:
    """The scan as machine code. Numba is imported here and not before, because that takes a while."""
    import numba
    from numba.extending import register_jitable

    for helper in (_decimal, _index, _qid_end, _ends_word, _between, _item):
        register_jitable(helper)
    return numba.njit(cache=True, nogil=True)(scan)


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


def _item(text: Any, i: int, last: int, largest: int) -> tuple[int, int]:
    """Where the value of an item begins, and its index; the end and 0 for a qid; an index of -1 for a bad one."""
    begin = i
    if last == -1 and text[i] == 113:
        i = _qid_end(text, i)
        return i, -1 if i == begin or not _ends_word(text[i]) else 0
    i, index = _index(text, i, largest)
    if text[i] != 58 or index <= max(last, 0) or index > largest:
        return i, -1
    return i + 1, index


def _between(text: Any, i: int, place: int) -> int:
    """What the character at i is to the scan: the begin of a word, or one of those between words."""
    c = text[i]
    if c == 32 or c == 9 or (c == 13 and text[i + 1] == 10):
        return SKIPPED
    if c == 10:
        return LINE_END
    if place == IN_COMMENT:
        return BAD if c == 0 or c == 13 else SKIPPED
    return COMMENT if c == 35 else WORD


def scan(text: Any, largest: int, state: Any, labels: Any, counts: Any, columns: Any, values: Any, left: Any) -> bool:
    """Read words from state[POSITION] until the text or the room for numbers left to Python ends; False at a bad word,
    to which state[POSITION] then points. The text ends with white space, so that no word runs past its end."""
    i, lines, rows, entries = state[POSITION], state[LINES], state[ROWS], state[ENTRIES]
    place, last, widest = state[PLACE], state[LAST], state[WIDEST]
    waiting, counted, good = 0, entries, True
    while i < len(text) and waiting < len(left):
        kind = _between(text, i, place)
        if kind != WORD:
            if kind == BAD:
                good = False
                break
            if kind == LINE_END:
                if place != AT_LABEL and rows > 0:
                    counts[rows] += entries - counted
                    counted = entries
                lines += 1
            place = AT_LABEL if kind == LINE_END else IN_COMMENT if kind == COMMENT else place
            i += 1
            continue
        begin, start, index = i, i, 1
        if place == AT_ITEM:
            start, index = _item(text, i, last, largest)
            if index == 0:  # a qid
                i, last = start, 0
                continue
        i, exact, value = _decimal(text, start)
        if index < 0 or i == start or not _ends_word(text[i]):
            i, good = begin, False
            break
        if not exact:
            left[waiting, 0], left[waiting, 1] = start, i
            left[waiting, 2] = entries if place == AT_ITEM else ~rows
            waiting += 1
        if place == AT_ITEM:
            columns[entries], values[entries] = index - 1, value
            entries += 1
            last = index
            if index > widest:
                widest, state[WIDEST_LINE] = index, lines + 1
        else:
            labels[rows] = value
            rows += 1
            counts[rows] = 0
            place, last = AT_ITEM, -1
    if rows > 0:
        counts[rows] += entries - counted
    state[POSITION], state[LINES], state[ROWS], state[ENTRIES] = i, lines, rows, entries
    state[PLACE], state[LAST], state[LEFT], state[WIDEST] = place, last, waiting, widest
    return good
