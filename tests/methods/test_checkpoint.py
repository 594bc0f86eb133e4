"""A run that was killed and resumed is the run that was not killed, bit for bit; anything else is refused."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

import tercet
from tercet.result import COLUMNS

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2000, 6))
Y = (X @ np.ones(6) + RNG.standard_normal(2000) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, l2=1e-4)
START = 3.0 * RNG.standard_normal(6)

METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "B lags behind": tercet.STM(tercet.Progressive(multiple=4, lag=20)),
    "growing": tercet.STM(tercet.Growing(0.1, 1.5)),
    "adaptive": tercet.STM(tercet.Adaptive()),
    "fixed": tercet.STM(tercet.Fixed(0.2, 0.2, 0.2)),
    "full Krylov": tercet.STM(tercet.Full(), tercet.Krylov()),
    "full Subspace": tercet.STM(tercet.Full(), tercet.Subspace()),
    "sampled Subspace": tercet.STM(tercet.Progressive(multiple=4), tercet.Subspace()),
    "descent": tercet.SCR(subsolver=tercet.GradientDescent()),
    "paper": tercet.STM.paper(),
    "SGD": tercet.SGD(),
}


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
                PROBLEM, START, method=method, max_iterations=25, seed=3, checkpoint=path, callback=killed_after(k)
            )
        if path.exists():  # before the first accepted step there is nothing to resume
            assert_same(tercet.resume(path, PROBLEM), whole)


@pytest.mark.parametrize("name", ["STM", "SCR", "B lags behind", "fixed"])
def test_a_run_whose_hessians_serve_for_several_steps_is_resumed_exactly(name, tmp_path):
    problem = tercet.LinearModel(X, Y, l2=1e-4)
    problem.hessian_cost = 20.0
    path, how = tmp_path / "run.ckpt", {"method": METHODS[name], "max_iterations": 25, "seed": 3}
    whole = tercet.minimize(problem, START, **how)
    for k in range(1, whole.nit):
        path.unlink(missing_ok=True)
        with pytest.raises(KilledError):
            tercet.minimize(problem, START, **how, checkpoint=path, callback=killed_after(k))
        if path.exists():
            assert_same(tercet.resume(path, problem), whole)


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
    with pytest.raises(tercet.CheckpointError, match=r"worth was 1\.5 and is 5\.0"):
        tercet.resume(path, PROBLEM, method=tercet.STM(worth=5.0))


def archive(**members):
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    return buffer.getvalue()


def bomb():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.npy", b"\0" * 50_000_000)
    return buffer.getvalue()


HEADER = {"format": "tercet checkpoint", "version": 2}
HOSTILE = {
    "empty": b"",
    "text": b"iteration 3, all is well",
    "half an archive": archive(header=np.array("{}"))[:40],
    "foreign archive": archive(weights=np.ones(3)),
    "objects": archive(header=np.array({"format": "tercet checkpoint"}, dtype=object)),
    "another version": archive(header=np.array(json.dumps({**HEADER, "version": 7}))),
    "no state": archive(header=np.array(json.dumps(HEADER))),
    "a list": archive(header=np.array("[1, 2]")),
    "numbers for a header": archive(header=np.ones(4)),
    "a zip bomb": bomb(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_checkpoint_is_refused(name, tmp_path):
    path = tmp_path / "run.ckpt"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(tercet.CheckpointError, match="not a usable checkpoint"):
        tercet.resume(path, PROBLEM)


def test_a_checkpoint_cut_anywhere_or_with_a_flipped_byte_is_refused_or_harmless(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, max_iterations=5, checkpoint=path)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    whole = tercet.resume(path, PROBLEM, max_iterations=30)
    for cut in rng.integers(0, len(good), 30):
        path.write_bytes(good[:cut])
        with pytest.raises(tercet.CheckpointError):
            tercet.resume(path, PROBLEM)
    for place in rng.integers(0, len(good), 30):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        with contextlib.suppress(tercet.CheckpointError):  # noticed, by the archive's own checksum
            assert tercet.resume(path, PROBLEM, max_iterations=30).x.tobytes() == whole.x.tobytes()


def test_a_folder_that_is_not_there_is_found_out_before_the_run(tmp_path):
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
tercet.minimize(problem, 3.0 * rng.standard_normal(6), checkpoint=sys.argv[1], callback=lambda info: time.sleep(0.02))
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
