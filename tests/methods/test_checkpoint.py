"""A run that was killed and resumed is the run that was not killed, bit for bit; anything else is refused."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import tercet
from tercet.methods import checkpoint
from tercet.methods.checkpoint import FRAME, MARK, VERSION, cut_frame, read
from tercet.objectives.metered import MeteredPoint
from tercet.records import Sizes
from tercet.result import COLUMNS
from tests.methods.walks import dearer

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2000, 6))
Y = (X @ np.ones(6) + RNG.standard_normal(2000) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, l2=1e-4)
START = 0.9 * RNG.standard_normal(6)
SMALL = tercet.STM(tercet.Progressive(multiple=20))  # samples before all terms, which so few of them would not need

METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "B lags behind": tercet.STM(tercet.Progressive(multiple=4, lag=20)),
    "growing": tercet.STM(tercet.Growing(0.1, 1.5)),
    "adaptive": tercet.STM(tercet.Adaptive()),
    "fixed": tercet.STM(tercet.Fixed(0.2, 0.2, 0.2)),
    "fixed, B over all terms": tercet.STM(tercet.Fixed(0.2, 1.0, 0.2)),
    "full Krylov": tercet.STM(tercet.Full(), tercet.Krylov()),
    "full Subspace": tercet.STM(tercet.Full(), tercet.Subspace()),
    "sampled Subspace": tercet.STM(tercet.Progressive(multiple=4), tercet.Subspace()),
    "descent": tercet.SCR(subsolver=tercet.GradientDescent()),
    "paper": tercet.STM.paper(),
    "SGD": tercet.SGD(),
}


@pytest.fixture(autouse=True, scope="module")
def no_pause():
    """Each state from which a run can go on is written: what a journal holds is asked here, not when."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "PAUSE", 0.0)
        yield


class KilledError(Exception):
    """Stands for the end of the process."""


def killed_after(iterations):
    def callback(info):
        if info.iteration + 1 >= iterations:
            raise KilledError

    return callback


def assert_same(one, other):
    assert one.x.tobytes() == other.x.tobytes()
    assert one.counts == other.counts
    assert one.status is other.status
    assert one.certificate == other.certificate
    for name in COLUMNS:
        if name != "seconds":
            a, b = (np.asarray(result.trace[name], dtype=float) for result in (one, other))
            assert np.array_equal(a, b, equal_nan=True), name


@pytest.mark.parametrize("name", METHODS)
def test_a_run_killed_at_any_iteration_and_resumed_equals_the_uninterrupted_one(name, tmp_path):
    path, method = tmp_path / "run.ckpt", METHODS[name]
    whole = tercet.minimize(PROBLEM, START, method=method, max_iterations=25, seed=3)
    for k in range(1, whole.nit):
        path.unlink(missing_ok=True)
        with pytest.raises(KilledError):
            tercet.minimize(
                PROBLEM,
                START,
                method=method,
                max_iterations=25,
                seed=3,
                checkpoint=path,
                callback=killed_after(k),
            )
        if path.exists():  # before the first accepted step there is nothing to resume
            assert_same(tercet.resume(path, PROBLEM), whole)


@pytest.mark.parametrize("name", ["STM", "SCR", "B lags behind", "fixed"])
def test_a_run_whose_hessians_serve_for_several_steps_is_resumed_exactly(name, tmp_path):
    problem = dearer(tercet.LinearModel(X, Y, l2=1e-4))
    path, how = tmp_path / "run.ckpt", {"method": METHODS[name], "max_iterations": 25, "seed": 3}
    whole, borrowed = tercet.minimize(problem, START, **how), 0
    for k in range(1, whole.nit):
        path.unlink(missing_ok=True)
        with pytest.raises(KilledError):
            tercet.minimize(problem, START, **how, checkpoint=path, callback=killed_after(k))
        if path.exists():
            borrowed += "formed" in read(path).state["point"]["carry"]
            assert_same(tercet.resume(path, problem), whole)
    assert (borrowed > 3) == (name != "fixed")  # which draws other terms each time


@dataclass(frozen=True)
class Apart:
    """Nested samples that grow, with B and T over fewer terms than f, and T over fewer than B."""

    nested: bool = True
    replacement: bool = False

    def first(self, n, d):
        return Sizes(500, 500, 200, 100)

    def next(self, outlook):
        m = outlook.sizes
        return Sizes(*(min(outlook.n, size + 40) for size in (m.value, m.gradient, m.hessian, m.third)))


def test_a_run_whose_b_and_t_are_over_different_terms_is_resumed_exactly_with_its_own_rule(tmp_path):
    path, method = tmp_path / "run.ckpt", tercet.STM(Apart(), worth=np.inf)
    how = {"method": method, "max_iterations": 25, "seed": 3}
    whole = tercet.minimize(PROBLEM, START, **how)
    assert whole.nit > 5
    for k in range(1, whole.nit, 2):
        with pytest.raises(KilledError):
            tercet.minimize(PROBLEM, START, **how, checkpoint=path, callback=killed_after(k))
        with pytest.raises(tercet.CheckpointError, match="Apart, which is not a part of tercet"):
            tercet.resume(path, PROBLEM)
        assert_same(tercet.resume(path, PROBLEM, method=method), whole)


def test_a_jax_sum_with_a_pytree_is_resumed_exactly(tmp_path):
    jnp = pytest.importorskip("jax.numpy")
    problem = tercet.FiniteSum(
        lambda p, x, y: jnp.logaddexp(0.0, p["w"] @ x + p["b"]) - y * (p["w"] @ x + p["b"]), (X, Y)
    )
    start, path = {"w": np.ones(6), "b": np.array(0.5)}, tmp_path / "run.ckpt"
    whole = tercet.minimize(problem, start)
    for k in range(1, whole.nit, 2):
        with pytest.raises(KilledError):
            tercet.minimize(problem, start, checkpoint=path, callback=killed_after(k))
        again = tercet.resume(path, problem)
        assert again.x["w"].tobytes() == whole.x["w"].tobytes()
        assert again.counts == whole.counts


def rosen(x):
    return 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2


def rosen_grad(x):
    return np.array([-400.0 * x[0] * (x[1] - x[0] ** 2) - 2.0 * (1.0 - x[0]), 200.0 * (x[1] - x[0] ** 2)])


def test_a_plain_function_is_resumed_exactly_and_refused_with_another_gradient(tmp_path):
    path, start = tmp_path / "run.ckpt", np.array([-1.2, 1.0])
    whole = tercet.minimize(rosen, start, grad=rosen_grad)
    with pytest.raises(KilledError):
        tercet.minimize(rosen, start, grad=rosen_grad, checkpoint=path, callback=killed_after(6))
    assert_same(tercet.resume(path, rosen, grad=rosen_grad), whole)
    with pytest.raises(tercet.CheckpointError, match="grad was"):
        tercet.resume(path, rosen, grad=lambda x: rosen_grad(x) + 0.0)


def test_budgets_can_be_raised_on_resume_and_the_run_goes_on_as_one(tmp_path):
    path = tmp_path / "run.ckpt"
    short = tercet.minimize(PROBLEM, START, max_iterations=4, checkpoint=path)
    assert short.status is tercet.Status.MAX_ITERATIONS
    assert_same(tercet.resume(path, PROBLEM, max_iterations=1000), tercet.minimize(PROBLEM, START))


def test_checkpoints_are_written_as_often_as_asked(tmp_path):
    path, seen = tmp_path / "run.ckpt", []

    def watch(info):
        seen.append(path.stat().st_mtime_ns if path.exists() else 0)

    tercet.minimize(PROBLEM, START, checkpoint=path, checkpoint_every=5, callback=watch)
    written = len(set(seen) - {0})
    assert 1 <= written <= len(seen) // 5 + 1
    assert not list(tmp_path.glob(".*"))


def clock(monkeypatch, seconds):
    """Each iteration takes so many seconds on the clock of the writer, and `PAUSE` is ten again."""
    now = iter(np.arange(1000) * seconds)
    monkeypatch.setattr(checkpoint, "PAUSE", 10.0)
    monkeypatch.setattr(checkpoint, "perf_counter", lambda: float(next(now)))


def frames_seen(path, **options):
    """How many frames the file had after each iteration, and the run."""
    seen = []
    result = tercet.minimize(
        PROBLEM, START, method=tercet.SGD(), seed=3, max_iterations=40, checkpoint=path,
        callback=lambda info: seen.append(len(frames(path.read_bytes())) if path.exists() else 0), **options,
    )  # fmt: skip
    return seen, result


def test_by_default_seconds_lie_between_two_writes_and_the_last_state_is_written_at_the_end(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    clock(monkeypatch, 3.0)
    seen, _ = frames_seen(path)
    assert seen[0] == 1  # the first is not waited for: a disk that does not serve is found out at once
    gaps = np.diff(np.flatnonzero(np.diff(seen)))
    assert set(gaps) <= {3, 4}  # a look and a write are two readings of the clock
    assert len(frames(path.read_bytes())) == seen[-1] + 1
    assert len(read(path).trace) == 40


def test_when_a_file_was_written_changes_nothing_of_the_run_that_resumes(tmp_path, monkeypatch):
    whole = tercet.minimize(PROBLEM, START, method=tercet.SGD(), seed=3, max_iterations=60)
    for seconds in (0.0, 1.0, 100.0):
        with monkeypatch.context() as patch:
            clock(patch, seconds)
            frames_seen(tmp_path / "run.ckpt")
        assert_same(tercet.resume(tmp_path / "run.ckpt", PROBLEM, max_iterations=60), whole)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("asked", [25, 40, 80])
def test_an_interruption_within_an_iteration_saves_the_state_before_and_not_what_was_learned_since(
    name, asked, tmp_path, monkeypatch
):
    path, how = tmp_path / "run.ckpt", {"method": METHODS[name], "max_iterations": 15, "seed": 3}
    whole, ask, answers = tercet.minimize(PROBLEM, START, **how), MeteredPoint.ask, []

    def interrupted(self, *arguments, **options):
        answers.append(1)
        if len(answers) == asked:
            raise KeyboardInterrupt
        return ask(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "PAUSE", 1e9)
        patch.setattr(MeteredPoint, "ask", interrupted)
        tercet.minimize(PROBLEM, START, **how, checkpoint=path)
    assert_same(tercet.resume(path, PROBLEM), whole)


def test_a_run_of_many_short_iterations_hardly_takes_longer_with_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "PAUSE", 10.0)
    written, write = [], checkpoint.Writer.write
    monkeypatch.setattr(checkpoint.Writer, "write", lambda *a: written.append(1) or write(*a))
    tercet.minimize(PROBLEM, START, method=tercet.SGD(), max_iterations=300, checkpoint=tmp_path / "run.ckpt")
    assert 2 <= len(written) <= 4


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (tercet.LinearModel(X, Y, l2=1e-3), "l2"),
        (tercet.LinearModel(X, 1.0 - Y, l2=1e-4), "y"),
        (tercet.LinearModel(X[:, ::-1], Y, l2=1e-4), "X"),
        (tercet.LinearModel(X, Y, "logistic", l2=1e-4), "loss"),
        (tercet.LinearModel(X, Y, l2=1e-4, weights=np.arange(1.0, 2001.0)), "weights"),
    ],
    ids=["l2", "y", "X", "loss", "weights"],
)
def test_another_problem_is_refused_and_the_difference_named(other, named, tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, max_iterations=3, checkpoint=path)
    with pytest.raises(tercet.CheckpointError, match=rf"another problem: .*{named} was"):
        tercet.resume(path, other)


def test_another_method_is_refused_and_the_difference_named(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, max_iterations=3, checkpoint=path)
    with pytest.raises(tercet.CheckpointError, match=r"worth was 4\.0 and is 5\.0"):
        tercet.resume(path, PROBLEM, method=tercet.STM(worth=5.0))


# files that are none, or damaged --------------------------------------------------------------------------------------


def archive(**members):
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    return buffer.getvalue()


def bomb():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.npy", b"\0" * 50_000_000)
    return buffer.getvalue()


def framed(body):
    """A frame whose mark, length and checksum are right."""
    return FRAME.pack(MARK, len(body), zlib.crc32(body)) + body


HEADER = {"format": "tercet checkpoint", "version": VERSION}
BODIES = {
    "empty body": b"",
    "text": b"iteration 3, all is well",
    "half an archive": archive(header=np.array("{}"))[:40],
    "foreign archive": archive(weights=np.ones(3)),
    "objects": archive(header=np.array({"format": "tercet checkpoint"}, dtype=object)),
    "another version": archive(header=np.array(json.dumps({**HEADER, "version": 7}))),
    "another format": archive(header=np.array(json.dumps({**HEADER, "format": "tercet result"}))),
    "no state": archive(header=np.array(json.dumps(HEADER))),
    "a list": archive(header=np.array("[1, 2]")),
    "numbers for a header": archive(header=np.ones(4)),
    "a zip bomb": bomb(),
}
HOSTILE = {
    "empty": b"",
    "a mark and no more": MARK,
    "a length beyond any file": FRAME.pack(MARK, 2**64 - 1, 0),
    **BODIES,  # one of them is what earlier versions wrote: an archive by itself
    **{f"{name}, in a frame": framed(body) for name, body in BODIES.items()},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_checkpoint_is_refused(name, tmp_path):
    path = tmp_path / "run.ckpt"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(tercet.CheckpointError, match="not a usable checkpoint"):
        tercet.resume(path, PROBLEM)


@pytest.mark.parametrize("name", BODIES)
def test_a_foreign_frame_behind_a_whole_one_is_refused(name, journal, tmp_path):
    """Its checksum is right, so that it was not being written when the run ended."""
    path = tmp_path / "run.ckpt"
    path.write_bytes(journal[0] + framed(BODIES[name]))
    with pytest.raises(tercet.CheckpointError, match="not a usable checkpoint"):
        tercet.resume(path, PROBLEM)


def frames(data):
    """The frames of a journal, as bytes."""
    out = []
    while data:
        end = FRAME.size + FRAME.unpack_from(data)[1]
        out.append(data[:end])
        data = data[end:]
    return out


HOW = {"max_iterations": 6, "seed": 3, "method": SMALL}


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The frames of a run, of which there are several."""
    path = tmp_path_factory.mktemp("journal") / "run.ckpt"
    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    found = frames(path.read_bytes())
    assert len(found) >= 4
    return found


@pytest.fixture(scope="module")
def whole():
    return tercet.minimize(PROBLEM, START, max_iterations=25, seed=3, method=SMALL)


def test_a_journal_resumes_from_each_of_its_beginnings_to_the_same_result(journal, whole, tmp_path):
    path = tmp_path / "run.ckpt"
    for k in range(1, len(journal) + 1):
        path.write_bytes(b"".join(journal[:k]))
        assert len(read(path).trace) == k
        assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)


def test_a_kill_between_any_two_bytes_of_an_append_leaves_the_state_before_it(journal, tmp_path):
    path, (before, last) = tmp_path / "run.ckpt", journal[:2]
    for cut in range(len(last)):
        assert cut_frame(before + last[:cut], len(before))[0] is None
    assert MARK not in last[1:]  # or it would be taken for another frame
    path.write_bytes(before)
    expected = told(read(path))
    for cut in sorted({*range(0, len(last), 97), *range(FRAME.size + 4), *range(len(last) - 30, len(last))}):
        path.write_bytes(before + last[:cut])
        assert told(read(path)) == expected, cut
    path.write_bytes(before + last)
    assert told(read(path)) != expected


def told(saved):
    """All that a checkpoint says."""
    return repr((saved.settings, saved.fingerprint, saved.x0, saved.n, saved.tally, saved.seconds, saved.trace)) + repr(
        {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in saved.state.items()}
    )


@pytest.mark.parametrize("cut", [1, 8, FRAME.size - 1, FRAME.size, FRAME.size + 1, 0.3, 0.7, -1])
def test_a_last_frame_that_is_cut_is_written_again_by_the_run_that_resumes(cut, journal, whole, tmp_path):
    path, last = tmp_path / "run.ckpt", journal[-1]
    path.write_bytes(b"".join(journal[:-1]) + last[: int(cut * len(last)) if isinstance(cut, float) else cut])
    assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)
    assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)  # from the journal that the first one wrote


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def places(frame, rng):
    """Each byte of the head, which is mark, length and checksum, and some of the body."""
    return [*range(FRAME.size), *(int(p) for p in rng.integers(FRAME.size, len(frame), 12)), len(frame) - 1]


def test_a_last_frame_with_a_flipped_byte_leaves_the_state_before_it(journal, whole, tmp_path):
    path, before, last = tmp_path / "run.ckpt", b"".join(journal[:-1]), journal[-1]
    path.write_bytes(before)
    expected = told(read(path))
    for k, place in enumerate(places(last, np.random.default_rng(0))):
        path.write_bytes(before + flipped(last, place))
        assert told(read(path)) == expected, place
        if k % 8 == 0:
            assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)


def test_a_flipped_byte_in_any_other_frame_is_refused(journal, tmp_path):
    path, rng = tmp_path / "run.ckpt", np.random.default_rng(0)
    for k, frame in enumerate(journal[:-1]):
        for place in places(frame, rng):
            path.write_bytes(b"".join([*journal[:k], flipped(frame, place), *journal[k + 1 :]]))
            with pytest.raises(tercet.CheckpointError):
                read(path)


def test_a_checkpoint_of_one_frame_that_is_cut_or_damaged_anywhere_is_refused(journal, tmp_path):
    path, only, rng = tmp_path / "run.ckpt", journal[0], np.random.default_rng(0)
    for place in places(only, rng):
        for data in (only[:place], flipped(only, place)):
            path.write_bytes(data)
            with pytest.raises(tercet.CheckpointError):
                tercet.resume(path, PROBLEM)


def test_frames_that_are_missing_doubled_or_out_of_order_are_refused(journal, tmp_path):
    path = tmp_path / "run.ckpt"
    a, b, c, d, *_ = journal
    for wrong in ([b, c], [a, c], [a, c, b], [a, b, b], [a, a, b], [a, b, d], [b, a]):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(tercet.CheckpointError):
            tercet.resume(path, PROBLEM)


# the journal ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def converted(monkeypatch):
    """How many rows of the trace each frame was made of."""
    numbers, table = [], checkpoint.table_of_rows

    def count(rows):
        numbers.append(len(rows))
        return table(rows)

    monkeypatch.setattr(checkpoint, "table_of_rows", count)
    return numbers


def sizes_along(path, method, iterations, **options):
    """The size of the file after each iteration."""
    sizes = []
    tercet.minimize(
        PROBLEM, START, method=method, max_iterations=iterations, checkpoint=path, tol=1e-20,
        callback=lambda info: sizes.append(path.stat().st_size if path.exists() else 0), **options,
    )  # fmt: skip
    return sizes


def test_writing_takes_no_longer_at_row_1000_than_at_row_10(tmp_path, converted, monkeypatch):
    monkeypatch.setattr(checkpoint, "ROOM", 2**40)
    sizes = sizes_along(tmp_path / "run.ckpt", tercet.SGD(), 1010)
    appended = np.diff(sizes)
    assert converted == [1] * 1010
    late, early = appended[990:1009], appended[5:24]
    row = 8 * len(COLUMNS)
    assert np.max(late) < np.max(early) + row  # numbers with more digits, but not one row more
    trace = read(tmp_path / "run.ckpt").trace
    assert [found.iteration for found in trace] == list(range(1010))


def test_a_frame_holds_the_rows_since_the_one_before_where_not_every_iteration_writes(tmp_path, converted):
    sizes = sizes_along(tmp_path / "run.ckpt", tercet.SGD(), 40, checkpoint_every=7)
    assert converted == [*[7] * 5, 5]  # the last at the end
    assert len(set(sizes[6:])) == 5
    assert len(read(tmp_path / "run.ckpt").trace) == 40


def test_a_journal_that_outgrew_its_first_frame_is_written_anew(tmp_path, converted, monkeypatch):
    room = 20_000
    monkeypatch.setattr(checkpoint, "ROOM", room)
    path = tmp_path / "run.ckpt"
    sizes = sizes_along(path, tercet.SGD(), 300)
    anew = [k for k, (before, after) in enumerate(pairwise(sizes), start=1) if after <= before]
    assert len(anew) >= 3
    assert [converted[k] for k in anew] == [k + 1 for k in anew]  # all rows
    assert sum(number > 1 for number in converted) == len(anew)
    largest_frame, base = max(np.diff(sizes)), sizes[0]
    for k, size in enumerate(sizes):
        base = size if k in anew else base
        assert size <= base + max(base, room) + largest_frame
    # Each time there is more room, so that what is written anew adds up to no more than what was appended.
    assert sum(sizes[k] for k in anew) <= 2 * sum(np.maximum(np.diff(sizes), 0))
    whole = tercet.minimize(PROBLEM, START, method=tercet.SGD(), max_iterations=310, tol=1e-20)
    assert_same(tercet.resume(path, PROBLEM, max_iterations=310), whole)
    assert not list(tmp_path.glob(".*"))


def removed(path):
    path.unlink()


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"something else")
    os.replace(other, path)


def replaced_by_one_of_the_same_size(path):
    other = path.with_name("other")
    other.write_bytes(bytes(path.stat().st_size))
    os.replace(other, path)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def grown(path):
    with open(path, "ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("meddle", [removed, replaced, replaced_by_one_of_the_same_size, cut, grown])
def test_a_file_that_somebody_else_changed_between_two_writes_is_written_whole_again(
    meddle, whole, tmp_path, converted
):
    path = tmp_path / "run.ckpt"

    def callback(info):
        if info.iteration == 3:
            assert path.exists()
            meddle(path)

    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path, callback=callback)
    assert max(converted) >= 4
    assert converted.count(1) >= 3  # before it and after it rows are appended
    found = frames(path.read_bytes())
    assert b"".join(found) == path.read_bytes()
    assert len(found) < 6
    assert len(read(path).trace) == 6
    assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)


def test_an_append_that_failed_halfway_is_written_whole_by_the_next_one(whole, tmp_path, monkeypatch):
    path, put, times = tmp_path / "run.ckpt", checkpoint.put, []

    def full_disk(file, data):
        times.append(len(data))
        if len(times) == 4:
            put(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        put(file, data)

    monkeypatch.setattr(checkpoint, "put", full_disk)
    with pytest.warns(RuntimeWarning, match="could not be written"):
        result = tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    assert result.nit == 6
    assert "could not be written" not in result.message  # the next one was
    assert len(read(path).trace) == 6
    assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)


def test_a_write_anew_that_failed_leaves_the_journal_as_it_was(tmp_path, monkeypatch, whole):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    good = path.read_bytes()

    def full_disk(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "put", full_disk)
    with pytest.warns(RuntimeWarning, match="No space left"):  # a resumed run begins with a whole file
        again = tercet.resume(path, PROBLEM, max_iterations=25)
    assert again.x.tobytes() == whole.x.tobytes()
    assert again.message.endswith("it holds 6 rows.")
    assert path.read_bytes() == good
    assert not list(tmp_path.glob(".*"))
    monkeypatch.undo()
    assert_same(tercet.resume(path, PROBLEM, max_iterations=25), whole)


def test_a_resumed_run_begins_a_journal_with_all_rows_and_appends_to_it(whole, tmp_path, converted):
    path = tmp_path / "run.ckpt"
    with pytest.raises(KilledError):
        tercet.minimize(
            PROBLEM, START, max_iterations=25, seed=3, method=SMALL, checkpoint=path, callback=killed_after(4)
        )
    assert converted == [1] * 4
    left = path.read_bytes()
    for k in (6, 8):
        converted.clear()
        with pytest.raises(KilledError):
            tercet.resume(path, PROBLEM, callback=killed_after(k))
        assert converted[:2] == [k - 1, 1]
        found = frames(path.read_bytes())
        assert len(found) == 2
        assert not path.read_bytes().startswith(left)
        saved = read(path)
        assert [row.iteration for row in saved.trace] == list(range(k))
        assert np.all(np.diff([row.seconds for row in saved.trace]) > 0)
    assert_same(tercet.resume(path, PROBLEM), whole)


def test_a_resumed_run_that_takes_no_step_leaves_the_journal_as_it_was(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    good = path.read_bytes()
    again = tercet.resume(path, PROBLEM)
    assert again.status is tercet.Status.MAX_ITERATIONS
    assert path.read_bytes() == good


def test_the_settings_of_a_journal_are_those_of_the_run_that_wrote_it_last(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    tercet.resume(path, PROBLEM, max_iterations=8)
    assert read(path).settings["max_iterations"] == 8
    assert tercet.resume(path, PROBLEM).nit == 8


def test_a_new_run_does_not_go_on_with_the_journal_of_an_older_one(tmp_path, converted):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, **HOW, checkpoint=path)
    other = tercet.minimize(PROBLEM, -START, max_iterations=3, seed=5, checkpoint=path)
    saved = read(path)
    assert saved.settings["seed"] == 5
    assert np.array_equal(saved.x0, -START)
    last = int(np.flatnonzero(other.trace["accepted"])[-1])  # it is written once a step is accepted
    assert other.nit == 3
    assert [row.f for row in saved.trace] == [row.f for row in other.trace][: last + 1]


def test_a_folder_that_takes_the_place_of_the_file_does_not_cost_the_result(tmp_path, whole):
    path = tmp_path / "run.ckpt"

    def callback(info):
        if info.iteration == 2:
            path.unlink()
            path.mkdir()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not even where warnings are errors
        result = tercet.minimize(
            PROBLEM, START, max_iterations=25, seed=3, method=SMALL, checkpoint=path, callback=callback
        )
    assert result.x.tobytes() == whole.x.tobytes()
    assert "The checkpoint" in result.message
    assert "directory" in result.message


def test_a_folder_that_is_not_there_is_found_out_before_the_run(tmp_path):
    for odd in (tmp_path, tmp_path / ("x" * 300), 5, "/dev/null"):
        with pytest.raises(ValueError, match="checkpoint="):
            tercet.minimize(PROBLEM, checkpoint=odd)
    with pytest.raises(ValueError, match=r"checkpoint=.*folder is not there"):
        tercet.minimize(PROBLEM, checkpoint=tmp_path / "nowhere" / "run.ckpt")
    with pytest.raises(ValueError, match="checkpoint_every=0"):
        tercet.minimize(PROBLEM, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)


SCRIPT = """
import sys, time, numpy as np, tercet
rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 6))
Y = (X @ np.ones(6) + rng.standard_normal(2000) > 0).astype(float)
problem = tercet.LinearModel(X, Y, l2=1e-4)
print("ready", flush=True)
tercet.minimize(problem, 0.9 * rng.standard_normal(6), checkpoint=sys.argv[1], checkpoint_every=1,
                callback=lambda info: time.sleep(0.02))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_process_killed_at_a_random_moment_resumes_from_its_last_whole_checkpoint(tmp_path):
    whole, rng = tercet.minimize(PROBLEM, START), np.random.default_rng(1)
    for trial in range(5):
        path = tmp_path / f"{trial}.ckpt"
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(float(rng.uniform(0.0, 0.5)))
        process.kill()
        process.communicate()
        if path.exists():
            assert_same(tercet.resume(path, PROBLEM), whole)
