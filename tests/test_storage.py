"""A saved result is the result, and nothing else is taken for one."""

import contextlib
import json
from dataclasses import asdict

import numpy as np
import pytest

import tercet
from tercet.result import Trace
from tercet.storage import rows_from_table, table_of_rows

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4))
PROBLEM = tercet.LinearModel(X, (X[:, 0] > 0).astype(float), l2=1e-3)


def assert_same_trace(one, other):
    for name in tercet.result.COLUMNS:
        for a, b in zip(one[name], other[name], strict=True):
            assert a == b or (a is None and b is None) or (a != a and b != b)


@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR(), tercet.SGD()], ids=["STM", "SCR", "SGD"])
def test_a_result_comes_back_as_it_was(tmp_path, method):
    result = tercet.minimize(PROBLEM, method=method, max_iterations=30)
    tercet.save(result, tmp_path / "run.npz")
    again = tercet.load(tmp_path / "run.npz")
    assert again.x.tobytes() == result.x.tobytes()
    assert str(again) == str(result)
    np.testing.assert_equal(asdict(again.certificate), asdict(result.certificate))  # nan is nan
    assert again.counts == result.counts
    assert again.status is result.status
    assert again.success == result.success
    assert_same_trace(result.trace, again.trace)


def test_parameters_keep_their_structure(tmp_path):
    pytest.importorskip("jax")
    problem = tercet.FiniteSum(lambda p, x: (p["a"][0] * x - 1.0) ** 2 + (p["b"][0] ** 2).sum(), RNG.random(20) + 1)
    result = tercet.minimize(problem, {"a": [np.array(0.5)], "b": (np.ones((2, 2)),)})
    tercet.save(result, tmp_path / "run.npz")
    x = tercet.load(tmp_path / "run.npz").x
    assert isinstance(x["a"], list)
    assert isinstance(x["b"], tuple)
    assert x["b"][0].shape == (2, 2)
    assert np.array_equal(x["a"][0], result.x["a"][0])


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"PK\x03\x04 broken"],
    ids=["empty", "text", "a broken archive"],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.npz.*not a saved tercet result"):
        tercet.load(path)


@pytest.mark.parametrize("header", [{}, {"format": "tercet result", "version": 99}, [1, 2]])
def test_a_foreign_archive_is_refused(tmp_path, header):
    path = tmp_path / "other.npz"
    np.savez(path, header=np.array(json.dumps(header)))
    with pytest.raises(ValueError, match="not a saved tercet result"):
        tercet.load(path)


def test_an_archive_with_objects_is_refused(tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, header=np.array({"format": "tercet result"}, dtype=object))
    with pytest.raises(ValueError, match="not a saved tercet result"):
        tercet.load(path)


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        tercet.load(tmp_path / "nothing.npz")


def test_a_result_with_a_flipped_byte_is_refused_or_harmless(tmp_path):
    path, rng = tmp_path / "run.npz", np.random.default_rng(0)
    tercet.save(tercet.minimize(PROBLEM, max_iterations=3), path)
    good = path.read_bytes()
    for place in rng.integers(0, len(good), 400):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        with contextlib.suppress(ValueError):  # and nothing else
            tercet.load(path)


@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR(), tercet.SGD()], ids=["STM", "SCR", "SGD"])
def test_iterations_come_back_from_a_table_as_they_were(method):
    trace = tercet.minimize(PROBLEM, method=method, max_iterations=30).trace
    assert len(trace) > 1
    table = table_of_rows(trace.rows)
    assert table.shape == (len(trace),)
    again = Trace(tuple(rows_from_table(np.frombuffer(table.tobytes(), table.dtype), 300)))
    assert_same_trace(trace, again)
    assert [row.counts for row in again] == [row.counts for row in trace]
    assert [row.sizes for row in again] == [row.sizes for row in trace]
    assert [row.meets for row in again] == [row.meets for row in trace]
    assert [type(row.accepted) for row in again] == [type(row.third_bought) for row in again] == [bool] * len(trace)


def test_a_table_of_no_iterations_is_one_of_none():
    assert table_of_rows([]).shape == (0,)
    assert rows_from_table(table_of_rows([]), 5) == []


def test_a_table_with_other_columns_is_refused():
    table = table_of_rows(tercet.minimize(PROBLEM, max_iterations=2).trace.rows)
    with pytest.raises(ValueError, match="other columns"):
        rows_from_table(table[list(table.dtype.names[:-1])], 300)
