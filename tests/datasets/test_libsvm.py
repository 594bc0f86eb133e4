"""The LIBSVM reader: exact to the last bit, the same for every packing and cut, and never silent about bad input."""

import bz2
import gzip
import hashlib
import io
import lzma
import random
import re
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, getcontext

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks.data import folder
from tercet.datasets import libsvm, load_libsvm, scan, unpack

PACK = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
ODD = (
    b"# a comment: 1 2:3\r\n"
    b"+1 qid:3 1:0.5 3:-2e-3\t7:1 # 9:9\r\n"
    b"\r\n"
    b"  \t \n"
    b" -1\t2:.25 3:4.#5:6\n"
    b"1e0   \n"
    b"-1.50 qid:-4#\n"
    b"0.1 0002:1E+2 8:0.1234567890123456789 9:-0"
)


def bits(array):
    return np.asarray(array, dtype=np.float64).view(np.int64)


def read(data, **options):
    return load_libsvm(io.BytesIO(data), **options)


def assert_same(one, other):
    (X, y), (A, b) = one, other
    assert X.shape == A.shape
    np.testing.assert_array_equal(X.indptr, A.indptr)
    np.testing.assert_array_equal(X.indices, A.indices)
    np.testing.assert_array_equal(bits(X.data), bits(A.data))
    np.testing.assert_array_equal(bits(y), bits(b))


# --- an independent reader: slow, strict, by regular expressions

NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class Bad(Exception):
    """A line that is not of the format; the only argument is its number."""


def decimal(text, line):
    if not re.fullmatch(NUMBER, text) or float(text) in (np.inf, -np.inf):
        raise Bad(line)
    return float(text)


def reference_row(text, line, largest):
    """The label and the entries of a line, or None where it holds nothing."""
    text = text.removesuffix(b"\r")
    if b"\r" in text or b"\0" in text:
        raise Bad(line)
    words = [word for word in re.split(rb"[ \t]", text.split(b"#")[0]) if word]
    if not words:
        return None
    label, items = decimal(words[0], line), words[1:]
    if items and re.fullmatch(rb"qid:[+-]?[0-9]+", items[0]):
        items = items[1:]
    entries = []
    for item in items:
        match = re.fullmatch(rb"(0*[0-9]{1,20}):(.+)", item, re.DOTALL)
        if not match or not (entries[-1][0] if entries else 0) < int(match[1]) <= largest:
            raise Bad(line)
        entries.append((int(match[1]), decimal(match[2], line)))
    return label, entries


def reference(data, largest=libsvm.LARGEST_INDEX):
    """X and y of a text, or Bad with the first line that is not of the format."""
    lines = data.split(b"\n")
    rows = [reference_row(text, number, largest) for number, text in enumerate(lines, 1)]
    rows = [row for row in rows if row is not None]
    if not rows:
        raise Bad(max(1, len(lines) - (lines[-1] == b"")))
    starts = np.cumsum([0, *(len(entries) for _, entries in rows)])
    indices = np.array([i - 1 for _, entries in rows for i, _ in entries], dtype=np.int32)
    values = np.array([value for _, entries in rows for _, value in entries], dtype=float)
    d = int(indices.max(initial=-1)) + 1
    return sp.csr_array((values, indices, starts), shape=(len(rows), d)), np.array([label for label, _ in rows])


# --- good input


def test_the_odd_file_is_read_as_it_is_meant():
    X, y = read(ODD)
    assert y.tolist() == [1, -1, 1, -1.5, 0.1]
    assert X.shape == (5, 9)
    assert X.indices.tolist() == [0, 2, 6, 1, 2, 1, 7, 8]
    assert X.indptr.tolist() == [0, 3, 5, 5, 5, 8]
    assert X.data.tolist() == [0.5, -0.002, 1, 0.25, 4, 100, 0.1234567890123456789, 0]
    assert np.signbit(X.data[-1])
    assert isinstance(X, sp.csr_array)
    assert X.dtype == y.dtype == np.float64
    assert_same((X, y), reference(ODD))


@pytest.mark.parametrize("packing", PACK)
def test_every_packing_gives_the_same_and_is_seen_from_the_content(packing, tmp_path):
    path = tmp_path / "data.anything"
    path.write_bytes(PACK[packing](ODD))
    with open(path, "rb") as file:
        for source in (path, str(path), file, io.BytesIO(path.read_bytes())):
            assert_same(load_libsvm(source), read(ODD))
        assert not file.closed


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_archives_of_several_streams_and_padding_are_read_to_the_end(packing):
    data = PACK[packing](b"1 1:2\n2 1") + PACK[packing](b":3\n") + bytes(8) + PACK[packing](b"3 4:1") + bytes(4)
    assert_same(read(data), read(b"1 1:2\n2 1:3\n3 4:1"))


def test_text_files_are_read_and_left_open(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(ODD)
    with open(path, encoding="utf-8") as text, open(path, encoding="utf-8", newline="") as raw, path.open("rb") as f:
        for source in (text, raw, io.StringIO(ODD.decode()), f):
            assert_same(load_libsvm(source), read(ODD))
            assert not source.closed
    assert_same(load_libsvm(io.StringIO("1 1:2 # äöü\n")), read(b"1 1:2"))


def test_an_open_file_is_read_from_where_it_stands():
    file = io.BytesIO(b"a header\n1 1:2\n")
    file.readline()
    assert_same(load_libsvm(file), read(b"1 1:2\n"))


@pytest.mark.parametrize("packing", PACK)
def test_blocks_may_end_at_every_byte(packing, monkeypatch):
    whole, data = read(ODD), PACK[packing](ODD)
    for size in range(1, len(ODD) + 2):
        monkeypatch.setattr(unpack, "BLOCK", size)
        assert_same(read(data), whole)


class Pieces:
    """A file that gives its data in the given pieces, whatever is asked for."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)

    def read(self, size=-1):
        return next(self.pieces, b"")


def test_two_pieces_cut_at_every_byte_are_as_one():
    whole = read(ODD)
    for cut in range(1, len(ODD)):
        assert_same(load_libsvm(Pieces([ODD[:cut], ODD[cut:]])), whole)


def test_rows_without_entries_make_a_matrix_without_columns():
    X, y = read(b"1\n2\n")
    assert X.shape == (2, 0)
    assert y.tolist() == [1, 2]
    assert read(b"1\n2\n", n_features=3)[0].shape == (2, 3)


def test_n_features_fixes_the_columns():
    assert read(b"1 2:1\n", n_features=np.int64(5))[0].shape == (1, 5)
    assert read(b"1 2:1\n", n_features=2)[0].shape == (1, 2)
    assert read(b"1 2147483646:1\n", n_features=libsvm.LARGEST_INDEX)[0].shape == (1, 2**31 - 2)


def test_the_matrix_is_canonical_and_usable():
    X, _ = read(ODD)
    X.check_format(full_check=True)
    assert X.has_canonical_format
    np.testing.assert_array_equal((X @ np.eye(9)), X.toarray())


def test_a_matrix_with_too_many_entries_for_int32_has_int64_indices(monkeypatch):
    whole = read(ODD)
    assert whole[0].indices.dtype == whole[0].indptr.dtype == np.int32
    monkeypatch.setattr(libsvm, "NARROW", 3)
    assert_same(read(ODD), whole)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_what_sklearn_writes_is_read_as_sklearn_reads_it(data):
    n, d = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9).map(float)
    dense = np.array(data.draw(st.lists(numbers, min_size=n * d, max_size=n * d))).reshape(n, d)
    # %.16g may round the largest numbers up, beyond the range
    dense = np.clip(dense, -1e308, 1e308)
    labels = np.clip(data.draw(st.lists(numbers, min_size=n, max_size=n)), -1e308, 1e308)
    qid = data.draw(st.none() | st.lists(st.integers(-5, 5), min_size=n, max_size=n))
    comment = data.draw(st.none() | st.sampled_from(["one line", "two\nlines"]))
    file = io.BytesIO()
    dump_svmlight_file(dense, labels, file, zero_based=False, query_id=qid, comment=comment)
    theirs = load_svmlight_file(io.BytesIO(file.getvalue()), n_features=d, zero_based=False)
    packing = data.draw(st.sampled_from(list(PACK)))
    assert_same(read(PACK[packing](file.getvalue()), n_features=d), theirs)


def test_written_with_17_digits_every_double_comes_back():
    values = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    values = values[np.isfinite(values)]
    for form in (repr, "{:.17g}".format, "{:.16e}".format):
        X, y = read("\n".join(f"{form(v)} 1:{form(v)}" for v in values.tolist()).encode())
        np.testing.assert_array_equal(bits(y), bits(values))
        np.testing.assert_array_equal(bits(X.data), bits(values))


# --- exact numbers


def assert_exact(texts):
    X, y = read("\n".join(f"{text} 1:{text}" for text in texts).encode())
    expected = bits([float(text) for text in texts])
    np.testing.assert_array_equal(bits(y), expected)
    np.testing.assert_array_equal(bits(X.data), expected)


def random_decimal(rng):
    """A random decimal in one of the forms that float knows."""
    digits = "".join(rng.choices("0123456789", k=rng.choice([1, 2, 3, 6, 15, 16, 17, 18, 19, 20, 25, 40])))
    point = rng.randint(-1, len(digits))
    text = digits if point < 0 else digits[:point] + "." + digits[point:]
    power = rng.choice(["", "", f"e{rng.randint(-30, 30)}", f"E{rng.randint(-340, 260):+04d}"])
    return rng.choice(["", "-", "+"]) + text + power


def test_random_decimals_are_what_float_makes_of_them():
    rng = random.Random(1)
    assert_exact([random_decimal(rng) for _ in range(60_000)])


def test_decimals_halfway_between_two_doubles_and_beside_are_rounded_as_by_float():
    getcontext().prec = 1200
    rng, texts = random.Random(2), []
    for _ in range(1500):
        x = abs(float(np.array(rng.getrandbits(63), dtype=np.uint64).view(np.float64)))
        x = x if rng.random() < 0.3 and x < 1e308 else rng.choice([1.0, 3.0, 1e15, 2.0**53, 5e-324]) * rng.random()
        middle = (Decimal(x) + Decimal(float(np.nextafter(x, np.inf)))) / 2
        texts += [f"{middle:e}", f"{middle * (1 + Decimal(10) ** -60):e}", f"{middle * (1 - Decimal(10) ** -60):e}"]
    assert_exact(texts)


HARD = """
0 -0 0e999999999999 -0.0e-99999999999 000 .5 5. -.5e1 0.1234567890123456789 1e-320 5e-324 2e-324 1e-400
9007199254740992 9007199254740993 9007199254740991e22 9007199254740993e22 9007199254740992e-22 1e22 1e23 1e-22
1e-23 18446744073709551615 18446744073709551616 18446744073709551617 9999999999999999999 99999999999999999999
1.7976931348623157e308 1.7976931348623158e308 179769313486231570814527423731704356798070567525844e258
2.2250738585072014e-308 2.2250738585072011e-308 0.000000000000000000000000000000000000001e39
0.5000000000000000000000000000000000000000001 1.00000000000000011102230246251565404236316680908203125
1.00000000000000011102230246251565404236316680908203124
1.00000000000000011102230246251565404236316680908203126 100000000000000000000000e-23 0.1e1 8.5e-1
123456789012345678e-5 6.02e+23 1e+05 1E5 1e000000000000000000005
"""


@pytest.mark.parametrize("text", HARD.split())
def test_hard_decimals(text):
    assert_exact([text, "-" + text.removeprefix("-")])


def test_the_powers_of_ten_are_exact():
    assert [int(power) for power in scan.EXACT_POWERS] == [10**k for k in range(23)]


def test_a_number_of_a_million_digits_is_read():
    text = "0." + "123456789" * 100_000
    assert_exact([text, text + "e99"])


# --- two labels


def test_two_label_values_become_0_and_1():
    X, y, labels = read(b"+1 1:1\n-1\n-1 2:5\n1\n", binary_labels=True)
    assert y.tolist() == [1, 0, 0, 1]
    assert labels == {-1.0: 0, 1.0: 1}
    assert X.shape == (4, 2)


@pytest.mark.parametrize(("data", "count"), [(b"1\n1\n", 1), (b"0\n-0\n", 1), (b"1\n2\n3\n", 3), (b"4 1:1", 1)])
def test_other_than_two_label_values_are_refused_on_request(data, count):
    read(data)
    with pytest.raises(ValueError, match=rf"<stream>: found {count} label value\(s\) \(.*expected two"):
        read(data, binary_labels=True)


# --- bad input

BAD = {  # what is found: a bad line, part of the text that names it
    "nan label": (b"nan 1:1", "'nan' as the label, expected a finite decimal"),
    "inf label": (b"-inf 1:1", "'-inf' as the label"),
    "label overflow": (b"1e400 1:1", "'1e400', expected a number within the range"),
    "word as label": (b"spam 1:1", "'spam' as the label"),
    "two labels": (b"1,2 1:1", "'1,2' as the label"),
    "hex label": (b"0x10 1:1", "'0x10'"),
    "missing label": (b"1:1 2:3", "'1:1' without a label before it"),
    "lone sign": (b"- 1:1", "'-' as the label"),
    "nan": (b"1 1:1 2:NaN", "'NaN' as the value of index 2, expected a finite decimal"),
    "inf": (b"1 1:inf", "'inf' as the value of index 1"),
    "infinity": (b"1 1:+Infinity", "'+Infinity'"),
    "overflow": (b"1 1:1 2:1e400", "'1e400'"),
    "negative overflow": (b"1 1:-1.8e308 2:spam", "'-1.8e308'"),
    "rounded overflow": (
        b"1 1:179769313486231580793728971405303415079934132710037826936173778980444968293e234",
        "float64",
    ),
    "hex": (b"1 1:0x1p3", "'0x1p3'"),
    "underscore": (b"1 1:1_000", "'1_000'"),
    "two points": (b"1 1:1.2.3", "'1.2.3'"),
    "lone point": (b"1 1:.", "'.'"),
    "empty exponent": (b"1 1:1e", "'1e'"),
    "signed exponent": (b"1 1:1e+ 2:3", "'1e+'"),
    "comma": (b"1 1:0,5", "'0,5'"),
    "wide digits": ("1 1:\uff11".encode(), "as the value of index 1"),
    "non-number": (b"1 1:abc", "'abc' as the value of index 1"),
    "zero index": (b"1 0:1", "the index '0', expected indices from 1"),
    "zero index in other words": (b"1 000:1", "the index '000'"),
    "negative index": (b"1 -3:1", "the index '-3', expected indices from 1"),
    "negative zero": (b"1 -0:1", "the index '-0'"),
    "signed index": (b"1 +3:1", "'+3:1', expected index:value"),
    "fractional index": (b"1 1.5:1", "'1.5:1', expected index:value"),
    "repeated index": (b"1 1:1 3:1 3:2", "the repeated index 3 after 3"),
    "decreasing index": (b"1 1:1 3:1 2:2", "the decreasing index 2 after 3"),
    "huge index": (b"1 2147483647:1", "the index '2147483647', expected at most 2147483646"),
    "very huge index": (b"1 99999999999999999999999999:1", "expected at most"),
    "giant index": (b"1 " + b"9" * 5000 + b":1", "expected at most"),
    "wrapping index": (b"1 18446744073709551617:1", "expected at most"),
    "missing colon": (b"1 1:2 3", "'3' without a colon"),
    "missing index": (b"1 :2", "':2', expected index:value"),
    "missing value": (b"1 1:2 3:", "'3:' without a value"),
    "missing value at a comment": (b"1 3:# 4", "'3:' without a value"),
    "space after the colon": (b"1 3: 4", "'3:' without a value"),
    "two colons": (b"1 3:4:5", "'4:5' as the value"),
    "qid without number": (b"1 qid: 1:2", "'qid:', expected qid:N"),
    "qid of a fraction": (b"1 qid:1.5 1:2", "'qid:1.5', expected qid:N"),
    "qid of a word": (b"1 qid:abc 1:2", "'qid:abc', expected qid:N"),
    "qid without colon": (b"1 qid 1:2", "'qid' without a colon"),
    "late qid": (b"1 1:2 qid:3", "'qid:3' after the first place"),
    "second qid": (b"1 qid:3 qid:3", "'qid:3' after the first place"),
    "upper case qid": (b"1 QID:3", "'QID:3', expected index:value"),
    "NUL byte": (b"1 1:2\0 2:3", "a NUL byte, expected plain text"),
    "NUL in a comment": (b"1 1:2 # \0", "a NUL byte"),
    "carriage return": (b"1 1:2\r2 1:3", "a carriage return within a line"),
    "carriage return in a comment": (b"1 1:2 #\r2 1:3", "a carriage return within a line"),
    "form feed": (b"1 1:2\f3:4", "'2\\x0c3:4'"),
    "byte order mark": (b"\xef\xbb\xbf1 1:2", "'\\xef\\xbb\\xbf1' as the label"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("before", [0, 1, 40])
@pytest.mark.parametrize("block", [1, 7, 64, 1 << 22])
def test_a_bad_line_is_refused_and_named(kind, before, block, monkeypatch):
    monkeypatch.setattr(unpack, "BLOCK", block)
    line, found = BAD[kind]
    for after in (b"", b"\n", b"\r\n", b"\nspam\n"):
        data = b"1 1:0.25 2:1e-300 # fine\r\n" * before + line + after
        with pytest.raises(ValueError, match=rf"^<stream>:{before + 1}: found .*, expected .*\.$") as error:
            read(data)
        assert found in str(error.value)
        with pytest.raises(Bad, match=f"^{before + 1}$"):
            reference(data)


def test_the_first_of_many_bad_lines_is_named_also_when_python_reads_its_number():
    good = b"1 1:0.1234567890123456789\n" * (libsvm.SLOW + 5)
    with pytest.raises(ValueError, match=rf"^<stream>:{libsvm.SLOW + 6}: found '1e999'"):
        read(good + b"1 1:2 2:1e999 3:spam\nspam\n")
    with pytest.raises(ValueError, match=rf"^<stream>:{libsvm.SLOW + 6}: found 'spam'"):
        read(good + b"spam\n1e999\n")
    assert read(good)[0].shape == (libsvm.SLOW + 5, 1)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(b"1 1:2\n\n1 0:1\n")
    with open(path, "rb") as file:
        for source in (path, str(path), file):
            with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}:3: "):
                load_libsvm(source)


@pytest.mark.parametrize(
    ("data", "line", "found"),
    [
        (b"", 1, "an empty file"),
        (b"\n", 1, "only blank lines and comments"),
        (b"# a\n\n  \r\n# b", 4, "only blank lines and comments"),
        (b" ", 1, "only blank lines and comments"),
        (b"\n ", 2, "only blank lines and comments"),
        (b"\n# a\t", 2, "only blank lines and comments"),
    ],
)
@pytest.mark.parametrize("packing", PACK)
def test_files_without_rows_are_refused(data, line, found, packing):
    with pytest.raises(ValueError, match=rf"^<stream>:{line}: found {found}, expected at least one line"):
        read(PACK[packing](data))


def test_an_index_above_n_features_is_refused_and_n_features_named():
    with pytest.raises(ValueError, match=r"^<stream>:2: found the index '4', expected at most n_features=3\.$"):
        read(b"1 3:1\n1 4:1\n", n_features=3)


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_an_index_that_dwarfs_its_file_is_refused_unless_n_features_allows_it(block, monkeypatch):
    monkeypatch.setattr(unpack, "BLOCK", block)
    assert read(b"1 %d:1\n" % libsvm.WIDE)[0].shape == (1, libsvm.WIDE)
    for index in (libsvm.WIDE + 1, 10**9):
        text = b"1 1:1 # 2000000000:1\n\n0 2:1 %d:1 # x\n1 %d:5\n" % (index, index - 1)
        with pytest.raises(ValueError, match=rf"^<stream>:3: found the index {index}, .*bytes.*n_features"):
            read(text)
        assert read(text, n_features=index)[0].shape == (3, index)
    monkeypatch.setattr(libsvm, "WIDE", 10)
    assert read(b"1 1:1\n" * 5 + b"1 30:1\n")[0].shape == (6, 30)  # 37 bytes
    with pytest.raises(ValueError, match=r"^<stream>:6: found the index 40, expected at most 37"):
        read(b"1 1:1\n" * 5 + b"1 40:1\n")


@pytest.mark.parametrize("n_features", [0, -1, 2**31 - 1])
def test_n_features_out_of_range_is_refused(n_features):
    with pytest.raises(ValueError, match=f"n_features={n_features}"):
        read(b"1 1:1", n_features=n_features)


@pytest.mark.parametrize("n_features", [2.0, "3", True])
def test_n_features_of_another_type_is_refused(n_features):
    with pytest.raises(TypeError, match="n_features"):
        read(b"1 1:1", n_features=n_features)


def test_sources_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(TypeError, match="pass a path or an open file"):
        load_libsvm(3)
    with pytest.raises(TypeError, match="read\\(\\) gave NoneType"):
        load_libsvm(Pieces([None]))
    with pytest.raises(FileNotFoundError):
        load_libsvm(tmp_path / "nothing")


def test_bytes_that_are_no_text_are_refused_in_text_mode(tmp_path):
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(ODD))
    with open(path, encoding="utf-8") as file, pytest.raises(ValueError, match=r"packed:1: found bytes that are no t"):
        load_libsvm(file)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_a_truncated_archive_is_refused_wherever_it_ends(packing):
    data = PACK[packing](ODD)
    for end in range(1, len(data)):
        with pytest.raises(ValueError, match=r"^<stream>:\d+: found .*, expected .*\.$"):
            read(data[:end])
    with pytest.raises(ValueError, match=f"found the end of a truncated {packing} archive"):
        read(data[:-1])
    with pytest.raises(ValueError, match=f"found the end of a truncated {packing} archive"):
        read(data + data[:-1])


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_a_truncated_archive_is_refused_at_the_line_where_it_ends(packing, monkeypatch):
    monkeypatch.setattr(unpack, "BLOCK", 64)
    whole = PACK[packing](b"1 1:2\n" * 1000) + PACK[packing](b"2 1:3\n")
    with pytest.raises(ValueError, match=rf"^<stream>:100[12]: found the end of a truncated {packing}"):
        read(whole[:-3])


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_a_damaged_archive_is_refused_or_unharmed(packing):
    data, whole, rng, refused = PACK[packing](ODD), read(ODD), random.Random(3), 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        result = outcome(read, bytes(damaged))
        if isinstance(result, int):
            refused += 1
        else:
            assert_same(result, whole)
    assert refused > 0.8 * len(data)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_rubbish_after_an_archive_is_refused(packing):
    with pytest.raises(ValueError, match=f"found damaged {packing} data"):
        read(PACK[packing](ODD) + b"rubbish that is no archive")


def test_a_binary_file_is_refused():
    rng = np.random.default_rng(0)
    for _ in range(50):
        with pytest.raises(ValueError, match=r"^<stream>:\d+: found "):
            read(rng.bytes(3000))
    with pytest.raises(ValueError, match="NUL"):
        read("1 1:2\n".encode("utf-16-le"))
    file = io.BytesIO()
    np.savez(file, a=np.arange(5))
    with pytest.raises(ValueError, match=r"^<stream>:1: found "):
        read(file.getvalue())


def test_an_endless_word_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(unpack, "BLOCK", 1 << 12)
    pieces = (b"7" * 4096 for _ in range(1 << 20))
    with pytest.raises(ValueError, match=r"^<stream>:1: found '7777.*of more than 1048576 bytes"):
        load_libsvm(Pieces(pieces))


# --- fuzzing

SPICE = b"0123456789+-.eE:# \t\r\nqidnaf_x\0\xff\x0b,"


def valid_line(rng):
    """A line of the format with numbers of all forms."""
    words = [rng.choice(["1", "-1", "+1", "0", "2.5", "1e3", random_decimal(rng).split("E")[0]])]
    if rng.random() < 0.2:
        words.append(f"qid:{rng.randint(0, 30)}")
    index = 0
    for _ in range(rng.randint(0, 4)):
        index += rng.choice([1, 1, 2, 10, 1000])
        words.append(f"{index}:{rng.choice(['1', '0.5', '-.25', '1e-3', '7.', random_decimal(rng)])}")
    text = rng.choice([" ", " ", "\t", "  "]).join(words) + rng.choice(["", "", " ", " # 1:2", "#x"])
    return text.encode()


def mutate(line, rng):
    """The line with one to three bytes flipped, replaced, inserted, deleted, or moved."""
    line = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        place, kind = rng.randrange(len(line) + 1), rng.randrange(5)
        if kind == 0 or place == len(line):
            line.insert(place, rng.choice(SPICE))
        elif kind == 1:
            line[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            line[place] = rng.choice(SPICE)
        elif kind == 3:
            del line[place]
        else:
            end = rng.randint(place, len(line))
            line[place:end] = line[place:end] * rng.randint(0, 2)
    return bytes(line)


def outcome(reader, data):
    """X and y, or the number of the line that was refused."""
    try:
        return reader(data)
    except Bad as bad:
        return bad.args[0]
    except ValueError as error:
        if not (match := re.fullmatch(r"<stream>:(\d+): found .*, expected .*\.", str(error))):
            raise AssertionError(f"The error does not name the place: {error}") from error
        return int(match[1])


def fuzz(lines, seed, monkeypatch=None):
    """How many mutated lines were refused and how many read, each as by the reference."""
    rng, counts = random.Random(seed), {"refused": 0, "read": 0}
    for _ in range(lines):
        if monkeypatch:
            monkeypatch.setattr(unpack, "BLOCK", rng.choice([1, 2, 5, 16, 1 << 22]))
        before, after = ([valid_line(rng) for _ in range(rng.randint(0, 2))] for _ in range(2))
        data = rng.choice([b"\n", b"\n", b"\r\n"]).join([*before, mutate(valid_line(rng), rng), *after])
        ours, theirs = outcome(read, data), outcome(reference, data)
        if isinstance(theirs, int):
            assert ours == theirs, data
            counts["refused"] += 1
        else:
            assert not isinstance(ours, int), data
            assert_same(ours, theirs)
            counts["read"] += 1
    return counts


def test_mutated_lines_are_refused_or_read_as_by_the_reference(monkeypatch):
    counts = fuzz(5000, 0, monkeypatch)
    assert counts["refused"] > 1500
    assert counts["read"] > 1000


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([bytes([c]) for c in SPICE] + [b"1 ", b" 1:1", b" qid:1", b"\n1 "]), max_size=30))
def test_any_text_is_refused_or_read_as_by_the_reference(parts):
    data = b"".join(parts)
    ours, theirs = outcome(read, data), outcome(reference, data)
    if isinstance(theirs, int) or isinstance(ours, int):
        assert ours == theirs
    else:
        assert_same(ours, theirs)


# --- cost


def peak_of(action):
    """The result of an action and the most bytes it held at once."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_by_the_result_and_a_constant(monkeypatch):
    read(ODD)
    monkeypatch.setattr(unpack, "BLOCK", 1 << 14)
    fill = 1 << 20  # the room for numbers left to Python, and a block
    (X, y), peak = peak_of(lambda: load_libsvm(Pieces(b"1 1:0.5 2:3 7:1 9:2\n" * 700 for _ in range(300))))
    result = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
    assert result > 8 * fill
    assert peak < 1.13 * result + fill
    pieces = (b"# nothing\n" * 1600 if i < 3000 else b"1\n" for i in range(3001))
    _, peak = peak_of(lambda: load_libsvm(Pieces(pieces)))
    assert peak < 2 * fill
    bomb = bz2.compress(b"#" + b" " * 50_000_000 + b"\n1 1:1\n")
    _, peak = peak_of(lambda: read(bomb))
    assert peak < 2 * fill


def test_two_threads_read_as_one():
    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(read, [ODD] * 20):
            assert_same(result, read(ODD))


def test_numba_is_loaded_when_a_file_is_read_and_not_before():
    code = "import sys, tercet.datasets\nassert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- real files

REAL = {
    "a9a": (
        (32561, 123),
        451592,
        {-1: 24720, 1: 7841},
        "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
    ),
    "svmguide3": (
        (1243, 22),
        27208,
        {-1: 947, 1: 296},
        "ada17021fdf508bcaac7b7adea825886478f915935eccb24470f22c806dc4508",
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_as_by_sklearn_and_as_described(name):
    path = folder() / name
    if not path.exists():
        pytest.skip(f"the LIBSVM file {name} is not in $TERCET_DATA or in shared/data")
    shape, entries, labels, digest = REAL[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    X, y, names = load_libsvm(path, n_features=shape[1], binary_labels=True)
    assert X.shape == shape
    assert names == {-1: 0, 1: 1}
    assert {-1: int(np.sum(y == 0)), 1: int(np.sum(y == 1))} == labels
    theirs, signs = load_svmlight_file(str(path), n_features=shape[1], zero_based=False)
    assert_same((X, 2 * y - 1), (theirs, signs))
    assert X.nnz == entries
